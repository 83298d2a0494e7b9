/* parallel.c: groups: a task starts member tasks that run concurrently, and waits until all have ended. Members work
 * for the call of that task: its limits count their time and memory, and when it is cancelled, its members are
 * cancelled first. */
#include "lib/bindings.h"
#include <lauxlib.h>

#define MAX_MEMBERS 64 /* limit of the members of one group */
#define MAX_WAIT_NUMBER 1000000
#define MAX_MEMBERS_OF_CALL 256 /* limit of the members in all groups of a call, nested ones included */

/* A group; also the op that the starting task waits for, which is done when the last member has ended. */
struct mp_group {
    mp_op super;
    mp_task *parent; /* the starting task */
    mp_link members;
    int functions;  /* registry reference of the table of functions */
    bool is_broken; /* a member failed, so the others are cancelled */
};

/* Cancels all members, the last started first. They stay members until their `<close>` handlers have ended. */
static void cancel_members(mp_group *group, uint64_t closing_until)
{
    for (mp_link *link = mp_link_last(&group->members), *before; link != &group->members; link = before) {
        before = link->prev;
        mp_task *member = &mp_container(link, mp_lib_task, member)->super;
        if (member->cancelled)
            continue;
        member->closing_until = closing_until;
        mp_task_cancel(member);
    }
}

/* Cancels the members. The wait itself ends when the last member has ended. */
static void on_cancel(mp_op *op)
{
    mp_group *group = mp_container(op, mp_group, super);
    mp_task *parent = group->parent;
    if (parent->closing_until == 0)
        parent->closing_until = mp_loop_now(op->loop) + MP_CLEANUP_MS;
    cancel_members(group, parent->closing_until);
}

/* The task whose call `task` works for, and whose limits apply. */
static mp_lib_task *payer_of(mp_task *task)
{
    return mp_container(task->payer, mp_lib_task, super);
}

void mp_group_leave(mp_lib_task *task)
{
    mp_group *group = task->group;
    if (group == NULL)
        return;
    mp_link_drop(&task->member);
    task->group = NULL;
    payer_of(&task->super)->members--;
    if (!task->has_succeeded) {
        group->is_broken = true;
        cancel_members(group, 0);
    }
    if (!mp_link_is_alone(&group->members))
        return;
    luaL_unref(mp_state_of(task->super.vm)->L, LUA_REGISTRYINDEX, group->functions);
    mp_op_done(&group->super);
}

/* The member's function has returned true, or a false value if it failed. */
static int member_done(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    ((mp_lib_task *)context)->has_succeeded = lua_toboolean(L, -1);
    return 0;
}

int mp_run_member(lua_State *L)
{
    mp_lib_task *task = lua_touserdata(L, 1);
    const mp_group *group = task->group;
    if (group == NULL)
        return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, group->functions);
    lua_rawgeti(L, -1, task->place);
    lua_callk(L, 0, 1, (lua_KContext)task, member_done);
    return member_done(L, LUA_OK, (lua_KContext)task);
}

static int push_success(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    lua_pushboolean(L, !((mp_group *)context)->is_broken);
    return 1;
}

/* task.parallel(functions[, what]): runs the functions concurrently. True if each returned true; the first that does
 * not cancels the others. `what` is the name of the function that scripts have called, for errors.
 *  [-0, +1, throws, parks] */
static int l_parallel(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int count = (int)lua_rawlen(L, 1);
    luaL_argcheck(L, count >= 1 && count <= MAX_MEMBERS, 1, "1 to 64 functions");
    const char *what = luaL_optstring(L, 2, "parallel");
    mp_group *group = mp_op_new(L, sizeof *group, on_cancel);
    mp_task *parent = group->super.task;
    if (parent == NULL || parent->cancelled)
        return luaL_error(L, "%s is not available to <close> handlers of a cancelled call", what);
    if (payer_of(parent)->members + count > MAX_MEMBERS_OF_CALL)
        return luaL_error(L, "this call runs more than %d functions at once", MAX_MEMBERS_OF_CALL);
    group->parent = parent;
    mp_link_init(&group->members);
    group->super.outlasts = true;
    lua_pushvalue(L, 1);
    group->functions = luaL_ref(L, LUA_REGISTRYINDEX); /* nothing below raises an error */
    for (int i = 1; i <= count; i++) {
        mp_lib_task *member = mp_lib_task_new(parent->vm, &mp_member_work, parent->share);
        member->super.payer = parent->payer;
        member->place = i;
        member->span = mp_container(parent, mp_lib_task, super)->span;
        member->group = group;
        mp_link_put(&group->members, &member->member);
    }
    payer_of(parent)->members += count;
    return mp_op_park_then(L, &group->super, push_success, (lua_KContext)group);
}

/* task.cancel_at(n): cancels the running task at its n-th wait from now on; 0: never. For the specs of scripts.  [-0,
 * +0, throws] */
static int l_cancel_at(lua_State *L)
{
    lua_Integer wait = luaL_checkinteger(L, 1);
    luaL_argcheck(L, wait >= 0 && wait <= MAX_WAIT_NUMBER, 1, "the number of a wait is 0 to 1000000");
    mp_task *task = mp_state_of(mp_vm_of(L))->running;
    if (task != NULL)
        task->cancel_at = (int)wait;
    return 0;
}

MP_LIBRARY(parallel)
{
    static const luaL_Reg functions[] = {{"task.parallel", l_parallel}, {"task.cancel_at", l_cancel_at}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
