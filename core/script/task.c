/* task.c: from a call to a coroutine and back: the scheduler. Hooks and callbacks of the loop only move tasks
 * between rings; Lua runs in mp_vm_turn alone, below no foreign frame. Whatever may throw runs inside a coroutine or
 * a lua_pcall. */
#include "script/task.h"
#include "script/hear.h"
#include "script/lib.h"
#include "script/lib_json.h"
#include "script/preempt.h"
#include "script/store.h"
#include <lauxlib.h>
#include <stdlib.h>
#include <time.h>

#define TURN_RESUMES 64 /* and then the loop looks at its sockets again */
#define TURN_US 5000    /* or when so much time went into Lua */
#define CLOSERS_US 5000 /* of the thread's time: what closers of a call that is off may take */
#define MOST_SPARE 256  /* idle tasks that keep their coroutine */

/* -- born and ended -------------------------------------------------------------------------------------------- */

mp_task *mp_task_new(mp_vm *vm, mp_call *call)
{
    mp_link *link = mp_link_take(&vm->idle);
    mp_task *task;
    if (link == NULL) {
        task = mp_new(sizeof *task);
        task->vm = vm;
        task->ref = LUA_NOREF;
        task->serial = 1;
        task->next = vm->all;
        vm->all = task;
        mp_link_init(&task->link);
        mp_link_init(&task->holds);
        mp_link_init(&task->member);
    } else {
        task = mp_container(link, mp_task, link);
        if (task->co != NULL)
            vm->spare--;
    }
    task->call = call;
    task->entry = NULL;
    task->is_note = call == NULL;
    task->method_len = 0;
    task->job = LUA_NOREF;
    task->is_entry = false;
    task->started = task->was_parked = task->cancelled = task->has_progress = false;
    task->preempted = task->is_heavy = task->is_over_memory = false;
    task->collecting = 0;
    task->spent = task->grown = 0;
    task->gone_then = vm->gone;
    task->payer = task;
    task->group = NULL;
    task->scheduled = NULL;
    task->members = 0;
    task->went_well = false;
    task->state = MP_TASK_READY;
    mp_link_put(&vm->ready, &task->link);
    vm->tasks++;
    mp_stat_add(MP_STAT_TASKS, 1);
    return task;
}

mp_task *mp_task_start_job(mp_vm *vm, mp_call *call, int ref)
{
    mp_task *task = mp_task_new(vm, call);
    task->job = ref;
    mp_call_set_user(call, task);
    return task;
}

void mp_task_start_scheduled(mp_vm *vm, mp_call *call, struct mp_scheduled *scheduled)
{
    mp_task *task = mp_task_new(vm, call);
    task->scheduled = scheduled;
    mp_call_set_user(call, task);
}

mp_task *mp_task_start_member(mp_task *parent, int place)
{
    mp_task *task = mp_task_new(parent->vm, NULL);
    task->is_note = false;
    task->payer = parent->payer;
    task->place = place;
    return task;
}

void mp_task_forget_job(lua_State *L, mp_task *task)
{
    luaL_unref(L, LUA_REGISTRYINDEX, task->job); /* takes back a slot: allocates nothing */
    task->job = LUA_NOREF;
}

/* The coroutine is empty by now, or was never used. */
static void task_end(mp_task *task)
{
    mp_vm *vm = task->vm;
    mp_holds_release(task);
    if (task->group != NULL)
        mp_group_leave(task);
    if (task->is_note) {
        vm->notes--;
        vm->note_bytes -= task->text.len;
    }
    mp_task_forget_job(vm->L, task);
    mp_buf_clear(&task->text);
    task->serial++;
    task->state = MP_TASK_IDLE;
    mp_task_leave_memory(task);
    task->inner_count = 0;
    if (task->co != NULL)
        lua_sethook(task->co, NULL, 0, 0);
    if (task->co != NULL && vm->spare >= MOST_SPARE) {
        luaL_unref(vm->L, LUA_REGISTRYINDEX, task->ref); /* takes back a slot: allocates nothing */
        task->ref = LUA_NOREF;
        task->co = NULL;
    }
    mp_link_drop(&task->link);
    if (task->co != NULL) {
        vm->spare++;
        mp_link_put(vm->idle.next, &task->link); /* in front: the coroutine used last is in the cache */
    } else {
        mp_link_put(&vm->idle, &task->link);
    }
    vm->tasks--;
    mp_stat_add(MP_STAT_TASKS, -1);
}

static int new_coroutine(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    lua_State *co = lua_newthread(L);
    *mp_thread_word(co) |= MP_THREAD_TASK;
    task->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    task->co = co;
    return 0;
}

static bool has_coroutine(mp_task *task)
{
    lua_State *L = task->vm->L;
    if (task->co != NULL)
        return true;
    lua_pushcfunction(L, new_coroutine);
    lua_pushlightuserdata(L, task);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK)
        return true;
    mp_vm_log_error(task->vm, L, "task not started", mp_task_method(task));
    return false;
}

void mp_task_settle(mp_task *task)
{
    mp_call_set_user(task->call, NULL);
    task->call = NULL;
}

mp_entry *mp_task_settle_entry(mp_task *task)
{
    mp_entry *entry = task->entry;
    task->entry = NULL;
    if (entry != NULL)
        mp_entry_set_user(entry, NULL);
    return entry;
}

void mp_task_fail_entry(mp_task *task, int status, const char *why)
{
    mp_entry *entry = mp_task_settle_entry(task);
    if (entry != NULL)
        mp_entry_refuse(entry, &(mp_refusal){.status = status, .message = mp_str_of(why)});
}

void mp_task_fail(mp_task *task, int code, mp_str message, mp_str data)
{
    mp_call *call = task->call;
    mp_task_fail_entry(task, 500, "internal error");
    if (call == NULL)
        return;
    mp_task_settle(task);
    mp_call_fail(call, code, message, data);
}

mp_str mp_task_method(const mp_task *task)
{
    task = task->payer;
    if (task->call != NULL)
        return mp_call_method(task->call);
    if (task->is_entry)
        return MP_STR("auth");
    return (mp_str){task->text.ptr, task->method_len};
}

mp_str mp_task_principal(const mp_task *task)
{
    task = task->payer;
    if (task->call != NULL)
        return mp_principal_id(mp_call_principal(task->call));
    return mp_str_from(mp_buf_str(&task->text), task->method_len);
}

/* -- what runs in the coroutine -------------------------------------------------------------------------------- */

/* dispatch's two results are at 2 and 3. A call that was answered on the way (mp_call_open_session) or called off
 * wants nothing any more. */
static int call_done(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    mp_task *task = (mp_task *)context;
    if (task->call == NULL)
        return 0;
    if (lua_isnil(L, 2)) {
        mp_task_answer_error(L, task, 3);
        return 0;
    }
    mp_task_answer(L, task, 2);
    return 0;
}

/* The body of a call's coroutine: decode, dispatch(call, params, revision, method), encode.  [-1, +0, throws, parks] */
static int run_call(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    if (task->call == NULL)
        return 0; /* called off while its coroutine was made */
    const mp_era *era = mp_call_era(task->call);
    mp_str params = mp_call_params(task->call);
    if (params.len == 0) {
        lua_pushnil(L);
    } else if (mp_lua_decode(L, params) != 0) {
        mp_task_fail(task, -32602, MP_STR("Invalid params: an object in them has the same key twice"), MP_STR_NONE);
        return 0;
    }
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->vm->dispatch);
    mp_call_push(L, task, 2);
    lua_rotate(L, 2, -1); /* dispatch, call, params */
    lua_pushstring(L, era == NULL ? NULL : era->date);
    mp_str method = mp_task_method(task);
    lua_pushlstring(L, method.ptr, method.len);
    lua_callk(L, 4, 2, (lua_KContext)task, call_done);
    return call_done(L, LUA_OK, (lua_KContext)task);
}

static int note_done(lua_State *L, int status, lua_KContext context)
{
    (void)L;
    (void)status;
    (void)context;
    return 0;
}

/* The body of a note's coroutine: note(method, params, revision).  [-1, +0, throws, parks] */
static int run_note(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    mp_str params = mp_str_from(mp_buf_str(&task->text), task->method_len);
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->vm->note);
    lua_pushlstring(L, task->text.ptr, task->method_len);
    if (params.len == 0)
        lua_pushnil(L);
    else if (mp_lua_decode(L, params) != 0)
        return 0; /* nobody waits for an answer */
    if (task->era != NULL)
        lua_pushstring(L, task->era->date);
    else
        lua_pushnil(L);
    lua_callk(L, 3, 0, 0, note_done);
    return 0;
}

/* -- the scheduler --------------------------------------------------------------------------------------------- */

static void close_coroutine(mp_task *task, lua_State *co)
{
    lua_State *before = mp_preempt_enter(co);
    if (lua_resetthread(co) != LUA_OK)
        mp_vm_log_error(task->vm, co, "closer failed", mp_task_method(task));
    mp_preempt_leave(before);
    lua_settop(co, 0);
}

/* Calls a task off, innermost first: what it waits for, the script's coroutines on the way, its own. */
static void unwind(mp_task *task)
{
    mp_vm *vm = task->vm;
    if (task->op != NULL)
        mp_op_cancel(task->op);
    if (task->started) {
        mp_vm_reset_out(vm);
        vm->running = task;
        vm->guard_until = mp_now_us(CLOCK_THREAD_CPUTIME_ID) + CLOSERS_US;
        for (size_t i = 0; i < task->inner_count; i++) {
            *mp_thread_word(task->inner[i]) &= ~(uintptr_t)MP_THREAD_BUSY;
            close_coroutine(task, task->inner[i]);
        }
        close_coroutine(task, task->co);
        vm->guard_until = 0;
        vm->running = NULL;
    }
    task_end(task);
}

static void end_faulty(mp_task *task)
{
    mp_stat_add(MP_STAT_TOOL_FAULTS, 1);
    mp_vm_log_error(task->vm, task->co, "task failed", mp_task_method(task));
    task->vm->running = task;
    task->vm->guard_until = mp_now_us(CLOCK_THREAD_CPUTIME_ID) + CLOSERS_US;
    lua_State *before = mp_preempt_enter(task->co);
    lua_resetthread(task->co); /* gives the error that was just logged */
    mp_preempt_leave(before);
    task->vm->guard_until = 0;
    task->vm->running = NULL;
    lua_settop(task->co, 0);
    mp_task_fail(task, -32603, MP_STR("internal error"), MP_STR_NONE);
    task_end(task);
}

static lua_CFunction body_of(const mp_task *task)
{
    if (task->group != NULL)
        return mp_run_member;
    if (task->scheduled != NULL)
        return mp_run_scheduled;
    if (task->is_note)
        return run_note;
    if (task->is_entry)
        return mp_run_entry;
    return task->job != LUA_NOREF ? mp_run_job : run_call;
}

/* The call lasts: from now on its time runs, and a client that leaves is noticed. */
static void park_call(mp_task *task)
{
    if (task->was_parked)
        return;
    task->was_parked = true;
    mp_call_park(task->call);
}

static void resume(mp_task *task)
{
    mp_vm *vm = task->vm;
    mp_vm_reset_out(vm);
    task->state = MP_TASK_RUNNING;
    if (!has_coroutine(task)) {
        mp_task_fail(task, -32603, MP_STR("internal error"), MP_STR_NONE);
        task_end(task);
        return;
    }
    int count = 0;
    if (!task->started) {
        lua_pushcfunction(task->co, body_of(task));
        lua_pushlightuserdata(task->co, task);
        count = 1;
        task->started = true;
    }
    task->inner_count = 0;
    int status = mp_task_run(task, count);
    if (status == LUA_YIELD && task->cancelled) {
        unwind(task);
    } else if (status == LUA_YIELD && task->preempted) {
        task->preempted = false;
        task->is_heavy = true;
        task->state = MP_TASK_READY;
        mp_link_put(&vm->heavy, &task->link);
        if (task->call != NULL)
            park_call(task);
    } else if (status == LUA_YIELD && task->op != NULL) {
        task->state = MP_TASK_PARKED;
        if (task->call != NULL) {
            park_call(task);
        } else if (task->entry != NULL && !task->was_parked) {
            task->was_parked = true;
            mp_entry_park(task->entry);
        }
    } else if (status == LUA_OK) {
        lua_settop(task->co, 0);
        mp_task_fail(task, -32603, MP_STR("internal error"), MP_STR_NONE); /* unless it is answered, as it is */
        task_end(task);
    } else {
        if (status == LUA_YIELD)
            lua_pushnil(task->co); /* a hook of a trusted script yielded: the trace says where */
        end_faulty(task);
    }
}

/* Resumes a task that others wait behind; its time is charged, and the clock goes on. */
static void resume_next(mp_vm *vm, mp_link *link)
{
    mp_task *task = mp_container(link, mp_task, link);
    bool was_heavy = task->is_heavy;
    mp_task *payer = task->payer;
    uint64_t began = vm->clock, serial = payer->serial;
    resume(task);
    vm->clock = mp_now_us(CLOCK_MONOTONIC);
    if (!was_heavy && payer->serial == serial)
        payer->spent += vm->clock - began;
}

/* A heavy task has its slice, which goes into collecting first. */
static void go_on(mp_vm *vm, mp_link *link)
{
    mp_task *task = mp_container(link, mp_task, link);
    if (!mp_task_owes(task)) {
        resume_next(vm, link);
        return;
    }
    mp_link_put(&vm->heavy, link);
    mp_task_collect(task);
    vm->clock = mp_now_us(CLOCK_MONOTONIC);
}

bool mp_vm_turn(void *ctx)
{
    mp_vm *vm = ctx;
    mp_link *link;
    mp_store_sweep(vm->store);
    bool did = mp_vm_hear(vm);
    if (!mp_link_is_alone(&vm->heard))
        return true; /* before any task */
    while ((link = mp_link_take(&vm->doomed)) != NULL) {
        unwind(mp_container(link, mp_task, link));
        did = true;
    }
    bool has_heavy = !mp_link_is_alone(&vm->heavy);
    if (has_heavy || !mp_link_is_alone(&vm->ready))
        vm->clock = mp_now_us(CLOCK_MONOTONIC);
    uint64_t began = vm->clock, until = began + TURN_US;
    for (int i = 0; i < TURN_RESUMES && (link = mp_link_take(&vm->ready)) != NULL; i++) {
        resume_next(vm, link);
        did = true;
        if (vm->clock >= until)
            break;
    }
    uint64_t light = vm->clock - began;
    vm->owed = vm->owed > light && !mp_link_is_alone(&vm->ready) ? vm->owed - light : 0;
    if (has_heavy && vm->owed == 0 && (link = mp_link_take(&vm->heavy)) != NULL) {
        began = vm->clock;
        go_on(vm, link);
        vm->owed = vm->clock - began;
        did = true;
    }
    did = mp_vm_tidy(vm) || did;
    if (did)
        mp_vm_publish(vm);
    return did || !mp_link_is_alone(&vm->ready) || !mp_link_is_alone(&vm->heavy) || !mp_link_is_alone(&vm->doomed);
}

void mp_task_unwind(mp_task *task)
{
    mp_link_drop(&task->link);
    unwind(task);
}

void mp_task_leave(mp_task *task, lua_State *co)
{
    if (task->inner_count == task->inner_cap) {
        task->inner_cap = task->inner_cap == 0 ? 4 : task->inner_cap * 2;
        task->inner = mp_resize(task->inner, task->inner_cap * sizeof(lua_State *));
    }
    task->inner[task->inner_count++] = co;
}

void mp_tasks_unwind(mp_vm *vm)
{
    for (mp_task *task = vm->all; task != NULL; task = task->next) {
        task->entry = NULL;
        task->call = NULL; /* first of all tasks: one's closer may know another's call */
        task->cancelled = true;
    }
    for (mp_task *task = vm->all; task != NULL; task = task->next)
        if (task->state != MP_TASK_IDLE)
            mp_task_unwind(task);
}

void mp_tasks_free(mp_vm *vm)
{
    while (vm->all != NULL) {
        mp_task *task = vm->all;
        vm->all = task->next;
        free(task->inner);
        free(task);
    }
}
