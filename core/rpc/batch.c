/* batch.c: an array of messages in one body: 2025-03-26 alone has them (G-8, S-6). Its calls share the answer: one array
 * of responses, or, from the moment one of them sends something else, an event stream. */
#include "house.h"
#include "json/json.h"
#include <stdlib.h>

#define MOST 64

struct mp_batch {
    mp_rpc *rpc;
    mp_stream *stream; /* counted; NULL on stdio */
    int pending;       /* calls to be answered, and one while the body is read */
    mp_buf answers;    /* one a line: JSON on its way out has no line breaks */
};

static void put_array(mp_buf *out, mp_str lines)
{
    mp_buf_putc(out, '[');
    while (lines.len > 0) {
        mp_buf_put(out, mp_str_cut(&lines, '\n'));
        if (lines.len > 0)
            mp_buf_putc(out, ',');
    }
    mp_buf_putc(out, ']');
}

static void put_events(mp_buf *out, mp_str lines)
{
    while (lines.len > 0)
        mp_put_event(out, mp_str_cut(&lines, '\n'));
}

/* All is answered. Nothing but notes, and calls that their client called off, need no body. */
static void send_all(mp_batch *batch)
{
    mp_stream *stream = batch->stream;
    mp_str lines = mp_buf_str(&batch->answers);
    mp_buf out = {0};
    if (stream == NULL) {
        put_array(&out, lines);
        if (lines.len > 0)
            mp_stdio_answer(batch->rpc, mp_buf_str(&out));
    } else if (!mp_stream_is_open(stream)) {
        mp_stat_add(MP_STAT_DROPPED_GONE, lines.len > 0);
    } else if (mp_stream_is_events(stream)) {
        put_events(&out, lines);
        if (out.len == 0 || mp_stream_send(stream, mp_buf_str(&out)) == 0)
            mp_stream_end(stream);
    } else if (lines.len == 0) {
        mp_accept_note(stream);
    } else {
        put_array(&out, lines);
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    }
    mp_buf_clear(&out);
}

void mp_batch_add(mp_batch *batch, mp_str answer)
{
    mp_buf_put(&batch->answers, answer);
    mp_buf_putc(&batch->answers, '\n');
    if (batch->stream == NULL || !mp_stream_is_events(batch->stream))
        return;
    mp_buf events = {0};
    put_events(&events, mp_buf_str(&batch->answers));
    batch->answers.len = 0;
    mp_stream_send(batch->stream, mp_buf_str(&events));
    mp_buf_clear(&events);
}

void mp_batch_leave(mp_batch *batch)
{
    if (--batch->pending > 0)
        return;
    send_all(batch);
    if (batch->stream != NULL)
        mp_stream_unref(batch->stream);
    mp_buf_clear(&batch->answers);
    free(batch);
}

static void add_error(mp_rpc *rpc, mp_batch *batch, mp_session *session, const char *message)
{
    if (batch == NULL) {
        mp_session_send_error(rpc, session, -32600, message);
        return;
    }
    mp_buf error = {0};
    mp_put_error(&error, rpc->envelope.id, -32600, mp_str_of(message), MP_STR_NONE);
    mp_batch_add(batch, mp_buf_str(&error));
    mp_buf_clear(&error);
}

/* One message of the array. Over HTTP+SSE there is no `batch`: answers come on the session's stream. */
static void serve_one(mp_rpc *rpc, mp_batch *batch, mp_session *session, mp_str message)
{
    mp_envelope *envelope = &rpc->envelope;
    mp_envelope_read(envelope, message);
    switch (envelope->kind) {
    case MP_KIND_NOTE:
    case MP_KIND_RESPONSE:
        mp_note(rpc, session);
        break;
    case MP_KIND_REQUEST:
        if (mp_str_is(envelope->method, "initialize"))
            add_error(rpc, batch, session, "\"initialize\" must not be in a batch");
        else if (batch == NULL)
            mp_serve_sse_request(rpc, session);
        else if (rpc->stdio.pipe != NULL && mp_call_find(rpc, envelope->id) != NULL)
            add_error(rpc, batch, session, "a request with this id is still being answered");
        else if (!mp_call_start_in(rpc, batch, session))
            add_error(rpc, batch, session, "the session ended");
        break;
    default:
        add_error(rpc, batch, session, envelope->kind == MP_KIND_ARRAY ? "a message is an object" : envelope->problem);
    }
}

/* The span of the next element; empty at the end. The text was scanned. */
static mp_str next_element(mp_json_cursor *cursor)
{
    mp_json_token token = mp_json_next(cursor);
    if (token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_END)
        return MP_STR_NONE;
    const char *from = token.type == MP_JSON_T_STRING ? token.span.ptr - 1 : token.span.ptr;
    for (int depth = 0;;) {
        depth += token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        depth -= token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (depth == 0)
            break;
        token = mp_json_next(cursor);
    }
    return (mp_str){from, (size_t)(cursor->at - from)};
}

static size_t count_elements(mp_str body)
{
    mp_json_cursor cursor = {body.ptr, body.ptr + body.len};
    size_t count = 0;
    mp_json_next(&cursor);
    while (next_element(&cursor).len > 0)
        count++;
    return count;
}

/* What is wrong with the array as a whole, or NULL; `unknown` is it where there are no batches. */
static const char *fault_of(const mp_session *session, mp_str body, const char *unknown)
{
    const mp_era *era = mp_session_era(session);
    if (era == NULL || !era->has_batches)
        return unknown;
    size_t count = count_elements(body);
    return count == 0 || count > MOST ? "a batch has 1 to 64 messages" : NULL;
}

static void serve_all(mp_rpc *rpc, mp_batch *batch, mp_session *session, mp_str body)
{
    mp_json_cursor cursor = {body.ptr, body.ptr + body.len};
    mp_json_next(&cursor);
    for (mp_str message; (message = next_element(&cursor)).len > 0;)
        serve_one(rpc, batch, session, message);
}

static mp_batch *batch_new(mp_rpc *rpc, mp_stream *stream)
{
    mp_batch *batch = mp_new(sizeof *batch);
    *batch = (mp_batch){.rpc = rpc, .stream = stream == NULL ? NULL : mp_stream_ref(stream), .pending = 1};
    return batch;
}

void mp_serve_batch(mp_rpc *rpc, mp_stream *stream, mp_session *session)
{
    mp_str body = mp_stream_request(stream)->body;
    const char *fault = fault_of(session, body, "a body is one message, not an array of them");
    if (fault != NULL) {
        mp_refuse(rpc, stream, 400, -32600, MP_STR_NONE, fault, MP_STR_NONE);
    } else if (session->is_sse) {
        serve_all(rpc, NULL, session, body);
        mp_accept_note(stream);
    } else {
        mp_batch *batch = batch_new(rpc, stream);
        serve_all(rpc, batch, session, body);
        mp_batch_leave(batch);
    }
}

void mp_serve_batch_line(mp_rpc *rpc, mp_session *session, mp_str line)
{
    const char *fault = fault_of(session, line, "a line is one message, not an array of them");
    if (fault != NULL) {
        rpc->envelope.id = MP_STR_NONE;
        mp_session_send_error(rpc, session, -32600, fault);
        return;
    }
    mp_batch *batch = batch_new(rpc, NULL);
    serve_all(rpc, batch, session, line);
    mp_batch_leave(batch);
}

mp_stream *mp_batch_enter(mp_batch *batch)
{
    batch->pending++;
    return batch->stream == NULL ? NULL : mp_stream_ref(batch->stream);
}
