/* collect.c: when garbage is collected: between tasks, in small steps, as much as was made. Lua's own pace would have
 * whoever asks next pay at once for all that was made before, and everybody would wait for that. */
#include "script/preempt.h"
#include "script/task.h"

#define STEP 8, 12      /* how much one step does: what 4 KiB owe */
#define STEP_BYTES 4096 /* made since, for each of which a step is due */
#define GROWTH 2        /* a cycle begins when there is so many times what the last one left */
#define BATCH_US 500
#define MOST_OWED (16 * STEP_BYTES) /* and a heavy task pays before it goes on */
#define ROOM 16                     /* what of its memory is to be free for a task to go on before all is collected */
#define MARGIN 64                   /* and after that: with less it would be back at once */

static void plan_cycle(mp_vm *vm)
{
    size_t goal = vm->bytes * GROWTH, halfway = vm->bytes + (vm->memory - vm->bytes) / 2;
    vm->collect_from = goal < halfway ? goal : halfway;
    vm->made = vm->made_heavily = 0;
    vm->left = vm->left < vm->left_lately ? vm->left : vm->left_lately;
    vm->left_lately = 0;
}

void mp_vm_collect_by_turns(mp_vm *vm)
{
    lua_gc(vm->L, LUA_GCINC, 0, STEP);
    lua_gc(vm->L, LUA_GCSTOP);
    vm->seen = vm->bytes;
    plan_cycle(vm);
}

/* When Lua begins to sweep it frees, in one go, whatever is younger than the youngest object that lives: all that a task left
 * which made a lot. So there is always a young one. */
static int live(lua_State *L)
{
    static const char young;
    lua_newuserdatauv(L, 0, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &young);
    return 0;
}

/* Steps for what is `owed`, or as many as there is time for, and no further than to the end of a cycle: whether that came. */
static bool collect(mp_vm *vm, size_t *owed)
{
    size_t before = vm->bytes;
    bool ended = false;
    uint64_t until = mp_now_us(CLOCK_MONOTONIC) + BATCH_US;
    vm->collect_from = 0;
    vm->is_collecting = true;
    lua_State *outer = mp_preempt_enter(vm->L);
    lua_pushcfunction(vm->L, live);
    if (lua_pcall(vm->L, 0, 0, 0) != LUA_OK)
        lua_pop(vm->L, 1); /* no memory: then it is freed in one go */
    do {
        ended = lua_gc(vm->L, LUA_GCSTEP, 0) != 0;
        if (owed != NULL)
            *owed = *owed < STEP_BYTES ? 0 : *owed - STEP_BYTES;
    } while (!ended && (owed == NULL || *owed >= STEP_BYTES) && mp_now_us(CLOCK_MONOTONIC) < until);
    mp_preempt_leave(outer);
    vm->is_collecting = false;
    vm->guard_until = 0;
    size_t gone = before > vm->bytes ? before - vm->bytes : 0, expected = gone < vm->left ? gone : vm->left;
    vm->left -= expected;
    vm->gone += gone - expected;
    vm->seen -= gone < vm->seen ? gone : vm->seen;
    if (ended)
        plan_cycle(vm);
    return ended;
}

bool mp_vm_tidy(mp_vm *vm)
{
    vm->made += vm->bytes > vm->seen ? vm->bytes - vm->seen : 0;
    vm->seen = vm->bytes;
    if (vm->bytes < vm->collect_from)
        vm->made = vm->made_heavily = 0;
    if (vm->litter > 0)
        vm->litter -= collect(vm, NULL);
    else if (vm->made >= STEP_BYTES)
        collect(vm, &vm->made);
    return vm->litter > 0;
}

/* -- what tasks made -------------------------------------------------------------------------------------------- */

void mp_task_made(mp_task *task, size_t before)
{
    mp_vm *vm = task->vm;
    size_t made = vm->bytes > before ? vm->bytes - before : 0;
    task->payer->grown += made;
    if (!task->is_heavy)
        return;
    vm->made_heavily += made; /* and is none of what others pay for */
    vm->seen += made;
}

void mp_task_settle_memory(mp_task *task)
{
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    size_t gone = vm->gone - payer->gone_then;
    payer->grown -= gone < payer->grown ? gone : payer->grown;
    payer->gone_then = vm->gone;
}

void mp_task_leave_memory(mp_task *task)
{
    if (task->payer != task)
        return;
    task->vm->left += task->grown;
    task->vm->left_lately += task->grown;
}

bool mp_task_owes(const mp_task *task)
{
    return task->collecting > 0 || task->vm->made_heavily >= MOST_OWED;
}

void mp_task_collect(mp_task *task)
{
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    uint64_t began = mp_now_us(CLOCK_THREAD_CPUTIME_ID);
    bool ended = collect(vm, task->collecting > 0 ? NULL : &vm->made_heavily);
    payer->spent += mp_now_us(CLOCK_THREAD_CPUTIME_ID) - began;
    if (task->collecting == 0 || !ended)
        return;
    task->collecting--;
    mp_task_settle_memory(task);
    size_t room = vm->call_memory > payer->grown ? vm->call_memory - payer->grown : 0;
    if (room >= vm->call_memory / ROOM)
        task->collecting = 0;
    if (task->collecting > 0 || room > vm->call_memory / MARGIN)
        return;
    task->is_over_memory = true; /* what it does next is called off, with its place */
    mp_preempt_arm(task->inner_count > 0 ? task->inner[0] : task->co, 1);
}
