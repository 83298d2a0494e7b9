/* lib_signal.c: a flag that tasks of one VM wait for, as many as like. */
#include "script/lib.h"
#include <lauxlib.h>
#include <math.h>

#define SIGNAL "moonpool.signal"
#define LONGEST_WAIT 1e12 /* milliseconds */

typedef struct {
    bool is_set;
    mp_link waiters;
} signal_flag;

/* On the stack of who waits, above the signal, so neither outlives the other. */
typedef struct {
    mp_op super;
    mp_link link;
    mp_timer timer;
    bool was_set;
} signal_op;

static void stop_waiting(signal_op *op)
{
    mp_link_drop(&op->link);
    mp_timer_stop(mp_op_loop(&op->super), &op->timer);
}

static void wait_cancel(mp_op *op)
{
    stop_waiting(mp_container(op, signal_op, super));
}

static void time_over(mp_timer *timer)
{
    signal_op *op = mp_container(timer, signal_op, timer);
    stop_waiting(op);
    mp_op_done(&op->super);
}

static int waited(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    lua_pushboolean(L, ((signal_op *)context)->was_set);
    return 1;
}

/* signal:wait([seconds]): true once it is set; false when the time is over before.  [-0, +1, throws, parks] */
static int l_wait(lua_State *L)
{
    signal_flag *flag = luaL_checkudata(L, 1, SIGNAL);
    bool has_limit = !lua_isnoneornil(L, 2);
    double seconds = has_limit ? luaL_checknumber(L, 2) : 0;
    luaL_argcheck(L, !isnan(seconds), 2, "a number of seconds is needed");
    if (flag->is_set || (has_limit && seconds <= 0)) {
        lua_pushboolean(L, flag->is_set);
        return 1;
    }
    signal_op *op = mp_op_new(L, sizeof *op, wait_cancel);
    mp_link_put(&flag->waiters, &op->link);
    if (has_limit)
        mp_timer_start(mp_op_loop(&op->super), &op->timer,
                       (uint64_t)(seconds * 1000 > LONGEST_WAIT ? LONGEST_WAIT : ceil(seconds * 1000)), time_over);
    return mp_op_park_then(L, &op->super, waited, (lua_KContext)op);
}

/* signal:set(): who waits goes on, who comes later does not wait.  [-0, +0, throws] */
static int l_set(lua_State *L)
{
    signal_flag *flag = luaL_checkudata(L, 1, SIGNAL);
    flag->is_set = true;
    while (!mp_link_is_alone(&flag->waiters)) {
        signal_op *op = mp_container(flag->waiters.next, signal_op, link);
        op->was_set = true;
        stop_waiting(op);
        mp_op_done(&op->super);
    }
    return 0;
}

/* signal:clear()  [-0, +0, throws] */
static int l_clear(lua_State *L)
{
    ((signal_flag *)luaL_checkudata(L, 1, SIGNAL))->is_set = false;
    return 0;
}

/* signal(): one that is not set.  [-0, +1, throws] */
static int l_signal(lua_State *L)
{
    signal_flag *flag = lua_newuserdatauv(L, sizeof *flag, 0);
    flag->is_set = false;
    mp_link_init(&flag->waiters);
    luaL_setmetatable(L, SIGNAL);
    return 1;
}

void mp_lib_signal(lua_State *L)
{
    static const luaL_Reg functions[] = {{"signal", l_signal}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"wait", l_wait}, {"set", l_set}, {"clear", l_clear}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newmetatable(L, SIGNAL);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
