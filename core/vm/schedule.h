/* schedule.h: tasks as the engine's files see them, and functions on tasks and Lua states that only the engine calls.
 * What the libraries may use is in engine.h. */
#ifndef MP_VM_SCHEDULE_H
#define MP_VM_SCHEDULE_H

#include "vm/state.h"

typedef enum {
    MP_TASK_IDLE,     /* the task has no work: it is in vm->schedule.idle */
    MP_TASK_READY,    /* the task will be resumed: it is in vm->schedule.ready, or in a queue of its share */
    MP_TASK_RUNNING,  /* the task is vm->state.running, in no list */
    MP_TASK_PARKED,   /* the task waits for `op`, in no list */
    MP_TASK_UNWINDING /* the task is cancelled, and will be resumed with an error: it is in vm->schedule.unwinding */
} mp_task_state;

/* What only the engine knows of a task. It stands in front of the mp_task that the owner sees.
 *
 * The flags of a task by its state (0, 1, or - for either). Builds for specs assert them when a task is resumed and
 * when it is set aside (check_flags in task.c). `phase`, `is_gentle`, `cancel_at` and `was_parked` are no matter of
 * state.
 *
 *              started  op    cancelled  raise  preempted  is_heavy  is_over_memory  closing   collecting  is_dying
 *   IDLE       -        0     -          -      -          -         -               open      -           0
 *   READY      -        0     - (1)      - (2)  0          - (3)     -               -         - (3)       -
 *   RUNNING    - (4)    - (5) -          -      - (5)      -         -               -         -           -
 *   PARKED     1        1     - (1)      - (2)  0          -         -               -         -           -
 *   UNWINDING  -        -     1          -      0          -         -               -         -           -
 *
 *   (1) 1 only while its `<close>` handlers run (`closing`), after (2), or when the VM ends.
 *   (2) 1 if it was cancelled while it waited for an op that outlasts it: the error is raised when that op has ended.
 *   (3) In the queues of vm->schedule.heavy is_heavy is 1; only there cycles are run.
 *   (4) 0 until it has a coroutine.
 *   (5) `op` or `preempted` is set, one of them, just before the task yields.
 * is_late, is_cut, is_excess, has_exceeded and has_closing_timer are 1 only while `closing` is not MP_OPEN. */
typedef struct {
    mp_link link;              /* link in the list of the task's state */
    lua_State *MP_NULLABLE co; /* the task's coroutine; NULL until the task first runs */
    int ref;                   /* registry reference of the coroutine `co` */
    mp_task_state state;
    mp_op *MP_NULLABLE op; /* the op that the task waits for, or NULL */
    mp_link resources;     /* list of mp_resource: the resources that the task opened */
    bool started;          /* the coroutine has begun */
    unsigned char phase;   /* the mp_phase that the task is in while it does not run */
    bool preempted;        /* the last stretch ended because the time slice was over */
    bool is_heavy; /* the task was preempted once: from then on its time is measured as processor time of the thread */
    bool is_over_memory; /* the garbage collector found it over a limit of memory: the next instruction ends it */
    bool is_dying;       /* counted in vm->garbage.dying */

    /* How a cancelled task ends (closing.c). */
    int closing;    /* how far its `<close>` handlers are: MP_OPEN, MP_CLOSING or MP_FORCED (closing.h) */
    bool raise;     /* raise the error of a cancelled task when the task is resumed */
    bool is_late;   /* the task's `<close>` handlers may not wait any more */
    bool is_cut;    /* MP_CLEANUP_MS ended the wait of a handler; the error is raised when the handler runs again */
    bool is_excess; /* the task was cancelled when too many other tasks ran handlers: its own handlers may not wait */
    bool has_closing_timer, has_exceeded;
    uint64_t closing_us; /* processor time (us) of the task's `<close>` handlers */
    uint64_t late_from;  /* closing_us when `is_late` was set */
    size_t closing_room; /* bytes that the handlers may still allocate */
    mp_timer closing_timer;

    /* Use of time and memory, if the task is its own payer. */
    int collecting;            /* full GC cycles to run before the task is resumed */
    uint32_t left_then;        /* value of vm->garbage.deaths when the full cycles began */
    uint64_t spent_us;         /* time in Lua (us) */
    size_t grown;              /* estimate of the bytes that the task allocated, less those collected since */
    size_t gone_then;          /* vm->garbage.gone when `grown` was last corrected */
    mp_task *MP_NULLABLE heir; /* gets `grown` when the task ends, if its serial is still heir_serial */
    uint64_t heir_serial;

    /* The script's own coroutines through which the task yielded, innermost first. */
    lua_State **inner;
    size_t inner_count, inner_cap;

    mp_task task; /* last: the rest of the owner's struct, mp_vm_setup.task_size, is behind it */
} mp_task_own;

static inline mp_task_own *mp_own(const mp_task *task)
{
    return mp_container(task, mp_task_own, task);
}

/* Kinds of coroutines, in the word of mp_thread_word: the low bits of the VM's address, which malloc leaves 0. */
_Static_assert(_Alignof(max_align_t) >= 16, "malloc aligns to 16 bytes");
enum {
    MP_THREAD_TASK = 1,    /* the coroutine of a task: scripts may not resume or close it */
    MP_THREAD_BUSY = 2,    /* a script's own coroutine whose task waits inside it: scripts may not resume it */
    MP_THREAD_CLOSING = 4, /* a script's own coroutine that coroutine.close is closing */
    MP_THREAD_KNOWN = 8    /* a task's, which a script may have as a value: no other task gets it */
};

/* Why a task is refused memory that it may have by its own limit. */
#define MP_TASK_CROWDED "limits.lua_memory of this worker is used up: ask for less at once, or try again later"

/* task.c: the task is heavy from now on. */
void mp_task_weigh(mp_task *task);
/* Records that the task yields through the coroutine `co`. The next resume clears the record. */
void mp_task_leave(mp_task *task, lua_State *co);
/* op.c: releases the resources that the task opened. */
void mp_resources_release(mp_task *task);
/* The count hook that preempt.h sets. Raises an error, yields or returns. */
void mp_task_hook(lua_State *L, lua_Debug *where);
/* True if that hook is set in `L`: the task is to be preempted or ended at its next instruction. */
static inline bool mp_task_is_interrupted(lua_State *L)
{
    return lua_gethook(L) == mp_task_hook;
}
/* For a C function that runs for long: true if the count hook is due and the function can yield here. */
bool mp_task_should_turn(lua_State *L);
/* Performs the part of the count hook before its yield. The caller must yield at once when this returns.  [-0, +0,
 * throws] */
void mp_task_turn(lua_State *L);
/* Resumes `co`, the task's coroutine, with `count` values on its stack, and charges the time and memory to the payer.
 * Returns lua_resume's status. */
int mp_task_run(mp_task *task, lua_State *co, int count);
/* The bytes that the state may hold while the task runs, apart from the task's own limit. */
size_t mp_task_shared_memory(const mp_task *task);

/* In gc.c: notes that the task ends because of a memory limit: until it has ended, its memory is not garbage yet. */
void mp_task_dies(mp_task *task);
/* GC cycles after which a state that was full is known to have no more garbage: the current one may have passed it. */
#define MP_FULL_CYCLES 2
/* processor time that Lua may run where it cannot yield: in functions that C calls */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__ /* computes up to ten times as long */
#define MP_STUCK_US 50000
#else
#define MP_STUCK_US 5000
#endif
/* The limit that the running task exceeds, as a text; NULL if it may go on. `stretch`: us since it was resumed;
 * `stuck`: us in a place where it cannot yield. */
const char *MP_NULLABLE mp_task_over_limit(const mp_task *task, uint64_t stretch, uint64_t stuck);
/* The processor time that is charged for a stretch that took `us` by the monotonic clock. For a long stretch that is at
 * most the time that the thread has run, since it may have waited for a processor, or the process may have been
 * suspended. */
uint64_t mp_vm_light_us(const mp_vm *vm, uint64_t us);
/* The running task is over one of its limits, in the Lua function `where`; NULL: in a C function. Cancels the task. */
void mp_task_cancel_over_limit(mp_task *task, lua_State *L, lua_Debug *MP_NULLABLE where, const char *why);
/* The error in `status` arose because the running task needed memory that it may not have: reports that, and true. The
 * task is cancelled then. */
bool mp_task_lacked_memory(lua_State *L, mp_task *task, int status);

/* In gc.c: charges the memory that the task allocated in a stretch of Lua. The VM held `before` bytes when the stretch
 * began. */
void mp_task_made(mp_task *task, size_t before);
/* gc.c: subtracts from the payer's bytes an estimate of its share of the bytes collected since the last correction. */
void mp_task_settle_memory(mp_task *task);
/* gc.c: the task ends, and the memory that it allocated is garbage. */
void mp_task_leave_memory(mp_task *task);
/* In gc.c: true if a heavy task must wait until the garbage collector has done work for it. */
bool mp_task_owes(const mp_task *task);
/* In gc.c: suspends the task until two full cycles are over. Then it continues if there is room for its memory;
 * otherwise it ends. */
void mp_task_begin_collecting(mp_task *task);
/* gc.c: collects garbage for some 500 us, and charges the time to the payer. */
void mp_task_collect(mp_task *task);
/* task_body.c: the first function in the coroutine of every task. Calls work->run and handles its errors.  [-1, +0,
 * throws, parks] */
int mp_run_body(lua_State *L);
/* Resumes the task's coroutine, or starts it. */
void mp_task_resume(mp_task *task);
/* Ends the task's work, and puts the task among the idle ones. */
void mp_task_end(mp_task *task);
/* Frees all tasks, after their lua_State was closed. */
void mp_tasks_free(mp_vm *vm);
/* Most idle tasks give their coroutines to the garbage collector. */
void mp_tasks_drop_coroutines(mp_vm *vm);
/* gc.c: the task gives its coroutine to the garbage collector. */
void mp_task_drop_coroutine(mp_task *task);

/* Registers the metatable of owning ops, before the first is made.  [-0, +0, throws] */
void mp_ops_open(lua_State *L);
/* Cancels the wait. The op does not resume the task any more. No effect when the wait is over. */
void mp_op_cancel(mp_op *op);
/* Pushes the innermost line of a script that runs, as "path:line: ".  [-0, +1, throws] */
void mp_push_place(lua_State *L);
/* Replaces the functions of `coroutine` by functions with which a task can wait inside a script's own coroutines.  [-0,
 * +0, throws] */
void mp_lib_coroutine(lua_State *L);
/* Replaces pcall and xpcall by functions that do not catch the error that ends a task.  [-0, +0, throws] */
void mp_lib_protect(lua_State *L);

/* The coroutine that runs on when the task does; NULL if the task has not begun. */
static inline lua_State *MP_NULLABLE mp_task_innermost(const mp_task *task)
{
    return mp_own(task)->inner_count > 0 ? mp_own(task)->inner[0] : mp_own(task)->co;
}

/* -- the state ----------------------------------------------------------------------------------------------------- */

/* Frees blocks that are kept for reuse, at most `most`. True if more are left. */
bool mp_vm_free_some_spares(mp_vm *vm, size_t most);
/* memory.c: the state's lua_Alloc function, and the function that frees the blocks that are kept for reuse. */
void *MP_NULLABLE mp_vm_allocate(void *ctx, void *MP_NULLABLE old, size_t old_size, size_t size);
void mp_vm_free_spares(mp_vm *vm);
/* Empties `out`, and frees its memory if it is large. Only while no Lua runs: a function that uses `out` appends to it
 * and then removes what it appended, because a finalizer may use `out` in between. */
void mp_vm_reset_out(mp_vm *vm);
/* Logs the error on top of `from` with a trace of its stack, and pops it. Never throws. */
void mp_vm_log_error(mp_vm *vm, lua_State *MP_NULLABLE from, const char *event, mp_str method);
/* running_line.c: finds the innermost line of a script that `L` runs. False if `L` runs no script; `at` is then
 * undefined. */
bool mp_vm_find_place(lua_State *L, lua_Debug *at);
/* gc.c: stops Lua's own collector. From now on only mp_vm_tidy and mp_task_collect collect garbage. Must not be
 * called while Lua runs. */
void mp_vm_collect_by_turns(mp_vm *vm);
/* gc.c: collects garbage for some 500 us if enough was allocated or a full cycle is due. True while there is more to
 * collect. */
bool mp_vm_tidy(mp_vm *vm);
/* In gc.c: true if tasks allocate so much faster than the collector works that they must wait for it. */
bool mp_vm_owes(const mp_vm *vm);
/* Updates the gauge lua_bytes. */
void mp_vm_publish(mp_vm *vm);

#endif
