/* answer.c: encodes a Lua value as the answer to a call, and enforces limits.call.output. A result that an upstream
 * gave may be as large as limits.upstreams.answer, where that is more. */
#include "lib/bindings.h"
#include "lib/shortcut/frozen_answer.h"
#include <lauxlib.h>

MP_COUNTER(tool_output, "tool_aborted", "reason", "output", "results over limits.call.output")

/* bytes that the gateway adds to the result of an upstream: members of `_meta` */
#define ADDED_BYTES ((size_t)64 << 10)

/* Limit of the bytes of the task's result or error. */
static size_t max_output(const mp_lib_task *task)
{
    size_t output = mp_state_of(task->super.vm)->call_output;
    size_t answer = mp_lib_of_vm(task->super.vm)->upstream_answer + ADDED_BYTES;
    return task->is_forwarded && answer > output ? answer : output;
}

mp_str mp_refuse_output(const mp_lib_task *task, const char *what, size_t size, char why[MP_REFUSAL])
{
    size_t max_bytes = MP_MAX_ENCODED_BYTES; /* larger values are not measured */
    int len =
        snprintf(why, MP_REFUSAL, "the %s is %s%zu bytes of JSON, more than limits.call.output (%zu): ask for less",
                 what, size > max_bytes ? "more than " : "", size > max_bytes ? max_bytes : size, max_output(task));
    mp_stat_add(&mp_stat_tool_output, 1);
    mp_log(MP_WARN, "call over its limit", mp_log_str("method", mp_task_label(&task->super)),
           mp_log_str("why", mp_str_of(why)));
    return (mp_str){why, (size_t)len};
}

/* True if `what` is over its limit, and the task's call has the error that says so. */
static bool is_refused(mp_lib_task *task, const char *what, size_t size)
{
    char why[MP_REFUSAL];
    if (size <= max_output(task))
        return false;
    mp_task_fail(task, MP_CODE_INTERNAL, mp_refuse_output(task, what, size, why), MP_STR_NONE);
    return true;
}

void mp_task_end_answer(mp_lib_task *task, size_t size)
{
    mp_call *call = is_refused(task, "result", size) ? NULL : mp_task_settle(task);
    if (call != NULL)
        mp_call_end_answer(call);
}

static int send_answer(MP_UNUSED lua_State *L, void *ctx, mp_str text, size_t size)
{
    mp_lib_task *task = ctx;
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* the call was cancelled while the value was encoded */
    if (is_refused(task, "result", size))
        return 0;
    mp_frozen_compare(mp_lib_of_vm(task->super.vm), call, text);
    mp_task_settle(task);
    mp_call_answer(call, text);
    return 0;
}

int mp_task_answer(lua_State *L, mp_lib_task *task, int index)
{
    mp_phase_set(MP_PHASE_ENCODE);
    if (task->call != NULL && lua_istable(L, index) && mp_str_is(mp_call_method(task->call), "tools/call")) {
        lua_pushliteral(L, "isError");
        lua_rawget(L, index < 0 ? index - 1 : index);
        if (lua_toboolean(L, -1))
            mp_call_fails(task->call);
        lua_pop(L, 1);
    }
    return mp_lua_encode_in_turns(L, index, max_output(task), send_answer, task);
}

/* Stack indexes of the error's code, message and data. */
enum { CODE = 4, MESSAGE, DATA };

static int send_error(lua_State *L, void *ctx, mp_str data, size_t size)
{
    mp_lib_task *task = ctx;
    mp_str message;
    message.ptr = lua_tolstring(L, MESSAGE, &message.len);
    mp_buf measured = {0};
    mp_json_put_string(&measured, message);
    size += measured.len;
    mp_buf_clear(&measured);
    if (task->call == NULL)
        return 0; /* the call was cancelled while the value was encoded */
    if (!is_refused(task, "error", size))
        mp_task_fail(task, (int)lua_tointeger(L, CODE), message, data);
    return 0;
}

int mp_task_answer_error(lua_State *L, mp_lib_task *task, int error)
{
    if (!lua_istable(L, error))
        luaL_error(L, "dispatch returned neither a result nor an error");
    lua_settop(L, CODE - 1);
    lua_getfield(L, error, "code");
    lua_getfield(L, error, "message");
    lua_getfield(L, error, "data");
    if (!lua_isinteger(L, CODE) || lua_type(L, MESSAGE) != LUA_TSTRING)
        luaL_error(L, "dispatch returned an error without code and message");
    if (lua_isnil(L, DATA))
        return send_error(L, task, MP_STR_NONE, 0);
    return mp_lua_encode_in_turns(L, DATA, max_output(task), send_error, task);
}
