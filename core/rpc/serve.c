/* serve.c: a worker's server role: which path leads to which transport, and how the role starts, drains and ends. */
#include "rpc/transport/transport.h"

MP_REFUSED(refused_origin, "origin", MP_FAULT, "requests whose Host or Origin is not allowed")

MP_COUNTER(closed_number, "sessions_closed", "reason", "number", "another process of the cluster has their number")

MP_REFUSED(refused_loop, "loop", MP_FAULT,
           "requests that came through this gateway before: gateways are upstreams of each other")

#define SWEEP_MS 250 /* time between two searches for idle sessions */
#define DRAIN_SWEEP_MS 20
/* within which subscriptions/listen ends, so that clients do not all come to others at once */
#define LEAVE_MS ((uint64_t)MP_LIMIT(leave_ms, 5000))
#define LEAVE_TICK_MS 100
#define TURN_SENDS 500 /* messages that one turn sends to sessions, and to calls that listen to topics */

#define MAX_HOPS 8 /* gateways in a row */

/* True if gateways that are behind each other in a circle, or too many in a row, have sent the request on. */
static bool is_in_loop(const char *instance, const mp_stream *stream)
{
    int count;
    mp_str rest = mp_stream_known_header(stream, MP_HEADER_HOPS, &count), hop;
    if (count == 0)
        return false;
    int hops = 0;
    while ((hop = mp_str_cut(&rest, ',')).ptr != NULL)
        if (++hops >= MAX_HOPS || mp_str_is(mp_str_trim(hop), instance))
            return true;
    return count > 1;
}

/* The endpoint at this path; MP_HOP_ENDPOINTS: none. */
static mp_hop_endpoint endpoint_of(const mp_rpc *rpc, mp_str path)
{
    const mp_rpc_config *config = rpc->config;
    const mp_hop *hop = rpc->hop;
    if (hop != NULL)
        return hop->endpoint;
    if (mp_path_is(path, config->mcp))
        return MP_HOP_MCP;
    if (mp_path_is(path, config->sse))
        return MP_HOP_SSE;
    if (config->sse != NULL && mp_path_is(path, config->messages))
        return MP_HOP_MESSAGES;
    return MP_HOP_ENDPOINTS;
}

/* True if the path is one of RFC 8615 where clients look for an authorization server, and no auth script has an issuer.
 * These paths get 404, which says that there is none: after a 401 clients try to register with one that does not
 * exist. */
static bool is_without_issuer(const mp_rpc *rpc, const mp_stream *stream)
{
    mp_str path = mp_stream_request(stream)->path;
    return rpc->auth->resource_metadata.len == 0 && mp_str_starts(path, MP_STR("/.well-known/")) &&
           endpoint_of(rpc, path) == MP_HOP_ENDPOINTS;
}

/* Authentication comes first: an answer to an unauthenticated client does not depend on which paths, tools or sessions
 * exist. */
void mp_rpc_serve(void *ctx, mp_stream *stream)
{
    mp_rpc *rpc = ctx;
    mp_phase_set(MP_PHASE_AUTH);
    const mp_auth_facts *facts = rpc->auth;
    if (rpc->config->challenges != NULL && mp_serve_challenge(rpc, stream))
        return;
    if (facts->resource_metadata.len > 0 &&
        (mp_serve_metadata(rpc, stream) || (facts->has_pages && mp_page_begin(rpc, stream))))
        return;
    if (!mp_request_is_served(rpc, stream)) {
        mp_stat_add(&mp_stat_refused_origin, 1);
        mp_audit_request(stream, &mp_host_refused);
        mp_refuse(rpc, stream, mp_host_cause(rpc->config, stream), 403, MP_CODE_INVALID_REQUEST, MP_STR_NONE,
                  mp_host_refusal(rpc->config, stream), MP_STR_NONE);
        return;
    }
    if (mp_serve_preflight(rpc, stream))
        return;
    const char *instance = rpc->config->instance;
    if (instance != NULL && is_in_loop(instance, stream)) {
        mp_stat_add(&mp_stat_refused_loop, 1);
        mp_refuse(rpc, stream, MP_CAUSE_LOOP, 508, MP_CODE_INTERNAL, MP_STR_NONE,
                  "this request has come through this gateway before, or through 8 gateways: they are upstreams of "
                  "each other",
                  MP_STR_NONE);
        return;
    }
    if (rpc->auth->is_asked && !is_without_issuer(rpc, stream))
        mp_authn_begin(rpc, stream);
    else
        mp_serve_as(rpc, stream, mp_nobody);
}

static void serve_path(mp_rpc *rpc, mp_stream *stream)
{
    const mp_rpc_config *config = rpc->config;
    mp_str path = mp_stream_request(stream)->path;
    mp_hop_endpoint endpoint = endpoint_of(rpc, path);
    if (endpoint < MP_HOP_ENDPOINTS &&
        (mp_processes_are_several(rpc->processes) || mp_processes_nodes(rpc->processes) != NULL) &&
        mp_hop_send_on(rpc, stream, endpoint)) {
        return;
    } else if (endpoint == MP_HOP_MCP) {
        mp_serve_streamable(rpc, stream);
    } else if (endpoint == MP_HOP_SSE) {
        mp_serve_sse(rpc, stream);
    } else if (endpoint == MP_HOP_MESSAGES) {
        mp_serve_messages(rpc, stream);
    } else {
        mp_scoped_buf text = {0};
        const char *const known = config->mcp != NULL ? config->mcp : config->sse;
        mp_buf_put(&text, MP_STR("nothing is served at this path"));
        if (known != NULL)
            mp_buf_printf(&text, ": MCP is at %s%s", config->prefix, known);
        mp_buf_putc(&text, '\0');
        mp_refuse(rpc, stream, MP_CAUSE_PATH, 404, MP_CODE_INVALID_REQUEST, MP_STR_NONE, text.ptr, MP_STR_NONE);
    }
}

void mp_serve_as(mp_rpc *rpc, mp_stream *stream, mp_principal *principal)
{
    rpc->principal = principal;
    rpc->share = mp_principal_share(principal, stream);
    rpc->names_foreign_session = false;
    serve_path(rpc, stream);
    rpc->principal = mp_nobody;
    rpc->share = 0;
}

static void sweep(mp_timer *timer)
{
    mp_rpc *rpc = mp_container(timer, mp_rpc, sweep);
    if (rpc->draining)
        mp_readers_drain(rpc, false);
    else if (rpc->stdio == NULL) /* the session of stdio ends with the process */
        mp_session_table_sweep(rpc);
    mp_timer_start(rpc->loop, timer, rpc->draining ? DRAIN_SWEEP_MS : SWEEP_MS, sweep);
}

mp_rpc *mp_rpc_new(const mp_rpc_config *config, mp_session_table *table, mp_loop *loop, const mp_rpc_hooks *hooks,
                   void *ctx)
{
    mp_rpc *rpc = mp_new(sizeof *rpc);
    rpc->config = config;
    rpc->table = table;
    rpc->processes = mp_session_table_processes(table);
    rpc->loop = loop;
    rpc->hops = mp_hops_new(rpc, mp_serve_as);
    rpc->hooks = hooks;
    rpc->ctx = ctx;
    rpc->auth = hooks->auth(ctx);
    rpc->principal = mp_nobody;
    rpc->publisher = mp_publisher_new();
    rpc->no_stream = mp_stream_new_gone(loop);
    rpc->index = mp_session_table_join(table, rpc);
    mp_pressure_begin(rpc);
    mp_timer_start(loop, &rpc->sweep, SWEEP_MS, sweep);
    return rpc;
}

void mp_rpc_configure(mp_rpc *rpc, const mp_rpc_config *config)
{
    rpc->config = config;
    rpc->listed_host_len = 0;
    mp_pressure_configure(rpc);
}

mp_processes *mp_rpc_processes(const mp_rpc *rpc)
{
    return rpc->processes;
}

bool mp_rpc_renumber(mp_rpc *rpc)
{
    uint16_t number = mp_processes_number(rpc->processes);
    mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (nodes == NULL || !mp_processes_renumber(rpc->processes))
        return false;
    mp_nodes_renew_uid(nodes);
    for (unsigned shard = 0; shard < MP_SESSION_PAGES; shard++) {
        mp_session_list all = {0};
        mp_session_table_take_shard(rpc->table, shard, &all);
        for (size_t i = 0; i < all.count; i++) {
            if (mp_id_number(rpc->processes, mp_session_id(all.list[i])) == number)
                mp_session_close(all.list[i], &mp_stat_closed_number);
            mp_session_unref(all.list[i]);
        }
        free(all.list);
    }
    return true;
}

void mp_rpc_make_id(const mp_rpc *rpc, mp_str owner, char id[MP_ID + 1])
{
    mp_id_make(mp_session_table_processes(rpc->table), owner, id);
}

unsigned mp_rpc_index(const mp_rpc *rpc)
{
    return rpc->index;
}

void mp_rpc_hand_to(mp_rpc *rpc, void *ctx)
{
    void *old = rpc->ctx;
    rpc->ctx = ctx;
    rpc->auth = rpc->hooks->auth(ctx);
    mp_authn_restart_all(rpc, old);
}

bool mp_rpc_is_draining(const mp_rpc *rpc)
{
    return rpc->draining;
}

static void on_leave(mp_timer *timer)
{
    mp_rpc *rpc = mp_container(timer, mp_rpc, leave);
    uint64_t now = mp_monotonic_ms(), over = rpc->left_ms + LEAVE_MS;
    mp_subscribers_end(rpc, now < over ? (over - now) / LEAVE_TICK_MS + 1 : 1);
    if (now >= over)
        mp_hops_drain(rpc, true); /* streams that came since then, by kept connections, would hold the process */
    mp_timer_start(rpc->loop, timer, now < over ? LEAVE_TICK_MS : LEAVE_MS, on_leave);
}

void mp_rpc_leave(mp_rpc *rpc)
{
    rpc->has_left = true;
    rpc->left_ms = mp_monotonic_ms();
    mp_hops_drain(rpc, true);
    mp_timer_start(rpc->loop, &rpc->leave, LEAVE_TICK_MS, on_leave);
}

void mp_rpc_drain(mp_rpc *rpc, uint64_t ms)
{
    rpc->draining = true;
    rpc->ends_at = mp_monotonic_ms() + ms;
    mp_timer_stop(rpc->loop, &rpc->leave);
    mp_subscribers_end(rpc, 1);
    mp_readers_drain(rpc, false);
    mp_hops_drain(rpc, false);
    mp_timer_start(rpc->loop, &rpc->sweep, DRAIN_SWEEP_MS, sweep);
}

void mp_rpc_abort(mp_rpc *rpc, const char *why)
{
    const mp_stat *counter = rpc->is_input_over ? &mp_stat_tool_gone : &mp_stat_tool_shutdown;
    mp_authn_cancel_all(rpc, why);
    mp_hops_abort(rpc);
    MP_EACH(mp_call, call, &rpc->calls, link)
        mp_call_cancel(call, why, counter, MP_CANCEL_ANSWER);
    mp_detached_cancel(rpc, why);
}

bool mp_rpc_sweep(mp_rpc *rpc)
{
    bool has_more = false;
    if (mp_publisher_has_news(rpc)) {
        mp_publisher_turn(rpc, TURN_SENDS);
        mp_subscribers_notify(rpc, TURN_SENDS);
        has_more = mp_publisher_has_more(rpc);
    }
    if (rpc->draining && !mp_session_table_has_calls())
        mp_detached_cancel(rpc, "the gateway is stopping");
    mp_hops_turn(rpc);
    mp_calls_sweep(rpc);
    return has_more;
}

bool mp_rpc_has_work(const mp_rpc *rpc)
{
    return mp_publisher_has_news(rpc) || !mp_link_is_alone(&rpc->ended) || mp_hops_have_work(rpc);
}

int64_t mp_rpc_calls(const mp_rpc *rpc)
{
    return rpc->count + rpc->detached_count;
}

void mp_rpc_return_memory(mp_rpc *rpc)
{
    mp_calls_free_spare(rpc);
}

void mp_rpc_free(mp_rpc *rpc)
{
    mp_rpc_abort(rpc, "the gateway has stopped");
    mp_readers_drain(rpc, true);
    mp_calls_sweep(rpc);
    mp_calls_free_spare(rpc);
    mp_ended_calls_free(rpc->ended_calls);
    mp_consoles_free(rpc);
    mp_hops_free(rpc);
    mp_publisher_free(rpc->publisher);
    mp_stdio_free(rpc->stdio);
    mp_timer_stop(rpc->loop, &rpc->sweep);
    mp_timer_stop(rpc->loop, &rpc->leave);
    mp_stream_unref(rpc->no_stream);
    mp_pressure_end(rpc);
    mp_buf_clear(&rpc->envelope.scratch);
    mp_buf_clear(&rpc->scratch);
    free(rpc);
}

/* -- the table of sessions, and the data that each folder of this module has for a session ------------------------- */

static void end_session_here(mp_rpc *rpc, mp_session *session)
{
    mp_readers_end(rpc, session);
    mp_calls_end(rpc, session);
}

static void free_own_feed(mp_session *session)
{
    mp_feed *feed = session->feed;
    if (feed != NULL)
        mp_feed_unref(feed);
}

mp_session_table *mp_session_table_new(const mp_rpc_config *config, mp_processes *processes)
{
    static const mp_session_hooks hooks = {.on_closing = mp_event_log_forget,
                                           .on_closed = mp_session_unsubscribe_all,
                                           .end_here = end_session_here,
                                           .on_free = free_own_feed,
                                           .put_topics = mp_session_put_topics,
                                           .take_topics = mp_session_take_topics,
                                           .take_event = mp_feed_revive,
                                           .end_events = mp_feeds_revived};
    return mp_sessions_new(config, processes, &hooks, mp_topics_new(), mp_event_log_new(config));
}

void mp_session_table_keep(mp_session_table *table, mp_store *store, bool keeps, bool is_first)
{
    mp_sessions_keep(table, store, &mp_streamable_transport, keeps, is_first);
}

void mp_session_table_configure(mp_session_table *table, const mp_rpc_config *config)
{
    mp_sessions_configure(table, config);
    mp_event_log_configure(mp_session_table_event_log(table), config);
}

void mp_session_table_free(mp_session_table *table)
{
    mp_topics *topics = mp_session_table_topics(table);
    mp_event_log *event_log = mp_session_table_event_log(table);
    mp_sessions_free(table);
    mp_topics_free(topics);
    mp_event_log_free(event_log);
}
