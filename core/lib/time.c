/* time.c: sleeping and the clock. */
#include "lib/bindings.h"
#include <lauxlib.h>
#include <math.h>

#define MAX_SLEEP_S 3600.0

typedef struct {
    mp_op super;
    mp_timer timer;
} sleep_op;

static void sleep_done(mp_timer *timer)
{
    mp_op_done(&mp_container(timer, sleep_op, timer)->super);
}

static void sleep_cancel(mp_op *op)
{
    mp_timer_stop(op->loop, &mp_container(op, sleep_op, super)->timer);
}

/* time.sleep(seconds): parks the task. With zero or less, tasks that are ready run first.  [-0, +0, throws, parks] */
static int l_sleep(lua_State *L)
{
    if (!lua_isnumber(L, 1))
        return luaL_error(L, "sleep takes a number of seconds, not a %s value", luaL_typename(L, 1));
    double seconds = lua_tonumber(L, 1);
    if (!isfinite(seconds) || seconds > MAX_SLEEP_S)
        return luaL_error(L, "sleep takes a number of seconds up to %d", (int)MAX_SLEEP_S);
    sleep_op *op = mp_op_new(L, sizeof *op, sleep_cancel);
    uint64_t ms = seconds <= 0 ? 0 : (uint64_t)ceil(seconds * 1000);
    mp_timer_start(op->super.loop, &op->timer, ms, sleep_done);
    return mp_op_park(L, &op->super);
}

/* time.now(): the monotonic clock, in seconds.  [-0, +1] */
static int l_now(lua_State *L)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lua_pushnumber(L, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    return 1;
}

/* time.boot(): the monotonic clock that runs on while the machine is suspended, in seconds.  [-0, +1] */
static int l_boot(lua_State *L)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    lua_pushnumber(L, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    return 1;
}

/* time.clock(): the wall clock, in seconds since 1970.  [-0, +1] */
static int l_clock(lua_State *L)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    lua_pushnumber(L, (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    return 1;
}

MP_LIBRARY(time)
{
    static const luaL_Reg functions[] = {
        {"time.sleep", l_sleep}, {"time.now", l_now}, {"time.boot", l_boot}, {"time.clock", l_clock}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
