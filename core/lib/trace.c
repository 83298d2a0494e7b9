/* trace.c: spans of tasks, and host.trace, by which the library in Lua makes them. */
#include "lib/bindings.h"
#include "lib/spans.h"
#include <lauxlib.h>

#define SPAN "moonpool.span"

mp_trace *mp_task_trace(const mp_lib_task *task)
{
    const mp_call *call = task == NULL ? NULL : mp_container(task->super.payer, mp_lib_task, super)->call;
    return call == NULL ? NULL : mp_call_trace(call);
}

mp_open_span mp_task_span_open(mp_lib_task *task, mp_span_kind kind, mp_str name)
{
    mp_trace *trace = mp_task_trace(task);
    if (trace == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    return (mp_open_span){task, task->super.serial, mp_span_begin(trace, task->span, kind, name)};
}

mp_trace *mp_open_span_trace(const mp_open_span *span)
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

void mp_open_span_fail(const mp_open_span *span, const char *type, mp_str message)
{
    mp_trace *trace = mp_open_span_trace(span);
    if (trace == NULL)
        return;
    if (type != NULL)
        mp_span_text(trace, span->span, "error.type", mp_str_of(type));
    mp_span_fail(trace, span->span, message);
}

/* -- host.trace ------------------------------------------------------------------------------------------------------ */

/* A span that is the current one of its task until it ends. */
typedef struct {
    mp_open_span open;
    mp_span before; /* the current one before it */
} current_span;

static mp_lib_task *running_task(lua_State *L)
{
    mp_task *task = mp_vm_of(L)->running;
    return task == NULL ? NULL : mp_container(task, mp_lib_task, super);
}

static void finish_span(current_span *span)
{
    mp_lib_task *task = span->open.task;
    if (task == NULL)
        return;
    if (task->super.serial == span->open.serial && task->span == span->open.span)
        task->span = span->before;
    mp_open_span_close(&span->open);
}

/* trace.begin(name, detail): begins a span, which spans that begin before its end are below; nil where the call is not recorded. `detail` is
 * appended to the name.  [-0, +1, throws] */
static int l_begin(lua_State *L)
{
    mp_lib_task *task = running_task(L);
    if (task == NULL || mp_task_trace(task) == NULL)
        return 0;
    mp_str name = mp_check_str(L, 1);
    if (!lua_isnoneornil(L, 2)) {
        lua_pushfstring(L, "%s %s", name.ptr, luaL_checkstring(L, 2));
        name = mp_check_str(L, -1);
    }
    current_span *span = lua_newuserdatauv(L, sizeof *span, 0);
    *span = (current_span){.before = task->span};
    luaL_setmetatable(L, SPAN);
    span->open = mp_task_span_open(task, MP_SPAN_INTERNAL, name);
    task->span = span->open.span;
    return 1;
}

/* trace.finish(span): ends the span.  [-0, +0, throws] */
static int l_finish(lua_State *L)
{
    finish_span(luaL_checkudata(L, 1, SPAN));
    return 0;
}

/* __close(span, error)  [-0, +0, throws] */
static int l_close(lua_State *L)
{
    current_span *span = luaL_checkudata(L, 1, SPAN);
    if (!lua_isnoneornil(L, 2))
        mp_open_span_fail(&span->open, NULL, MP_STR_NONE);
    finish_span(span);
    return 0;
}

/* trace.set(span, key, value): adds an attribute: a text, a number or a boolean.  [-0, +0, throws] */
static int l_set(lua_State *L)
{
    const current_span *span = luaL_checkudata(L, 1, SPAN);
    const char *key = luaL_checkstring(L, 2);
    mp_trace *trace = mp_open_span_trace(&span->open);
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

void mp_lib_trace(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"trace.begin", l_begin}, {"trace.finish", l_finish}, {"trace.set", l_set}, {NULL, NULL}};
    luaL_newmetatable(L, SPAN);
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__close");
    lua_pushliteral(L, "span");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    mp_set_members(L, functions, 0);
}
