/* forward.c: serves a call of an upstream's tool without Lua, from its start to its end; see forward.h. Of a tool with
 * policies, these run in Lua, and what next() does is without it. */
#include "lib/shortcut/forward.h"
#include "lib/shortcut/audit_line.h"
#include "lib/fields.h"
#include "lib/spans.h"
#include "lib/upstream/handles.h"

MP_COUNTER(
    calls_forwarded, "calls_forwarded", "", "",
    "tools/call requests that were forwarded to an upstream without Lua, whose result went to the client or to the "
    "policies of the tool")
MP_COUNTER(calls_taken_over, "calls_taken_over", "", "",
           "tools/call requests that were forwarded to an upstream without Lua, and that Lua took over")

/* Slots of the stack of the call's coroutine. */
enum { TASK = 1, TOOL, EXCHANGE, SLOTS = EXCHANGE };

static mp_forwards *forwards_of(const mp_lib_task *task)
{
    return mp_lib_of_vm(task->super.vm)->forwards;
}

/* Answers with the upstream's result. False, and nothing has happened, for a result that Lua has to read: so it has
 * where the tool has failed and the audit line quotes why.  [-0, +0] */
static bool answer_call(lua_State *L, mp_lib_task *task, mp_call *call, const mp_exchange_event *event)
{
    const mp_forwards *forwards = forwards_of(task);
    bool has_failed, is_audited = mp_audit_is_begun(&task->audit);
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return false;
    size_t start = out->len;
    if (!mp_forward_put_result(out, forwards, &forwards->steps[mp_call_era(call) - mp_eras], event->answer,
                               &has_failed))
        return false;
    if (has_failed && is_audited) {
        out->len = start;
        return false;
    }
    size_t size = out->len - start;
    mp_stat_add(&mp_stat_calls_forwarded, 1); /* counted before the client can look at the counter */
    if (is_audited)
        mp_audit_end(&task->audit,
                     &(mp_audit_outcome){.outcome = "ok", .channel = mp_upstream_channel_key(L, EXCHANGE)});
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

/* The event of the exchange at `index` that decides about the call. NULL: it has failed, or `*waits` is set: nothing
 * has come but progress for which the client has not asked.  [-0, +0] */
static const mp_exchange_event *MP_NULLABLE first_event(lua_State *L, int index, const mp_call *call, bool *waits)
{
    bool has_dropped = false;
    const mp_exchange_event *event = mp_upstream_peek(L, index);
    for (; event != NULL && is_unwanted(call, event); event = mp_upstream_peek(L, index)) {
        mp_upstream_skip(L, index);
        has_dropped = true;
    }
    *waits = has_dropped && event == NULL;
    return event;
}

/* The exchange has an event, or has failed.  [-n, +0, throws, parks] */
static int has_come(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    mp_lib_task *task = lua_touserdata(L, TASK);
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled */
    bool waits;
    const mp_exchange_event *event = first_event(L, EXCHANGE, call, &waits);
    if (waits) {
        lua_settop(L, SLOTS);
        return mp_upstream_wait(L, EXCHANGE, has_come);
    }
    if (event == NULL || event->kind != MP_EVENT_ANSWER || event->is_error || !answer_call(L, task, call, event))
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

/* How a call is forwarded. */
typedef struct {
    const mp_route *route;
    const mp_forward_client *client;
    mp_channel *channel; /* counted reference, until the message is sent */
} way;

/* Finds the way of a call; `scopes` are those of its principal. MP_PLAIN, or the reason for the general way. */
static mp_general find_way(const mp_lib *lib, mp_call *call, uint64_t scopes, way *it)
{
    mp_upstream_host *host = lib->upstreams;
    const mp_session *session = mp_call_session(call);
    int hops;
    const mp_route *route = host == NULL ? NULL : mp_route_find(lib->forwards, mp_call_tool(call));
    if (route == NULL)
        return MP_GENERAL_NO_ROUTE;
    if ((route->scopes & ~scopes) != 0)
        return MP_GENERAL_RIGHTS;
    if (session != NULL && mp_session_log_level(session) >= 0)
        return MP_GENERAL_LOG_LEVEL; /* the upstream may have to be told the log level of the client */
    mp_call_header(call, "moonpool-hops", &hops);
    if (hops > 0)
        return MP_GENERAL_HOPS;
    const mp_forward_client *client = mp_forward_client_of(lib->forwards, call, route);
    mp_channel *channel =
        client == NULL ? NULL : mp_channel_find_open(MP_NEVER_NULL(host), route->upstream, mp_buf_str(&client->key));
    if (channel == NULL)
        return MP_GENERAL_NO_CHANNEL;
    *it = (way){route, client, channel};
    return MP_PLAIN;
}

/* The header lines of a message, ended by NULL, and their text. */
typedef struct {
    const char *list[4 + MP_FORWARD_PASS + 1];
    size_t count;
    char traces[2][560];
    mp_buf *passed; /* that of mp_forwards */
} lines;

/* True if a header of the client can be passed on, as in lua/moonpool/upstream/message.lua. */
static bool is_printable(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((text.ptr[i] < ' ' && text.ptr[i] != '\t') || text.ptr[i] > '~')
            return false;
    return true;
}

/* Adds the headers of the client that the upstream gets. */
static void pass_headers(lines *to, const mp_route *route, mp_call *call)
{
    size_t starts[MP_FORWARD_PASS], count = 0;
    for (size_t i = 0; i < route->pass_count; i++) {
        int times;
        mp_str value = mp_str_trim(mp_call_header(call, route->pass[i][1].ptr, &times));
        if (value.ptr == NULL || !is_printable(value))
            continue;
        starts[count++] = to->passed->len;
        mp_buf_printf(to->passed, "%s: %.*s%c", route->pass[i][0].ptr, MP_STR_ARG(value), 0);
    }
    for (size_t i = 0; i < count; i++) /* the text does not move any more */
        to->list[to->count++] = to->passed->ptr + starts[i];
}

static void put_lines(lines *to, const mp_route *route, const mp_era *era, mp_call *call, const mp_str traces[2])
{
    if (!era->has_sessions) {
        to->list[to->count++] = "Mcp-Method: tools/call";
        to->list[to->count++] = route->header.ptr;
    }
    for (int i = 0; i < 2; i++)
        if (traces[i].len > 0) {
            snprintf(to->traces[i], sizeof to->traces[i], "%s: %.*s", i == 0 ? "traceparent" : "tracestate",
                     (int)traces[i].len, traces[i].ptr);
            to->list[to->count++] = to->traces[i];
        }
    pass_headers(to, route, call);
}

/* Sends the call on its channel, and pushes the exchange. `arguments`: JSON in the place of the client's; without
 * `ptr`: the client's. False, pushing nothing, if nothing was sent.  [-0, +0|1, throws] */
static bool send_call(lua_State *L, mp_lib_task *task, mp_call *call, const way *it, mp_str arguments)
{
    mp_forwards *forwards = forwards_of(task);
    const mp_route *route = it->route;
    mp_channel *channel = it->channel;
    const mp_era *era = mp_era_find(mp_channel_revision(channel)), *asked_in = mp_call_era(call);
    if (era == NULL || asked_in == NULL)
        return false;
    /* a call of a client that can have no task waits in the library in Lua for one that the upstream makes */
    bool waits = route->may_be_task && asked_in->has_sessions;
    mp_forward_target target = {.route = route,
                                .era = era,
                                .id = mp_channel_next_id(channel),
                                .able = mp_buf_str(&it->client->able[waits]),
                                .arguments = arguments};
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
    lines headers = {.passed = &forwards->passed};
    forwards->passed.len = 0;
    put_lines(&headers, route, era, call, traces);
    mp_exchange_options options = {.message = mp_buf_str(&forwards->message),
                                   .has_id = true,
                                   .id = target.id,
                                   .takes_questions = it->client->takes_questions,
                                   .headers = headers.list,
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

/* -- tools with policies ------------------------------------------------------------------------------------------- */

/* Has Lua run the policies of the tool at TOOL: run_policies(tool, call, revision).  [-n, +0, throws, parks] */
static int run_policies(lua_State *L, mp_lib_task *task, const mp_call *call)
{
    const mp_era *era = mp_call_era(call);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, forwards_of(task)->run_policies);
    lua_insert(L, TASK + 1); /* the stack is: task, run_policies, tool */
    mp_call_push(L, task, 0);
    lua_pushstring(L, era == NULL ? NULL : era->date);
    lua_callk(L, 3, 2, (lua_KContext)task, mp_call_done);
    return mp_call_done(L, LUA_OK, (lua_KContext)task);
}

/* Slots of the stack of forward.call. CALLED: the exchange. */
enum { CALL = 1, ARGUMENTS, CAN_ASK, CALLED };

/* The step of the revision to which policies belong: results of that revision are base results. */
static const mp_forward_step *base_step(const mp_forwards *forwards)
{
    size_t i = 0;
    while (i < MP_PLAIN_ERAS - 1 && !forwards->steps[i].is_base)
        i++;
    return &forwards->steps[i];
}

/* The exchange of forward.call has an event, or has failed.  [-n, +n, throws, parks] */
static int has_come_inside(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    mp_lib_task *task = mp_check_call(L);
    mp_forwards *forwards = forwards_of(task);
    bool waits = false, has_failed;
    int64_t id;
    lua_settop(L, CALLED);
    const mp_exchange_event *event = task->call == NULL ? NULL : first_event(L, CALLED, task->call, &waits);
    if (waits)
        return mp_upstream_wait(L, CALLED, has_come_inside);
    forwards->result.len = 0;
    if (event != NULL && event->kind == MP_EVENT_ANSWER && !event->is_error &&
        mp_forward_put_result(&forwards->result, forwards, base_step(forwards), event->answer, &has_failed)) {
        mp_stat_add(&mp_stat_calls_forwarded, 1);
        task->is_forwarded = true;
        mp_str key = mp_upstream_channel_key(L, CALLED);
        lua_pushlstring(L, forwards->result.ptr, forwards->result.len);
        lua_pushlstring(L, key.ptr, key.len);
        lua_pushvalue(L, CAN_ASK);
        mp_upstream_release_exchange(L, CALLED);
        return 3;
    }
    mp_stat_add(&mp_stat_calls_taken_over, 1);
    lua_pushnil(L);
    lua_pushvalue(L, CALLED);
    if (!mp_upstream_push_channel_of(L, CALLED, &id))
        return luaL_error(L, "the request to the upstream was closed");
    lua_pushinteger(L, (lua_Integer)id);
    return 4;
}

int mp_forward_call(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    mp_str arguments = mp_opt_str(L, ARGUMENTS);
    mp_call *call = task->call;
    size_t count;
    way it;
    lua_settop(L, ARGUMENTS);
    /* the principal has the scopes of the tool, as its policies run */
    if (call == NULL || mp_call_flat(call, &count) == NULL || find_way(mp_lib_of(L), call, UINT64_MAX, &it) != MP_PLAIN)
        return 0;
    lua_pushboolean(L, it.client->can_ask);
    bool is_sent = send_call(L, task, call, &it, arguments);
    mp_channel_unref(it.channel);
    return is_sent ? mp_upstream_wait(L, CALLED, has_come_inside) : 0;
}

/* -- a call from its start ----------------------------------------------------------------------------------------- */

static void begin_audit(mp_lib_task *task, const mp_plain *it, const mp_route *route)
{
    if (it->lib->audit == MP_AUDIT_MODE_OFF)
        return;
    mp_audit_begin_thing(&task->audit, it->lib, it->call,
                         &(mp_audit_facts){.name = route->node.key,
                                           .upstream = route->upstream,
                                           .upstream_name = route->original,
                                           .definition = route->definition,
                                           .approved = route->approved});
}

mp_general mp_forward_run(lua_State *L, mp_lib_task *task, const mp_plain *it, int *count)
{
    way found;
    if (!it->lib->forwards->steps[it->place].is_known)
        return MP_GENERAL_NO_ROUTE;
    mp_general why = find_way(it->lib, it->call, it->rights->scopes, &found);
    if (why != MP_PLAIN)
        return why;
    const mp_route *route = found.route;
    lua_rawgeti(L, LUA_REGISTRYINDEX, route->tool);
    mp_shortcut_subscribe_as(it);
    begin_audit(task, it, route);
    bool goes_on = route->has_policies || send_call(L, task, it->call, &found, MP_STR_NONE);
    mp_channel_unref(found.channel);
    if (!goes_on) {
        mp_audit_discard(&task->audit);
        lua_settop(L, TASK);
        return MP_GENERAL_NOT_SENT;
    }
    task->has_plan = true;
    mp_call_measure(it->call, route->metrics);
    if (route->has_policies) {
        *count = run_policies(L, task, it->call);
        return MP_PLAIN;
    }
    mp_call_unhurried(it->call);
    *count = mp_upstream_wait(L, EXCHANGE, has_come);
    return MP_PLAIN;
}
