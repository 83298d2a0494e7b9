/* semaphore.c: named semaphores of the process for tasks. A task enters a semaphore, and leaves it when it closes the
 * handle or ends. In Lua the handle is called a turn. */
#include "lib/fields.h"
#include "data/data.h"
#include "lib/bindings.h"
#include <lauxlib.h>

#define TURN "moonpool.turn"

typedef struct waiting waiting;

typedef struct {
    mp_resource resource;      /* links it to the task that entered */
    mp_pass *MP_NULLABLE pass; /* NULL once the task has left the semaphore */
    waiting *MP_NULLABLE op;   /* the task's wait to enter, or NULL */
} turn;

struct waiting {
    mp_op super;
    turn *of;
};

static void leave_semaphore(turn *it)
{
    mp_pass *pass = it->pass;
    it->pass = NULL;
    if (pass != NULL)
        mp_pass_leave(pass);
}

static void on_release(mp_resource *resource)
{
    leave_semaphore(mp_container(resource, turn, resource));
}

static void on_granted(void *ctx)
{
    turn *it = ctx;
    waiting *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(&op->super);
}

static void on_cancel(mp_op *super)
{
    turn *it = mp_container(super, waiting, super)->of;
    it->op = NULL;
    leave_semaphore(it);
}

static int l_leave_semaphore(lua_State *L)
{
    turn *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    leave_semaphore(it);
    return 0;
}

/* Returns the turn, which is at the stack index `context`.  [-0, +1] */
static int push_turn(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    lua_settop(L, (int)context);
    return 1;
}

/* turn(name, most[, is_shared[, most_waiting]]): enters the semaphore `name`, which at most `most` tasks of the
 * process, or of all processes of the gateway, may hold; waits if it is full. Returns a handle; nil if too many tasks
 * wait already, or `most_waiting`. Upvalue: the semaphores.  [-0, +1, throws, parks] */
static int l_turn(lua_State *L)
{
    mp_str name = mp_check_str(L, 1);
    lua_Integer most = luaL_checkinteger(L, 2);
    bool is_shared = lua_toboolean(L, 3);
    lua_Integer most_waiting = luaL_optinteger(L, 4, INT64_MAX);
    lua_settop(L, 2);
    turn *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (turn){.pass = NULL};
    luaL_setmetatable(L, TURN);
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    if (loop == NULL)
        return luaL_error(L, MP_NOT_SERVING);
    bool waits;
    it->pass = mp_semaphore_enter(lua_touserdata(L, lua_upvalueindex(1)), name, most, is_shared, most_waiting, loop,
                                  on_granted, it, &waits);
    if (it->pass == NULL)
        return 0;
    mp_resource_put(L, &it->resource, on_release);
    if (!waits)
        return 1;
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    op->of = it;
    it->op = op;
    return mp_op_park_then(L, &op->super, push_turn, 3);
}

MP_LIBRARY(semaphore)
{
    lua_pushlightuserdata(L, config->semaphores);
    lua_pushcclosure(L, l_turn, 1);
    mp_set_member(L, -2, "semaphore.take");
    static const luaL_Reg events[] = {{"__close", l_leave_semaphore}, {"__gc", l_leave_semaphore}, {NULL, NULL}};
    luaL_newmetatable(L, TURN);
    luaL_setfuncs(L, events, 0);
    mp_field_bool(L, "__metatable", false);
    lua_pop(L, 1);
}
