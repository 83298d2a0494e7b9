/* closing.c: the errors that end tasks and coroutines, and the limits of the `<close>` handlers that run then. */
#include "vm/closing.h"
#include "vm/preempt.h"
#include <lauxlib.h>

MP_GAUGE(cleanups, "cleanups", "", "", "cancelled calls whose <close> handlers run or wait")
MP_COUNTER(cleanups_ended, "cleanups_ended", "", "", "cancelled calls whose <close> handlers exceeded their limits")

#define CLOSERS_US 50000       /* processor time for the handlers of a cancelled task */
#define LATE_US 5000           /* processor time for handlers after MP_CLEANUP_MS is over */
#define STUCK_US 5000          /* processor time for handlers where the task cannot yield */
#define LOOK_INSTRUCTIONS 1000 /* instructions between two runs of the hook where the task cannot yield */
#define MEMORY_PART 4          /* handlers may allocate 1/4 of limits.call.memory beyond it */
/* tasks of an ending VM whose cleanup is logged with its place; further ones are counted */
#define MAX_LOGGED 10
/* bit of mp_catch_begin's value: the coroutine is being closed; the other bits are mp_task.closing */
#define CLOSED_LEVEL 1

static const char cancelled_key, closed_key;

/* -- the errors ------------------------------------------------------------------------------------------------ */

static int ending_text(lua_State *L)
{
    const char *kind = lua_touserdata(L, 1);
    lua_pushstring(L, kind != NULL && *kind == 'k' ? "the coroutine is closed" : "the call is cancelled");
    return 1;
}

static void *new_error(lua_State *L, const void *key, char kind)
{
    char *error = lua_newuserdatauv(L, 1, 0);
    *error = kind;
    lua_pushvalue(L, -2);
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
    return error;
}

void mp_closing_open(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    lua_createtable(L, 0, 3);
    lua_pushcfunction(L, ending_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushliteral(L, "moonpool.ending");
    lua_setfield(L, -2, "__name");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    vm->closing.cancelled_error = new_error(L, &cancelled_key, 'c');
    vm->closing.closed_error = new_error(L, &closed_key, 'k');
    lua_pop(L, 1);
}

static _Noreturn void raise_key(lua_State *L, const void *key)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, key);
    lua_error(L);
    __builtin_unreachable();
}

void mp_raise_closed(lua_State *L)
{
    raise_key(L, &closed_key);
}

/* The VM ends, and its handlers have no time left. */
static bool is_past_end(const mp_vm *vm)
{
    return vm->closing.is_ending && mp_monotonic_ms() >= vm->closing.ending_until;
}

void mp_raise_cancelled(lua_State *L, mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    own->raise = false;
    mp_task_weigh(task); /* the processor time of handlers is measured exactly */
    if (own->closing == MP_OPEN) {
        own->closing = MP_CLOSING;
        own->closing_room = vm->state.call_memory / MEMORY_PART;
        vm->closing.since = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
        vm->memory.ceiling = own->closing_room < vm->memory.limit - vm->memory.bytes
                                 ? vm->memory.bytes + own->closing_room
                                 : vm->memory.limit;
        vm->memory.is_full = vm->memory.is_over = vm->memory.is_crowded = false;
        vm->memory.denied = 0;
        vm->clock.stuck_at = 0;
        own->is_late = own->is_excess = vm->closing.tasks >= vm->closing.most;
        vm->closing.tasks++;
        mp_stat_add(&mp_stat_cleanups, 1);
    }
    if (is_past_end(vm))
        own->closing = MP_FORCED;
    if (own->closing == MP_FORCED)
        mp_preempt_arm(L, 1);
    raise_key(L, &cancelled_key);
}

/* -- catching errors ------------------------------------------------------------------------------------------- */

lua_KContext mp_catch_begin(lua_State *L)
{
    const mp_task *task = mp_vm_of(L)->state.running;
    lua_KContext level = task == NULL ? MP_OPEN : mp_own(task)->closing;
    return level * 2 * CLOSED_LEVEL + ((*mp_thread_word(L) & MP_THREAD_CLOSING) != 0 ? CLOSED_LEVEL : 0);
}

/* Logs an error that a `<close>` handler raised, since no result will have it.  [-0, +0] */
static void log_lost(lua_State *L, const mp_task *MP_NULLABLE task)
{
    if (mp_is_ending_error(L, -1))
        return;
    const char *why = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : luaL_tolstring(L, -1, NULL);
    mp_log(MP_ERROR, "<close> handler failed", mp_log_str("method", task == NULL ? MP_STR("") : mp_task_label(task)),
           mp_log_str("error", mp_str_of(why)));
}

void mp_catch_end(lua_State *L, lua_KContext began, bool failed)
{
    lua_KContext now = mp_catch_begin(L);
    bool is_cancelled = now / 2 > began / 2, is_closed = (now & CLOSED_LEVEL) > (began & CLOSED_LEVEL);
    if (!is_cancelled && !is_closed)
        return;
    if (failed)
        log_lost(L, mp_vm_of(L)->state.running);
    raise_key(L, is_cancelled ? &cancelled_key : &closed_key);
}

/* -- waits of handlers ----------------------------------------------------------------------------------------- */

static void raise_late(lua_State *L)
{
    mp_push_place(L);
    lua_pushliteral(L, "handlers of <close> variables cannot wait: the call is cancelled and "
                       "the time for cleaning up is over");
    lua_concat(L, 2);
    lua_error(L);
}

void mp_closing_after_wait(lua_State *L)
{
    mp_task *task = mp_vm_of(L)->state.running;
    if (task == NULL)
        return;
    if (mp_own(task)->raise)
        mp_raise_cancelled(L, task);
    if (!mp_own(task)->is_cut)
        return;
    mp_own(task)->is_cut = false;
    raise_late(L);
}

static const char at_end[] = "the gateway ended before the <close> handlers of a cancelled call";

static void log_exceeded(mp_task *task, const char *why)
{
    mp_task_own *own = mp_own(task);
    if (own->has_exceeded)
        return;
    own->has_exceeded = true;
    mp_stat_add(&mp_stat_cleanups_ended, 1);
    if (task->vm->closing.is_ending && ++task->vm->closing.ending_count > MAX_LOGGED)
        return;
    lua_Debug at = {.currentline = -1};
    lua_State *L = own->state == MP_TASK_PARKED ? mp_task_innermost(task) : own->co;
    bool has_place = L != NULL && mp_vm_find_place(L, &at);
    mp_log(MP_WARN, "cleanup over its limit", mp_log_str("method", mp_task_label(task)),
           mp_log_str("why", mp_str_of(why)), mp_log_str("file", mp_str_of(has_place ? at.short_src : "")),
           mp_log_int("line", has_place ? at.currentline : 0));
}

void mp_closing_before_wait(lua_State *L, mp_task *task)
{
    mp_task_own *own = mp_own(task);
    /* no hook ran between the resume and this wait: Lua runs none at the instruction that was preempted */
    if (own->raise)
        mp_raise_cancelled(L, task);
    if (own->closing == MP_CLOSING && own->is_excess)
        log_exceeded(task, "more cancelled calls than limits.calls_in_flight have <close> handlers that wait");
    if (own->is_late || own->closing == MP_FORCED)
        raise_late(L);
}

static void on_time_over(mp_timer *timer)
{
    mp_task_own *own = mp_container(timer, mp_task_own, closing_timer);
    mp_task *task = &own->task;
    own->is_late = true;
    own->late_from = own->closing_us;
    log_exceeded(task, "the <close> handlers of a cancelled call waited for longer than 2 s");
    if (own->op == NULL || own->op->outlasts)
        return;
    mp_op_cancel(own->op);
    own->is_cut = true;
    own->state = MP_TASK_READY;
    mp_link_put(&task->vm->schedule.ready, &own->link);
}

void mp_closing_left(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_loop *loop = task->vm->state.loop;
    if (loop == NULL || own->has_closing_timer || own->is_late)
        return;
    own->has_closing_timer = true;
    uint64_t now = mp_loop_now(loop);
    if (task->closing_until == 0)
        task->closing_until = now + MP_CLEANUP_MS;
    mp_timer_start(loop, &own->closing_timer, task->closing_until > now ? task->closing_until - now : 0, on_time_over);
}

void mp_closing_done(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_loop *loop = task->vm->state.loop;
    if (own->has_closing_timer && loop != NULL)
        mp_timer_stop(loop, &own->closing_timer);
    own->has_closing_timer = false;
    if (own->closing == MP_OPEN)
        return;
    own->closing = MP_OPEN;
    task->vm->closing.tasks--;
    mp_stat_add(&mp_stat_cleanups, -1);
}

/* -- their processor time -------------------------------------------------------------------------------------- */

/* Raises an error if the handlers have used up a limit. True if the task can yield here. [-0, +0, throws] */
static bool check_handlers(lua_State *L, mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    uint64_t now = mp_clock_us(CLOCK_THREAD_CPUTIME_ID), spent = own->closing_us + now - vm->closing.since;
    bool can_leave = vm->state.may_wait && lua_isyieldable(L);
    if (can_leave)
        vm->clock.stuck_at = 0;
    else if (vm->clock.stuck_at == 0)
        vm->clock.stuck_at = now;
    bool is_over = spent >= CLOSERS_US || vm->memory.is_over ||
                   (own->is_late && !own->is_excess && spent >= own->late_from + LATE_US) ||
                   (!can_leave && now - vm->clock.stuck_at >= STUCK_US);
    if (own->closing == MP_CLOSING && is_over) {
        log_exceeded(task, vm->memory.is_over ? "the <close> handlers of a cancelled call took too much memory"
                                              : "the <close> handlers of a cancelled call ran for too long");
        own->closing = MP_FORCED;
    }
    if (own->closing == MP_CLOSING && is_past_end(vm))
        own->closing = MP_FORCED;
    if (own->closing == MP_FORCED) {
        log_exceeded(task, at_end);
        mp_preempt_arm(L, 1);
        raise_key(L, &cancelled_key);
    }
    return can_leave;
}

void mp_closing_hook(lua_State *L, mp_task *task)
{
    if (mp_own(task)->raise)
        mp_raise_cancelled(L, task);
    if (!check_handlers(L, task)) {
        mp_preempt_arm(L, LOOK_INSTRUCTIONS);
        return;
    }
    mp_own(task)->preempted = true;
    lua_yield(L, 0);
}

void mp_closing_look(lua_State *L, mp_task *task)
{
    check_handlers(L, task);
    mp_own(task)->preempted = true;
}

void mp_closing_charge(mp_task *task, size_t before)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    size_t made = vm->memory.bytes > before ? vm->memory.bytes - before : 0;
    own->closing_room -= made < own->closing_room ? made : own->closing_room;
    own->closing_us += mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - vm->closing.since;
}

/* -- ending a task --------------------------------------------------------------------------------------------- */

void mp_task_cancel(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    task->cancelled = true;
    if (own->state == MP_TASK_RUNNING || own->state == MP_TASK_IDLE)
        return; /* running: the client disconnected while the task sent to it: the error is raised at its next wait */
    mp_link_drop(&own->link);
    own->state = MP_TASK_UNWINDING;
    mp_link_put(&task->vm->schedule.unwinding, &own->link);
}

void mp_task_unwind(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_link_drop(&own->link);
    task->cancelled = true;
    if (!own->started) {
        mp_task_end(task);
        return;
    }
    own->raise = true;
    mp_task_weigh(task);
    own->is_over_memory = false;
    own->collecting = 0;
    own->preempted = false;
    if (own->op != NULL && own->op->outlasts) {
        own->state = MP_TASK_PARKED; /* the op ends the members of the group first, and then the wait */
        own->op->cancel(own->op);
        return;
    }
    if (own->op != NULL)
        mp_op_cancel(own->op);
    lua_State *innermost = mp_task_innermost(task);
    if (innermost != NULL)
        mp_preempt_arm(innermost, 1);
    mp_task_resume(task);
}

/* Ends every task that can end now. A task that waits for the members of a group ends after them. False if no task is
 * left. */
static bool end_some(mp_vm *vm)
{
    bool has_tasks = false;
    for (mp_task *task = vm->state.all; task != NULL; task = task->next) {
        const mp_task_own *own = mp_own(task);
        if (own->state == MP_TASK_IDLE)
            continue;
        has_tasks = true;
        if (own->op != NULL && own->op->outlasts && own->raise)
            continue;
        mp_task_unwind(task);
    }
    return has_tasks;
}

void mp_vm_unwind(mp_vm *vm, uint64_t until)
{
    if (vm->closing.is_ending)
        return;
    vm->closing.is_ending = true;
    vm->closing.ending_until = until;
    for (mp_task *task = vm->state.all; task != NULL; task = task->next) {
        if (mp_own(task)->state != MP_TASK_IDLE && mp_own(task)->closing != MP_OPEN)
            log_exceeded(task, at_end);
        task->cancelled = true;
    }
    while (end_some(vm))
        continue;
    if (vm->closing.ending_count > MAX_LOGGED)
        mp_log(MP_WARN, "cleanups over their limit", mp_log_int("count", vm->closing.ending_count),
               mp_log_str("why", mp_str_of(at_end)));
}
