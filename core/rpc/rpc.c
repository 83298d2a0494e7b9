/* rpc.c: a worker's server role: its paths, its life, and what every transport does with a message. */
#include "house.h"
#include "json/json.h"
#include <stdlib.h>

#define SWEEP_MS 250
#define DRAIN_SWEEP_MS 20

/* Who asks comes before what is asked: nothing tells a stranger which paths, tools or sessions there are. */
void mp_rpc_serve(void *ctx, mp_stream *stream)
{
    mp_rpc *rpc = ctx;
    if (mp_serve_document(rpc, stream))
        return;
    if (!mp_host_is_served(rpc->config, stream)) {
        mp_stat_add(MP_STAT_REFUSED_ORIGIN, 1);
        mp_audit_request(stream, &mp_host_refused);
        mp_refuse(rpc, stream, 403, -32600, MP_STR_NONE, mp_host_refusal(rpc->config, stream), MP_STR_NONE);
        return;
    }
    if (mp_serve_preflight(rpc, stream))
        return;
    if (rpc->hooks->auth(rpc->ctx)->is_asked)
        mp_entry_begin(rpc, stream);
    else
        mp_serve_as(rpc, stream, mp_nobody);
}

static void serve_path(mp_rpc *rpc, mp_stream *stream)
{
    const mp_rpc_config *config = rpc->config;
    mp_str path = mp_stream_request(stream)->path;
    if (config->mcp != NULL && mp_str_is(path, config->mcp)) {
        mp_serve_streamable(rpc, stream);
    } else if (config->sse != NULL && mp_str_is(path, config->sse)) {
        mp_serve_sse(rpc, stream);
    } else if (config->sse != NULL && config->messages != NULL && mp_str_is(path, config->messages)) {
        mp_serve_messages(rpc, stream);
    } else {
        mp_buf text = {0};
        const char *const known = config->mcp != NULL ? config->mcp : config->sse;
        mp_buf_put(&text, MP_STR("nothing is served at this path"));
        if (known != NULL)
            mp_buf_printf(&text, ": MCP is at %s%s", config->prefix, known);
        mp_buf_putc(&text, '\0');
        mp_refuse(rpc, stream, 404, -32600, MP_STR_NONE, text.ptr, MP_STR_NONE);
        mp_buf_clear(&text);
    }
}

void mp_serve_as(mp_rpc *rpc, mp_stream *stream, mp_principal *principal)
{
    rpc->principal = principal;
    serve_path(rpc, stream);
    rpc->principal = mp_nobody;
}

/* A message that is no message: 400, with the id where it was readable (M-25). */
void mp_refuse_envelope(mp_rpc *rpc, mp_stream *stream)
{
    rpc->scratch.len = 0;
    mp_put_envelope_error(&rpc->scratch, &rpc->envelope, "body");
    mp_stream_answer(stream, 400, "application/json", mp_buf_str(&rpc->scratch), NULL, 0);
}

/* A notification or a response, in a session. */
void mp_note(mp_rpc *rpc, mp_session *session)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (envelope->kind == MP_KIND_RESPONSE) {
        if (!mp_session_answer(session, envelope->id, envelope->is_error, envelope->answer))
            mp_stat_add(MP_STAT_DROPPED_UNMATCHED, 1);
    } else if (!mp_str_is(envelope->method, "notifications/cancelled")) {
        rpc->hooks->on_note(rpc->ctx, mp_session_era(session), session, envelope->method, envelope->params);
    } else if (envelope->cancels.len > 0) {
        mp_call_cancel_by_id(session, envelope->cancels);
    }
}

static void sweep(mp_timer *timer)
{
    mp_rpc *rpc = mp_container(timer, mp_rpc, sweep);
    if (rpc->draining)
        mp_held_drain(rpc, false);
    else if (rpc->stdio.pipe == NULL) /* a session that is the process's ends with it */
        mp_table_sweep(rpc);
    mp_timer_start(rpc->loop, timer, rpc->draining ? DRAIN_SWEEP_MS : SWEEP_MS, sweep);
}

mp_rpc *mp_rpc_new(const mp_rpc_config *config, mp_table *table, mp_loop *loop, const mp_rpc_hooks *hooks, void *ctx)
{
    mp_rpc *rpc = mp_new(sizeof *rpc);
    rpc->config = config;
    rpc->table = table;
    rpc->loop = loop;
    rpc->hooks = hooks;
    rpc->ctx = ctx;
    rpc->principal = mp_nobody;
    rpc->publisher = mp_publisher_new();
    rpc->index = mp_table_join(table, rpc);
    mp_link_init(&rpc->calls);
    mp_link_init(&rpc->jobs);
    mp_link_init(&rpc->ended);
    mp_link_init(&rpc->held);
    mp_link_init(&rpc->entries);
    mp_timer_start(loop, &rpc->sweep, SWEEP_MS, sweep);
    return rpc;
}

void mp_rpc_configure(mp_rpc *rpc, const mp_rpc_config *config)
{
    rpc->config = config;
}

void mp_rpc_hand_to(mp_rpc *rpc, void *ctx)
{
    void *old = rpc->ctx;
    rpc->ctx = ctx;
    mp_entries_restart(rpc, old);
}

bool mp_rpc_is_draining(const mp_rpc *rpc)
{
    return rpc->draining;
}

void mp_rpc_drain(mp_rpc *rpc)
{
    rpc->draining = true;
    mp_listeners_end(rpc);
    mp_held_drain(rpc, false);
    mp_timer_start(rpc->loop, &rpc->sweep, DRAIN_SWEEP_MS, sweep);
}

void mp_rpc_abort(mp_rpc *rpc, const char *why)
{
    mp_entries_call_off(rpc, why);
    for (mp_link *link = rpc->calls.next, *next; link != &rpc->calls; link = next) {
        next = link->next;
        mp_call_cancel(mp_container(link, mp_call, link), why, MP_STAT_TOOL_SHUTDOWN, MP_CANCEL_TELL);
    }
    mp_jobs_call_off(rpc, why);
}

bool mp_rpc_sweep(mp_rpc *rpc)
{
    bool more = mp_publisher_turn(rpc);
    if (rpc->draining && !mp_table_has_calls(rpc->table))
        mp_jobs_call_off(rpc, "the gateway is stopping");
    mp_calls_sweep(rpc);
    return more;
}

int64_t mp_rpc_calls(const mp_rpc *rpc)
{
    return rpc->count + rpc->job_count;
}

void mp_rpc_free(mp_rpc *rpc)
{
    mp_rpc_abort(rpc, "the gateway stopped");
    mp_held_drain(rpc, true);
    mp_calls_sweep(rpc);
    mp_publisher_free(rpc->publisher);
    if (rpc->stdio.session != NULL)
        mp_session_unref(rpc->stdio.session);
    mp_timer_stop(rpc->loop, &rpc->sweep);
    mp_buf_clear(&rpc->envelope.scratch);
    mp_buf_clear(&rpc->scratch);
    free(rpc);
}
