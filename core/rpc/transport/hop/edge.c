/* edge.c: requests that another process serves: of sessions and tasks that are not this process's own, and in an
 * older process those that begin something new. The request is sent on over that process's Unix socket, or to the
 * address of its node, and its answer is passed on as it comes.
 *
 * The callbacks of transfers and of streams only mark a passage; mp_hops_turn() goes on with it. A client that leaves
 * ends the transfer at once, since the body that it sends belongs to the request. */
#include "edge.h"

MP_GAUGE(hops, "hops", "", "", "requests that another process of the gateway serves")
MP_COUNTER(hops_begun, "hops_begun", "", "", "requests sent on to another process of the gateway")
MP_REFUSED(refused_hops, "hops", MP_LIMIT_REACHED,
           "requests for other processes of the gateway, while a worker sends on 4096, or that they did not take")

#define HIGH ((size_t)64 << 10)  /* nothing is read for a client while more bytes wait for it */
#define WHOLE ((size_t)64 << 10) /* a shorter answer, unless it is an event stream, is passed on as a whole */
/* how long a connection is kept for the next request: never as long as its other end keeps it */
#define KEPT_MS UINT64_C(10000)
#define CONNECT_MS 1000

mp_hops *mp_hops_new(mp_rpc *rpc, void (*serve)(mp_rpc *rpc, mp_stream *stream, mp_principal *principal))
{
    uint64_t other_ms = rpc->config->request_ms / 2;
    const mp_client_limits limits = {.requests = MP_HOPS_MOST + MP_ERRANDS_MOST + MP_OLDER_MOST + 1 + MP_NODES_MOST,
                                     .lookups = MP_NODES_MOST,
                                     .held = SIZE_MAX,
                                     .idle_ms = other_ms < KEPT_MS ? other_ms : KEPT_MS,
                                     .is_inner = true};
    mp_hops *hops = mp_new(sizeof *hops);
    hops->rpc = rpc;
    hops->serve = serve;
    hops->client = mp_client_new(rpc->loop, &limits);
    return hops;
}

const mp_seal_key *mp_hops_keys(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    if (!hops->keys[0].is_set)
        mp_hop_keys(rpc->processes, hops->keys);
    return hops->keys;
}

const mp_seal_key *mp_hop_keys_for(mp_rpc *rpc, bool is_node)
{
    return is_node ? MP_NEVER_NULL(mp_processes_node_keys(rpc->processes)) : mp_hops_keys(rpc);
}

/* -- the client's side --------------------------------------------------------------------------------------------- */

static void mark_passage(mp_passage *it)
{
    mp_link_drop(&it->due);
    mp_link_put(&it->rpc->hops->due, &it->due);
}

static void end_transfer(mp_passage *it)
{
    mp_transfer_free(it->transfer);
    it->transfer = NULL;
    mark_passage(it); /* mp_hops_turn() frees the mp_passage */
}

static void on_client_left(void *ctx, MP_UNUSED mp_stream *stream)
{
    end_transfer(ctx);
}

static void on_drained(void *ctx, MP_UNUSED mp_stream *stream)
{
    mark_passage(ctx);
}

/* The stream gets its answer now: nobody waits for its end any more. */
static void leave_stream(mp_passage *it)
{
    mp_stream_on_gone(it->stream, NULL, NULL);
    mp_stream_on_drained(it->stream, NULL, NULL);
    end_transfer(it);
}

/* Without a transfer the stream has been left: whoever serves it now waits for its end. */
static void free_passage(mp_passage *it)
{
    if (it->transfer != NULL) {
        mp_stream_on_gone(it->stream, NULL, NULL);
        mp_stream_on_drained(it->stream, NULL, NULL);
        mp_transfer_free(it->transfer);
    }
    mp_link_drop(&it->link);
    mp_link_drop(&it->due);
    mp_stream_unref(it->stream);
    mp_principal *principal = it->principal;
    if (principal != NULL)
        mp_principal_unref(principal);
    mp_hop_count_forward(it);
    free(it->receiver);
    it->rpc->hops->count--;
    mp_stat_add(&mp_stat_hops, -1);
    free(it);
}

/* The id of the request in the body; empty if it has none. The body exists until the answer begins. */
static mp_str id_of(mp_rpc *rpc, mp_stream *stream)
{
    mp_str body = mp_stream_request(stream)->body;
    rpc->envelope.id = MP_STR_NONE;
    if (body.len == 0)
        return MP_STR_NONE;
    mp_envelope_read(&rpc->envelope, body, MP_MAX_VALUES);
    return rpc->envelope.kind == MP_KIND_REQUEST ? rpc->envelope.id : MP_STR_NONE;
}

static const char given_up[] =
    "too many answers wait for clients to read them: this one was given up, and the call may have run";
static const char unanswered[] = "the process of this session does not answer: try again";

/* The process has ended, or `has_left`: nothing listens at its address. The request is served as one for a number that
 * nobody has. */
static void serve_again(mp_passage *it, const mp_node_record *node, bool has_left)
{
    mp_stream *stream = mp_stream_ref(it->stream);
    mp_rpc *rpc = it->rpc;
    mp_principal *principal = mp_principal_ref(MP_NEVER_NULL(it->principal));
    mp_node_peer *peer = mp_node_peer_of(rpc->hops, it->to, node->uid);
    peer->is_over = true;
    peer->has_left = has_left;
    leave_stream(it);
    rpc->hops->serve(rpc, stream, principal);
    mp_principal_unref(principal);
    mp_stream_unref(stream);
}

/* True if the node, which was leaving, has left: nothing listens at its address any more. One that cannot be reached
 * may still have its sessions. */
static bool is_of_left_node(const mp_passage *it)
{
    const mp_err *why = it->transfer == NULL ? NULL : mp_transfer_failure(it->transfer);
    return it->receiver != NULL && it->receiver->is_leaving && why != NULL &&
           strstr(why->text, "connection refused") != NULL;
}

/* Refuses a request to whose client no bytes were sent yet. */
static void refuse_unanswered(mp_passage *it)
{
    const mp_transfer *transfer = it->transfer;
    mp_rpc *rpc = it->rpc;
    mp_transfer_trouble trouble = transfer == NULL ? MP_TRANSFER_UNSENT : mp_transfer_trouble_of(transfer);
    bool is_crowded = trouble == MP_TRANSFER_CROWDED;
    /* a process runs no request that it does not have as a whole */
    bool is_unsent = trouble == MP_TRANSFER_UNSENT || trouble == MP_TRANSFER_PARTIAL;
    mp_stream *stream = mp_stream_ref(it->stream);
    unsigned seconds = it->receiver == NULL ? 1 : mp_hop_retry_s();
    it->end = is_unsent ? MP_FORWARD_UNREACHED : MP_FORWARD_LOST;
    if (is_unsent && is_of_left_node(it)) {
        serve_again(it, MP_NEVER_NULL(it->receiver), true); /* its sessions are unknown */
        mp_stream_unref(stream);
        return;
    }
    if (is_unsent)
        mp_hop_report_unreached(it);
    leave_stream(it);
    if (is_unsent) {
        mp_hop_refuse_later(rpc, stream, seconds, unanswered);
        mp_stream_unref(stream);
        return;
    }
    mp_stat_add(is_crowded ? &mp_stat_dropped_answers : &mp_stat_refused_hops, 1);
    if (is_crowded)
        mp_refuse(rpc, stream, MP_CAUSE_ANSWERS, 502, MP_CODE_INTERNAL, id_of(rpc, stream), given_up, MP_STR_NONE);
    else
        mp_refuse(rpc, stream, MP_CAUSE_HOP, 502, MP_CODE_INTERNAL, id_of(rpc, stream),
                  "the process of this session does not answer any more; the call may have run", MP_STR_NONE);
    mp_stream_unref(stream);
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */

/* Headers of an answer that the client gets; the others are of the connection between the processes. */
static const char *const passed_on[] = {"allow",          "cache-control", "content-type",
                                        "mcp-session-id", "retry-after",   "www-authenticate"};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

typedef struct {
    mp_header headers[PASSED_ON]; /* their values are the transfer's */
    size_t count, length;         /* length: of the body; SIZE_MAX: not known */
    bool is_events, is_refusal;   /* is_refusal: of the hop, and not of its client's request */
} answer;

static void take_header(answer *it, mp_str name, mp_str value)
{
    if (mp_str_is_nocase(name, "content-type"))
        it->is_events = mp_str_starts(value, MP_STR("text/event-stream"));
    it->is_refusal = it->is_refusal || mp_str_is_nocase(name, MP_HOP_HEADER);
    if (mp_str_is_nocase(name, "content-length") && value.len > 0 && value.len < 16) {
        it->length = 0;
        for (size_t i = 0; i < value.len; i++)
            it->length = it->length * 10 + (size_t)(value.ptr[i] - '0') % 10;
    } else {
        for (size_t i = 0; i < PASSED_ON && it->count < PASSED_ON; i++)
            if (mp_str_is_nocase(name, passed_on[i]))
                it->headers[it->count++] = (mp_header){passed_on[i], value};
    }
}

static answer read_head(const mp_transfer *transfer)
{
    answer it = {.length = SIZE_MAX};
    mp_str rest = mp_transfer_head(transfer), line;
    while ((line = mp_str_cut(&rest, '\n')).len > 0) {
        mp_str name = mp_str_cut(&line, ':');
        take_header(&it, name, mp_str_trim(line));
    }
    return it;
}

/* No process has this number any more that has just been known: the session is unknown, as after a restart. */
static void refuse_misdirected(mp_passage *it)
{
    mp_stream *stream = mp_stream_ref(it->stream);
    mp_rpc *rpc = it->rpc;
    const mp_node_record *node = it->receiver;
    bool is_of_session = it->to != mp_processes_newest(rpc->processes) || it->endpoint == MP_HOP_MESSAGES;
    it->end = MP_FORWARD_OVER;
    if (node != NULL) {
        serve_again(it, node, false);
        mp_stream_unref(stream);
        return;
    }
    leave_stream(it);
    if (is_of_session)
        mp_refuse(rpc, stream, MP_CAUSE_SESSION, 404, MP_CODE_INVALID_REQUEST, id_of(rpc, stream),
                  it->endpoint == MP_HOP_MESSAGES ? "no such session: open the event stream again"
                                                  : "no such session: send \"initialize\" without Mcp-Session-Id",
                  MP_STR_NONE);
    else
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "the newest process does not take the request: try again");
    mp_stream_unref(stream);
}

/* The other process takes no request from this one: as where their seal_keys differ. */
static void refuse_hop(mp_passage *it, int status)
{
    mp_stream *stream = mp_stream_ref(it->stream);
    const mp_node_record *node = it->receiver;
    it->end = MP_FORWARD_UNREACHED;
    leave_stream(it);
    mp_log(MP_ERROR, "node refused a request", mp_log_str("node", mp_str_of(node == NULL ? "" : node->node)),
           mp_log_int("number", it->to), mp_log_int("status", status));
    mp_hop_refuse_later(it->rpc, stream, mp_hop_retry_s(), unanswered);
    mp_stream_unref(stream);
}

/* Passes the whole answer on, which has arrived. */
static void answer_whole(mp_passage *it, const mp_transfer *transfer)
{
    answer whole = read_head(transfer);
    if (whole.is_refusal) {
        refuse_hop(it, mp_transfer_status(transfer));
        return;
    }
    it->end = MP_FORWARD_ANSWERED;
    mp_stream_on_gone(it->stream, NULL, NULL);
    mp_stream_answer(it->stream, mp_transfer_status(transfer), NULL, mp_transfer_body(transfer), whole.headers,
                     whole.count);
    end_transfer(it);
}

/* Begins to pass the answer on piece by piece. False if the answer must be passed on as a whole, when it is complete.
 */
static bool begin_answer(mp_passage *it, const mp_transfer *transfer)
{
    answer first = read_head(transfer);
    if (!first.is_events && (first.length <= WHOLE || mp_transfer_body(transfer).len < WHOLE))
        return false;
    if (first.is_events)
        mp_stream_add_header(it->stream, (mp_header){"x-accel-buffering", MP_STR("no")});
    it->has_begun = true;
    if (mp_stream_open_passage(it->stream, mp_transfer_status(transfer), first.length, first.headers, first.count) != 0)
        leave_stream(it); /* the client of the request has left, or was refused */
    else if (first.is_events)
        mp_stream_forget_request(it->stream); /* the owner of the session has the whole request */
    return true;
}

/* Passes on what has arrived, as long as the client reads it. */
static void pass_on(mp_passage *it)
{
    mp_transfer *transfer;
    while ((transfer = it->transfer) != NULL && mp_transfer_body(transfer).len > 0) {
        if (mp_stream_queued(it->stream) > HIGH) {
            mp_stream_on_drained(it->stream, on_drained, it);
            return;
        }
        if (mp_stream_send(it->stream, mp_transfer_body(transfer)) != 0)
            return; /* the client has left */
        mp_transfer_take(transfer);
    }
    if (transfer == NULL || !mp_transfer_is_over(transfer))
        return;
    bool is_cut = mp_transfer_failure(transfer) != NULL;
    it->end = is_cut ? MP_FORWARD_LOST : MP_FORWARD_ANSWERED;
    if (is_cut && mp_transfer_trouble_of(transfer) == MP_TRANSFER_CROWDED)
        mp_stat_add(&mp_stat_dropped_answers, 1);
    leave_stream(it);
    if (is_cut)
        mp_stream_lose(it->stream, false);
    else
        mp_stream_end(it->stream);
}

static void go_on(mp_passage *it)
{
    mp_transfer *transfer = it->transfer;
    if (transfer == NULL)
        return;
    bool is_over = mp_transfer_is_over(transfer);
    if (it->has_begun) {
        pass_on(it);
    } else if (is_over && mp_transfer_failure(transfer) != NULL) {
        refuse_unanswered(it);
    } else if (mp_transfer_status(transfer) == 421) {
        refuse_misdirected(it);
    } else if (mp_transfer_status(transfer) != 0 && begin_answer(it, transfer)) {
        pass_on(it);
    } else if (is_over) {
        answer_whole(it, transfer);
    }
}

void mp_hops_turn(mp_rpc *rpc)
{
    mp_link *link;
    while ((link = mp_link_take(&rpc->hops->due)) != NULL) {
        mp_passage *it = mp_container(link, mp_passage, due);
        go_on(it);
        if (it->transfer == NULL)
            free_passage(it);
    }
    mp_hops_turn_errands(rpc);
}

bool mp_hops_have_work(const mp_rpc *rpc)
{
    return !mp_link_is_alone(&rpc->hops->due) || rpc->hops->has_news;
}

/* -- sending on ---------------------------------------------------------------------------------------------------- */

/* Called when bytes of the answer have arrived. */
static void on_news(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    mp_passage *it = ctx;
    uint64_t now = mp_monotonic_us();
    it->heard_ms = now / 1000;
    if (it->answered_us == 0)
        it->answered_us = now;
    mark_passage(it);
}

/* Names of headers that cross; also those that begin with "mcp-". */
static const char *const crossing[] = {"accept",      "content-type", "last-event-id", "moonpool-hops",
                                       "traceparent", "tracestate",   "baggage"};

static bool crosses(mp_str name)
{
    bool does = mp_str_starts(name, MP_STR("mcp-"));
    for (size_t i = 0; i < sizeof crossing / sizeof *crossing && !does; i++)
        does = mp_str_is(name, crossing[i]);
    return does;
}

/* True if the header can be sent as one line. HTTP/2 lets clients write bytes that would begin another line, or
 * another request. */
static bool is_one_line(mp_str name, mp_str value)
{
    bool is_fine = true;
    for (size_t i = 0; i < name.len && is_fine; i++)
        is_fine = (name.ptr[i] >= 'a' && name.ptr[i] <= 'z') || (name.ptr[i] >= '0' && name.ptr[i] <= '9') ||
                  name.ptr[i] == '-' || name.ptr[i] == '_' || name.ptr[i] == '.';
    for (size_t i = 0; i < value.len && is_fine; i++)
        is_fine = (unsigned char)value.ptr[i] >= ' ' || value.ptr[i] == '\t';
    return is_fine;
}

/* The lines of the request's headers, each with a zero byte, and an empty line at the end. `from`: this node, if
 * another one is to serve the request. */
static void put_headers(const mp_stream *stream, mp_str sealed, const mp_nodes *MP_NULLABLE from, mp_buf *out)
{
    mp_str name, value;
    for (size_t at = 0; mp_stream_each_header(stream, &at, &name, &value);) {
        if (!crosses(name) || !is_one_line(name, value))
            continue;
        mp_buf_printf(out, "%.*s%s", MP_STR_ARG(name), value.len > 0 ? ": " : ";");
        mp_buf_put(out, value);
        mp_buf_putc(out, '\0');
    }
    if (from != NULL)
        mp_buf_printf(out, MP_EDGE_HEADER ": %s%c", mp_nodes_node(from), 0);
    mp_buf_put(out, MP_STR(MP_HOP_HEADER ": "));
    mp_buf_put(out, sealed);
    mp_buf_putc(out, '\0');
    mp_buf_putc(out, '\0');
}

bool mp_hop_find_way(const mp_rpc *rpc, uint16_t to, const mp_node_record *MP_NULLABLE receiver, mp_hop_way *way,
                     mp_outgoing *outgoing)
{
    const mp_rpc_config *config = rpc->config;
    const char *name = config->nodes_name;
    *way = (mp_hop_way){0};
    if (receiver == NULL) {
        snprintf(way->base, sizeof way->base, "http://localhost");
        outgoing->unix_path = way->path;
        return mp_processes_path(rpc->processes, to, "mcp", way->path);
    }
    outgoing->policy.kind = MP_ADDRESS_POLICY_PRIVATE;
    snprintf(way->base, sizeof way->base, "%s%s", name == NULL ? "http://" : "https://",
             name == NULL ? receiver->address : name);
    if (name != NULL) {
        outgoing->connect_to = receiver->address;
        outgoing->ca = config->nodes_ca;
        outgoing->tls = way->tls = mp_tls_slot_get(MP_NEVER_NULL(mp_processes_tls(rpc->processes)));
    }
    return true;
}

static mp_transfer *MP_NULLABLE start_transfer(mp_passage *it, mp_str session, mp_str headers)
{
    enum { MOST_LINES = 104 }; /* a request has at most 100 headers */
    const char *lines[MOST_LINES + 1], *at = headers.ptr;
    size_t count = 0;
    for (; *at != '\0' && count < MOST_LINES; at += strlen(at) + 1)
        lines[count++] = at;
    lines[count] = NULL;
    const mp_request *request = mp_stream_request(it->stream);
    mp_buf url = {0};
    mp_hop_way way;
    mp_outgoing outgoing = {0};
    if (!mp_hop_find_way(it->rpc, it->to, it->receiver, &way, &outgoing))
        return NULL;
    mp_buf_printf(&url, "%s%s", way.base, mp_hop_paths[it->endpoint]);
    if (it->endpoint == MP_HOP_MESSAGES)
        mp_buf_printf(&url, "?session_id=%.*s", MP_STR_ARG(session));
    mp_buf_putc(&url, '\0');
    char method[8] = "";
    memcpy(method, request->method.ptr, request->method.len < sizeof method ? request->method.len : sizeof method - 1);
    bool is_post = mp_str_is(request->method, "POST");
    mp_err err = {0};
    outgoing.method = method;
    outgoing.url = url.ptr;
    outgoing.headers = lines;
    if (is_post)
        outgoing.body = (mp_str){request->body.len > 0 ? request->body.ptr : "", request->body.len};
    outgoing.most = SIZE_MAX;
    outgoing.account = &mp_account_queue_bytes;
    outgoing.account_most = (int64_t)(it->rpc->config->answers + it->rpc->config->answers / 2);
    outgoing.is_stream = true;
    outgoing.connect_ms = CONNECT_MS;
    outgoing.ready = on_news;
    outgoing.ctx = it;
    mp_transfer *transfer = mp_transfer_start(it->rpc->hops->client, &outgoing, &err);
    mp_tls_unref(way.tls);
    if (transfer == NULL)
        mp_log(MP_ERROR, "request not sent on", mp_log_str("why", mp_str_of(err.text)));
    mp_buf_clear(&url);
    return transfer;
}

/* Seals the facts of the request for the other process. False if they are too large, or OpenSSL fails. */
static bool seal_hop(mp_rpc *rpc, mp_stream *stream, mp_hop *hop, mp_buf *sealed)
{
    int tokens;
    mp_scoped_buf principal = {0}, base = {0};
    mp_str token = mp_stream_known_header(stream, MP_HEADER_AUTHORIZATION, &tokens);
    bool is_node = *hop->uid != '\0';
    hop->sent_ms = mp_hop_now_ms(is_node ? mp_processes_nodes(rpc->processes) : NULL);
    hop->mark = mp_stream_mark(stream);
    hop->method = mp_stream_request(stream)->method;
    hop->body = mp_stream_request(stream)->body.len;
    hop->address = mp_stream_address(stream);
    mp_put_base(rpc, stream, &base);
    hop->base = mp_buf_str(&base);
    bool crosses_too = !is_node || rpc->config->keeps_tokens; /* to other nodes only where upstreams want it */
    if (crosses_too)
        hop->authorization = rpc->hop != NULL ? rpc->hop->authorization : tokens == 1 ? token : MP_STR_NONE;
    rpc->hooks->put_principal(rpc->ctx, rpc->principal, &principal);
    hop->principal = mp_buf_str(&principal);
    bool is_done = principal.len > 0 && mp_hop_write(mp_hop_keys_for(rpc, is_node), hop, sealed) &&
                   sealed->len <= MP_HOP_MOST_HEADER;
    return is_done;
}

/* `receiver`: the record of the process, if it is of another node. */
static void send_on(mp_rpc *rpc, mp_stream *stream, mp_hop *hop, const mp_node_record *MP_NULLABLE receiver)
{
    mp_scoped_buf sealed = {0}, headers = {0};
    mp_hops *hops = rpc->hops;
    mp_passage *it = mp_new(sizeof *it);
    *it = (mp_passage){.rpc = rpc,
                       .stream = mp_stream_ref(stream),
                       .endpoint = hop->endpoint,
                       .to = hop->to,
                       .heard_ms = mp_monotonic_ms(),
                       .began_us = mp_monotonic_us(),
                       .is_get = mp_str_is(mp_stream_request(stream)->method, "GET")};
    if (receiver != NULL) {
        memcpy(hop->uid, receiver->uid, sizeof hop->uid);
        it->receiver = mp_new(sizeof *it->receiver);
        memcpy(it->receiver, receiver, sizeof *receiver);
        it->principal = mp_principal_ref(rpc->principal);
    }
    mp_link_put(&hops->all, &it->link);
    hops->count++;
    mp_hops_watch(rpc);
    mp_stat_add(&mp_stat_hops, 1);
    mp_stat_add(&mp_stat_hops_begun, 1);
    if (!seal_hop(rpc, stream, hop, &sealed)) {
        mp_log(MP_ERROR, "request not sent on",
               mp_log_str("why", MP_STR("the facts of its principal for the other process are more than 120 KiB")));
    } else {
        const mp_nodes *nodes = receiver == NULL ? NULL : mp_processes_nodes(rpc->processes);
        put_headers(stream, mp_buf_str(&sealed), nodes, &headers);
        it->transfer = start_transfer(it, hop->session, mp_buf_str(&headers));
    }
    if (it->transfer == NULL) {
        refuse_unanswered(it);
        return;
    }
    mp_stream_on_gone(stream, on_client_left, it);
    mp_stream_detect_close(stream);
}

bool mp_hop_send_on(mp_rpc *rpc, mp_stream *stream, mp_hop_endpoint endpoint)
{
    const mp_hop *from = rpc->hop;
    mp_hop hop = {.endpoint = endpoint, .hops = from == NULL ? 1 : from->hops + 1};
    mp_node_record record;
    if (from != NULL && from->to != mp_processes_number(rpc->processes)) {
        hop.to = from->to; /* another node has sent it to an older process of this one */
        hop.session = from->session;
    } else {
        hop.to = mp_hop_find_process(rpc, stream, endpoint, &hop.session);
    }
    rpc->envelope.id = MP_STR_NONE;
    if (hop.to == 0)
        return false;
    bool is_node = mp_processes_node_keys(rpc->processes) != NULL && !mp_processes_has(rpc->processes, hop.to);
    mp_node_way way = is_node ? mp_hop_choose_node(rpc, stream, hop.to, &record) : MP_NODE_SEND;
    if (way != MP_NODE_SEND)
        return way == MP_NODE_WAITS;
    if (hop.hops > MP_HOP_MOST) {
        mp_stat_add(&mp_stat_refused_hops, 1);
        mp_refuse(rpc, stream, MP_CAUSE_HOP, 421, MP_CODE_INTERNAL, MP_STR_NONE,
                  "the processes of the gateway send this request to each other", MP_STR_NONE);
    } else if (rpc->hops->count >= MP_HOPS_MOST) {
        mp_stat_add(&mp_stat_refused_hops, 1);
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "too many requests for other processes: try again later");
    } else if (mp_stream_is_crowded(stream) &&
               id_of(rpc, stream).len > 0) { /* messages that are no requests may free room */
        mp_stat_add(&mp_stat_refused_answers, 1);
        mp_refuse_for(rpc, stream, MP_CAUSE_ANSWERS, 503, mp_stream_room_s(stream), mp_answers_are_full);
    } else if (!is_node && mp_hops_are_silent(rpc, hop.to)) {
        mp_stat_add(&mp_stat_refused_hops, 1);
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, unanswered);
    } else if (!mp_stream_has_client(stream)) {
        mp_stream_detect_close(stream); /* ends the request */
    } else {
        send_on(rpc, stream, &hop, is_node ? &record : NULL);
    }
    return true;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

void mp_hops_drain(mp_rpc *rpc, bool is_leave)
{
    mp_hops *hops = rpc->hops;
    MP_EACH(mp_passage, it, &hops->all, link) {
        if ((it->endpoint != MP_HOP_SSE || is_leave) && !(it->has_begun && it->is_get))
            continue;
        leave_stream(it);
        mp_stream_end(it->stream);
    }
}

void mp_passage_end(mp_passage *it)
{
    if (!it->has_begun) {
        refuse_unanswered(it);
    } else {
        leave_stream(it);
        mp_stream_lose(it->stream, false);
    }
}

void mp_hops_abort(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    MP_EACH(mp_passage, passage, &hops->all, link)
        mp_passage_end(passage);
    mp_hops_end_waiting(rpc, true);
    mp_hops_end_switches(rpc, true);
}

void mp_hops_free(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    while (!mp_link_is_alone(&hops->all))
        free_passage(mp_container(hops->all.next, mp_passage, link));
    mp_hops_end_waiting(rpc, false);
    mp_hops_end_switches(rpc, false);
    mp_hops_end_errands(rpc);
    free(hops->node_peers);
    mp_client_free(hops->client);
    explicit_bzero(hops->keys, sizeof hops->keys);
    free(hops);
}
