/* stdio.c: one client at the other end of a pipe, with one message per line (I-1). Each message shows its own
 * revision (I-12): a message of a stateless revision has a version in `_meta`; all others belong to one session,
 * which lives as long as the process. There are no headers, and all messages share the pipe: only ids tell calls
 * apart. */
#include "transport.h"

/* Sends a message that the client must get: an answer. It is dropped, and counted, only if the pipe is closed. */
static void send_line(mp_rpc *rpc, mp_str json)
{
    const mp_stdio *stdio = rpc->stdio;
    if (stdio == NULL || mp_pipe_send(stdio->pipe, json) != 0)
        mp_stat_add(&mp_stat_dropped_gone, 1);
}

/* Sends a message that may be dropped. If the client does not read fast enough, drops it, counts it and returns -1. */
static int send_if_room(mp_rpc *rpc, mp_str json)
{
    const mp_stdio *stdio = rpc->stdio;
    bool has_room = stdio == NULL || mp_pipe_has_room(stdio->pipe, json.len);
    if (stdio != NULL && has_room && mp_pipe_send(stdio->pipe, json) == 0)
        return 0;
    mp_stat_add(has_room ? &mp_stat_dropped_gone : &mp_stat_dropped_slow, 1);
    return -1;
}

static int send_on_call(mp_call *call, mp_str json)
{
    return send_if_room(call->rpc, json);
}

static void answer_call(mp_call *call, MP_UNUSED int status, mp_str json)
{
    send_line(call->rpc, json);
}

static void notify_session(mp_rpc *from, MP_UNUSED mp_session *session, mp_str json)
{
    send_if_room(from, json);
}

static void respond_in_session(mp_rpc *rpc, MP_UNUSED mp_session *MP_NULLABLE session, mp_str json)
{
    send_line(rpc, json);
}

static const mp_transport transport = {.name = "stdio",
                                       .is_pipe = true,
                                       .has_one_stream = true,
                                       .notifies_end = true,
                                       .send = send_on_call,
                                       .answer = answer_call,
                                       .notify = notify_session,
                                       .respond = respond_in_session};

static void serve_request(mp_rpc *rpc, mp_session *session)
{
    if (mp_call_find(rpc, rpc->envelope.id) != NULL)
        mp_refuse_message(rpc, &transport, NULL, MP_CAUSE_MESSAGE, MP_CODE_INVALID_REQUEST,
                          "a request with this id is still being answered");
    else if (rpc->envelope.has_version)
        mp_serve_stateless_message(rpc, &transport);
    else
        mp_serve_session_request(rpc, rpc->no_stream, session);
}

/* Stateless revisions cancel by notification as well, with or without the version in `_meta` (I-7). */
static void serve_note(mp_rpc *rpc, mp_session *session)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (mp_str_is(envelope->method, "notifications/cancelled")) {
        mp_log_message(rpc, rpc->no_stream, session);
        mp_call *call = envelope->cancels.len > 0 ? mp_call_find(rpc, envelope->cancels) : NULL;
        if (call != NULL && !mp_str_is(call->method, "initialize"))
            mp_call_cancel(call, "cancelled by the client", &mp_stat_tool_cancelled, MP_CANCEL_QUIET);
    } else if (!envelope->has_version) {
        mp_serve_note(rpc, rpc->no_stream, session);
    }
}

static const mp_str too_many_values =
    MP_STR("{\"code\":-32600,\"message\":\"the answer of the client has too many values\"}");

static void on_line(void *ctx, mp_str line)
{
    const mp_stdio *stdio = ctx;
    mp_rpc *rpc = stdio->rpc;
    mp_envelope *envelope = &rpc->envelope;
    if (mp_str_trim(line).len == 0)
        return;
    mp_envelope_read(envelope, line, MP_MAX_VALUES);
    switch (envelope->kind) {
    case MP_KIND_REQUEST:
        serve_request(rpc, stdio->session);
        break;
    case MP_KIND_NOTE:
        serve_note(rpc, stdio->session);
        break;
    case MP_KIND_RESPONSE:
        mp_serve_note(rpc, rpc->no_stream, stdio->session);
        break;
    case MP_KIND_ARRAY:
        mp_serve_batch_line(rpc, stdio->session, line);
        break;
    default:
        if (envelope->answer.len > 0) { /* an error that answers an error could be answered by an error, for ever */
            mp_stat_add(&mp_stat_dropped_unmatched, 1);
            break;
        }
        mp_log_refused_message(rpc, MP_CAUSE_MESSAGE, mp_envelope_problem(envelope));
        if (envelope->may_answer && envelope->id.len > 0 &&
            mp_session_answer(stdio->session, envelope->id, true, too_many_values))
            break; /* to the client the id is none of its own */
        rpc->scratch.len = 0;
        mp_put_envelope_error(&rpc->scratch, envelope, "line");
        send_line(rpc, mp_buf_str(&rpc->scratch));
    }
}

static void on_long_line(void *ctx)
{
    mp_rpc *rpc = ((const mp_stdio *)ctx)->rpc;
    rpc->envelope.id = rpc->envelope.method = MP_STR_NONE; /* these pointers lead into an earlier line */
    mp_refuse_message(rpc, &transport, NULL, MP_CAUSE_SIZE, MP_CODE_INVALID_REQUEST,
                      "the line is too long: see limits.body");
}

static void on_end(void *ctx, int error)
{
    const mp_stdio *stdio = ctx;
    stdio->rpc->is_input_over = true;
    mp_client_requests_fail(stdio->rpc);
    stdio->ended(stdio->ctx, error);
}

void mp_rpc_serve_pipe(mp_rpc *rpc, mp_pipe *pipe, void (*ended)(void *ctx, int error), void *ctx)
{
    static const mp_pipe_hooks hooks = {.on_line = on_line, .on_long = on_long_line, .on_end = on_end};
    rpc->principal = mp_lone;
    mp_session *session = mp_session_new(rpc, &transport, mp_lone, MP_STR(""));
    if (session == NULL)
        abort(); /* impossible: it is the first session, and sessions.max and sessions.per_principal are 1 or more */
    mp_stdio *stdio = mp_new(sizeof *stdio);
    *stdio = (mp_stdio){.rpc = rpc, .pipe = pipe, .session = session, .ended = ended, .ctx = ctx};
    rpc->stdio = stdio;
    mp_pipe_start(pipe, &hooks, stdio);
}

void mp_stdio_free(mp_stdio *MP_NULLABLE stdio)
{
    if (stdio == NULL)
        return;
    mp_session_unref(stdio->session);
    free(stdio);
}
