/* event.c: a signal: a flag of one VM that any number of tasks can wait for. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/signal.h"
#include <lauxlib.h>
#include <math.h>

#define SIGNAL "moonpool.signal"
#define MAX_WAIT_MS 1e12

typedef struct {
    bool is_set;
    mp_link waiters;
} signal_flag;

/* One task's wait. It lies on the waiting coroutine's stack above the signal, which keeps the signal alive. */
typedef struct {
    mp_op super;
    mp_link link;
    mp_timer timer;
    bool was_set;
} signal_op;

static void stop_waiting(signal_op *op)
{
    mp_link_drop(&op->link);
    mp_timer_stop(op->super.loop, &op->timer);
}

static void wait_cancel(mp_op *op)
{
    stop_waiting(mp_container(op, signal_op, super));
}

static void on_timeout(mp_timer *timer)
{
    signal_op *op = mp_container(timer, signal_op, timer);
    stop_waiting(op);
    mp_op_done(&op->super);
}

static int push_was_set(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    lua_pushboolean(L, ((signal_op *)context)->was_set);
    return 1;
}

/* signal:wait([seconds]): waits until the signal is set, at most `seconds`. True if it was set.  [-0, +1, throws,
 * parks] */
static int l_wait(lua_State *L)
{
    signal_flag *flag = luaL_checkudata(L, 1, SIGNAL);
    bool has_limit = !lua_isnoneornil(L, 2);
    double seconds = has_limit ? luaL_checknumber(L, 2) : 0;
    luaL_argcheck(L, !isnan(seconds), 2, "the number of seconds is NaN");
    if (flag->is_set || (has_limit && seconds <= 0)) {
        lua_pushboolean(L, flag->is_set);
        return 1;
    }
    signal_op *op = mp_op_new(L, sizeof *op, wait_cancel);
    mp_link_put(&flag->waiters, &op->link);
    if (has_limit)
        mp_timer_start(op->super.loop, &op->timer,
                       (uint64_t)(seconds * 1000 > MAX_WAIT_MS ? MAX_WAIT_MS : ceil(seconds * 1000)), on_timeout);
    return mp_op_park_then(L, &op->super, push_was_set, (lua_KContext)op);
}

void *mp_check_signal(lua_State *L, int index)
{
    return luaL_checkudata(L, index, SIGNAL);
}

void mp_signal_set(void *signal)
{
    signal_flag *flag = signal;
    flag->is_set = true;
    while (!mp_link_is_alone(&flag->waiters)) {
        signal_op *op = mp_container(flag->waiters.next, signal_op, link);
        op->was_set = true;
        stop_waiting(op);
        mp_op_done(&op->super);
    }
}

/* signal:set(): sets the signal and wakes all tasks that wait for it. Later waits return at once.  [-0, +0, throws] */
static int l_set(lua_State *L)
{
    mp_signal_set(mp_check_signal(L, 1));
    return 0;
}

/* signal:clear(): later waits park again.  [-0, +0, throws] */
static int l_clear(lua_State *L)
{
    ((signal_flag *)luaL_checkudata(L, 1, SIGNAL))->is_set = false;
    return 0;
}

/* task.event(): a new signal, which is not set.  [-0, +1, throws] */
static int l_signal(lua_State *L)
{
    signal_flag *flag = lua_newuserdatauv(L, sizeof *flag, 0);
    flag->is_set = false;
    mp_link_init(&flag->waiters);
    luaL_setmetatable(L, SIGNAL);
    return 1;
}

MP_LIBRARY(event)
{
    static const luaL_Reg functions[] = {{"task.event", l_signal}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"wait", l_wait}, {"set", l_set}, {"clear", l_clear}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    luaL_newmetatable(L, SIGNAL);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    mp_field_bool(L, "__metatable", false);
    lua_pop(L, 1);
}
