/* forward.c: serves a call of an upstream's tool without Lua, from its start to its end; see forward.h. */
#include "lib/shortcut/forward.h"
#include "lib/spans.h"
#include "lib/upstream/handles.h"

MP_COUNTER(calls_forwarded, "calls_forwarded", "", "",
           "tools/call requests that were forwarded to an upstream and answered without Lua")
MP_COUNTER(calls_taken_over, "calls_taken_over", "", "",
           "tools/call requests that were forwarded to an upstream without Lua, and that Lua took over")

/* Slots of the stack of the call's coroutine. */
enum { TASK = 1, TOOL, EXCHANGE, SLOTS = EXCHANGE };

static mp_forwards *forwards_of(const mp_lib_task *task)
{
    return mp_lib_of_vm(task->super.vm)->forwards;
}

/* Answers with the upstream's result. False, and nothing has happened, for a result that Lua has to read. */
static bool answer_call(mp_lib_task *task, mp_call *call, const mp_exchange_event *event)
{
    const mp_forwards *forwards = forwards_of(task);
    bool has_failed;
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return false;
    size_t start = out->len;
    if (!mp_forward_put_result(out, forwards, &forwards->steps[mp_call_era(call) - mp_eras], event->answer,
                               &has_failed))
        return false;
    size_t size = out->len - start;
    mp_stat_add(&mp_stat_calls_forwarded, 1); /* counted before the client can look at the counter */
    if (has_failed)
        mp_call_fails(call);
    task->is_forwarded = true;
    mp_task_end_answer(task, size);
    return true;
}

/* Passes the exchange to the library in Lua, before any of its events was taken.  [-n, +0, throws, parks] */
static int hand_over(lua_State *L, mp_lib_task *task, const mp_call *call)
{
    const mp_era *era = mp_call_era(call);
    int64_t id;
    mp_stat_add(&mp_stat_calls_taken_over, 1);
    lua_settop(L, SLOTS);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, forwards_of(task)->take_over);
    lua_insert(L, TASK + 1); /* the stack is: task, take_over, tool, exchange */
    if (!mp_upstream_push_channel_of(L, EXCHANGE + 1, &id))
        return luaL_error(L, "the request to the upstream was closed");
    mp_call_push(L, task, 0);
    lua_pushinteger(L, (lua_Integer)id);
    lua_pushstring(L, era == NULL ? NULL : era->date);
    lua_callk(L, 6, 2, (lua_KContext)task, mp_call_done);
    return mp_call_done(L, LUA_OK, (lua_KContext)task);
}

/* True for progress for which the client has not asked: it has kept the exchange alive, and is not passed on. */
static bool is_unwanted(const mp_call *call, const mp_exchange_event *event)
{
    return event->kind == MP_EVENT_NOTE && mp_call_progress_token(call).len == 0 &&
           mp_str_is(event->method, "notifications/progress");
}

/* The exchange has an event, or has failed.  [-n, +0, throws, parks] */
static int has_come(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    mp_lib_task *task = lua_touserdata(L, TASK);
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled */
    bool has_dropped = false;
    const mp_exchange_event *event = mp_upstream_peek(L, EXCHANGE);
    for (; event != NULL && is_unwanted(call, event); event = mp_upstream_peek(L, EXCHANGE)) {
        mp_upstream_skip(L, EXCHANGE);
        has_dropped = true;
    }
    if (has_dropped && event == NULL) {
        lua_settop(L, SLOTS);
        return mp_upstream_wait(L, EXCHANGE, has_come);
    }
    if (event == NULL || event->kind != MP_EVENT_ANSWER || event->is_error || !answer_call(task, call, event))
        return hand_over(L, task, call);
    mp_upstream_release_exchange(L, EXCHANGE);
    return 0;
}

/* The notification by which an upstream learns that the request is cancelled; empty where the end of its stream says
 * it. */
static mp_str put_cancel(mp_forwards *forwards, const mp_channel *channel, const mp_era *era, int64_t id)
{
    mp_buf *out = &forwards->cancel;
    out->len = 0;
    if (!era->has_sessions && strcmp(mp_channel_transport(channel), "http") == 0)
        return MP_STR_NONE;
    mp_buf_printf(out,
                  "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%lld,"
                  "\"reason\":\"the client cancelled it\"}}",
                  (long long)id);
    return mp_buf_str(out);
}

/* Begins the span of the request to the upstream. The upstream's name for the tool is JSON text. */
static mp_open_span begin_span(mp_lib_task *task, const mp_route *route, const mp_era *era)
{
    char name[MP_SPAN_NAME_BYTES];
    mp_str tool = {route->json_name.ptr + 1, route->json_name.len - 2};
    if (mp_task_trace(task) == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    snprintf(name, sizeof name, "tools/call %.*s", MP_STR_ARG(tool));
    mp_open_span span = mp_task_span_open(task, MP_SPAN_CLIENT, mp_str_of(name));
    mp_trace *trace = mp_open_span_trace(&span);
    mp_span_text(trace, span.span, "mcp.method.name", MP_STR("tools/call"));
    mp_span_text(trace, span.span, "moonpool.upstream", route->upstream);
    mp_span_text(trace, span.span, "mcp.protocol.version", mp_str_of(era->date));
    mp_span_text(trace, span.span, "gen_ai.tool.name", tool);
    return span;
}

/* The trace context of the request, as JSON strings. */
typedef struct {
    char parent[MP_TRACEPARENT_BYTES + 3], state[2 * MP_TRACESTATE_BYTES + 3];
} own_context;

static void set_context(const mp_open_span *span, own_context *own, mp_forward_target *target, mp_str headers[2])
{
    const mp_trace *trace = mp_open_span_trace(span);
    mp_trace_context context = mp_span_context(trace, span->span);
    mp_scoped_buf state = {0};
    own->parent[0] = '"';
    mp_trace_context_write(&context, own->parent + 1);
    own->parent[MP_TRACEPARENT_BYTES + 1] = '"';
    target->traceparent = (mp_str){own->parent, MP_TRACEPARENT_BYTES + 2};
    headers[0] = (mp_str){own->parent + 1, MP_TRACEPARENT_BYTES};
    headers[1] = mp_trace_state(trace);
    if (headers[1].len > 0)
        mp_json_put_string(&state, headers[1]);
    if (state.len <= sizeof own->state) {
        memcpy(own->state, state.len == 0 ? "" : state.ptr, state.len);
        target->tracestate = (mp_str){own->state, state.len};
    }
}

/* Sends the call on an open channel, and pushes the exchange. False, pushing nothing, if nothing was sent.  [-0, +0|1,
 * throws] */
static bool send_call(lua_State *L, mp_lib_task *task, const mp_call *call, const mp_route *route, mp_channel *channel)
{
    mp_forwards *forwards = forwards_of(task);
    const mp_era *era = mp_era_find(mp_channel_revision(channel));
    if (era == NULL)
        return false;
    mp_forward_target target = {.route = route, .era = era, .id = mp_channel_next_id(channel)};
    mp_str traces[2] = {MP_STR_NONE, MP_STR_NONE}, own_traces[2] = {MP_STR_NONE, MP_STR_NONE};
    mp_open_span span = begin_span(task, route, era);
    own_context own;
    if (mp_lib_of(L)->propagates_upstreams && mp_trace_goes_on(mp_open_span_trace(&span)))
        set_context(&span, &own, &target, own_traces);
    forwards->message.len = 0;
    if (!mp_forward_put_message(&forwards->message, forwards, call, &target, traces)) {
        mp_open_span_close(&span);
        return false;
    }
    if (own_traces[0].len > 0)
        memcpy(traces, own_traces, sizeof traces);
    char lines[2][560];
    const char *headers[5], **header = headers;
    if (!era->has_sessions) {
        *header++ = "Mcp-Method: tools/call";
        *header++ = route->header.ptr;
    }
    for (int i = 0; i < 2; i++)
        if (traces[i].len > 0) {
            snprintf(lines[i], sizeof lines[i], "%s: %.*s", i == 0 ? "traceparent" : "tracestate", (int)traces[i].len,
                     traces[i].ptr);
            *header++ = lines[i];
        }
    *header = NULL;
    mp_exchange_options options = {.message = mp_buf_str(&forwards->message),
                                   .has_id = true,
                                   .id = target.id,
                                   .headers = headers,
                                   .cancel = put_cancel(forwards, channel, era, target.id)};
    mp_upstream_failure failure;
    if (mp_upstream_begin_exchange(L, channel, &options, &failure)) {
        mp_upstream_set_span(L, &span);
        return true;
    }
    mp_open_span_close(&span);
    mp_upstream_failure_clear(&failure);
    return false;
}

mp_general mp_forward_run(lua_State *L, mp_lib_task *task, const mp_plain *it, int *count)
{
    mp_forwards *forwards = it->lib->forwards;
    mp_upstream_host *host = it->lib->upstreams;
    int hops;
    if (host == NULL || !forwards->steps[it->place].is_known)
        return MP_GENERAL_NO_ROUTE;
    const mp_route *route = mp_route_find(forwards, mp_call_tool(it->call));
    if (route == NULL)
        return MP_GENERAL_NO_ROUTE;
    if (it->session != NULL && mp_session_log_level(it->session) >= 0)
        return MP_GENERAL_LOG_LEVEL; /* the upstream may have to be told the log level of the client */
    mp_call_header(it->call, "moonpool-hops", &hops);
    if (hops > 0)
        return MP_GENERAL_HOPS;
    mp_str key = mp_forward_key(forwards, it->call, route);
    mp_channel *channel = key.len == 0 ? NULL : mp_channel_find_open(host, route->upstream, key);
    if (channel == NULL)
        return MP_GENERAL_NO_CHANNEL;
    lua_rawgeti(L, LUA_REGISTRYINDEX, route->tool);
    mp_thing_metrics *metrics = route->metrics;
    mp_shortcut_subscribe_as(it);
    bool is_sent = send_call(L, task, it->call, route, channel);
    mp_channel_unref(channel);
    if (!is_sent) {
        lua_settop(L, TASK);
        return MP_GENERAL_NOT_SENT;
    }
    task->has_plan = true;
    mp_call_measure(it->call, metrics);
    mp_call_unhurried(it->call);
    *count = mp_upstream_wait(L, EXCHANGE, has_come);
    return MP_PLAIN;
}
