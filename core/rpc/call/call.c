/* call.c: a request in flight. It ends once: by an answer, by an error, or because it is cancelled. An ended call is
 * freed at the end of the turn, because functions further up the C stack may still read it. */
#include "state.h"

MP_COUNTER(tool_cancelled, "tool_aborted", "reason", "cancelled", "calls cancelled by their client")
MP_COUNTER(tool_gone, "tool_aborted", "reason", "gone", "calls cancelled because their client disconnected")
MP_COUNTER(tool_time, "tool_aborted", "reason", "time", "calls over limits.call.time")

static char *copy_behind(char *at, mp_str *s)
{
    if (s->len > 0)
        memcpy(at, s->ptr, s->len);
    s->ptr = at;
    return at + s->len;
}

static void on_client_left(void *ctx, mp_stream *stream)
{
    mp_call *call = ctx;
    /* without a session there is nothing to resume the answer by; before the answer to `initialize` nobody knows its
     * session */
    if (call->session == NULL || call->opens_session || (call->era != NULL && call->era->hang_up_cancels)) {
        mp_call_cancel(call, "the client left", &mp_stat_tool_gone, MP_CANCEL_QUIET);
        return;
    }
    if (mp_stream_known_mark(stream) != 0)
        mp_call_mark(call); /* marks the log lines while the call runs */
    mp_call_keep_token(call, stream);
    mp_call_leave_stream(
        call); /* the handler continues (S-31): its answer is kept for a client that resumes, or is dropped */
}

/* Finds the call of `session` with this id. The caller has the session's lock. */
static mp_call *MP_NULLABLE find_call(mp_session *session, mp_str id)
{
    MP_EACH(mp_call, call, &session->calls_of, in_session) {
        if (mp_json_id_eq(call->id, id))
            return call;
    }
    return NULL;
}

bool mp_call_join(mp_call *call, mp_session *session)
{
    MP_LOCKED(&session->lock);
    bool joined = !session->closed && !(session->is_sse && find_call(session, call->id) != NULL);
    if (joined) {
        mp_link_put(&session->calls_of, &call->in_session);
        session->rpcs |= UINT64_C(1) << call->rpc->index;
        atomic_fetch_add(&session->calls, 1);
    }
    return joined;
}

/* Removes the call from its session. Called before the answer is sent: a client that has read the answer may use the
 * id again. */
static void free_id(mp_call *call)
{
    mp_session *session = call->session;
    if (session == NULL || call->id_is_free)
        return;
    pthread_mutex_lock(&session->lock);
    mp_link_drop(&call->in_session);
    pthread_mutex_unlock(&session->lock);
    call->id_is_free = true;
}

static void leave_session(mp_call *call)
{
    mp_session *session = call->session;
    if (session == NULL || call->is_detached)
        return;
    free_id(call);
    atomic_fetch_sub(&session->calls, 1);
    atomic_store_explicit(&session->used_at, mp_loop_now(call->rpc->loop), memory_order_relaxed);
}

#define NO_LIMIT_MS UINT64_MAX

/* Calls that a worker keeps to use their memory again: none where a sanitizer is to notice that a freed one is used. */
#ifdef __SANITIZE_ADDRESS__
#define MAX_SPARE_CALLS 0
#else
#define MAX_SPARE_CALLS 256
#endif

/* Params of a call that listens are freed when it begins to listen, if they are longer than this: its request then
 * counts no bytes. The log line of such a call does not name the client, whose name is in the params. */
#define MAX_LASTING_PARAMS 4096

static bool may_last(const mp_envelope *envelope)
{
    return mp_str_is(envelope->method, "subscriptions/listen");
}

/* Memory for a call with `size` bytes behind it: from the free list if they fit its room. The head alone is cleared. */
static mp_call *take_memory(mp_rpc *rpc, size_t size)
{
    /* a call that may last for hours takes no more than it needs */
    bool is_pooled = size <= MP_CALL_ROOM && !may_last(&rpc->envelope);
    mp_call *call = is_pooled ? rpc->spare_calls : NULL;
    if (call != NULL) {
        rpc->spare_calls = call->user;
        rpc->spare_call_count--;
    } else {
        call = mp_resize(NULL, sizeof *call + (is_pooled ? MP_CALL_ROOM : size));
    }
    memset(call, 0, sizeof *call);
    call->is_pooled = is_pooled;
    return call;
}

void mp_call_forget_params(mp_call *call)
{
    char *params = call->own_params;
    if (params == NULL)
        return;
    free(params);
    call->own_params = NULL;
    call->params = MP_STR_NONE;
}

static void free_memory(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    mp_call_forget_params(call);
    if (!call->is_pooled || rpc->spare_call_count == MAX_SPARE_CALLS) {
        free(call);
        return;
    }
    call->user = rpc->spare_calls;
    rpc->spare_calls = call;
    rpc->spare_call_count++;
}

void mp_calls_free_spare(mp_rpc *rpc)
{
    for (mp_call *call; (call = rpc->spare_calls) != NULL;) {
        rpc->spare_calls = call->user;
        free(call);
    }
    rpc->spare_call_count = 0;
}

/* The call has a copy of the params. Where a span of the message's own, which begin at `was`, is in that copy. */
static mp_str moved(const mp_call *call, const char *was, mp_str span)
{
    return (mp_str){call->params.ptr + (span.ptr - was), span.len};
}

/* Copies the arguments, whose spans are inside the params of the message. */
static void copy_flat(mp_call *call, const mp_envelope *envelope)
{
    mp_flat *to = (mp_flat *)(void *)call->bytes;
    const char *was = envelope->params.ptr;
    call->flat = to;
    call->flat_count = envelope->flat_count;
    call->has_arguments = envelope->has_arguments;
    if (envelope->client.ptr != NULL)
        call->said_client = moved(call, was, envelope->client);
    if (envelope->trace.ptr != NULL)
        call->said_trace = moved(call, was, envelope->trace);
    for (size_t i = 0; i < envelope->flat_count; i++) {
        const mp_flat *from = &envelope->flat[i];
        to[i].name = moved(call, was, from->name);
        to[i].value = moved(call, was, from->value);
        to[i].type = from->type;
    }
}

/* True if the name is a span of the params. Else its sender wrote it with escapes. */
static bool is_name_in_params(const mp_envelope *envelope)
{
    uintptr_t name = (uintptr_t)envelope->name.ptr, params = (uintptr_t)envelope->params.ptr;
    return name >= params && name < params + envelope->params.len;
}

/* Copies the name, which has room at `at` unless it is a span of the params. */
static void copy_name(mp_call *call, const mp_envelope *envelope, char *at)
{
    call->name = envelope->name;
    if (is_name_in_params(envelope))
        call->name.ptr = call->params.ptr + (envelope->name.ptr - envelope->params.ptr);
    else
        copy_behind(at, &call->name);
}

/* Makes a call from the envelope that was just read, without a session and a stream. */
static mp_call *call_new(mp_rpc *rpc, const mp_transport *transport, const mp_era *MP_NULLABLE era)
{
    const mp_envelope *envelope = &rpc->envelope;
    size_t flat_bytes = envelope->flat_count * sizeof *envelope->flat;
    size_t name_bytes = !envelope->has_name || is_name_in_params(envelope) ? 0 : envelope->name.len;
    bool is_apart = envelope->params.len > MAX_LASTING_PARAMS && may_last(envelope);
    mp_call *call =
        take_memory(rpc, flat_bytes + envelope->id.len + envelope->method.len + (is_apart ? 0 : envelope->params.len) +
                             envelope->progress_token.len + name_bytes);
    call->rpc = rpc;
    call->transport = transport;
    call->era = era;
    call->serial = ++rpc->last_serial;
    call->limit_ms = rpc->config->call_ms;
    call->bytes_in = envelope->size;
    call->began = mp_loop_now_us(rpc->loop);
    call->weight = envelope->weight;
    call->principal = mp_principal_ref(rpc->principal);
    call->share = rpc->share;
    call->console = rpc->console;
    call->is_hidden = rpc->is_hidden;
    call->id = envelope->id;
    call->method = envelope->method;
    call->params = envelope->params;
    call->progress_token = envelope->progress_token;
    char *at = call->bytes + flat_bytes;
    if (is_apart) {
        char *own = mp_dup(envelope->params);
        call->params.ptr = own;
        call->own_params = own;
    } else {
        at = copy_behind(at, &call->params);
    }
    at = copy_behind(copy_behind(copy_behind(at, &call->id), &call->method), &call->progress_token);
    if (envelope->has_name)
        copy_name(call, envelope, at);
    if (envelope->is_flat)
        copy_flat(call, envelope);
    return call;
}

/* Frees a call that was never started. */
static void discard_call(mp_call *call)
{
    mp_session_table_give_call(call->rpc->table, call->share, call->bytes_in);
    mp_principal_unref(call->principal);
    free_memory(call);
}

static void begin_call(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    mp_link_put(&rpc->calls, &call->link);
    rpc->count++;
    mp_stat_add(&mp_stat_calls, !call->is_hidden);
    call->has_place = true;
    if (rpc->hop != NULL)
        /* copies the token: the hop has a sealed header, not the request's own */
        mp_call_keep_token(call, rpc->no_stream);
    if ((mp_traces_are_on() || (call->console != NULL && mp_call_is_shown(call))) && !call->is_hidden)
        mp_call_begin_trace(call);
    if (mp_tap_is_on() && !call->is_hidden)
        mp_call_tap(call);
    rpc->hooks->on_call(rpc->ctx, call);
}

mp_call *MP_NULLABLE mp_call_start(mp_rpc *rpc, const mp_transport *transport, mp_stream *stream,
                                   mp_session *MP_NULLABLE session, const mp_era *MP_NULLABLE era)
{
    mp_call *call = call_new(rpc, transport, era);
    if (session != NULL && !mp_call_join(call, session)) {
        discard_call(call);
        return NULL;
    }
    if (session != NULL)
        call->session = mp_session_ref(session);
    mp_call_take_stream(call, stream, on_client_left);
    begin_call(call);
    return call;
}

/* The calls of a batch share a stream, and none of them detects whether it closes: in the revision that has batches,
 * a client that disconnects cancels nothing. */
bool mp_call_start_in(mp_rpc *rpc, mp_batch *batch, mp_session *session)
{
    mp_call *call = call_new(rpc, &mp_batch_transport, mp_session_era(session));
    if (!mp_call_join(call, session)) {
        discard_call(call);
        return false;
    }
    call->session = mp_session_ref(session);
    call->batch = batch;
    mp_call_share_stream(call, mp_batch_enter(batch));
    begin_call(call);
    return true;
}

/* Ends a call whose answer has been sent. */
static void finish_call(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    if (call->ended)
        return;
    mp_trace *trace = call->trace;
    mp_batch *batch = call->batch;
    call->ended = true;
    uint64_t us = mp_monotonic_us() - call->began;
    mp_call_observe(call, us);
    mp_call_keep_ended(call, us);
    if (trace != NULL)
        mp_call_end_trace(call, trace);
    mp_log_call(call);
    if (mp_tap_is_on() && !call->is_hidden)
        mp_call_tap(call);
    mp_client_requests_forget(call);
    mp_call_unlisten(call);
    mp_timer_stop(rpc->loop, &call->limit);
    mp_call_end_feed(call);
    leave_session(call);
    mp_call_leave_stream(call);
    if (batch != NULL)
        mp_batch_leave(batch);
    mp_principal_unref(call->principal);
    call->principal = mp_nobody;
    mp_call_forget_token(call);
    mp_link_drop(&call->link);
    mp_link_put(&rpc->ended, &call->link);
    if (call->is_detached) {
        rpc->detached_count--;
        mp_owner *owner = call->owner;
        if (owner != NULL)
            mp_quota_give_for(rpc->table, MP_QUOTA_DETACHED, owner);
        else
            mp_own_job_give();
        return;
    }
    rpc->count--;
    if (call->has_place)
        mp_session_table_give_call(rpc->table, call->share, call->bytes_in);
}

void mp_calls_sweep(mp_rpc *rpc)
{
    MP_EACH_TAKEN(mp_call, call, &rpc->ended, link) {
        if (call->session != NULL)
            mp_session_unref(call->session);
        free_memory(call);
    }
}

/* Sends `json`, the last message of a call. */
static void send_last(mp_call *call, int status, mp_str json)
{
    if (call->is_detached)
        return;
    call->bytes_out += json.len;
    call->sent_status = call->status == 0 ? status : call->status;
    free_id(call);
    mp_call_ignore_client(call);
    call->transport->answer(call, call->sent_status, json);
}

mp_buf *MP_NULLABLE mp_call_begin_answer(mp_call *call)
{
    if (call->ended || call->is_being_cancelled)
        return NULL;
    mp_buf *out = &call->rpc->scratch;
    out->len = 0;
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(out, call->id);
    mp_buf_put(out, MP_STR(",\"result\":"));
    return out;
}

void mp_call_end_answer(mp_call *call)
{
    mp_buf *out = &call->rpc->scratch;
    mp_buf_putc(out, '}');
    mp_phase_set(MP_PHASE_WRITE);
    send_last(call, 200, mp_buf_str(out));
    finish_call(call);
}

void mp_call_answer(mp_call *call, mp_str result)
{
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return;
    mp_buf_put(out, result);
    mp_call_end_answer(call);
}

void mp_call_fail(mp_call *call, int code, mp_str message, mp_str data)
{
    if (call->ended || call->is_being_cancelled)
        return;
    call->outcome = "error";
    call->code = code;
    mp_buf *out = &call->rpc->scratch;
    out->len = 0;
    mp_put_error(out, call->id, code, message, data);
    mp_phase_set(MP_PHASE_WRITE);
    send_last(call, mp_error_status(call->era, code), mp_buf_str(out));
    finish_call(call);
}

void mp_call_cancel(mp_call *call, const char *why, const mp_stat *counter, mp_cancel_manner manner)
{
    /* cancelling the requests to the client sends messages; a failed send would cancel the call once more */
    if (call->ended || call->is_being_cancelled)
        return;
    call->is_being_cancelled = true;
    mp_rpc *rpc = call->rpc;
    mp_stat_add(counter, 1);
    call->outcome = mp_end_cause(counter);
    mp_log(MP_INFO, call->is_detached ? "job cancelled" : "call cancelled", mp_log_str("method", call->method),
           mp_log_str("why", mp_str_of(call->outcome)),
           mp_log_str("call", mp_str_of(mp_mark_text_of(mp_call_mark(call)).text)));
    rpc->hooks->on_cancel(rpc->ctx, call, why);
    mp_client_requests_cancel(call);
    if (manner == MP_CANCEL_ANSWER) {
        rpc->scratch.len = 0;
        mp_put_error(&rpc->scratch, call->id, MP_CODE_INTERNAL, mp_str_of(why), MP_STR_NONE);
        send_last(call, 200, mp_buf_str(&rpc->scratch));
    } else if (call->transport->drop != NULL) {
        call->transport->drop(call);
    }
    finish_call(call);
}

int mp_call_send(mp_call *call, mp_str json)
{
    if (call->ended || call->is_detached)
        return -1;
    call->bytes_out += json.len;
    return call->transport->send(call, json);
}

void mp_calls_end(mp_rpc *rpc, mp_session *session)
{
    MP_EACH(mp_call, call, &rpc->calls, link) {
        if (call->session == session && !call->opens_session)
            mp_call_cancel(call, "the session ended", &mp_stat_tool_gone, MP_CANCEL_ANSWER);
    }
}

void mp_calls_sign_out(mp_rpc *rpc, const mp_stat *counter)
{
    mp_link *const lists[] = {&rpc->calls, &rpc->detached};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        MP_EACH(mp_call, call, lists[i], link)
            if (mp_ended_has(call->principal->sign_in))
                mp_call_cancel(call, "the sign-in has ended", counter, i == 0 ? MP_CANCEL_ANSWER : MP_CANCEL_QUIET);
}

void mp_call_abort(mp_call *call, const char *why, const mp_stat *counter)
{
    mp_call_cancel(call, why, counter, MP_CANCEL_ANSWER);
}

static void on_limit(mp_timer *timer)
{
    mp_call_cancel(mp_container(timer, mp_call, limit), "the call took too long", &mp_stat_tool_time, MP_CANCEL_ANSWER);
}

void mp_call_park(mp_call *call)
{
    if (call->ended)
        return;
    if (call->limit.slot == 0 && call->limit_ms != NO_LIMIT_MS && call->subscriber == NULL)
        mp_timer_start(call->rpc->loop, &call->limit, call->limit_ms, on_limit);
    mp_call_watch_client(call);
    if (mp_call_is_of_stream(call))
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
    call->limit_ms = NO_LIMIT_MS;
    mp_timer_stop(call->rpc->loop, &call->limit);
}

typedef struct {
    mp_rpc *rpc;
    uint64_t serial;
} cancel_message;

static void deliver_cancel(void *content, mp_loop *MP_NULLABLE loop)
{
    const cancel_message *message = content;
    mp_link *calls = &message->rpc->calls;
    for (mp_link *link = mp_link_first(calls); loop != NULL && link != calls; link = link->next) {
        mp_call *call = mp_container(link, mp_call, link);
        if (call->serial == message->serial) {
            mp_call_cancel(call, "cancelled by the client", &mp_stat_tool_cancelled, MP_CANCEL_QUIET);
            break;
        }
    }
}

void mp_call_cancel_by_id(mp_session *session, mp_str id)
{
    MP_LOCKED(&session->lock);
    mp_call *call = find_call(session, id);
    if (call != NULL && !call->is_cancel_posted &&
        !mp_str_is(call->method, "initialize")) { /* `initialize` cannot be cancelled (Y-1) */
        call->is_cancel_posted = true;
        mp_loop_send(call->rpc->loop, deliver_cancel, &(cancel_message){call->rpc, call->serial},
                     sizeof(cancel_message), MP_STR_NONE);
    }
}

mp_str mp_call_id(const mp_call *call)
{
    return call->id;
}

mp_call *MP_NULLABLE mp_call_find(mp_rpc *rpc, mp_str id)
{
    MP_EACH(mp_call, call, &rpc->calls, link)
        if (mp_json_id_eq(call->id, id))
            return call;
    return NULL;
}
