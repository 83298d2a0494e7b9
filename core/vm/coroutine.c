/* coroutine.c: Lua's coroutine library, but a task may wait inside a script's own coroutine. Such a wait yields
 * through every coroutine on the way to the scheduler, and comes back the same way; scripts see none of it. */
#include "vm/closing.h"
#include "vm/preempt.h"
#include <lauxlib.h>
#include <lualib.h>

#define LEFT (-2) /* the task waits, or was preempted: the coroutine must yield outwards */

static bool is_kind(lua_State *co, unsigned kind)
{
    return (*mp_thread_word(co) & kind) != 0;
}

/* Runs `co`, which has its `count` arguments on its stack. Returns the number of results, moved to `L`; -1 with the
 * error on top of `L`; or LEFT. Stack of `co` and of `L`: [-count, +results, throws] */
static int run_coroutine(lua_State *L, lua_State *co, int count)
{
    mp_vm *vm = mp_vm_of(L);
    bool may_wait = vm->state.may_wait;
    vm->state.may_wait = may_wait && lua_isyieldable(L);
    int results;
    lua_State *before = mp_preempt_enter(co);
    if (vm->state.running != NULL && mp_own(vm->state.running)->closing == MP_FORCED)
        mp_preempt_arm(co, 1);
    int status = lua_resume(co, L, count, &results);
    mp_preempt_leave(before);
    vm->state.may_wait = may_wait;
    if (status == LUA_YIELD && vm->state.running != NULL &&
        (mp_own(vm->state.running)->op != NULL || mp_own(vm->state.running)->preempted)) {
        *mp_thread_word(co) |= MP_THREAD_BUSY;
        mp_task_leave(vm->state.running, co);
        return LEFT;
    }
    if (status != LUA_OK && status != LUA_YIELD) {
        lua_xmove(co, L, 1);
        return -1;
    }
    if (!lua_checkstack(L, results + 1)) {
        lua_pop(co, results);
        lua_pushliteral(L, "too many results to resume");
        return -1;
    }
    lua_xmove(co, L, results);
    return results;
}

/* Moves the arguments from the top of `L` to `co`, and runs it. */
static int start_coroutine(lua_State *L, lua_State *co, int count)
{
    const char *refusal = NULL;
    if (is_kind(co, MP_THREAD_TASK | MP_THREAD_BUSY))
        refusal = "cannot resume non-suspended coroutine";
    else if (lua_status(co) == LUA_OK && lua_gettop(co) == 0)
        refusal = "cannot resume dead coroutine";
    else if (!lua_checkstack(co, count))
        refusal = "too many arguments to resume";
    if (refusal != NULL) {
        lua_pushstring(L, refusal);
        return -1;
    }
    lua_xmove(L, co, count);
    return run_coroutine(L, co, lua_status(co) == LUA_OK ? count + 1 : count); /* runs `body` with f as its argument */
}

static int come_back(lua_State *L, lua_State *co)
{
    *mp_thread_word(co) &= ~(uintptr_t)MP_THREAD_BUSY;
    return run_coroutine(L, co, 0);
}

static lua_State *check_thread(lua_State *L)
{
    lua_State *co = lua_tothread(L, 1);
    luaL_argexpected(L, co != NULL, 1, "coroutine");
    return co;
}

/* -- create ---------------------------------------------------------------------------------------------------- */

static int body_end(lua_State *co, int status, MP_UNUSED lua_KContext context)
{
    return status == LUA_OK || status == LUA_YIELD ? lua_gettop(co) : lua_error(co);
}

/* The first function in every coroutine of a script; f and its arguments are on the stack. An error of f arrives here
 * after f's `<close>` handlers have run; as in pcall, they may wait and be preempted. */
static int body(lua_State *co)
{
    return body_end(co, lua_pcallk(co, lua_gettop(co) - 1, LUA_MULTRET, 0, 0, body_end), 0);
}

/* Makes a coroutine that runs the function at index 1. [-0, +1, throws] */
static lua_State *create_coroutine(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_State *co = lua_newthread(L);
    lua_pushcfunction(co, body);
    lua_pushvalue(L, 1);
    lua_xmove(L, co, 1);
    return co;
}

/* coroutine.create(f)  [-0, +1, throws] */
static int l_create(lua_State *L)
{
    create_coroutine(L);
    return 1;
}

/* -- resume ---------------------------------------------------------------------------------------------------- */

static int resume_back(lua_State *L, int status, lua_KContext context);

static int resume_end(lua_State *L, int results, lua_KContext began)
{
    if (results == LEFT)
        return lua_yieldk(L, 0, began, resume_back);
    mp_catch_end(L, began, results < 0);
    lua_pushboolean(L, results >= 0);
    lua_insert(L, results >= 0 ? -(results + 1) : -2);
    return results >= 0 ? results + 1 : 2;
}

static int resume_back(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    return resume_end(L, come_back(L, lua_tothread(L, 1)), context);
}

/* coroutine.resume(co, …)  [-0, +n, throws, parks] */
static int l_resume(lua_State *L)
{
    lua_State *co = check_thread(L);
    lua_KContext began = mp_catch_begin(L);
    return resume_end(L, start_coroutine(L, co, lua_gettop(L) - 1), began);
}

/* -- wrap ------------------------------------------------------------------------------------------------------ */

static int wrap_back(lua_State *L, int status, lua_KContext context);

static int wrap_end(lua_State *L, lua_State *co, int results, lua_KContext began)
{
    if (results == LEFT)
        return lua_yieldk(L, 0, began, wrap_back);
    mp_catch_end(L, began, results < 0);
    if (results >= 0)
        return results;
    if (lua_status(co) != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

static int wrap_back(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    return wrap_end(L, co, come_back(L, co), context);
}

static int wrap_call(lua_State *L)
{
    lua_State *co = lua_tothread(L, lua_upvalueindex(1));
    lua_KContext began = mp_catch_begin(L);
    return wrap_end(L, co, start_coroutine(L, co, lua_gettop(L)), began);
}

/* coroutine.wrap(f)  [-0, +1, throws] */
static int l_wrap(lua_State *L)
{
    create_coroutine(L);
    lua_pushcclosure(L, wrap_call, 1);
    return 1;
}

/* -- further functions ----------------------------------------------------------------------------------------- */

/* The arguments of resume are the stack now. coroutine.close passes none. */
static int yield_back(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    if (is_kind(L, MP_THREAD_CLOSING))
        mp_raise_closed(L);
    return lua_gettop(L);
}

/* coroutine.yield(…)  [-n, +m, throws] */
static int l_yield(lua_State *L)
{
    if (is_kind(L, MP_THREAD_TASK))
        return luaL_error(L, "attempt to yield from outside a coroutine");
    if (is_kind(L, MP_THREAD_CLOSING))
        return luaL_error(L, "attempt to yield from a coroutine that is being closed");
    return lua_yieldk(L, lua_gettop(L), 0, yield_back);
}

static const char *status_of(lua_State *L, lua_State *co)
{
    if (L == co)
        return "running";
    if (is_kind(co, MP_THREAD_TASK | MP_THREAD_BUSY))
        return "normal";
    lua_Debug unused;
    switch (lua_status(co)) {
    case LUA_YIELD:
        return "suspended";
    case LUA_OK:
        if (lua_getstack(co, 0, &unused))
            return "normal";
        return lua_gettop(co) == 0 ? "dead" : "suspended";
    default:
        return "dead";
    }
}

/* coroutine.status(co)  [-0, +1, throws] */
static int l_status(lua_State *L)
{
    lua_pushstring(L, status_of(L, check_thread(L)));
    return 1;
}

/* -- close ----------------------------------------------------------------------------------------------------- */

static int close_back(lua_State *L, int status, lua_KContext context);

static int close_end(lua_State *L, int results, lua_KContext began)
{
    if (results == LEFT)
        return lua_yieldk(L, 0, began, close_back);
    mp_catch_end(L, began, results < 0);
    bool ok = results >= 0 || mp_is_ending_error(L, -1);
    lua_pushboolean(L, ok);
    if (ok)
        return 1;
    lua_insert(L, -2);
    return 2;
}

static int close_back(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    return close_end(L, come_back(L, lua_tothread(L, 1)), context);
}

/* coroutine.close(co): resumes it with an error that it cannot catch, so handlers of its `<close>` variables run as
 * after any other error. A chain of coroutines that close each other may be as deep as a chain of resumes. [-0,
 * +1|2, throws, parks] */
static int l_close(lua_State *L)
{
    lua_State *co = check_thread(L);
    const char *status = status_of(L, co);
    if (status[0] != 'd' && status[0] != 's')
        return luaL_error(L, "cannot close a %s coroutine", status);
    lua_settop(L, 1);
    if (lua_status(co) == LUA_YIELD) {
        *mp_thread_word(co) |= MP_THREAD_CLOSING;
        lua_KContext began = mp_catch_begin(L);
        return close_end(L, run_coroutine(L, co, 0), began);
    }
    bool ok = lua_resetthread(co) == LUA_OK; /* the coroutine has not begun, or has ended: no variable needs closing */
    lua_pushboolean(L, ok);
    if (ok)
        return 1;
    lua_xmove(co, L, 1);
    return 2;
}

/* -- asking ---------------------------------------------------------------------------------------------------- */

/* coroutine.isyieldable([co])  [-0, +1] */
static int l_isyieldable(lua_State *L)
{
    lua_State *co = lua_isthread(L, 1) ? lua_tothread(L, 1) : L;
    lua_pushboolean(L, lua_isyieldable(co) && !is_kind(co, MP_THREAD_TASK));
    return 1;
}

/* coroutine.running(): the running coroutine; true if it is a task's, not one that a script made.  [-0, +2] */
static int l_running(lua_State *L)
{
    bool is_main = lua_pushthread(L) == 1;
    *mp_thread_word(L) |= MP_THREAD_KNOWN;
    lua_pushboolean(L, is_main || is_kind(L, MP_THREAD_TASK));
    return 2;
}

void mp_lib_coroutine(lua_State *L)
{
    static const luaL_Reg functions[] = {{"create", l_create},
                                         {"resume", l_resume},
                                         {"wrap", l_wrap},
                                         {"yield", l_yield},
                                         {"status", l_status},
                                         {"close", l_close},
                                         {"isyieldable", l_isyieldable},
                                         {"running", l_running},
                                         {NULL, NULL}};
    lua_getglobal(L, LUA_COLIBNAME);
    luaL_setfuncs(L, functions, 0);
    lua_pop(L, 1);
}
