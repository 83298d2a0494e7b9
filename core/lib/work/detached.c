/* detached.c: background tasks and scheduled jobs. Each has a call of its own, which no client waits for. A task that a
 * call started inherits the fields of that call. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/work/cron.h"
#include "lib/work/job_log.h"
#include "lib/spans.h"
#include <lauxlib.h>
#include <math.h>

#define JOB "moonpool.job"
#define MAX_LIMIT_MS 1e12
#define MAX_MORE_BYTES ((lua_Integer)1 << 42)

typedef struct {
    mp_lib_task *task;
    uint64_t serial;
} handle;

static int job_done(MP_UNUSED lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_call *call = mp_task_settle((mp_lib_task *)context);
    if (call != NULL)
        mp_call_answer(call, MP_STR("null"));
    return 0;
}

int mp_run_job(lua_State *L)
{
    mp_lib_task *task = lua_touserdata(L, 1);
    if (task->call == NULL)
        return 0; /* cancelled while its coroutine was created */
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
    mp_lib_task *task = lua_touserdata(L, 1);
    mp_cron *job = task->scheduled;
    if (task->call == NULL || job == NULL)
        return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_lib_of_vm(task->super.vm)->run_job);
    lua_pushnil(L);
    mp_call_push(L, task, 3); /* a scheduled job has no params: nil */
    lua_remove(L, 3);
    lua_pushstring(L, job->name);
    mp_listening *source = job->source;
    if (source != NULL && mp_cron_take_tick(job)) {
        lua_pushboolean(L, false);
        lua_pushnil(L);
    } else if (source != NULL && (!job->is_listening || !mp_listening_has_message(source))) {
        return job_done(L, LUA_OK, (lua_KContext)task); /* the job listens no more */
    } else if (source != NULL) {
        mp_listening_take(L, source);
    }
    lua_callk(L, source != NULL ? 4 : 2, 0, (lua_KContext)task, job_done);
    return job_done(L, LUA_OK, (lua_KContext)task);
}

MP_COUNTER(jobs_ok, "job_runs", "outcome", "ok", "runs of scheduled jobs")
MP_COUNTER(jobs_failed, "job_runs", "outcome", "failed", "runs of scheduled jobs that failed")
MP_COUNTER(jobs_cancelled, "job_runs", "outcome", "cancelled", "runs of scheduled jobs that were cancelled")

/* job.note(name[, outcome[, next]]): the job begins to run; with an outcome: it has ended so, and begins next at that
 * time, in seconds since 1970.
 *  [-0, +0, throws] */
static int l_note(lua_State *L)
{
    static const char *const outcomes[] = {"ok", "failed", "cancelled", NULL};
    enum { FAILED = 1 };
    const char *name = luaL_checkstring(L, 1);
    const mp_lib_task *task = mp_lib_task_running(L);
    if (lua_isnoneornil(L, 2)) {
        mp_job_log_began(name);
        if (task != NULL && task->call != NULL)
            mp_call_trace_job(task->call, mp_str_of(name));
        return 0;
    }
    int outcome = luaL_checkoption(L, 2, NULL, outcomes);
    static const mp_stat *const counters[] = {&mp_stat_jobs_ok, &mp_stat_jobs_failed, &mp_stat_jobs_cancelled};
    mp_stat_add(counters[outcome], 1);
    mp_job_log_ended(name, outcomes[outcome], luaL_optinteger(L, 3, 0));
    if (outcome == FAILED) /* the trace of a cancelled one has ended */
        mp_span_fail(mp_task_trace(task), MP_ROOT_SPAN, MP_STR_NONE);
    return 0;
}

static mp_cron *add_job(mp_lib *lib, const char *name, const char *MP_NULLABLE when, double limit)
{
    mp_cron *job = mp_new(sizeof *job);
    *job = (mp_cron){.next = lib->schedule,
                     .lib = lib,
                     .name = mp_dup(mp_str_of(name)),
                     .when = mp_dup_text(when),
                     .limit_ms = (uint64_t)ceil(limit * 1000)};
    lib->schedule = job;
    return job;
}

/* job.listen(name, source, when[, limit[, every]]): runs moonpool.run_job(call, name, text, more) for each message of
 * `source`, a userdata with an mp_listening; and with false every `every` seconds. `when` nil: the job is not shown.
 * Available while scripts load. Upvalue: the default limit.  [-0, +0, throws] */
static int l_listen(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *when = luaL_optstring(L, 3, NULL);
    double every = luaL_optnumber(L, 5, 0);
    luaL_checktype(L, 2, LUA_TUSERDATA); /* scripts have none of their own with this field */
    luaL_argcheck(L, luaL_getmetafield(L, 2, MP_LISTENING) != LUA_TNIL, 2, "a source of messages expected");
    double limit = luaL_optnumber(L, 4, lua_tonumber(L, lua_upvalueindex(1)));
    lua_pushvalue(L, 2);
    luaL_ref(L, LUA_REGISTRYINDEX); /* as long as the VM, as the job */
    mp_cron *job = add_job(mp_lib_of(L), name, when, limit);
    job->source = lua_touserdata(L, 2);
    job->every_ms = (uint64_t)ceil(every * 1000);
    return 0;
}

/* job.schedule(name, every[, limit[, when[, first]]]): runs moonpool.run_job(call, name) every `every` seconds, each
 * run at most `limit` seconds. `when` says so for people, `first` is the first start in seconds since 1970. Available
 * while scripts load. Upvalue: the default limit.  [-0, +0, throws] */
static int l_schedule(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    double every = luaL_checknumber(L, 2), limit = luaL_optnumber(L, 3, lua_tonumber(L, lua_upvalueindex(1)));
    const char *when = luaL_optstring(L, 4, NULL);
    lua_Integer first = luaL_optinteger(L, 5, 0);
    mp_cron *job = add_job(mp_lib_of(L), name, when, limit);
    job->first_ms = first > 0 ? (uint64_t)first * 1000 : 0;
    job->every_ms = (uint64_t)ceil(every * 1000);
    return 0;
}

/* Facts about a started task that the client of a call without a session needs. */
typedef struct {
    mp_bus *bus;
    size_t len;
    char id[];
} created;

/* The answer with the task's id has arrived or not. Every VM gets the bus message "lost" if it certainly has not. */
static void on_delivery(void *ctx, mp_delivery_end end)
{
    created *it = ctx;
    if (end == MP_DELIVERY_LOST)
        mp_bus_broadcast(it->bus, MP_STR("lost"), (mp_str){it->id, it->len});
    free(it);
}

/* A client with a session finds its tasks by `tasks/list`, or gets the answer when it resumes. Others have the answer
 * alone. */
static void expect_delivery(mp_call *call, mp_bus *bus, mp_str id)
{
    if (mp_call_session(call) != NULL)
        return;
    created *it = mp_new(sizeof *it + id.len);
    it->bus = bus;
    it->len = id.len;
    memcpy(it->id, id.ptr, id.len);
    mp_call_on_delivery(call, on_delivery, it);
}

/* job.spawn(call, f, seconds[, id]): starts a background task that runs f(call) for at most `seconds`; its call
 * inherits the fields of `call`. When the task has ended, in whatever way, every VM gets the bus message "ended" with
 * `id`. Without a session no task is started for a client that has left, and if the answer to `call` is lost, every VM
 * gets the bus message "lost". The task's handle; or nil, why.
 *  [-0, +1|2, throws] */
static int l_spawn(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    double seconds = luaL_checknumber(L, 3);
    const char *id = luaL_optstring(L, 4, NULL);
    luaL_argcheck(L, seconds > 0, 3, "seconds must be above 0");
    if (task->call == NULL)
        return luaL_error(L, "a cancelled call cannot start a background task");
    lua_settop(L, 4);
    mp_call_push_like(L);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 2);
    lua_rawseti(L, 6, 1);
    lua_pushvalue(L, 5);
    lua_rawseti(L, 6, 2);
    handle *job = lua_newuserdatauv(L, sizeof *job, 0);
    *job = (handle){NULL, 0};
    luaL_setmetatable(L, JOB);
    lua_pushvalue(L, 6);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* nothing below raises an error, so `ref` is not lost */

    mp_call *starter = task->call;
    bool has_client = starter != NULL && (mp_call_session(starter) != NULL || mp_call_has_client(starter));
    uint64_t ms = seconds * 1000 > MAX_LIMIT_MS ? (uint64_t)MAX_LIMIT_MS : (uint64_t)ceil(seconds * 1000);
    mp_call *call = starter != NULL && has_client ? mp_call_spawn(starter, ms) : NULL;
    if (call == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        lua_pushnil(L);
        lua_pushstring(L, has_client ? "too many" : "the client has left");
        return 2;
    }
    job->task = mp_lib_task_start(mp_vm_of(L), &mp_detached_work, call);
    job->task->job = ref;
    job->task->id = mp_dup_text(id);
    job->serial = job->task->super.serial;
    mp_task_set_heir(&task->super, &job->task->super);
    if (id != NULL && starter != NULL)
        expect_delivery(starter, mp_state_of(mp_vm_of(L))->bus, mp_str_of(id));
    mp_call_bind(L, 5, job->task);
    return 1;
}

static int begin(lua_State *L, bool is_own)
{
    mp_lib *lib = mp_lib_of(L);
    luaL_checktype(L, 1, LUA_TFUNCTION);
    double seconds = luaL_checknumber(L, 2);
    luaL_argcheck(L, seconds > 0, 2, "seconds must be above 0");
    double more = luaL_optnumber(L, 3, 0);
    luaL_argcheck(L, more >= 0 && more <= 3600, 3, "more must be 0 to 3600 seconds");
    lua_Integer bytes = luaL_optinteger(L, 4, 0);
    luaL_argcheck(L, bytes >= 0 && bytes <= MAX_MORE_BYTES, 4, "bytes must be 0 to 2^42");
    lua_settop(L, 1);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, 1);
    lua_rawseti(L, 2, 1);
    mp_call_push_new(L);
    lua_pushvalue(L, 3);
    lua_rawseti(L, 2, 2);
    lua_pushvalue(L, 2);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX); /* nothing below raises an error, so `ref` is not lost */
    mp_principal *itself = mp_principal_new(MP_STR("moonpool"), MP_STR("moonpool"), 0);
    mp_call *call =
        lib->rpc == NULL ? NULL : mp_call_spawn_alone(lib->rpc, itself, is_own, (uint64_t)ceil(seconds * 1000));
    mp_principal_unref(itself);
    if (call == NULL) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        lua_pushnil(L);
        lua_pushstring(L, lib->rpc == NULL ? MP_NOT_SERVING : "too many background tasks (1,024)");
        return 2;
    }
    mp_lib_task *task = mp_lib_task_start(lib->vm, &mp_detached_work, call);
    task->super.more_us = (uint64_t)(more * 1e6);
    task->super.more_bytes = (size_t)bytes;
    task->job = ref;
    mp_call_bind(L, 3, task);
    lua_pushboolean(L, 1);
    return 1;
}

/* job.begin(f, seconds[, more[, bytes]]): starts a background task that runs f(call) for at most `seconds` and belongs
 * to no other call. `more`: seconds of processor time beyond limits.call.cpu; `bytes`: memory beyond
 * limits.call.memory. True; or nil, why.  [-0, +1|2, throws] */
static int l_begin(lua_State *L)
{
    return begin(L, false);
}

/* job.begin_own(f, seconds[, more[, bytes]]): as job.begin, in a room that the tasks of clients and scripts do not
 * fill: for work of which a Lua state has a few at once, whatever clients do.  [-0, +1|2, throws] */
static int l_begin_own(lua_State *L)
{
    return begin(L, true);
}

/* job.is_allowed(): true if jobs of this process start: of the processes of a gateway the newest one starts them.
 * [-0, +1, -] */
static int l_is_allowed(lua_State *L)
{
    lua_pushboolean(L, mp_cron_is_allowed());
    return 1;
}

/* job.stop(job[, why]): cancels a background task; does nothing if it has ended.  [-0, +0, throws] */
static int l_stop(lua_State *L)
{
    const handle *job = luaL_checkudata(L, 1, JOB);
    const char *why = luaL_optstring(L, 2, "stopped");
    if (job->task != NULL && job->serial == job->task->super.serial && job->task->call != NULL)
        mp_call_stop(job->task->call, why);
    return 0;
}

MP_LIBRARY(detached)
{
    static const luaL_Reg functions[] = {{"job.spawn", l_spawn},
                                         {"job.begin", l_begin},
                                         {"job.begin_own", l_begin_own},
                                         {"job.stop", l_stop},
                                         {"job.note", l_note},
                                         {"job.is_allowed", l_is_allowed},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
    lua_pushnumber(L, (double)config->call_ms / 1000);
    lua_pushcclosure(L, l_schedule, 1);
    mp_set_member(L, -2, "job.schedule");
    lua_pushnumber(L, (double)config->call_ms / 1000);
    lua_pushcclosure(L, l_listen, 1);
    mp_set_member(L, -2, "job.listen");
    mp_push_metatable(L, JOB, NULL);
    lua_pop(L, 1);
    lua_pushnumber(L, (double)config->task_ms / 1000);
    mp_set_member(L, -2, "limits.task_seconds");
    lua_pushnumber(L, (double)config->call_ms / 1000);
    mp_set_member(L, -2, "limits.call_seconds");
}
