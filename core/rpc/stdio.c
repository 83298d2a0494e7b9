/* stdio.c: one client at the other end of a pipe, a message a line (I-1). Each message says itself which era it is of
 * (I-12): one of 2026-07-28 has its `_meta`, all others belong to one session, which is the process's. No headers here, and
 * no hang-up of a single call: ids tell everything apart. */
#include "house.h"
#include <stdlib.h>

void mp_stdio_answer(mp_rpc *rpc, mp_str json)
{
    if (mp_pipe_send(rpc->stdio.pipe, json) != 0)
        mp_stat_add(MP_STAT_DROPPED_GONE, 1);
}

int mp_stdio_send(mp_rpc *rpc, mp_str json)
{
    bool has_room = mp_pipe_has_room(rpc->stdio.pipe, json.len);
    if (has_room && mp_pipe_send(rpc->stdio.pipe, json) == 0)
        return 0;
    mp_stat_add(has_room ? MP_STAT_DROPPED_GONE : MP_STAT_DROPPED_SLOW, 1);
    return -1;
}

static void refuse(mp_rpc *rpc, int code, const char *message, mp_str data)
{
    rpc->scratch.len = 0;
    mp_put_error(&rpc->scratch, rpc->envelope.id, code, mp_str_of(message), data);
    mp_stdio_answer(rpc, mp_buf_str(&rpc->scratch));
}

/* The ladder M-20, M-22; the steps between are HTTP's. */
static void serve_modern(mp_rpc *rpc)
{
    const mp_envelope *envelope = &rpc->envelope;
    const mp_era *era = envelope->version_is_string ? mp_era_find(envelope->version) : NULL;
    mp_buf versions = {0};
    if (!envelope->version_is_string || !envelope->has_capabilities) {
        mp_put_versions(&versions, MP_STR_NONE);
        refuse(rpc, -32602, mp_meta_is_missing, mp_buf_str(&versions));
    } else if (era == NULL || era->has_sessions) {
        mp_put_versions(&versions, envelope->version);
        refuse(rpc, -32022, mp_version_has_sessions, mp_buf_str(&versions));
    } else if (rpc->draining) {
        refuse(rpc, -32603, "the gateway is stopping", MP_STR_NONE);
    } else if (!mp_table_has_room(rpc->table)) {
        mp_stat_add(MP_STAT_REFUSED_CALLS, 1);
        refuse(rpc, -32603, "too many calls in flight: try again later", MP_STR_NONE);
    } else {
        mp_call_start(rpc, NULL, NULL, era);
    }
    mp_buf_clear(&versions);
}

static void serve_request(mp_rpc *rpc)
{
    if (mp_call_find(rpc, rpc->envelope.id) != NULL)
        refuse(rpc, -32600, "a request with this id is still being answered", MP_STR_NONE);
    else if (rpc->envelope.has_version)
        serve_modern(rpc);
    else
        mp_serve_sse_request(rpc, rpc->stdio.session);
}

/* I-7: 2026-07-28 calls off by notification too, and whether that says its version does not matter. */
static void serve_note(mp_rpc *rpc)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (mp_str_is(envelope->method, "notifications/cancelled")) {
        mp_call *call = envelope->cancels.len > 0 ? mp_call_find(rpc, envelope->cancels) : NULL;
        if (call != NULL && !mp_str_is(call->method, "initialize"))
            mp_call_cancel(call, "cancelled by the client", MP_STAT_TOOL_CANCELLED, MP_CANCEL_QUIET);
    } else if (!envelope->has_version) {
        mp_note(rpc, rpc->stdio.session);
    }
}

static void on_line(void *ctx, mp_str line)
{
    mp_rpc *rpc = ctx;
    mp_envelope *envelope = &rpc->envelope;
    if (mp_str_trim(line).len == 0)
        return;
    mp_envelope_read(envelope, line);
    switch (envelope->kind) {
    case MP_KIND_REQUEST:
        serve_request(rpc);
        break;
    case MP_KIND_NOTE:
        serve_note(rpc);
        break;
    case MP_KIND_RESPONSE:
        mp_note(rpc, rpc->stdio.session);
        break;
    case MP_KIND_ARRAY:
        mp_serve_batch_line(rpc, rpc->stdio.session, line);
        break;
    default:
        if (envelope->answer.len > 0) { /* an error about an error would go back and forth for ever */
            mp_stat_add(MP_STAT_DROPPED_UNMATCHED, 1);
            break;
        }
        rpc->scratch.len = 0;
        mp_put_envelope_error(&rpc->scratch, envelope, "line");
        mp_stdio_answer(rpc, mp_buf_str(&rpc->scratch));
    }
}

static void on_long(void *ctx)
{
    mp_rpc *rpc = ctx;
    rpc->envelope.id = MP_STR_NONE;
    refuse(rpc, -32600, "the line is too long: see limits.body", MP_STR_NONE);
}

static void on_end(void *ctx, int error)
{
    mp_rpc *rpc = ctx;
    rpc->stdio.is_over = true;
    mp_asks_give_up(rpc);
    rpc->stdio.ended(rpc->stdio.ctx, error);
}

void mp_rpc_serve_pipe(mp_rpc *rpc, mp_pipe *pipe, void (*ended)(void *ctx, int error), void *ctx)
{
    static const mp_pipe_hooks hooks = {on_line, on_long, on_end};
    rpc->principal = mp_lone;
    rpc->stdio =
        (mp_stdio){.pipe = pipe, .session = mp_session_new(rpc, true, mp_lone, MP_STR("")), .ended = ended, .ctx = ctx};
    mp_pipe_start(pipe, &hooks, rpc);
}
