/* batch_body.c: reads an array of messages in one body, or in one line of stdio, and serves each of them. */
#include "transport.h"

/* Over HTTP+SSE `batch` is NULL: errors are sent on the session's stream. */
static void add_batch_error(mp_rpc *rpc, mp_batch *MP_NULLABLE batch, mp_session *session, mp_cause cause, int code,
                            const char *message)
{
    if (batch == NULL) {
        mp_refuse_message(rpc, session->transport, session, cause, code, message);
        return;
    }
    mp_scoped_buf error = {0};
    mp_log_refused_message(rpc, cause, message);
    mp_put_error(&error, rpc->envelope.id, code, mp_str_of(message), MP_STR_NONE);
    mp_batch_add(batch, mp_buf_str(&error));
}

static void refuse_member(mp_rpc *rpc, mp_batch *MP_NULLABLE batch, mp_session *session, const char *message)
{
    int code = rpc->envelope.code == 0 ? MP_CODE_INVALID_REQUEST : rpc->envelope.code;
    add_batch_error(rpc, batch, session, MP_CAUSE_MESSAGE, code, message);
}

/* Starts a call of the batch if limits.calls_in_flight has a place for it: each call of a batch takes its own. */
static void start_call(mp_rpc *rpc, mp_batch *batch, mp_session *session)
{
    if (!mp_session_table_take_call(rpc))
        add_batch_error(rpc, batch, session, MP_CAUSE_CALLS, MP_CODE_INTERNAL, mp_too_many_calls);
    else if (!mp_call_start_in(rpc, batch, session))
        refuse_member(rpc, batch, session, "the session ended");
}

/* Serves one message of the array. Over HTTP+SSE `batch` is NULL: answers are sent on the session's stream. */
static void serve_message(mp_rpc *rpc, mp_batch *MP_NULLABLE batch, mp_stream *stream, mp_session *session,
                          mp_str message)
{
    mp_envelope *envelope = &rpc->envelope;
    mp_envelope_read(envelope, message, MP_MAX_VALUES);
    switch (envelope->kind) {
    case MP_KIND_NOTE:
    case MP_KIND_RESPONSE:
        mp_serve_note(rpc, stream, session);
        break;
    case MP_KIND_REQUEST:
        if (mp_str_is(envelope->method, "initialize"))
            refuse_member(rpc, batch, session, "\"initialize\" must not be in a batch");
        else if (batch == NULL)
            mp_serve_session_request(rpc, stream, session);
        else if (rpc->stdio != NULL && mp_call_find(rpc, envelope->id) != NULL)
            refuse_member(rpc, batch, session, "a request with this id is still being answered");
        else
            start_call(rpc, batch, session);
        break;
    case MP_KIND_ARRAY:
        refuse_member(rpc, batch, session, "a message must be an object");
        break;
    default: /* BROKEN and INVALID, which have a problem */
        refuse_member(rpc, batch, session, MP_NEVER_NULL(envelope->problem));
    }
}

/* The span of the next element; empty at the end. The text has been scanned: it is valid JSON. */
static mp_str next_element(mp_json_cursor *cursor)
{
    mp_json_token token = mp_json_next(cursor);
    if (token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_END)
        return MP_STR_NONE;
    return mp_json_skip(cursor, token);
}

/* Counts the elements, up to MP_BATCH_MAX + 1. */
static size_t count_elements(mp_str body)
{
    mp_json_cursor cursor = {body.ptr, body.ptr + body.len};
    size_t count = 0;
    mp_json_next(&cursor);
    while (count <= MP_BATCH_MAX && next_element(&cursor).len > 0)
        count++;
    return count;
}

/* The error text if the array as a whole is refused, or NULL. `unknown` is the text if the revision has no batches. */
static const char *MP_NULLABLE fault_of(const mp_session *session, mp_str body, const char *unknown)
{
    const mp_era *era = mp_session_era(session);
    if (era == NULL || !era->has_batches)
        return unknown;
    size_t count = count_elements(body);
    return count == 0 || count > MP_BATCH_MAX ? "a batch must have 1 to 64 messages" : NULL;
}

static void serve_messages(mp_rpc *rpc, mp_batch *MP_NULLABLE batch, mp_stream *stream, mp_session *session,
                           mp_str body)
{
    mp_json_cursor cursor = {body.ptr, body.ptr + body.len};
    mp_json_next(&cursor);
    for (mp_str message; (message = next_element(&cursor)).len > 0;)
        serve_message(rpc, batch, stream, session, message);
}

void mp_serve_batch(mp_rpc *rpc, mp_stream *stream, mp_session *session)
{
    mp_str body = mp_stream_request(stream)->body;
    const char *fault = fault_of(session, body, "a body must be one message, not an array");
    if (fault != NULL) {
        mp_refuse(rpc, stream, MP_CAUSE_MESSAGE, 400, MP_CODE_INVALID_REQUEST, MP_STR_NONE, fault, MP_STR_NONE);
    } else if (session->is_sse) {
        serve_messages(rpc, NULL, stream, session, body);
        mp_accept_note(stream);
    } else {
        mp_batch *batch = mp_batch_new(rpc, stream, session);
        serve_messages(rpc, batch, stream, session, body);
        mp_batch_leave(batch);
    }
}

void mp_serve_batch_line(mp_rpc *rpc, mp_session *session, mp_str line)
{
    const char *fault = fault_of(session, line, "a line must be one message, not an array");
    if (fault != NULL) {
        rpc->envelope.id = MP_STR_NONE;
        mp_refuse_message(rpc, session->transport, session, MP_CAUSE_MESSAGE, MP_CODE_INVALID_REQUEST, fault);
        return;
    }
    mp_batch *batch = mp_batch_new(rpc, rpc->no_stream, session);
    serve_messages(rpc, batch, rpc->no_stream, session, line);
    mp_batch_leave(batch);
}
