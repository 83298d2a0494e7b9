/* lib_parallel.c: tasks that run side by side for one that waits for all of them. They work for its call: it pays for them,
 * and when it is called off, so are they, first. */
#include "script/lib.h"
#include <lauxlib.h>

#define MOST 64            /* of one that waits */
#define MOST_OF_A_CALL 256 /* with those that they wait for in turn */

/* What it waits for, until the last has ended. */
struct mp_group {
    mp_op super;
    mp_link members;
    int functions; /* a table in the registry */
    bool is_broken;
};

static void forget_functions(mp_group *group)
{
    luaL_unref(group->super.task->vm->L, LUA_REGISTRYINDEX, group->functions);
}

/* Calls the others off, the last begun first. */
static void break_up(mp_group *group)
{
    while (!mp_link_is_alone(&group->members)) {
        mp_task *member = mp_container(group->members.prev, mp_task, member);
        mp_link_drop(&member->member);
        member->group = NULL;
        member->payer->members--;
        mp_task_unwind(member);
    }
}

static void on_cancel(mp_op *op)
{
    mp_group *group = mp_container(op, mp_group, super);
    break_up(group);
    forget_functions(group);
}

void mp_group_leave(mp_task *task)
{
    mp_group *group = task->group;
    mp_link_drop(&task->member);
    task->group = NULL;
    task->payer->members--;
    if (!task->went_well) {
        group->is_broken = true;
        break_up(group);
    }
    if (!mp_link_is_alone(&group->members))
        return;
    forget_functions(group);
    mp_op_done(&group->super);
}

/* The function gave whether all is well. */
static int member_done(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    ((mp_task *)context)->went_well = lua_toboolean(L, -1);
    return 0;
}

int mp_run_member(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    if (task->group == NULL)
        return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->group->functions);
    lua_rawgeti(L, -1, task->place);
    lua_callk(L, 0, 1, (lua_KContext)task, member_done);
    return member_done(L, LUA_OK, (lua_KContext)task);
}

static int joined(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    lua_pushboolean(L, !((mp_group *)context)->is_broken);
    return 1;
}

/* parallel(functions): runs all of them at once; true when each has given true. One that does not ends the others.
 *  [-0, +1, throws, parks] */
static int l_parallel(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int count = (int)lua_rawlen(L, 1);
    luaL_argcheck(L, count >= 1 && count <= MOST, 1, "1 to 64 functions");
    mp_group *group = mp_op_new(L, sizeof *group, on_cancel);
    mp_task *parent = group->super.task;
    if (parent->payer->members + count > MOST_OF_A_CALL)
        return luaL_error(L, "this call runs more than %d functions at once", MOST_OF_A_CALL);
    mp_link_init(&group->members);
    lua_pushvalue(L, 1);
    group->functions = luaL_ref(L, LUA_REGISTRYINDEX); /* the last that may throw */
    for (int i = 1; i <= count; i++) {
        mp_task *member = mp_task_start_member(parent, i);
        member->group = group;
        mp_link_put(&group->members, &member->member);
    }
    parent->payer->members += count;
    return mp_op_park_then(L, &group->super, joined, (lua_KContext)group);
}

void mp_lib_parallel(lua_State *L)
{
    static const luaL_Reg functions[] = {{"parallel", l_parallel}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
