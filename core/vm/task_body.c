/* task_body.c: the first function in the coroutine of a task, and what happens to its errors. */
#define _GNU_SOURCE
#include "vm/closing.h"
#include <lauxlib.h>

/* A message handler: the error as text, with its trace. The error that ends a task is not changed.  [-1, +1, throws] */
static int add_traceback(lua_State *L)
{
    if (mp_is_ending_error(L, 1))
        return 1;
    luaL_tolstring(L, 1, NULL);
    lua_pushliteral(L, "\n");
    luaL_traceback(L, L, NULL, 1);
    lua_concat(L, 3);
    return 1;
}

static void log_fault(lua_State *L, const mp_task *task, const char *event)
{
    mp_str error = MP_STR("an error without text"), stack = MP_STR("");
    if (lua_type(L, -1) == LUA_TSTRING)
        error.ptr = lua_tolstring(L, -1, &error.len);
    const char *cut = memmem(error.ptr, error.len, "\nstack traceback:", 17);
    if (cut != NULL) {
        stack = mp_str_from(error, (size_t)(cut + 1 - error.ptr));
        error.len = (size_t)(cut - error.ptr);
    }
    mp_log(MP_ERROR, event, mp_log_str("method", mp_task_label(task)), mp_log_str("error", error),
           mp_log_str("trace", stack));
}

static int body_end(lua_State *L, int status, lua_KContext context)
{
    mp_task *task = (mp_task *)context;
    if (status == LUA_OK || status == LUA_YIELD)
        return 0;
    if (mp_own(task)->closing != MP_OPEN) {
        if (!mp_is_ending_error(L, -1))
            log_fault(L, task, "<close> handler failed");
        return 0;
    }
    if (mp_task_lacked_memory(L, task, status))
        return 0;
    mp_stat_add(&mp_stat_tool_faults, 1);
    log_fault(L, task, "task failed");
    if (task->work->failed != NULL)
        task->work->failed(task);
    return 0;
}

/* Runs work->run. An error arrives here after the `<close>` handlers have run; they may wait, because lua_resume calls
 * them.  [-1, +0, throws, parks] */
int mp_run_body(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, task->work->run);
    lua_pushvalue(L, 1);
    return body_end(L, lua_pcallk(L, 1, 0, 2, (lua_KContext)task, body_end), (lua_KContext)task);
}
