/* lib_gate.c: a turn at a gate of the process, as a task takes it and gives it back. */
#include "script/fields.h"
#include "script/gates.h"
#include "script/lib.h"
#include <lauxlib.h>

#define TURN "moonpool.turn"

typedef struct waiting waiting;

typedef struct {
    mp_hold hold;  /* the task that took it */
    mp_pass *pass; /* NULL once it is given back */
    waiting *op;   /* who waits for it */
} turn;

struct waiting {
    mp_op super;
    turn *of;
};

static void give_back(turn *it)
{
    mp_pass *pass = it->pass;
    it->pass = NULL;
    if (pass != NULL)
        mp_pass_leave(pass);
}

static void on_release(mp_hold *hold)
{
    give_back(mp_container(hold, turn, hold));
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
    give_back(it);
}

static int l_give_back(lua_State *L)
{
    turn *it = lua_touserdata(L, 1);
    mp_hold_drop(&it->hold);
    give_back(it);
    return 0;
}

/* The turn is at `context`.  [-0, +1] */
static int taken(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    lua_settop(L, (int)context);
    return 1;
}

/* turn(name, most): one of so many turns that there are of this name; given back when it is closed, or its task ends. Nil
 * when too many wait. Upvalue: the gates.  [-0, +1, throws, parks] */
static int l_turn(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    mp_str name = mp_check_str(L, 1);
    lua_Integer most = luaL_checkinteger(L, 2);
    lua_settop(L, 2);
    turn *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (turn){.pass = NULL};
    mp_link_init(&it->hold.link);
    luaL_setmetatable(L, TURN);
    bool waits;
    it->pass = mp_gate_enter(lua_touserdata(L, lua_upvalueindex(1)), name, most, vm->loop, on_granted, it, &waits);
    if (it->pass == NULL)
        return 0;
    mp_hold_put(L, &it->hold, on_release);
    if (!waits)
        return 1;
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    op->of = it;
    it->op = op;
    return mp_op_park_then(L, &op->super, taken, 3);
}

void mp_lib_gate(lua_State *L, mp_gates *gates)
{
    lua_pushlightuserdata(L, gates);
    lua_pushcclosure(L, l_turn, 1);
    lua_setfield(L, -2, "turn");
    static const luaL_Reg events[] = {{"__close", l_give_back}, {"__gc", l_give_back}, {NULL, NULL}};
    luaL_newmetatable(L, TURN);
    luaL_setfuncs(L, events, 0);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
