/* task.c: the scheduler. Callbacks of the loop only move tasks between lists. Only mp_vm_turn runs Lua, and no libh2o
 * function is on the C stack then. Code that may throw runs inside a coroutine or a lua_pcall. */
#include "vm/closing.h"
#include "vm/bus.h"
#include "vm/preempt.h"
#include <assert.h>
#include <lauxlib.h>

MP_GAUGE(tasks, "tasks", "", "", "Lua coroutines that run or wait")
MP_COUNTER(tool_faults, "tool_faults", "", "", "calls that ended in a Lua error")

/* limit of the tasks that are resumed in one turn: as many as libh2o reads requests in one at most */
#define TURN_RESUMES 256
#define MAX_PASSED 16   /* times in a row that a share's turn may be passed on before the other shares have theirs */
#define MAX_COUNTED 512 /* preempted tasks that are counted */
#define TURN_US 5000    /* time of one turn after which no further task is resumed */
#define CPU_EVERY_US 1000
#define FAULT_US 5000 /* processor time of the `<close>` handlers of a coroutine whose stack overflowed */
#define TASKS_AT_ONCE 32
#define MAX_SPARE_TASKS 256 /* idle tasks that keep their coroutine */

/* -- start and end -------------------------------------------------------------------------------------------- */

/* Blocks of many tasks. A task lives as long as its VM: if each had a block of its own, it would keep a page of memory
 * from being returned after the other blocks of the page were freed. */
struct mp_task_block {
    struct mp_task_block *next;
    max_align_t tasks[]; /* TASKS_AT_ONCE, each an mp_task_own with the owner's struct, rounded up */
};

static void add_tasks(mp_vm *vm)
{
    size_t bytes = offsetof(mp_task_own, task) + vm->task_size;
    size_t size = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    struct mp_task_block *block = mp_new(sizeof *block + TASKS_AT_ONCE * size);
    block->next = vm->schedule.blocks;
    vm->schedule.blocks = block;
    for (size_t i = 0; i < TASKS_AT_ONCE; i++) {
        mp_task_own *own = (mp_task_own *)((char *)block->tasks + i * size);
        own->ref = LUA_NOREF;
        own->state = MP_TASK_IDLE;
        own->task = (mp_task){.vm = vm, .next = vm->state.all, .serial = 1};
        vm->state.all = &own->task;
        mp_link_put(&vm->schedule.idle, &own->link);
    }
}

static mp_shares *shares_of(const mp_task_own *own)
{
    mp_vm_schedule *schedule = &own->task.vm->schedule;
    return own->task.work->is_early ? &schedule->early : &schedule->others;
}

static mp_share *share_of(const mp_task_own *own)
{
    return &shares_of(own)->all[own->task.share % MP_SHARES];
}

/* The task has begun, or ends without that. */
static void leave_share(const mp_task_own *own)
{
    mp_shares *shares = shares_of(own);
    mp_share *share = share_of(own);
    own->task.vm->state.waiting--;
    if (--share->count == 0) {
        shares->count--;
        share->left_at = shares->rounds;
    }
}

static mp_queue *part_of(mp_queues *queues, const mp_task *task)
{
    return &queues->parts[task->share / MP_SHARES % MP_PARTS];
}

static void put(mp_link *turns, mp_queues *queues, mp_task_own *own)
{
    mp_queue *queue = part_of(queues, &own->task);
    mp_link_put(&queue->tasks, &own->link);
    if (mp_link_is_alone(&queue->turn))
        mp_link_put(&queues->turns, &queue->turn);
    if (mp_link_is_alone(&queues->turn))
        mp_link_put(turns, &queues->turn);
}

/* The first task of the queue whose turn it is; NULL: it was cancelled. */
static mp_link *MP_NULLABLE take_part(mp_link *turns)
{
    mp_queue *queue = mp_container(turns->next, mp_queue, turn);
    mp_link_drop(&queue->turn);
    mp_link *link = mp_link_take(&queue->tasks);
    if (!mp_link_is_alone(&queue->tasks))
        mp_link_put(turns, &queue->turn);
    return link;
}

/* True if the share whose turn it is takes one more task in this turn, on credit. */
static bool goes_on(mp_queues *queues)
{
    if (queues->credit < 1 || queues->row + 1 >= MP_IN_ROW) {
        queues->row = 0;
        return false;
    }
    queues->row++;
    queues->credit -= 1;
    return true;
}

/* The first task of the share whose turn it is; NULL: there is none. */
static mp_link *MP_NULLABLE take(mp_link *turns)
{
    mp_link *link = NULL;
    while (link == NULL && !mp_link_is_alone(turns)) {
        mp_queues *queues = mp_container(turns->next, mp_queues, turn);
        mp_link_drop(&queues->turn);
        while (link == NULL && !mp_link_is_alone(&queues->turns))
            link = take_part(&queues->turns);
        if (!mp_link_is_alone(&queues->turns))
            mp_link_put(goes_on(queues) ? mp_link_first(turns) : turns, &queues->turn);
    }
    return link;
}

/* take() of tasks to start. */
static mp_link *MP_NULLABLE take_new(mp_shares *shares)
{
    if (shares->count > 0)
        shares->rounds += 1.0 / (double)shares->count;
    return take(&shares->turns);
}

/* What the share has for its turns to come if a task joins it now. */
static double credit_of(const mp_shares *shares, const mp_share *share)
{
    double credit = share->waiting.credit + (share->count > 0 ? 0 : shares->rounds - share->left_at);
    return credit < MP_MAX_CREDIT ? credit : MP_MAX_CREDIT;
}

static void put_heavy(mp_task_own *own)
{
    put(&own->task.vm->schedule.heavy, &share_of(own)->preempted, own);
}

static void join_share(mp_task_own *own)
{
    mp_shares *shares = shares_of(own);
    mp_share *share = share_of(own);
    own->task.vm->state.waiting++;
    if (share->count == 0) {
        share->waiting.credit = credit_of(shares, share);
        share->waiting.row = 0;
        shares->count++;
    }
    share->count++;
    put(&shares->turns, &share->waiting, own);
}

void mp_task_pass_turn(const mp_task *task)
{
    mp_vm_schedule *schedule = &task->vm->schedule;
    mp_queues *queues = &share_of(mp_own(task))->waiting;
    mp_queue *queue = part_of(queues, task);
    schedule->starts_next = true;
    if (mp_link_is_alone(&queue->turn) || ++schedule->passed % MAX_PASSED == 0)
        return;
    mp_link_drop(&queue->turn);
    mp_link_put(mp_link_first(&queues->turns), &queue->turn);
    mp_link_drop(&queues->turn);
    mp_link_put(mp_link_first(&schedule->others.turns), &queues->turn);
}

/* The next task to start or to resume, by turns; NULL: there is none. `us`: since the turn began. */
static mp_link *MP_NULLABLE take_next(mp_vm *vm, uint64_t us)
{
    mp_vm_schedule *schedule = &vm->schedule;
    mp_link *link = NULL;
    if (vm->state.waiting == 0)
        return mp_link_take(&schedule->ready);
    if (us < TURN_US / 2 && (link = take_new(&schedule->early)) != NULL)
        return link;
    bool starts = schedule->starts_next;
    schedule->starts_next = !starts;
    link = starts ? take_new(&schedule->others) : mp_link_take(&schedule->ready);
    if (link == NULL)
        link = starts ? mp_link_take(&schedule->ready) : take_new(&schedule->others);
    return link != NULL ? link : take_new(&schedule->early);
}

static bool has_next(const mp_vm *vm)
{
    return vm->state.waiting > 0 || !mp_link_is_alone(&vm->schedule.ready);
}

size_t mp_vm_ahead(const mp_vm *vm, unsigned share, bool *is_alone, bool *has_credit)
{
    const mp_shares *shares = &vm->schedule.others;
    const mp_share *its = &shares->all[share % MP_SHARES];
    size_t own = its->count, on_credit = (size_t)credit_of(shares, its);
    *is_alone = own == 0 && its->heavy == 0;
    *has_credit = own < on_credit;
    /* a turn begins up to MP_IN_ROW of its tasks while it has credit, then one */
    size_t in_rows = own / MP_IN_ROW * (MP_IN_ROW - 1) + own % MP_IN_ROW;
    size_t turns = own + 1 - (in_rows < on_credit ? in_rows : on_credit);
    size_t others = shares->count - (own > 0), before = own + turns * others;
    return before < vm->state.waiting ? before : vm->state.waiting;
}

void mp_task_weigh(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    if (!own->is_heavy)
        share_of(own)->heavy++;
    own->is_heavy = true;
}

mp_task *mp_task_new(mp_vm *vm, const mp_work *work, unsigned share)
{
    if (mp_link_is_alone(&vm->schedule.idle))
        add_tasks(vm);
    mp_task_own *own = mp_container(vm->schedule.idle.next, mp_task_own, link);
    mp_task *task = &own->task;
    mp_link_drop(&own->link);
    if (own->co != NULL)
        vm->schedule.spare--;
    *own = (mp_task_own){.link = {&own->link, &own->link},
                         .resources = {&own->resources, &own->resources},
                         .co = own->co,
                         .ref = own->ref,
                         .inner = own->inner,
                         .inner_cap = own->inner_cap,
                         .gone_then = vm->garbage.gone,

                         .phase = MP_PHASE_HANDLER,
                         .state = MP_TASK_READY,
                         .task = {.vm = vm,
                                  .next = task->next,
                                  .serial = task->serial,
                                  .work = work,
                                  .payer = task,
                                  .share = (uint16_t)(share % (MP_SHARES * MP_PARTS))}};
    join_share(own);
    vm->schedule.tasks++;
    mp_stat_add(&mp_stat_tasks, 1);
    return task;
}

/* The coroutine is finished, or was never used. */
void mp_task_end(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    if (!own->started)
        leave_share(own);
    if (own->is_heavy)
        share_of(own)->heavy--;
    mp_closing_done(task);
    mp_resources_release(task);
    if (task->work->end != NULL)
        task->work->end(task);
    task->serial++;
    own->state = MP_TASK_IDLE;
    mp_task_leave_memory(task);
    own->inner_count = 0;
    if (own->co != NULL)
        lua_sethook(own->co, NULL, 0, 0);
    if (own->co != NULL && (vm->schedule.spare >= MAX_SPARE_TASKS || (*mp_thread_word(own->co) & MP_THREAD_KNOWN) != 0))
        mp_task_drop_coroutine(task);
    mp_link_drop(&own->link);
    if (own->co != NULL) {
        vm->schedule.spare++;
        mp_link_put(mp_link_first(&vm->schedule.idle),
                    &own->link); /* put in front: the memory of the coroutine used last is in the processor's cache */
    } else {
        mp_link_put(&vm->schedule.idle, &own->link);
    }
    vm->schedule.tasks--;
    mp_stat_add(&mp_stat_tasks, -1);
}

static int new_coroutine(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    lua_State *co = lua_newthread(L);
    *mp_thread_word(co) |= MP_THREAD_TASK;
    mp_own(task)->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    mp_own(task)->co = co;
    return 0;
}

static void fail_work(mp_task *task)
{
    if (task->work->failed != NULL)
        task->work->failed(task);
}

/* The task's coroutine; NULL if none can be made, which is reported to the work. */
static lua_State *MP_NULLABLE need_coroutine(mp_task *task)
{
    lua_State *L = task->vm->state.L;
    if (mp_own(task)->co != NULL)
        return mp_own(task)->co;
    lua_pushcfunction(L, new_coroutine);
    lua_pushlightuserdata(L, task);
    int status = lua_pcall(L, 1, 0, 0);
    if (status == LUA_OK)
        return mp_own(task)->co;
    mp_vm_log_error(task->vm, L, "task not started", mp_task_label(task));
    if (status == LUA_ERRMEM && task->work->over_limit != NULL)
        task->work->over_limit(task, MP_TASK_CROWDED, &mp_stat_refused_lua_memory);
    else
        fail_work(task);
    return NULL;
}

/* -- the scheduler --------------------------------------------------------------------------------------------- */

/* mp_run_body itself raised an error, or a hook of a trusted script yielded. */
static void end_faulty(mp_task *task, lua_State *co)
{
    mp_vm *vm = task->vm;
    mp_stat_add(&mp_stat_tool_faults, 1);
    mp_vm_log_error(vm, co, "task failed", mp_task_label(task));
    vm->state.running = task;
    vm->clock.guard_until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + FAULT_US;
    lua_State *before = mp_preempt_enter(co);
    lua_resetthread(co); /* pushes the error that was just logged */
    mp_preempt_leave(before);
    vm->clock.guard_until = 0;
    vm->state.running = NULL;
    lua_settop(co, 0);
    fail_work(task);
    mp_task_end(task);
}

/* Asserts the table of mp_task_own. */
static void check_flags(MP_UNUSED const mp_task *task)
{
#ifdef MP_SPEC_BUILD
    const mp_task_own *own = mp_own(task);
    bool is_parked = own->state == MP_TASK_PARKED, is_open = own->closing == MP_OPEN;
    assert((own->op != NULL) == is_parked && !own->preempted && (own->started || !is_parked));
    assert(!is_open || !(own->is_late || own->is_cut || own->is_excess || own->has_exceeded));
    assert(!is_open || !own->has_closing_timer);
    assert(own->state == MP_TASK_RUNNING || !task->cancelled || !is_open);
#endif
}

/* The task yielded: it waits for an op, or its time slice is over. */
static void set_aside(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    own->phase = mp_phase_here;
    if (own->closing != MP_OPEN)
        mp_closing_left(task);
    if (own->preempted) {
        own->preempted = false;
        vm->schedule.interrupted += !own->is_heavy && !task->work->is_early;
        mp_task_weigh(task);
        own->state = MP_TASK_READY;
        put_heavy(own);
    } else {
        own->state = MP_TASK_PARKED;
    }
    check_flags(task);
    if (!task->was_parked && task->work->parked != NULL)
        task->work->parked(task, own->state == MP_TASK_PARKED);
}

void mp_task_resume(mp_task *task)
{
    mp_task_own *own = mp_own(task);
    mp_vm *vm = task->vm;
    mp_vm_reset_out(vm);
    own->state = MP_TASK_RUNNING;
    check_flags(task);
    lua_State *co = need_coroutine(task);
    if (co == NULL) {
        mp_task_end(task);
        return;
    }
    int count = 0;
    if (!own->started) {
        lua_pushcfunction(co, mp_run_body);
        lua_pushlightuserdata(co, task);
        count = 1;
        own->started = true;
        leave_share(own);
        vm->schedule.begun += !task->work->is_early;
    }
    own->inner_count = 0;
    mp_phase_set((mp_phase)own->phase);
    int status = mp_task_run(task, co, count);
    if (status == LUA_YIELD && task->cancelled && own->closing == MP_OPEN && !own->raise) {
        mp_task_unwind(task);
    } else if (status == LUA_YIELD && (own->preempted || own->op != NULL) && !own->raise) {
        set_aside(task);
    } else if (status == LUA_OK) {
        lua_settop(co, 0);
        mp_task_end(task);
    } else {
        if (status == LUA_YIELD)
            lua_pushnil(co); /* a hook of a trusted script yielded: the trace says where */
        end_faulty(task, co);
    }
}

/* A task that parks again and again, each time after a moment that is too short for the hook to look at it, is over its
 * processor time all the same. */
static void end_if_over(mp_task *task)
{
    const mp_task_own *own = mp_own(task);
    if (own->state != MP_TASK_PARKED || own->closing != MP_OPEN || task->cancelled || own->co == NULL)
        return;
    const char *why = mp_task_over_limit(task, 0, 0);
    if (why == NULL)
        return;
    mp_task_cancel_over_limit(task, own->co, NULL, why);
    mp_task_cancel(task);
}

/* Resumes a task from a list, and charges the time of the stretch to its payer. */
static void resume_next(mp_vm *vm, mp_link *link)
{
    mp_task *task = &mp_container(link, mp_task_own, link)->task;
    bool was_heavy = mp_own(task)->is_heavy;
    mp_task *payer = task->payer;
    uint64_t began = vm->state.began_us, serial = payer->serial;
    mp_task_resume(task);
    vm->state.began_us = mp_clock_us(CLOCK_MONOTONIC);
    if (!was_heavy && payer->serial == serial)
        mp_own(payer)->spent_us += mp_vm_light_us(vm, vm->state.began_us - began);
    end_if_over(task);
}

/* A heavy task has its time slice. If it has garbage debt, it collects garbage in that slice, before it runs again. */
static void resume_heavy(mp_vm *vm, mp_link *link)
{
    mp_task *task = &mp_container(link, mp_task_own, link)->task;
    if (!mp_task_owes(task)) {
        resume_next(vm, link);
        return;
    }
    put_heavy(mp_own(task));
    mp_task_collect(task);
    vm->state.began_us = mp_clock_us(CLOCK_MONOTONIC);
}

/* Ends cancelled tasks, for the time of one turn: the `<close>` handlers of each may take a time slice. */
static void unwind_some(mp_vm *vm)
{
    mp_link *link = mp_link_take(&vm->schedule.unwinding);
    uint64_t until = link == NULL ? 0 : mp_monotonic_us() + TURN_US;
    for (; link != NULL; link = mp_monotonic_us() < until ? mp_link_take(&vm->schedule.unwinding) : NULL)
        mp_task_unwind(&mp_container(link, mp_task_own, link)->task);
}

bool mp_vm_has_work(const mp_vm *vm)
{
    return has_next(vm) || !mp_link_is_alone(&vm->schedule.heavy) || !mp_link_is_alone(&vm->schedule.unwinding) ||
           !mp_link_is_alone(&vm->inbox.messages) || mp_vm_owes(vm);
}

/* Reads the clocks. The processor time is a system call, so it is read only once in CPU_EVERY_US. */
static void read_clocks(mp_vm *vm)
{
    vm->state.began_us = mp_clock_us(CLOCK_MONOTONIC);
    if (vm->state.began_us - vm->clock.cpu_at_us < CPU_EVERY_US)
        return;
    vm->clock.cpu_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    vm->clock.cpu_at_us = vm->state.began_us;
}

/* The number of tasks in `queues`; `most` if there are more. */
static size_t count_some(const mp_queues *queues, size_t most)
{
    size_t count = 0;
    for (const mp_queue *queue = queues->parts; queue < queues->parts + MP_PARTS; queue++) {
        const mp_link *const tasks = &queue->tasks;
        for (const mp_link *link = mp_link_first(tasks); link != tasks && count < most; link = link->next)
            count++;
    }
    return count;
}

mp_vm_load mp_vm_load_of(const mp_vm *vm)
{
    mp_vm_load load = {.waiting = vm->schedule.others.count == 0 ? 0 : vm->state.waiting,
                       .begun = vm->schedule.begun,
                       .interrupted = vm->schedule.interrupted};
    const mp_link *const heavy = &vm->schedule.heavy;
    for (const mp_link *turn = mp_link_first(heavy); turn != heavy; turn = turn->next)
        load.preempted += count_some(mp_container(turn, mp_queues, turn), MAX_COUNTED - load.preempted);
    return load;
}

bool mp_vm_turn(mp_vm *vm)
{
    mp_link *link;
    mp_vm_bus_turn(vm);
    if (!mp_link_is_alone(&vm->inbox.messages))
        return true; /* all bus messages are delivered before any task runs */
    unwind_some(vm);
    if (mp_vm_owes(vm)) {
        mp_phase_set(MP_PHASE_READ);
        mp_vm_tidy(vm);
        mp_vm_publish(vm);
        return true;
    }
    bool has_heavy = !mp_link_is_alone(&vm->schedule.heavy);
    if (has_heavy || has_next(vm))
        read_clocks(vm);
    uint64_t began = vm->state.began_us, until = began + TURN_US;
    for (int i = 0; i < TURN_RESUMES && (link = take_next(vm, vm->state.began_us - began)) != NULL; i++) {
        resume_next(vm, link);
        if (vm->state.began_us >= until)
            break;
    }
    uint64_t light = vm->state.began_us - began;
    vm->clock.owed_us = vm->clock.owed_us > light && has_next(vm) ? vm->clock.owed_us - light : 0;
    if (has_heavy && vm->clock.owed_us == 0 && (link = take(&vm->schedule.heavy)) != NULL) {
        began = vm->state.began_us;
        resume_heavy(vm, link);
        vm->clock.owed_us = vm->state.began_us - began;
    }
    mp_phase_set(MP_PHASE_READ);
    bool has_more = mp_vm_tidy(vm);
    mp_vm_publish(vm);
    return has_more || mp_vm_has_work(vm);
}

void mp_task_leave(mp_task *task, lua_State *co)
{
    mp_task_own *own = mp_own(task);
    if (own->inner_count == own->inner_cap) {
        own->inner_cap = own->inner_cap == 0 ? 4 : own->inner_cap * 2;
        own->inner = mp_resize(own->inner, own->inner_cap * sizeof(lua_State *));
    }
    own->inner[own->inner_count++] = co;
}

void mp_tasks_free(mp_vm *vm)
{
    for (mp_task *task = vm->state.all; task != NULL; task = task->next)
        free(mp_own(task)->inner);
    vm->state.all = NULL;
    for (struct mp_task_block *block = vm->schedule.blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
}
