/* batch.c: the calls of one JSON-RPC batch share an answer: one array of responses, or an event stream from the
 * moment that one of them sends anything else. Only revision 2025-03-26 has batches (G-8, S-6). */
#include "state.h"

struct mp_batch {
    mp_rpc *rpc;
    mp_stream *stream;   /* counted reference; rpc->no_stream over stdio */
    mp_session *session; /* borrowed */
    int pending;         /* number of unanswered calls, plus one while the body is read */
    mp_buf answers;      /* one response per line: JSON that is sent has no line breaks */
    size_t held;         /* bytes of `answers` that are counted in limits.answers; errors about members are not */
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

/* Moves the collected answers to `out`, by `put`. From then on their bytes are counted by the stream, and no longer
 * by the batch. */
static void take_answers(mp_batch *batch, mp_buf *out, void (*put)(mp_buf *out, mp_str lines))
{
    put(out, mp_buf_str(&batch->answers));
    mp_buf_clear(&batch->answers);
    mp_answers_give(batch->held);
    batch->held = 0;
}

/* Sends the answers of the batch. A batch of notifications and cancelled calls has none, and gets no body. */
static void send_answers(mp_batch *batch)
{
    mp_stream *stream = batch->stream;
    bool is_events = mp_stream_is_events(stream), has_answers = batch->answers.len > 0;
    mp_scoped_buf out = {0};
    take_answers(batch, &out, is_events ? put_events : put_array);
    if (batch->session->is_sse) { /* over stdio */
        if (has_answers)
            batch->session->transport->respond(batch->rpc, batch->session, mp_buf_str(&out));
    } else if (!mp_stream_is_open(stream)) {
        mp_stat_add(&mp_stat_dropped_gone, has_answers);
    } else if (is_events) {
        if (out.len == 0 || mp_stream_send_answer(stream, mp_buf_str(&out)) == 0)
            mp_stream_end(stream);
    } else if (!has_answers) {
        mp_accept_note(stream);
    } else {
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    }
}

void mp_batch_add(mp_batch *batch, mp_str answer)
{
    mp_buf_put(&batch->answers, answer);
    mp_buf_putc(&batch->answers, '\n');
    if (!mp_stream_is_events(batch->stream))
        return;
    mp_scoped_buf events = {0};
    take_answers(batch, &events, put_events);
    mp_stream_send_answer(batch->stream, mp_buf_str(&events));
}

void mp_batch_leave(mp_batch *batch)
{
    if (--batch->pending > 0)
        return;
    send_answers(batch);
    mp_stream_unref(batch->stream);
    free(batch);
}

mp_batch *mp_batch_new(mp_rpc *rpc, mp_stream *stream, mp_session *session)
{
    mp_batch *batch = mp_new(sizeof *batch);
    *batch = (mp_batch){.rpc = rpc, .stream = mp_stream_ref(stream), .session = session, .pending = 1};
    return batch;
}

mp_stream *mp_batch_enter(mp_batch *batch)
{
    batch->pending++;
    return batch->stream;
}

/* -- the transport of a batch's calls ------------------------------------------------------------------------------ */

static int send_message(mp_call *call, mp_str json)
{
    const mp_session *session = call->session;
    if (session != NULL && session->is_sse)
        return session->transport->send(call, json);
    return mp_call_send_event(call, json);
}

/* Counts an answer, which waits for those of the other calls, in limits.answers; on an event stream it does not wait.
 * False if it does not fit. */
static bool hold_answer(mp_batch *batch, mp_str json)
{
    if (mp_stream_is_events(batch->stream))
        return true;
    if (!mp_answers_take(json.len, batch->rpc->config->answers))
        return false;
    batch->held += json.len;
    return true;
}

static void add_answer(mp_call *call, MP_UNUSED int status, mp_str json)
{
    mp_batch *batch = call->batch;
    if (batch == NULL)
        return;
    if (hold_answer(batch, json)) {
        mp_batch_add(batch, json);
        return;
    }
    mp_stat_add(&mp_stat_dropped_answers, 1);
    call->outcome = "error";
    call->code = MP_CODE_INTERNAL;
    mp_scoped_buf error = {0};
    mp_put_error(&error, call->id, MP_CODE_INTERNAL, mp_str_of(mp_answers_are_full), MP_STR_NONE);
    mp_batch_add(batch, mp_buf_str(&error));
}

const mp_transport mp_batch_transport = {.name = "batch", .send = send_message, .answer = add_answer};
