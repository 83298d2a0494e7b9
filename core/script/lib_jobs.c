/* lib_jobs.c: background tasks: they have a call like the one that began them, which belongs to nobody. */
#include "script/lib.h"
#include "script/schedule.h"
#include <lauxlib.h>
#include <math.h>

#define JOB "moonpool.job"
#define LONGEST 1e12 /* milliseconds */

typedef struct {
    mp_task *task;
    uint64_t serial;
} handle;

static int job_done(lua_State *L, int status, lua_KContext context)
{
    (void)L;
    (void)status;
    mp_task *task = (mp_task *)context;
    mp_call *call = task->call;
    if (call == NULL)
        return 0;
    mp_task_settle(task);
    mp_call_answer(call, MP_STR("null"));
    return 0;
}

int mp_run_job(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    if (task->call == NULL)
        return 0; /* called off while its coroutine was made */
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->job);
    mp_task_forget_job(L, task);
    lua_rawgeti(L, 2, 1);
    lua_rawgeti(L, 2, 2);
    lua_remove(L, 2);
    lua_callk(L, 1, 0, (lua_KContext)task, job_done);
    return job_done(L, LUA_OK, (lua_KContext)task);
}

int mp_run_scheduled(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    if (task->call == NULL)
        return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->vm->run_job);
    lua_pushnil(L);
    mp_call_push(L, task, 3); /* it has no params */
    lua_remove(L, 3);
    lua_pushstring(L, task->scheduled->name);
    lua_callk(L, 2, 0, (lua_KContext)task, job_done);
    return job_done(L, LUA_OK, (lua_KContext)task);
}

/* schedule(name, every[, limit]): moonpool.run_job(call, name) every so many seconds; while scripts load.  [-0, +0, throws] */
static int l_schedule(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    const char *name = luaL_checkstring(L, 1);
    double every = luaL_checknumber(L, 2), limit = luaL_optnumber(L, 3, lua_tonumber(L, lua_upvalueindex(1)));
    mp_scheduled *job = mp_new(sizeof *job);
    *job = (mp_scheduled){.next = vm->schedule,
                          .vm = vm,
                          .name = mp_dup(mp_str_of(name)),
                          .every_ms = (uint64_t)ceil(every * 1000),
                          .limit_ms = (uint64_t)ceil(limit * 1000)};
    vm->schedule = job;
    return 0;
}

/* spawn(call, f, seconds): a job that runs f with a call like this one, at most so long; or nil, "too many".
 *  [-0, +1|2, throws] */
static int l_spawn(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    double seconds = luaL_checknumber(L, 3);
    luaL_argcheck(L, seconds > 0, 3, "a time above zero");
    if (task->call == NULL)
        return luaL_error(L, "a call that is off begins nothing");
    lua_settop(L, 2);
    mp_call_push_like(L);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 2);
    lua_rawseti(L, 4, 1);
    lua_pushvalue(L, 3);
    lua_rawseti(L, 4, 2);
    handle *job = lua_newuserdatauv(L, sizeof *job, 0);
    *job = (handle){NULL, 0};
    luaL_setmetatable(L, JOB);
    lua_pushvalue(L, 4);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* the last that may throw */

    /* a finalizer may have sent meanwhile, and found the client gone */
    mp_call *call =
        task->call == NULL
            ? NULL
            : mp_call_spawn(task->call, seconds * 1000 > LONGEST ? (uint64_t)LONGEST : (uint64_t)ceil(seconds * 1000));
    if (call == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        lua_pushnil(L);
        lua_pushliteral(L, "too many");
        return 2;
    }
    job->task = mp_task_start_job(mp_vm_of(L), call, ref);
    job->serial = job->task->serial;
    mp_call_bind(L, 3, job->task);
    return 1;
}

/* begin(f, seconds): runs f(call) in the background, at most so long, whoever began it; or nil, why.  [-0, +1|2, throws] */
static int l_begin(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    double seconds = luaL_checknumber(L, 2);
    luaL_argcheck(L, seconds > 0, 2, "a time above zero");
    lua_settop(L, 1);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, 2, 1);
    mp_call_push_new(L);
    lua_pushvalue(L, 3);
    lua_rawseti(L, 2, 2);
    lua_pushvalue(L, 2);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* the last that may throw */
    mp_principal *itself = mp_principal_new(MP_STR("moonpool"), MP_STR("moonpool"), 0);
    mp_call *call = vm->rpc == NULL ? NULL : mp_call_spawn_alone(vm->rpc, itself, (uint64_t)ceil(seconds * 1000));
    mp_principal_unref(itself);
    if (call == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        lua_pushnil(L);
        lua_pushstring(L, vm->rpc == NULL ? "nothing is served yet" : "there is more background work than tasks.max");
        return 2;
    }
    mp_call_bind(L, 3, mp_task_start_job(vm, call, ref));
    lua_pushboolean(L, 1);
    return 1;
}

/* stop(job[, why]): calls it off; quiet when it has ended.  [-0, +0, throws] */
static int l_stop(lua_State *L)
{
    const handle *job = luaL_checkudata(L, 1, JOB);
    const char *why = luaL_optstring(L, 2, "stopped");
    if (job->task != NULL && job->serial == job->task->serial && job->task->call != NULL)
        mp_call_stop(job->task->call, why);
    return 0;
}

void mp_lib_jobs(lua_State *L, uint64_t longest_ms, uint64_t call_ms)
{
    static const luaL_Reg functions[] = {{"spawn", l_spawn}, {"begin", l_begin}, {"stop", l_stop}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    lua_pushnumber(L, (double)call_ms / 1000);
    lua_pushcclosure(L, l_schedule, 1);
    lua_setfield(L, -2, "schedule");
    luaL_newmetatable(L, JOB);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushnumber(L, (double)longest_ms / 1000);
    lua_setfield(L, -2, "task_seconds");
    lua_setfield(L, -2, "limits");
}
