/* call.c: a request being answered. It ends once: by an answer, by an error, or by being called off; what has ended is
 * freed at the end of the turn, so nobody's frame loses it. */
#include "house.h"
#include "json/json.h"
#include <stdlib.h>

static char *keep(char *at, mp_str *s)
{
    if (s->len > 0)
        memcpy(at, s->ptr, s->len);
    s->ptr = at;
    return at + s->len;
}

static void on_gone(void *ctx, mp_stream *stream)
{
    mp_call *call = ctx;
    (void)stream;
    if (call->era != NULL && call->era->hang_up_cancels) {
        mp_call_cancel(call, "client hung up", MP_STAT_TOOL_GONE, MP_CANCEL_QUIET);
        return;
    }
    mp_stream_unref(call->stream); /* S-31: the work goes on, its answer waits in the store or has nowhere to go */
    call->stream = NULL;
}

/* The call of `session` with this id, for the time its lock is held. */
static mp_call *call_with(mp_session *session, mp_str id)
{
    for (mp_link *link = session->calls_of.next; link != &session->calls_of; link = link->next) {
        mp_call *call = mp_container(link, mp_call, in_session);
        if (mp_json_id_eq(call->id, id))
            return call;
    }
    return NULL;
}

/* Shows the call to its session: false when the session was closed meanwhile, or, over HTTP+SSE, when its id is still in
 * use: answers are told apart by nothing else there (B-27). */
static bool join_session(mp_call *call, mp_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool joined = !session->closed && !(session->is_sse && call_with(session, call->id) != NULL);
    if (joined) {
        mp_link_put(&session->calls_of, &call->in_session);
        session->rpcs |= UINT64_C(1) << call->rpc->index;
        atomic_fetch_add(&session->calls, 1);
    }
    pthread_mutex_unlock(&session->lock);
    return joined;
}

/* The session forgets the call's id. Before the answer is out: its client may use the id again the moment it reads that. */
static void free_id(mp_call *call)
{
    if (call->session == NULL || call->id_is_free)
        return;
    pthread_mutex_lock(&call->session->lock);
    mp_link_drop(&call->in_session);
    pthread_mutex_unlock(&call->session->lock);
    call->id_is_free = true;
}

static void leave_session(mp_call *call)
{
    mp_session *session = call->session;
    if (session == NULL || call->is_job)
        return;
    free_id(call);
    atomic_fetch_sub(&session->calls, 1);
    atomic_store_explicit(&session->used_at, mp_loop_now(call->rpc->loop), memory_order_relaxed);
}

#define NO_LIMIT UINT64_MAX

/* A call from the envelope just read, in no session yet and without a stream. */
static mp_call *call_new(mp_rpc *rpc, const mp_era *era)
{
    const mp_envelope *envelope = &rpc->envelope;
    mp_call *call = mp_new(sizeof *call + envelope->id.len + envelope->method.len + envelope->params.len +
                           envelope->progress_token.len);
    call->rpc = rpc;
    call->era = era;
    call->serial = ++rpc->last_serial;
    call->limit_ms = rpc->config->call_ms;
    call->principal = mp_principal_ref(rpc->principal);
    mp_link_init(&call->in_session);
    mp_link_init(&call->asks);
    call->id = envelope->id;
    call->method = envelope->method;
    call->params = envelope->params;
    call->progress_token = envelope->progress_token;
    keep(keep(keep(keep(call->bytes, &call->id), &call->method), &call->params), &call->progress_token);
    return call;
}

/* It was never begun. */
static void drop(mp_call *call)
{
    mp_principal_unref(call->principal);
    free(call);
}

static void begin(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    mp_link_put(&rpc->calls, &call->link);
    rpc->count++;
    mp_stat_add(MP_STAT_CALLS, 1);
    mp_table_count_call(rpc->table, 1);
    rpc->hooks->on_call(rpc->ctx, call);
}

mp_call *mp_call_start(mp_rpc *rpc, mp_stream *stream, mp_session *session, const mp_era *era)
{
    mp_call *call = call_new(rpc, era);
    if (session != NULL && !join_session(call, session)) {
        drop(call);
        return NULL;
    }
    if (session != NULL)
        call->session = mp_session_ref(session);
    if (stream != NULL) {
        call->stream = mp_stream_ref(stream);
        mp_stream_on_gone(stream, on_gone, call);
    }
    begin(call);
    return call;
}

/* The calls of a batch share a stream, so none is told when its reader leaves: no hang-up cancels in that revision. */
bool mp_call_start_in(mp_rpc *rpc, mp_batch *batch, mp_session *session)
{
    mp_call *call = call_new(rpc, mp_session_era(session));
    if (!join_session(call, session)) {
        drop(call);
        return false;
    }
    call->session = mp_session_ref(session);
    call->batch = batch;
    call->stream = mp_batch_enter(batch);
    begin(call);
    return true;
}

/* The call is over. What the client gets has been sent. */
static void finish(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    call->ended = true;
    mp_asks_forget(call);
    mp_call_unlisten(call);
    mp_timer_stop(rpc->loop, &call->limit);
    mp_call_end_feed(call);
    leave_session(call);
    if (call->stream != NULL) {
        mp_stream_on_gone(call->stream, NULL, NULL);
        mp_stream_unref(call->stream);
        call->stream = NULL;
    }
    if (call->batch != NULL)
        mp_batch_leave(call->batch);
    mp_principal_unref(call->principal);
    call->principal = NULL;
    mp_link_drop(&call->link);
    mp_link_put(&rpc->ended, &call->link);
    if (call->is_job) {
        rpc->job_count--;
        mp_table_give_place(rpc->table, MP_PLACE_JOB);
        return;
    }
    rpc->count--;
    mp_table_count_call(rpc->table, -1);
}

void mp_calls_sweep(mp_rpc *rpc)
{
    for (mp_link *link; (link = mp_link_take(&rpc->ended)) != NULL;) {
        mp_call *call = mp_container(link, mp_call, link);
        if (call->session != NULL)
            mp_session_unref(call->session);
        free(call);
    }
}

/* An answer that nothing came before is JSON, but an event stream for the client of a session that names those first. */
static void prefer_events(mp_call *call)
{
    mp_stream *stream = call->stream;
    if (call->session == NULL || call->opens_session || mp_stream_is_events(stream) || !mp_prefers_events(stream))
        return;
    if (!mp_call_has_feed(call))
        mp_stream_open_events(stream, NULL, 0);
}

/* Sends the last message of a call, `json`, as its transport and what went before ask for. */
static void send_last(mp_call *call, int status, mp_str json)
{
    mp_rpc *rpc = call->rpc;
    mp_stream *stream = call->stream;
    if (call->is_job)
        return;
    free_id(call);
    if (stream != NULL)
        mp_stream_on_gone(stream, NULL, NULL); /* whatever happens to it now, the call has ended */
    if (stream != NULL && call->batch == NULL && call->status == 0)
        prefer_events(call);
    if (call->batch != NULL) {
        mp_batch_add(call->batch, json);
    } else if (call->feed != NULL) {
        mp_call_put(call, json, true);
    } else if (rpc->stdio.pipe != NULL) {
        mp_stdio_answer(rpc, json);
    } else if (call->session != NULL && call->session->is_sse) {
        mp_session_send(rpc, call->session, json);
    } else if (stream == NULL || !mp_stream_is_open(stream)) {
        mp_stat_add(MP_STAT_DROPPED_GONE, 1);
    } else if (mp_stream_is_events(stream)) {
        mp_buf event = {0};
        mp_put_event(&event, json);
        if (mp_stream_send(stream, mp_buf_str(&event)) == 0)
            mp_stream_end(stream);
        mp_buf_clear(&event);
    } else {
        mp_header header = {"mcp-session-id", MP_STR_NONE};
        if (call->opens_session)
            header.value = call->session->node.key;
        mp_stream_answer(stream, call->status == 0 ? status : call->status, "application/json", json, &header,
                         call->opens_session ? 1 : 0);
    }
}

void mp_call_answer(mp_call *call, mp_str result)
{
    if (call->ended)
        return;
    mp_buf *out = &call->rpc->scratch;
    out->len = 0;
    mp_buf_room(out, result.len + call->id.len + 64);
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(out, call->id);
    mp_buf_put(out, MP_STR(",\"result\":"));
    mp_buf_put(out, result);
    mp_buf_putc(out, '}');
    send_last(call, 200, mp_buf_str(out));
    finish(call);
}

void mp_call_fail(mp_call *call, int code, mp_str message, mp_str data)
{
    if (call->ended)
        return;
    mp_buf *out = &call->rpc->scratch;
    out->len = 0;
    mp_put_error(out, call->id, code, message, data);
    send_last(call, mp_era_status(call->era, code), mp_buf_str(out));
    finish(call);
}

void mp_call_cancel(mp_call *call, const char *why, mp_stat counter, mp_cancel_manner manner)
{
    if (call->ended)
        return;
    mp_rpc *rpc = call->rpc;
    mp_stat_add(counter, 1);
    mp_log(MP_INFO, call->is_job ? "job cancelled" : "call cancelled", mp_log_str("method", call->method),
           mp_log_str("why", mp_str_of(why)));
    rpc->hooks->on_cancel(rpc->ctx, call, why);
    mp_asks_call_off(call);
    if (manner == MP_CANCEL_TELL) {
        rpc->scratch.len = 0;
        mp_put_error(&rpc->scratch, call->id, -32603, mp_str_of(why), MP_STR_NONE);
        send_last(call, 200, mp_buf_str(&rpc->scratch));
    } else if (call->batch == NULL && call->stream != NULL && mp_stream_is_open(call->stream)) {
        /* Y-1 allows no response; HTTP still owes an answer: an event stream without events */
        mp_stream_on_gone(call->stream, NULL, NULL);
        if (mp_stream_is_events(call->stream) || mp_stream_open_events(call->stream, NULL, 0) == 0)
            mp_stream_end(call->stream);
    }
    finish(call);
}

int mp_call_send(mp_call *call, mp_str json)
{
    if (call->ended || call->is_job)
        return -1;
    if (call->rpc->stdio.pipe != NULL)
        return mp_stdio_send(call->rpc, json);
    if (call->session != NULL && call->session->is_sse) {
        mp_session_send(call->rpc, call->session, json);
        return 0;
    }
    if (mp_call_has_feed(call))
        return mp_call_put(call, json, false);
    if (call->stream == NULL) {
        mp_stat_add(MP_STAT_DROPPED_GONE, 1);
        return -1;
    }
    int result = -1;
    mp_buf event = {0};
    mp_put_event(&event, json);
    /* the reader may turn out to be gone below, which ends the call under us: hold what we use */
    mp_stream *stream = mp_stream_ref(call->stream);
    if (mp_stream_is_events(stream) || mp_stream_open_events(stream, NULL, 0) == 0)
        result = mp_stream_send(stream, mp_buf_str(&event));
    mp_stream_unref(stream);
    mp_buf_clear(&event);
    return result;
}

void mp_call_abort(mp_call *call, const char *why, mp_stat counter)
{
    mp_call_cancel(call, why, counter, MP_CANCEL_TELL);
}

static void on_limit(mp_timer *timer)
{
    mp_call_cancel(mp_container(timer, mp_call, limit), "the call took too long", MP_STAT_TOOL_TIME, MP_CANCEL_TELL);
}

void mp_call_park(mp_call *call)
{
    if (call->ended)
        return;
    if (call->limit.slot == 0 && call->limit_ms != NO_LIMIT && call->listening == NULL)
        mp_timer_start(call->rpc->loop, &call->limit, call->limit_ms, on_limit);
    if (call->stream == NULL)
        return;
    mp_stream_watch(call->stream);
    mp_call_prime_soon(call);
}

void mp_call_within(mp_call *call, uint64_t ms)
{
    if (ms < call->limit_ms)
        call->limit_ms = ms;
    if (call->limit.slot != 0)
        mp_timer_start(call->rpc->loop, &call->limit, call->limit_ms, on_limit);
}

void mp_call_unhurried(mp_call *call)
{
    call->limit_ms = NO_LIMIT;
    mp_timer_stop(call->rpc->loop, &call->limit);
}

int mp_call_open_session(mp_call *call, const mp_era *era, mp_str client, mp_str capabilities)
{
    if (call->ended)
        return -1;
    if (call->session == NULL) {
        mp_session *session = mp_session_new(call->rpc, false, call->principal,
                                             call->stream == NULL ? MP_STR("") : mp_stream_peer(call->stream));
        if (session == NULL) {
            mp_stream *stream = mp_stream_ref(call->stream);
            mp_stream_on_gone(stream, NULL, NULL);
            mp_refuse_with(call->rpc, stream, 429, (mp_header){"retry-after", MP_STR("5")},
                           "too many sessions: try again later");
            mp_stream_unref(stream);
            finish(call);
            return -1;
        }
        call->session = session;
        call->opens_session = true;
        join_session(call, session);
    }
    if (!mp_session_set_card(call->session, era, client, capabilities)) {
        mp_call_fail(call, -32600, MP_STR("this session is initialized already"), MP_STR_NONE);
        return -1;
    }
    call->era = era;
    return 0;
}

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    uint64_t serial;
} cancelling;

static void deliver_cancel(mp_message *message, mp_loop *loop)
{
    cancelling *news = mp_container(message, cancelling, super);
    for (mp_link *link = news->rpc->calls.next; loop != NULL && link != &news->rpc->calls; link = link->next) {
        mp_call *call = mp_container(link, mp_call, link);
        if (call->serial == news->serial) {
            mp_call_cancel(call, "cancelled by the client", MP_STAT_TOOL_CANCELLED, MP_CANCEL_QUIET);
            break;
        }
    }
    free(news);
}

void mp_call_cancel_by_id(mp_session *session, mp_str id)
{
    pthread_mutex_lock(&session->lock);
    mp_call *call = call_with(session, id);
    cancelling *news = NULL;
    if (call != NULL && !mp_str_is(call->method, "initialize")) { /* Y-1: never initialize */
        news = mp_new(sizeof *news);
        *news = (cancelling){{.deliver = deliver_cancel}, call->rpc, call->serial};
    }
    pthread_mutex_unlock(&session->lock);
    if (news != NULL)
        mp_loop_post(news->rpc->loop, &news->super);
}

mp_str mp_call_id(const mp_call *call)
{
    return call->id;
}

mp_call *mp_call_find(mp_rpc *rpc, mp_str id)
{
    for (mp_link *link = rpc->calls.next; link != &rpc->calls; link = link->next)
        if (mp_json_id_eq(mp_container(link, mp_call, link)->id, id))
            return mp_container(link, mp_call, link);
    return NULL;
}

mp_str mp_call_method(const mp_call *call)
{
    return call->method;
}
mp_str mp_call_params(const mp_call *call)
{
    return call->params;
}
/* A call that came right behind `initialize`, before that was answered, is of the revision that it agreed on. */
const mp_era *mp_call_era(const mp_call *call)
{
    return call->era == NULL && call->session != NULL ? mp_session_era(call->session) : call->era;
}
mp_session *mp_call_session(const mp_call *call)
{
    return call->session;
}
mp_str mp_call_progress_token(const mp_call *call)
{
    return call->progress_token;
}
mp_principal *mp_call_principal(const mp_call *call)
{
    return call->principal;
}
void *mp_call_user(const mp_call *call)
{
    return call->user;
}
void mp_call_set_user(mp_call *call, void *user)
{
    call->user = user;
}

mp_str mp_call_header(const mp_call *call, const char *name, int *count)
{
    *count = call->rpc->stdio.pipe != NULL ? -1 : 0;
    return call->stream == NULL ? MP_STR_NONE : mp_stream_header(call->stream, name, count);
}

mp_str mp_call_address(const mp_call *call)
{
    mp_str peer = call->stream == NULL ? MP_STR_NONE : mp_stream_peer(call->stream);
    if (peer.len > 0 || call->session == NULL)
        return peer;
    return mp_str_of(call->session->peer); /* HTTP+SSE, or its own connection is gone */
}
