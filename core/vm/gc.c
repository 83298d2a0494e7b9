/* gc.c: when garbage is collected: between tasks, in small steps, in proportion to the bytes allocated. With Lua's
 * own pace, the next allocation would at once collect all garbage, while every other task waits. */
#include "vm/preempt.h"
#include "vm/schedule.h"
#include <lauxlib.h>

#define KEPT_COROUTINES 8     /* for the next tasks, when memory is returned */
#define GC_STEP_MULTIPLIER 8  /* LUA_GCINC: units of work for each unit of memory that was allocated */
#define GC_STEP_LOG2_BYTES 12 /* LUA_GCINC: the size of one step, as a power of two */
#define GC_STEP_BYTES (1 << GC_STEP_LOG2_BYTES) /* one step is due for this number of allocated bytes */
/* a cycle begins when the state holds this many times the bytes that the last cycle left */
#define GC_GROWTH_FACTOR 2
#define BATCH_US 500
/* bytes of debt from which on a heavy task must collect garbage before it continues */
#define MAX_DEBT_BYTES (16 * GC_STEP_BYTES)
/* bytes of debt from which on no task is resumed until some of it is paid */
#define MAX_OWED_BYTES ((size_t)1 << 20)
/* this many times MAX_OWED_BYTES during full cycles, which pay for no debt until they end */
#define FULL_OWED 16
/* full cycles before memory is returned: the cycle that runs may have marked objects that are garbage by now */
#define RETURN_CYCLES 2
/* bytes that a state has more than its last cycle while idle left, or that tasks have left since, from which on another
 * one is worth its time; and this part of what that left */
#define MUCH_BYTES ((size_t)4 << 20)
#define MUCH_PART 8
#define FREED_AT_ONCE 4096 /* blocks kept for reuse that are freed in one turn */
/* the task continues when 1/16 of limits.call.memory is free, even if a full cycle is not over */
#define FREE_PART 16
#define MIN_FREE_PART 64 /* after full cycles: the task is ended if less than 1/64 is free */
#define SHARED_PART 4    /* a quarter of limits.lua_memory counts, if it is less than limits.call.memory */

static void note_kept(mp_vm *vm)
{
    size_t part = vm->memory.bytes / MUCH_PART;
    vm->garbage.kept = vm->memory.bytes;
    vm->garbage.much = part > MUCH_BYTES ? part : MUCH_BYTES;
}

static void plan_cycle(mp_vm *vm)
{
    size_t goal = vm->memory.bytes * GC_GROWTH_FACTOR,
           halfway = vm->memory.bytes + (vm->memory.limit - vm->memory.bytes) / 2;
    vm->garbage.collect_from = goal < halfway ? goal : halfway;
    if (vm->garbage.is_returning || vm->memory.bytes < vm->garbage.kept)
        note_kept(vm);
    vm->garbage.made = vm->garbage.made_heavily = 0;
    vm->garbage.left = vm->garbage.left < vm->garbage.left_lately ? vm->garbage.left : vm->garbage.left_lately;
    vm->garbage.left_lately = 0;
}

void mp_vm_collect_by_turns(mp_vm *vm)
{
    lua_gc(vm->state.L, LUA_GCINC, 0, GC_STEP_MULTIPLIER, GC_STEP_LOG2_BYTES);
    lua_gc(vm->state.L, LUA_GCSTOP);
    vm->garbage.seen = vm->memory.bytes;
    note_kept(vm);
    plan_cycle(vm);
}

/* When Lua begins to sweep, it frees at once every dead object that is younger than the youngest live one: perhaps
 * all objects of a large task. So this makes a young object that lives. [-0, +0, throws] */
static int live(lua_State *L)
{
    static const char young;
    lua_newuserdatauv(L, 0, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &young);
    return 0;
}

/* Collects for `*owed` bytes (NULL: without a limit), until the cycle ends or BATCH_US are over. True if the cycle
 * ended. */
static bool collect_garbage(mp_vm *vm, size_t *MP_NULLABLE owed)
{
    size_t before = vm->memory.bytes;
    bool ended = false;
    uint64_t until = mp_clock_us(CLOCK_MONOTONIC) + BATCH_US;
    vm->garbage.collect_from = 0;
    vm->garbage.is_collecting = true;
    lua_State *outer = mp_preempt_enter(vm->state.L);
    lua_pushcfunction(vm->state.L, live);
    if (lua_pcall(vm->state.L, 0, 0, 0) != LUA_OK)
        lua_pop(vm->state.L, 1); /* no memory for the young object: the garbage is freed at once */
    do {
        ended = lua_gc(vm->state.L, LUA_GCSTEP, 0) != 0;
        if (owed != NULL)
            *owed = *owed < GC_STEP_BYTES ? 0 : *owed - GC_STEP_BYTES;
    } while (!ended && (owed == NULL || *owed >= GC_STEP_BYTES) && mp_clock_us(CLOCK_MONOTONIC) < until);
    mp_preempt_leave(outer);
    vm->garbage.is_collecting = false;
    vm->clock.guard_until = 0;
    size_t gone = before > vm->memory.bytes ? before - vm->memory.bytes : 0,
           expected = gone < vm->garbage.left ? gone : vm->garbage.left;
    vm->garbage.left -= expected;
    vm->garbage.gone += gone - expected;
    vm->garbage.seen -= gone < vm->garbage.seen ? gone : vm->garbage.seen;
    if (ended)
        plan_cycle(vm);
    return ended;
}

/* True if heavy tasks have left a debt, and no heavy task is ready that would pay it. */
static bool is_left_heavy(const mp_vm *vm)
{
    return vm->garbage.made_heavily >= MAX_DEBT_BYTES && mp_link_is_alone(&vm->schedule.heavy);
}

bool mp_vm_owes(const mp_vm *vm)
{
    return vm->garbage.made >= MAX_OWED_BYTES &&
           (vm->state.full_cycles == 0 || vm->garbage.made >= FULL_OWED * MAX_OWED_BYTES);
}

void mp_vm_return_memory(mp_vm *vm)
{
    mp_tasks_drop_coroutines(vm);
    vm->garbage.is_returning = true;
    vm->garbage.has_had_much = false;
    vm->state.full_cycles = vm->state.full_cycles < RETURN_CYCLES ? RETURN_CYCLES : vm->state.full_cycles;
}

bool mp_vm_has_had_much(const mp_vm *vm)
{
    return vm->garbage.has_had_much;
}

size_t mp_vm_held(const mp_vm *vm)
{
    return vm->memory.bytes + vm->memory.spare_bytes;
}

bool mp_vm_is_returning_memory(const mp_vm *vm)
{
    return vm->garbage.is_returning;
}

bool mp_vm_tidy(mp_vm *vm)
{
    vm->garbage.made += vm->memory.bytes > vm->garbage.seen ? vm->memory.bytes - vm->garbage.seen : 0;
    vm->garbage.seen = vm->memory.bytes;
    vm->garbage.has_had_much = vm->garbage.has_had_much || vm->garbage.left >= vm->garbage.much ||
                               vm->memory.bytes >= vm->garbage.kept + vm->garbage.much;
    if (vm->memory.bytes < vm->garbage.collect_from)
        vm->garbage.made = vm->garbage.made_heavily = 0;
    if (vm->state.full_cycles > 0)
        vm->state.full_cycles -= collect_garbage(vm, NULL);
    else if (vm->garbage.made >= GC_STEP_BYTES)
        collect_garbage(vm, &vm->garbage.made);
    else if (is_left_heavy(vm))
        collect_garbage(vm, &vm->garbage.made_heavily);
    if (vm->garbage.is_returning && vm->state.full_cycles == 0)
        vm->garbage.is_returning = mp_vm_free_some_spares(vm, FREED_AT_ONCE);
    return vm->state.full_cycles > 0 || vm->garbage.is_returning || vm->garbage.made >= GC_STEP_BYTES ||
           is_left_heavy(vm);
}

/* -- the memory of tasks ---------------------------------------------------------------------------------------- */

void mp_task_made(mp_task *task, size_t before)
{
    mp_vm *vm = task->vm;
    size_t made = vm->memory.bytes > before ? vm->memory.bytes - before : 0,
           /* freed without the collector: a stack has shrunk */
        freed = vm->memory.bytes < before ? before - vm->memory.bytes : 0;
    mp_task_own *payer = mp_own(task->payer);
    payer->grown += made;
    payer->grown -= freed < payer->grown ? freed : payer->grown;
    if (!mp_own(task)->is_heavy)
        return;
    vm->garbage.made_heavily += made; /* normal tasks do not pay for the garbage of heavy tasks */
    vm->garbage.seen += made;
}

void mp_task_settle_memory(mp_task *task)
{
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    size_t gone = vm->garbage.gone - mp_own(payer)->gone_then;
    mp_own(payer)->grown -= gone < mp_own(payer)->grown ? gone : mp_own(payer)->grown;
    mp_own(payer)->gone_then = vm->garbage.gone;
}

void mp_task_dies(mp_task *task)
{
    task->vm->garbage.dying += !mp_own(task)->is_dying;
    mp_own(task)->is_dying = true;
}

void mp_task_set_heir(const mp_task *task, mp_task *heir)
{
    mp_own(task->payer)->heir = heir;
    mp_own(task->payer)->heir_serial = heir->serial;
}

void mp_task_leave_memory(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    task->vm->garbage.dying -= own->is_dying;
    task->vm->garbage.deaths += own->is_dying;
    own->is_dying = false;
    if (task->payer != task)
        return;
    if (own->heir != NULL && own->heir->serial == own->heir_serial) {
        mp_own(own->heir->payer)->grown += own->grown;
        return;
    }
    task->vm->garbage.left += own->grown;
    task->vm->garbage.left_lately += own->grown;
}

bool mp_task_owes(const mp_task *task)
{
    return mp_own(task)->collecting > 0 || task->vm->garbage.made_heavily >= MAX_DEBT_BYTES;
}

void mp_task_begin_collecting(mp_task *task)
{
    mp_own(task)->collecting = MP_FULL_CYCLES;
    mp_own(task)->left_then = task->vm->garbage.deaths;
}

void mp_task_collect(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    uint64_t began = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    bool ended = collect_garbage(vm, own->collecting > 0 ? NULL : &vm->garbage.made_heavily);
    mp_own(payer)->spent_us += mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - began;
    if (own->collecting == 0 || !ended)
        return;
    own->collecting--;
    mp_task_settle_memory(task);
    size_t allowed = vm->state.call_memory + payer->more_bytes;
    size_t room = allowed > mp_own(payer)->grown ? allowed - mp_own(payer)->grown : 0, usual = vm->state.call_memory;
    size_t most = mp_task_shared_memory(task), shared_room = most > vm->memory.bytes ? most - vm->memory.bytes : 0;
    bool is_shared = shared_room < room;
    if (is_shared) {
        room = shared_room;
        usual = usual < vm->memory.limit / SHARED_PART ? usual : vm->memory.limit / SHARED_PART;
    }
    if (room >= usual / FREE_PART)
        own->collecting = 0;
    if (own->collecting > 0 || room > usual / MIN_FREE_PART)
        return;
    if (is_shared &&
        (vm->garbage.dying > 0 || own->left_then != vm->garbage.deaths)) { /* a task that ended may free memory soon */
        mp_task_begin_collecting(task);
        return;
    }
    mp_task_dies(task);
    own->is_over_memory = true; /* the next instruction of the task ends it; so the log line names the place */
    lua_State *innermost = mp_task_innermost(task);
    if (innermost != NULL)
        mp_preempt_arm(innermost, 1);
}

size_t mp_task_shared_memory(const mp_task *task)
{
    const mp_vm *vm = task->vm;
    const mp_task *payer = task->payer;
    if (mp_own(payer)->grown >= vm->memory.little ||
        vm->memory.bytes + vm->memory.little - mp_own(payer)->grown <= vm->memory.shared)
        return vm->memory.shared;
    size_t most = vm->memory.bytes + vm->memory.little - mp_own(payer)->grown;
    return most < vm->memory.limit ? most : vm->memory.limit;
}

/* Gives the coroutine of an idle task to the garbage collector. */
void mp_task_drop_coroutine(mp_task *task)
{
    luaL_unref(task->vm->state.L, LUA_REGISTRYINDEX,
               mp_own(task)->ref); /* returns a slot to the registry: allocates nothing */
    mp_own(task)->ref = LUA_NOREF;
    mp_own(task)->co = NULL;
}

void mp_tasks_drop_coroutines(mp_vm *vm)
{
    size_t seen = 0;
    MP_EACH(mp_task_own, own, &vm->schedule.idle, link) {
        if (own->co == NULL || ++seen <= KEPT_COROUTINES)
            continue;
        mp_task_drop_coroutine(&own->task);
        vm->schedule.spare--;
    }
}
