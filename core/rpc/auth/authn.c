/* authn.c: an HTTP request whose authentication is pending. The stream keeps the request. Only the head of the
 * request has been read, and no session or call is made before the request is admitted. */
#include "auth.h"
#include "rpc/request/hop.h"

/* Pages of sign-in that are answered at this moment, in the process: some wait for its file, or for a password to be
 * hashed. */
#define MAX_PAGES MP_LIMIT(sign_in_pages, 256)
#define KEPT_PAGES 8                     /* the last eighth is for clients that hold few */
#define AUTH_MS MP_LIMIT(auth_ms, 10000) /* an issuer that answers later is down */

MP_ACCOUNT(pages_pending, "sign_in_pages", "", "", "requests to the pages of sign-in that wait to be answered")

MP_REFUSED(refused_auth, "auth", MP_FAULT, "requests with missing or invalid credentials")

struct mp_authn {
    mp_link link; /* link in rpc->authns */
    mp_rpc *rpc;
    mp_stream *stream; /* counted reference */
    unsigned share;    /* of the stream's client */
    bool is_page;      /* of sign-in: it is answered by lua/moonpool/sign_in */
    bool is_counted;   /* a page that counts in the account pages_pending, and for the client in `pages` */
    bool has_place;    /* the request counts among those whose authentication is pending */
    bool is_parked;    /* the timer `limit` runs */
    mp_timer limit;
    uint64_t began_us;       /* by mp_monotonic_us; 0: no call is recorded */
    mp_hop *MP_NULLABLE hop; /* owned: another process has authenticated the request; NULL: it came from a client */
    void *MP_NULLABLE user;
};

static mp_holdings pages; /* of the pages that are answered, those of each client, by mp_stream_share */

/* Authentications of one address have a turn in common, in which credentials take turns: else whoever sends much would
 * delay all others at the address. Invented credentials take the turns of that address alone. */
#define TURN_BYTES 32 /* the last ones tell two long tokens apart: they are those of a signature */
static unsigned turn_of(const mp_authn *authn)
{
    mp_str credential = mp_stream_known_header(authn->stream, MP_HEADER_AUTHORIZATION, NULL);
    if (credential.len > TURN_BYTES)
        credential = mp_str_from(credential, credential.len - TURN_BYTES);
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t i = 0; i < credential.len; i++)
        hash = (hash ^ (unsigned char)credential.ptr[i]) * 16777619U;
    return (authn->share & 0xff) | (hash & ~0xffU);
}

/* Frees `authn`, and no longer detects whether its stream closes. */
static void end_authn(mp_authn *authn)
{
    mp_rpc *rpc = authn->rpc;
    mp_link_drop(&authn->link);
    mp_timer_stop(rpc->loop, &authn->limit);
    if (authn->has_place)
        mp_session_table_give_authn(rpc->table, authn->share);
    if (authn->is_counted)
        mp_holdings_give(&pages, &mp_account_pages_pending, authn->share, 1);
    mp_stream_on_gone(authn->stream, NULL, NULL);
    mp_stream_unref(authn->stream);
    if (authn->hop != NULL)
        mp_hop_free(authn->hop);
    free(authn);
}

/* Cancels the auth script's work and frees `authn`. */
static void cancel_authn(mp_authn *authn)
{
    authn->rpc->hooks->on_entry_cancel(authn->rpc->ctx, authn);
    end_authn(authn);
}

static void on_client_left(void *ctx, MP_UNUSED mp_stream *stream)
{
    cancel_authn(ctx);
}

static void refuse_busy(mp_authn *authn, const char *why)
{
    mp_rpc *rpc = authn->rpc;
    mp_stream *stream = mp_stream_ref(authn->stream);
    cancel_authn(authn);
    mp_audit_request(stream, &(mp_decision){.event = "refused", .status = 503, .why = mp_str_of(why)});
    unsigned seconds = rpc->draining ? mp_stopping_s(rpc) : mp_session_table_room_s(rpc->table, MP_CAPACITY_AUTHN);
    mp_refuse_for(rpc, stream, MP_CAUSE_AUTH_WAITING, 503, seconds, why);
    mp_stream_unref(stream);
}

static void on_limit(mp_timer *timer)
{
    mp_stat_add(&mp_stat_refused_auth_pending, 1);
    refuse_busy(mp_container(timer, mp_authn, limit), "authentication timed out: try again later");
}

static mp_authn *new_authn(mp_rpc *rpc, mp_stream *stream, mp_hop *MP_NULLABLE hop, bool is_page)
{
    mp_authn *authn = mp_new(sizeof *authn);
    *authn = (mp_authn){
        .rpc = rpc, .stream = mp_stream_ref(stream), .share = mp_stream_share(stream), .hop = hop, .is_page = is_page};
    if (mp_traces_are_on())
        authn->began_us = mp_loop_now_us(rpc->loop);
    mp_link_put(&rpc->authns, &authn->link);
    mp_stream_on_gone(stream, on_client_left, authn);
    return authn;
}

static void begin_authn(mp_authn *authn)
{
    authn->rpc->hooks->on_entry(authn->rpc->ctx, authn, turn_of(authn));
}

void mp_authn_begin(mp_rpc *rpc, mp_stream *stream)
{
    begin_authn(new_authn(rpc, stream, NULL, false));
}

void mp_authn_begin_hop(mp_rpc *rpc, mp_stream *stream, mp_hop *hop)
{
    begin_authn(new_authn(rpc, stream, hop, false));
}

/* False: it was refused, and is freed. */
static bool take_place(mp_authn *authn)
{
    if (!authn->has_place)
        authn->has_place = mp_session_table_take_authn(authn->rpc->table, authn->share);
    if (authn->has_place)
        return true;
    refuse_busy(authn, "too many requests wait for authentication: try again later");
    return false;
}

void mp_authn_park(mp_authn *authn)
{
    if (authn->is_parked || !take_place(authn))
        return;
    authn->is_parked = true;
    mp_timer_start(authn->rpc->loop, &authn->limit, (uint64_t)AUTH_MS, on_limit);
    mp_stream_detect_close(authn->stream);
}

void mp_authn_admit(mp_authn *authn, mp_principal *principal)
{
    if (mp_ended_has(principal->sign_in)) {
        mp_authn_refuse(authn, &(mp_refusal){.status = 401,
                                             .has_token = true,
                                             .message = MP_STR("the request has no valid credentials: see "
                                                               "WWW-Authenticate"),
                                             .reason = MP_STR("the sign-in has ended")});
        return;
    }
    mp_rpc *rpc = authn->rpc;
    mp_stream *stream = mp_stream_ref(authn->stream);
    mp_hop *hop = authn->hop;
    authn->hop = NULL;
    rpc->authn_began_us = authn->began_us;
    end_authn(authn);
    rpc->hop = hop;
    mp_serve_as(rpc, stream, principal);
    rpc->hop = NULL;
    rpc->authn_began_us = 0;
    if (hop != NULL)
        mp_hop_free(hop);
    mp_stream_unref(stream);
}

/* The answer does not depend on whether the path, the session or the tool exists. */
void mp_authn_refuse(mp_authn *authn, const mp_refusal *refusal)
{
    mp_rpc *rpc = authn->rpc;
    mp_stream *stream = mp_stream_ref(authn->stream);
    end_authn(authn);
    mp_str why = refusal->reason.len > 0 ? refusal->reason : refusal->message;
    mp_audit_request(stream, &(mp_decision){.event = "refused", .status = refusal->status, .why = why});
    mp_log_refused(stream, MP_CAUSE_AUTH, refusal->status, why);
    mp_header headers[2];
    size_t count = 0;
    mp_scoped_buf challenge = {0}, seconds = {0};
    if (refusal->status == 401) {
        mp_stat_add(&mp_stat_refused_auth, 1);
        mp_put_challenge(rpc, stream, &challenge, refusal->has_token ? "invalid_token" : NULL, rpc->auth->scopes);
        headers[count++] = (mp_header){"www-authenticate", mp_buf_str(&challenge)};
    }
    if (refusal->retry > 0) {
        mp_buf_printf(&seconds, "%d", refusal->retry);
        headers[count++] = (mp_header){"retry-after", mp_buf_str(&seconds)};
    }
    rpc->scratch.len = 0;
    mp_put_error(&rpc->scratch, MP_STR_NONE, MP_CODE_INVALID_REQUEST, refusal->message, MP_STR_NONE);
    mp_stream_answer(stream, refusal->status, "application/json", mp_buf_str(&rpc->scratch), headers, count);
    mp_stream_unref(stream);
}

/* -- pages of sign-in ---------------------------------------------------------------------------------------------- */

/* Takes all places that the page needs before anything runs: a page that is refused later could have used up a code. */
static void begin_page(mp_rpc *rpc, mp_stream *stream)
{
    mp_authn *authn = new_authn(rpc, stream, NULL, true);
    authn->is_counted =
        mp_holdings_take(&pages, &mp_account_pages_pending, authn->share, 1, MAX_PAGES, MAX_PAGES / KEPT_PAGES);
    if (!authn->is_counted) {
        mp_stat_add(&mp_stat_refused_auth_pending, 1);
        refuse_busy(authn, "too many people sign in at this moment: try again later");
    } else if (take_place(authn)) {
        begin_authn(authn);
    }
}

bool mp_page_begin(mp_rpc *rpc, mp_stream *stream)
{
    static const char *const begins[] = {"/oauth/", "/.well-known/oauth-authorization-server",
                                         "/.well-known/openid-configuration"};
    mp_str path = mp_stream_request(stream)->path, prefix = mp_str_of(rpc->config->prefix);
    if (prefix.len > 0 && mp_str_starts(path, prefix))
        path = mp_str_from(path, prefix.len);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (!mp_str_starts(path, mp_str_of(begins[i])))
            continue;
        if (!mp_host_is_listed(rpc->config, stream))
            return false;
        begin_page(rpc, stream);
        return true;
    }
    return false;
}

bool mp_authn_is_page(const mp_authn *authn)
{
    return authn->is_page;
}

MP_COUNTER(sign_ins_begun, "sign_ins", "outcome", "signed_in", "people who signed in at the gateway itself")
MP_COUNTER(sign_ins_refused, "sign_ins", "outcome", "refused",
           "passwords, codes, refresh tokens and clients that sign-in refused")
MP_COUNTER(sign_ins_over, "sign_ins", "outcome", "ended", "sign-ins that were ended before their time")

void mp_authn_answer(mp_authn *authn, const mp_page *page)
{
    if (page->event != NULL && strcmp(page->event, "signed out") != 0)
        mp_stat_add(strcmp(page->event, "signed in") == 0 ? &mp_stat_sign_ins_begun : &mp_stat_sign_ins_refused, 1);
    mp_stream *stream = mp_stream_ref(authn->stream);
    end_authn(authn);
    if (page->event != NULL)
        mp_audit_request(stream, &(mp_decision){.event = page->event, .status = page->status, .why = page->reason});
    mp_stream_answer(stream, page->status, page->type, page->body, page->headers, page->count);
    mp_stream_unref(stream);
}

/* -- the end of sign-ins ------------------------------------------------------------------------------------------ */

MP_COUNTER(tool_signed_out, "tool_aborted", "reason", "signed_out", "calls whose sign-in has ended")

static atomic_bool are_posted[MP_RPC_MAX]; /* workers that are about to look which sign-ins have ended */

static void end_here(void *content, mp_loop *MP_NULLABLE loop)
{
    mp_rpc *rpc = *(mp_rpc **)content;
    atomic_store(&are_posted[rpc->index], false);
    if (loop == NULL)
        return;
    mp_readers_sign_out(rpc);
    mp_calls_sign_out(rpc, &mp_stat_tool_signed_out);
}

void mp_sign_in_end(mp_rpc *MP_NULLABLE rpc, uint64_t sign_in, uint32_t seconds)
{
    if (!mp_ended_put(sign_in, seconds) || rpc == NULL)
        return;
    mp_stat_add(&mp_stat_sign_ins_over, 1);
    for (unsigned i = 0; i < mp_session_table_rpcs(rpc->table); i++) {
        mp_rpc *other = mp_session_table_rpc(rpc->table, i);
        if (!atomic_exchange(&are_posted[i], true))
            mp_loop_send(other->loop, end_here, &other, sizeof other, MP_STR_NONE);
    }
}

mp_sign_in_state mp_sign_in_state_of(const mp_rpc *MP_NULLABLE rpc, uint64_t sign_in)
{
    if (mp_ended_has(sign_in))
        return MP_SIGN_IN_ENDED;
    if (rpc == NULL || !mp_ended_are_known())
        return MP_SIGN_IN_UNKNOWN;
    if (!mp_processes_are_several(rpc->processes))
        return MP_SIGN_IN_LIVES;
    mp_sign_ins_doubt(true); /* another process may have ended some, and then itself, before its message came */
    return MP_SIGN_IN_UNKNOWN;
}

/* -- all of them --------------------------------------------------------------------------------------------------- */

void mp_authn_restart_all(mp_rpc *rpc, void *old)
{
    mp_link all = {0};
    mp_link_move(&rpc->authns, &all);
    MP_EACH_TAKEN(mp_authn, authn, &all, link) {
        mp_link_put(&rpc->authns, &authn->link);
        if (authn->is_page) /* may have used a code: ends as it began */
            continue;
        rpc->hooks->on_entry_cancel(old, authn);
        if (rpc->auth->is_asked || authn->hop != NULL)
            rpc->hooks->on_entry(rpc->ctx, authn, turn_of(authn));
        else /* the request has credentials, but the new scripts have no authentication */
            refuse_busy(authn, "the auth scripts were reloaded: try again");
    }
}

void mp_authn_cancel_all(mp_rpc *rpc, const char *why)
{
    while (!mp_link_is_alone(&rpc->authns))
        refuse_busy(mp_container(rpc->authns.next, mp_authn, link), why);
}

mp_str mp_authn_packed(const mp_authn *authn)
{
    return authn->hop == NULL ? MP_STR_NONE : authn->hop->principal;
}

mp_stream *mp_authn_stream(const mp_authn *authn)
{
    return authn->stream;
}

void *MP_NULLABLE mp_authn_user(const mp_authn *authn)
{
    return authn->user;
}

void mp_authn_set_user(mp_authn *authn, void *MP_NULLABLE user)
{
    authn->user = user;
}
