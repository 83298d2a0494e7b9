/* trace.c: spans of tasks, and host.trace, by which the library in Lua makes them. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/spans.h"
#include <lauxlib.h>

#define SPAN "moonpool.span"
#define MAX_KEY 128

mp_trace *MP_NULLABLE mp_task_trace(const mp_lib_task *MP_NULLABLE task)
{
    const mp_call *call = task == NULL ? NULL : mp_container(task->super.payer, mp_lib_task, super)->call;
    return call == NULL ? NULL : mp_call_trace(call);
}

mp_open_span mp_task_span_open(mp_lib_task *MP_NULLABLE task, mp_span_kind kind, mp_str name)
{
    mp_trace *trace = mp_task_trace(task);
    if (task == NULL || trace == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    return (mp_open_span){task, task->super.serial, mp_span_begin(trace, task->span, kind, name)};
}

mp_trace *MP_NULLABLE mp_open_span_trace(const mp_open_span *span)
{
    return span->task == NULL || span->task->super.serial != span->serial ? NULL : mp_task_trace(span->task);
}

void mp_open_span_close(mp_open_span *span)
{
    mp_trace *trace = mp_open_span_trace(span);
    if (trace != NULL)
        mp_span_end(trace, span->span);
    span->task = NULL;
}

void mp_open_span_fail(const mp_open_span *span, const char *MP_NULLABLE type, mp_str message)
{
    mp_trace *trace = mp_open_span_trace(span);
    if (trace == NULL)
        return;
    if (type != NULL)
        mp_span_text(trace, span->span, "error.type", mp_str_of(type));
    mp_span_fail(trace, span->span, message);
}

/* -- host.trace ---------------------------------------------------------------------------------------------------- */

/* A span that is the current one of its task until it ends. */
typedef struct {
    mp_open_span open;
    mp_span before; /* the current one before it */
} current_span;

static void finish_span(current_span *span)
{
    mp_lib_task *task = span->open.task;
    if (task == NULL)
        return;
    if (task->super.serial == span->open.serial && task->span == span->open.span)
        task->span = span->before;
    mp_open_span_close(&span->open);
}

/* trace.begin(name, detail, is_client): begins a span, which spans that begin before its end are below; nil where the
 * call is not recorded. `detail` is appended to the name; `is_client`: the span is a request to another program.  [-0,
 * +1, throws] */
static int l_begin(lua_State *L)
{
    mp_lib_task *task = mp_lib_task_running(L);
    if (task == NULL || mp_task_trace(task) == NULL)
        return 0;
    lua_settop(L, 3);
    mp_str name = mp_check_str(L, 1);
    if (!lua_isnil(L, 2)) {
        lua_pushfstring(L, "%s %s", name.ptr, luaL_checkstring(L, 2));
        name = mp_check_str(L, -1);
    }
    current_span *span = lua_newuserdatauv(L, sizeof *span, 0);
    *span = (current_span){.before = task->span};
    luaL_setmetatable(L, SPAN);
    mp_span_kind kind = lua_toboolean(L, 3) ? MP_SPAN_CLIENT : MP_SPAN_INTERNAL;
    span->open = mp_task_span_open(task, kind, name);
    task->span = span->open.span;
    return 1;
}

/* trace.finish(span), __close: ends the span. An error that passes is not marked: it may be a question to the client.
 * [-0, +0, throws] */
static int l_finish(lua_State *L)
{
    finish_span(luaL_checkudata(L, 1, SPAN));
    return 0;
}

/* trace.set(span, key, value), span:set(key, value): adds an attribute: a text, a number or a boolean.  [-0, +0,
 * throws] */
static int l_set(lua_State *L)
{
    const current_span *span = luaL_checkudata(L, 1, SPAN);
    mp_str key_text = mp_check_str(L, 2);
    luaL_argcheck(L, key_text.len > 0 && key_text.len <= MAX_KEY, 2, "the key of an attribute has 1 to 128 bytes");
    const char *key = key_text.ptr;
    mp_trace *trace = mp_open_span_trace(&span->open);
    if (trace == NULL && (lua_isboolean(L, 3) || lua_isnumber(L, 3) || lua_isstring(L, 3)))
        return 0;
    if (lua_isboolean(L, 3))
        mp_span_bool(trace, span->open.span, key, lua_toboolean(L, 3));
    else if (lua_isinteger(L, 3))
        mp_span_int(trace, span->open.span, key, lua_tointeger(L, 3));
    else if (lua_type(L, 3) == LUA_TNUMBER)
        mp_span_double(trace, span->open.span, key, lua_tonumber(L, 3));
    else
        mp_span_text(trace, span->open.span, key, mp_check_str(L, 3));
    return 0;
}

/* span:event(name): adds an event that happens now.  [-0, +0, throws] */
static int l_event(lua_State *L)
{
    const current_span *span = luaL_checkudata(L, 1, SPAN);
    mp_str name = mp_check_str(L, 2);
    luaL_argcheck(L, name.len > 0, 2, "an event has a name");
    mp_span_event(mp_open_span_trace(&span->open), span->open.span, name);
    return 0;
}

/* trace.id(): the id of the trace; nil where the call is not recorded.  [-0, +0|1, throws] */
static int l_id(lua_State *L)
{
    char parent[MP_TRACEPARENT_BYTES + 1];
    mp_trace *trace = mp_task_trace(mp_lib_task_running(L));
    lua_settop(L, 0);
    if (trace == NULL || !mp_trace_goes_on(trace)) {
        lua_pushnil(L);
        return 1;
    }
    mp_trace_context context = mp_span_context(trace, MP_ROOT_SPAN);
    mp_trace_context_write(&context, parent);
    lua_pushlstring(L, parent + 3, 32);
    return 1;
}

/* trace.fail(span, type, message): sets the status ERROR, and error.type where `type` is a text.  [-0, +0, throws] */
static int l_fail(lua_State *L)
{
    const current_span *span = luaL_checkudata(L, 1, SPAN);
    const char *type = luaL_optstring(L, 2, NULL);
    mp_open_span_fail(&span->open, type, lua_isnoneornil(L, 3) ? MP_STR_NONE : mp_check_str(L, 3));
    return 0;
}

/* trace.context(span): traceparent and tracestate for a request that the span sends to an upstream; nil where none are
 * sent. Without a span: those of the current one.  [-0, +0|2, throws] */
static int l_context(lua_State *L)
{
    char parent[MP_TRACEPARENT_BYTES + 1];
    const current_span *span = lua_isnoneornil(L, 1) ? NULL : luaL_checkudata(L, 1, SPAN);
    const mp_lib_task *task = mp_lib_task_running(L);
    mp_trace *trace = span == NULL ? mp_task_trace(task) : mp_open_span_trace(&span->open);
    if (task == NULL || trace == NULL || !mp_trace_goes_on(trace) || !mp_lib_of(L)->propagates_upstreams)
        return 0;
    mp_trace_context context = mp_span_context(trace, span == NULL ? task->span : span->open.span);
    mp_str state = mp_trace_state(trace);
    mp_trace_context_write(&context, parent);
    lua_pushstring(L, parent);
    if (state.len > 0)
        lua_pushlstring(L, state.ptr, state.len);
    else
        lua_pushnil(L);
    return 2;
}

/* Copies the hosts to which the trace goes on.  [-0, +0, throws] */
static void copy_hosts(lua_State *L, const mp_lib_config *config)
{
    mp_lib *lib = mp_lib_of(L);
    size_t count = 0, bytes = 0;
    for (; config->propagate != NULL && config->propagate[count] != NULL; count++) {
        bytes += strlen(config->propagate[count]) + 1;
        lib->propagates_upstreams |= strcmp(config->propagate[count], "upstreams") == 0;
    }
    const char **list = lua_newuserdatauv(L, (count + 1) * sizeof *list + bytes, 0);
    char *at = (char *)(list + count + 1);
    for (size_t i = 0; i < count; i++) {
        list[i] = strcpy(at, config->propagate[i]);
        at += strlen(at) + 1;
    }
    list[count] = NULL;
    lib->propagate = list;
    luaL_ref(L, LUA_REGISTRYINDEX);
}

/* trace.idle(): the span that scripts get where the call is not recorded. Upvalue: the span.  [-0, +1] */
static int l_idle(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

MP_LIBRARY(trace)
{
    static const luaL_Reg functions[] = {
        {"trace.begin", l_begin},     {"trace.finish", l_finish}, {"trace.set", l_set}, {"trace.fail", l_fail},
        {"trace.context", l_context}, {"trace.id", l_id},         {NULL, NULL}};
    static const luaL_Reg methods[] = {{"set", l_set}, {"event", l_event}, {NULL, NULL}};
    copy_hosts(L, config);
    mp_push_metatable(L, SPAN, NULL);
    mp_field_function(L, "__close", l_finish);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pushliteral(L, "span");
    lua_setfield(L, -2, "__name");
    lua_pop(L, 1);
    mp_set_members(L, functions, 0);
    current_span *idle = lua_newuserdatauv(L, sizeof *idle, 0); /* what scripts get where the call is not recorded */
    *idle = (current_span){.open = {NULL, 0, MP_NO_SPAN}};
    luaL_setmetatable(L, SPAN);
    lua_pushcclosure(L, l_idle, 1);
    mp_set_member(L, -2, "trace.idle");
}
