/* limits.c: the time and memory that a task may use, and what happens when it uses more. */
#include "vm/closing.h"
#include "vm/preempt.h"
#include "vm/profile.h"
#include "vm/task.h"
#include "vm/where.h"
#include <lauxlib.h>
#include <stdio.h>

#define LOOK_INSTRUCTIONS 1000 /* instructions between two runs of the hook where Lua cannot yield */
#define SHORT_US                                                                                                       \
    1000 /* a stretch that took less is charged as it is; of a longer one the thread may have run a part only */

uint64_t mp_vm_light_us(const mp_vm *vm, uint64_t us)
{
    if (us < SHORT_US)
        return us;
    uint64_t ran =
        mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->cpu_us; /* very large where another thread's time was read */
    return ran < us ? ran : us;
}

/* What the running stretch of a task has used. The monotonic clock is cheap; the thread's processor time, for heavy tasks, is a system call. */
static uint64_t stretch_of(const mp_vm *vm, const mp_task *task)
{
    if (task->is_heavy)
        return mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->clock_us;
    return mp_vm_light_us(vm, mp_clock_us(CLOCK_MONOTONIC) - vm->clock_us);
}

/* Raises an error where Lua cannot yield. If a script catches it, the hook raises the next one at the next instruction. */
static void raise_again(lua_State *L, const char *why)
{
    mp_preempt_arm(L, 1);
    luaL_error(L, "%s", why);
}

static bool is_stopped(const mp_vm *vm)
{
    return vm->is_loading && mp_loading_is_stopped();
}

/* Code outside of tasks has exceeded its time limit: raises an error with its line in a script, if it has one. */
static void end_guarded(lua_State *L)
{
    lua_Debug at;
    const char *why =
        is_stopped(mp_vm_of(L)) ? "the gateway was asked to stop while the code ran" : "the code runs for too long";
    if (!mp_vm_find_place(L, &at))
        raise_again(L, why);
    mp_preempt_arm(L, 1);
    lua_pushfstring(L, "%s:%d: %s", at.short_src, at.currentline, why);
    lua_error(L);
}

/* Preempts the task that runs, which is about to yield, and cancels it if it is over a limit.*/
static void preempt(mp_task *task, lua_State *L, lua_Debug *MP_NULLABLE where)
{
    mp_vm *vm = task->vm;
    vm->stuck_at = 0;
    const char *why = task->cancelled ? NULL : mp_task_over_limit(task, stretch_of(vm, task), 0);
    if (why != NULL)
        mp_task_cancel_over_limit(task, L, where, why);
    if (vm->is_full && !task->cancelled)
        mp_task_begin_collecting(task);
    task->preempted = true;
}

bool mp_task_should_turn(lua_State *L)
{
    return mp_task_is_interrupted(L) && mp_vm_of(L)->may_wait && lua_isyieldable(L);
}

void mp_task_turn(lua_State *L)
{
    lua_sethook(L, NULL, 0, 0);
    mp_task *task = mp_vm_of(L)->running;
    if (task == NULL)
        return;
    if (task->raise)
        mp_raise_cancelled(L, task);
    if (task->closing != MP_OPEN)
        mp_closing_look(L, task);
    else
        preempt(task, L, NULL);
}

void mp_task_hook(lua_State *L, lua_Debug *where)
{
    lua_sethook(L, NULL, 0, 0);
    if (mp_profile_due > 0)
        mp_profile_take(L);
    mp_where_answer(L);
    mp_vm *vm = mp_vm_of(L);
    mp_task *task = vm->running;
    if (vm->is_collecting && vm->guard_until == 0)
        vm->guard_until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + MP_STUCK_US;
    if (vm->guard_until != 0) { /* code outside of tasks: loading, bus messages, finalizers */
        if (is_stopped(vm) || mp_clock_us(CLOCK_THREAD_CPUTIME_ID) >= vm->guard_until)
            end_guarded(L);
        mp_preempt_arm(L, LOOK_INSTRUCTIONS);
        return;
    }
    if (task == NULL) {
        raise_again(L, "the code runs outside of any call, and for too long");
        return;
    }
    if (task->raise || task->closing != MP_OPEN) {
        mp_closing_hook(L, task);
        return;
    }
    if (vm->may_wait && lua_isyieldable(L)) {
        preempt(task, L, where);
        lua_yield(L, 0);
        return;
    }
    uint64_t cpu = mp_clock_us(
        CLOCK_THREAD_CPUTIME_ID); /* processor time: the script is not to blame if the thread waits for a processor */
    if (vm->stuck_at == 0)
        vm->stuck_at = cpu;
    const char *why = task->cancelled ? NULL : mp_task_over_limit(task, stretch_of(vm, task), cpu - vm->stuck_at);
    if (why != NULL)
        mp_task_cancel_over_limit(task, L, where, why);
    if (task->cancelled)
        mp_raise_cancelled(L, task);
    mp_preempt_arm(L, LOOK_INSTRUCTIONS);
}

/* Runs a task without limits, to measure what the limits cost. */
static int run_unlimited(mp_task *task, lua_State *co, int count)
{
    mp_vm *vm = task->vm;
    vm->ceiling = vm->memory;
    vm->running = task;
    vm->may_wait = vm->loop != NULL;
    int status = lua_resume(co, vm->L, count, &count);
    vm->may_wait = false;
    vm->running = NULL;
    return status;
}

int mp_task_run(mp_task *task, lua_State *co, int count)
{
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    if (!MP_PREEMPT)
        return run_unlimited(task, co, count);
    size_t allowed = vm->call_memory + payer->more_bytes;
    if (payer->grown >= allowed / 2 || vm->bytes >= vm->shared - vm->shared / 4)
        mp_task_settle_memory(
            task); /* not before: the corrections do not matter to a task that is far below its limit */
    size_t before = vm->bytes, left = payer->grown < allowed ? allowed - payer->grown : 0;
    size_t most = vm->memory;
    if (task->closing != MP_OPEN)
        left = task->closing_room;
    else
        most = mp_task_shared_memory(task);
    vm->is_crowded = before + left > most;
    vm->ceiling = vm->is_crowded ? most : before + left;
    vm->denied = 0;
    vm->is_full = false;
    vm->is_over_memory = task->is_over_memory;
    vm->stuck_at = 0;
    bool is_heavy = task->is_heavy;
    if (is_heavy)
        vm->clock_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    vm->running = task;
    vm->may_wait = vm->loop != NULL && !vm->is_ending;
    vm->closing_since = vm->clock_us;
    bool has_time = !is_heavy && task->closing == MP_OPEN; /* clock_us is that of the end of the task before */
    lua_State *outer = mp_preempt_enter_at(co, has_time ? vm->clock_us : mp_clock_us(CLOCK_MONOTONIC));
    if (is_heavy || task->is_gentle)
        mp_preempt_slice(task->is_gentle);
    int status = lua_resume(co, vm->L, count, &count);
    mp_preempt_leave(outer);
    vm->may_wait = false;
    vm->running = NULL;
    vm->ceiling = vm->memory;
    mp_task_made(task, before);
    if (task->closing != MP_OPEN)
        mp_closing_charge(task, before);
    if (is_heavy)
        payer->spent_us += mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->clock_us;
    return status;
}
