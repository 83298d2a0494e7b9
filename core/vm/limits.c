/* limits.c: the time and memory that a task may use, and what happens when it uses more. */
#include "vm/closing.h"
#include "vm/preempt.h"
#include "vm/profile.h"
#include "vm/running_line.h"
#include <lauxlib.h>

#define LOOK_INSTRUCTIONS 1000 /* instructions between two runs of the hook where Lua cannot yield */
/* a stretch that took less is charged as it is; of a longer one the thread may have run a part only */
#define SHORT_US 1000

uint64_t mp_vm_light_us(const mp_vm *vm, uint64_t us)
{
    if (us < SHORT_US)
        return us;
    uint64_t ran =
        mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->clock.cpu_us; /* very large where another thread's time was read */
    return ran < us ? ran : us;
}

/* The time that the running stretch of a task has used. The monotonic clock is cheap; the thread's processor time,
 * which is read for heavy tasks, is a system call. */
static uint64_t stretch_of(const mp_vm *vm, const mp_task *task)
{
    if (mp_own(task)->is_heavy)
        return mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->state.began_us;
    return mp_vm_light_us(vm, mp_clock_us(CLOCK_MONOTONIC) - vm->state.began_us);
}

/* Raises an error where Lua cannot yield. If a script catches it, the hook raises the next one at the next
 * instruction. */
static void raise_again(lua_State *L, const char *why)
{
    mp_preempt_arm(L, 1);
    luaL_error(L, "%s", why);
}

static bool is_stopped(const mp_vm *vm)
{
    return vm->state.is_loading && mp_loading_is_stopped();
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
static void preempt_task(mp_task *task, lua_State *L, lua_Debug *MP_NULLABLE where)
{
    mp_vm *vm = task->vm;
    vm->clock.stuck_at = 0;
    const char *why = task->cancelled ? NULL : mp_task_over_limit(task, stretch_of(vm, task), 0);
    if (why != NULL)
        mp_task_cancel_over_limit(task, L, where, why);
    if (vm->memory.is_full && !task->cancelled)
        mp_task_begin_collecting(task);
    mp_own(task)->preempted = true;
}

bool mp_task_should_turn(lua_State *L)
{
    return mp_task_is_interrupted(L) && mp_vm_of(L)->state.may_wait && lua_isyieldable(L);
}

void mp_task_turn(lua_State *L)
{
    lua_sethook(L, NULL, 0, 0);
    mp_task *task = mp_vm_of(L)->state.running;
    if (task == NULL)
        return;
    if (mp_own(task)->raise)
        mp_raise_cancelled(L, task);
    if (mp_own(task)->closing != MP_OPEN)
        mp_closing_look(L, task);
    else
        preempt_task(task, L, NULL);
}

void mp_task_hook(lua_State *L, lua_Debug *where)
{
    lua_sethook(L, NULL, 0, 0);
    if (mp_profile_due > 0)
        mp_profile_take(L);
    mp_where_answer(L);
    mp_vm *vm = mp_vm_of(L);
    mp_task *task = vm->state.running;
    if (vm->garbage.is_collecting && vm->clock.guard_until == 0)
        vm->clock.guard_until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + MP_STUCK_US;
    if (vm->clock.guard_until != 0) { /* code outside of tasks: loading, bus messages, finalizers */
        if (is_stopped(vm) || mp_clock_us(CLOCK_THREAD_CPUTIME_ID) >= vm->clock.guard_until)
            end_guarded(L);
        mp_preempt_arm(L, LOOK_INSTRUCTIONS);
        return;
    }
    if (task == NULL) {
        raise_again(L, "the code runs outside of any call, and for too long");
        return;
    }
    if (mp_own(task)->raise || mp_own(task)->closing != MP_OPEN) {
        mp_closing_hook(L, task);
        return;
    }
    if (vm->state.may_wait && lua_isyieldable(L)) {
        preempt_task(task, L, where);
        lua_yield(L, 0);
        return;
    }
    uint64_t cpu = mp_clock_us(
        CLOCK_THREAD_CPUTIME_ID); /* processor time: the script is not to blame if the thread waits for a processor */
    if (vm->clock.stuck_at == 0)
        vm->clock.stuck_at = cpu;
    const char *why = task->cancelled ? NULL : mp_task_over_limit(task, stretch_of(vm, task), cpu - vm->clock.stuck_at);
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
    vm->memory.ceiling = vm->memory.limit;
    vm->state.running = task;
    vm->state.may_wait = vm->state.loop != NULL;
    int status = lua_resume(co, vm->state.L, count, &count);
    vm->state.may_wait = false;
    vm->state.running = NULL;
    return status;
}

int mp_task_run(mp_task *task, lua_State *co, int count)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    if (!MP_PREEMPT)
        return run_unlimited(task, co, count);
    size_t allowed = vm->state.call_memory + payer->more_bytes;
    if (mp_own(payer)->grown >= allowed / 2 || vm->memory.bytes >= vm->memory.shared - vm->memory.shared / 4)
        mp_task_settle_memory(
            task); /* not called earlier: the corrections do not matter to a task far below its limit */
    size_t before = vm->memory.bytes, left = mp_own(payer)->grown < allowed ? allowed - mp_own(payer)->grown : 0;
    size_t most = vm->memory.limit;
    if (own->closing != MP_OPEN)
        left = own->closing_room;
    else
        most = mp_task_shared_memory(task);
    vm->memory.is_crowded = before + left > most;
    vm->memory.ceiling = vm->memory.is_crowded ? most : before + left;
    vm->memory.denied = 0;
    vm->memory.is_full = false;
    vm->memory.is_over = own->is_over_memory;
    vm->clock.stuck_at = 0;
    bool is_heavy = own->is_heavy;
    if (is_heavy)
        vm->state.began_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    vm->state.running = task;
    vm->state.may_wait = vm->state.loop != NULL && !vm->closing.is_ending;
    vm->closing.since = vm->state.began_us;
    bool has_time = !is_heavy && own->closing == MP_OPEN; /* clock_us is that of the end of the task before */
    lua_State *outer = mp_preempt_enter_at(co, has_time ? vm->state.began_us : mp_clock_us(CLOCK_MONOTONIC));
    if (is_heavy || task->is_gentle)
        mp_preempt_slice(task->is_gentle);
    int status = lua_resume(co, vm->state.L, count, &count);
    mp_preempt_leave(outer);
    vm->state.may_wait = false;
    vm->state.running = NULL;
    vm->memory.ceiling = vm->memory.limit;
    mp_task_made(task, before);
    if (own->closing != MP_OPEN)
        mp_closing_charge(task, before);
    if (is_heavy)
        mp_own(payer)->spent_us += mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->state.began_us;
    return status;
}
