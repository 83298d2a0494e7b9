/* task.h: a task is a coroutine that the engine schedules, and the work that it does. Tasks are pooled and never freed before their
 * VM. So a handle that keeps a task's address and serial number can find out whether that work has ended. */
#ifndef MP_VM_TASK_H
#define MP_VM_TASK_H

#include "vm/op.h"
#include "vm/state.h"

typedef enum {
    MP_TASK_IDLE,     /* the task has no work: it is in vm->schedule.idle */
    MP_TASK_READY,    /* the task will be resumed: it is in vm->schedule.ready or vm->schedule.heavy */
    MP_TASK_RUNNING,  /* the task is vm->schedule.running, in no list */
    MP_TASK_PARKED,   /* the task waits for `op`, in no list */
    MP_TASK_UNWINDING /* the task is cancelled, and will be resumed with an error: it is in vm->schedule.unwinding */
} mp_task_state;

/* The work of a task. The engine knows nothing else about the work. A NULL function does nothing; `run` and `label`
 * must not be NULL. */
typedef struct {
    const char *name;  /* "call", "note" or "auth": for people who debug */
    lua_CFunction run; /* the body of the coroutine; the task is at index 1, a light userdata [-1, +0, throws, parks] */
    /* The task waits, or was preempted: it will take more than one turn. Called until it sets `was_parked`. */
    void (*MP_NULLABLE parked)(mp_task *task);
    /* The work cannot be done: a Lua error, or no memory. */
    void (*failed)(mp_task *task);
    /* Called on the task whose limits count (`payer`): it is over one of them, or limits.lua_memory is used up
     * (mp_stat_refused_lua_memory). `why` names the limit, `counter` is its statistic. */
    void (*MP_NULLABLE over_limit)(mp_task *task, const char *why, const mp_stat *counter);
    /* Name of the work for log lines: the method, or another name. Valid while the task lasts. */
    mp_str (*label)(const mp_task *task);
    /* What the work is done with: the name of a tool or prompt, the URI of a resource; may be empty, and is text of a client. */
    mp_str (*MP_NULLABLE subject)(const mp_task *task);
    /* The task ends: frees the data of the work. Runs no Lua. */
    void (*end)(mp_task *task);
} mp_work;

struct mp_task {
    mp_link link; /* link in the list of the task's state */
    mp_vm *vm;
    mp_task *next;             /* link in vm->schedule.all */
    lua_State *MP_NULLABLE co; /* the task's coroutine; NULL until the task first runs */
    int ref;                   /* registry reference of `co` */
    mp_task_state state;
    uint64_t serial; /* incremented when the task's work ends */

    const mp_work *work;
    mp_op *MP_NULLABLE op; /* the op that the task waits for, or NULL */
    mp_link holds;         /* list of mp_hold: the resources that the task opened */
    bool started;          /* the coroutine has begun */
    bool was_parked;       /* set by the function mp_work.parked */
    bool cancelled;        /* the task ends by an error as soon as it can */
    unsigned char phase;   /* the mp_phase that the task is in while it does not run */
    bool preempted;        /* the last stretch ended because the time slice was over */
    bool is_gentle;        /* its time slices are short: nothing waits for it that is worth making clients wait */
    bool is_heavy; /* the task was preempted once: from then on its time is measured as processor time of the thread */
    bool is_over_memory; /* the garbage collector found it over a limit of memory: the next instruction ends it */
    bool is_dying;       /* counted in vm->garbage.dying */

    /* How a cancelled task ends (closing.c). */
    int cancel_at;  /* number of waits after which the task is cancelled, for specs of scripts; 0: it is not */
    int closing;    /* MP_OPEN, MP_CLOSING or MP_FORCED */
    bool raise;     /* raise the error of a cancelled task when the task is resumed */
    bool is_late;   /* the task's `<close>` handlers may not wait any more */
    bool is_cut;    /* MP_CLEANUP_MS ended the wait of a handler; the error is raised when the handler runs again */
    bool is_excess; /* the task was cancelled when too many other tasks ran handlers: its own handlers may not wait */
    bool has_closing_timer, has_exceeded;
    uint64_t closing_us;    /* processor time (us) of the task's `<close>` handlers */
    uint64_t late_from;     /* closing_us when `is_late` was set */
    uint64_t closing_until; /* loop time (ms) after which the handlers may not wait; 0: not set yet */
    size_t closing_room;    /* bytes that the handlers may still allocate */
    mp_timer closing_timer;

    /* Use of time and memory, if the task is its own payer. */
    int collecting;     /* full GC cycles to run before the task is resumed */
    uint32_t left_then; /* vm->garbage.deaths when these cycles began */
    uint64_t spent_us;  /* time in Lua (us) */
    uint64_t more_us;  /* time in Lua (us) beyond limits.call.cpu, for work of the gateway that scripts did not write */
    size_t more_bytes; /* memory beyond limits.call.memory, for such work; limits.lua_memory counts all the same */
    size_t grown;      /* estimate of the bytes that the task allocated, less those collected since */
    size_t gone_then;  /* vm->garbage.gone when `grown` was last corrected */

    mp_task *
        payer; /* the task whose limits count: this task itself, or for a member of a group the task that started the group */

    /* The script's own coroutines through which the task yielded, innermost first. */
    lua_State **inner;
    size_t inner_count, inner_cap;
};

/* Why a task is refused memory that it may have by its own limit. */
#define MP_TASK_CROWDED "limits.lua_memory of this worker is used up: ask for less at once, or try again later"

/* Records that the task yields through the coroutine `co`. The next resume clears the record. */
void mp_task_leave(mp_task *task, lua_State *co);
/* op.c: releases the resources that the task opened. */
void mp_holds_release(mp_task *task);
/* The count hook that preempt.h sets. Raises an error, yields or returns. */
void mp_task_hook(lua_State *L, lua_Debug *where);
/* True if that hook is set in `L`: the task is to be preempted or ended at its next instruction. */
static inline bool mp_task_is_interrupted(lua_State *L)
{
    return lua_gethook(L) == mp_task_hook;
}
/* For a C function that runs for long: true if the count hook is due and the function can yield here. */
bool mp_task_should_turn(lua_State *L);
/* Does what the count hook does before it yields. The caller must yield at once when this returns.  [-0, +0, throws] */
void mp_task_turn(lua_State *L);
/* Resumes `co`, the task's coroutine, with `count` values on its stack, and charges the time and memory to the payer. Returns
 * lua_resume's status. */
int mp_task_run(mp_task *task, lua_State *co, int count);
/* The bytes that the state may hold while the task runs, apart from the task's own limit. */
size_t mp_task_shared_memory(const mp_task *task);
/* -- exceeded.c -- */

/* GC cycles after which a state that was full is known to have no more garbage: the current one may have passed it. */
/* gc.c: the task is being ended because it is over a limit of memory: until it has left, what it holds is no garbage yet. */
void mp_task_dies(mp_task *task);
#define MP_FULL_CYCLES 2
#define MP_STUCK_US 5000 /* processor time that Lua may run where it cannot yield: in functions that C calls */
/* The limit that the running task exceeds, as a text; NULL if it may go on. `stretch`: us since it was resumed; `stuck`: us in a place where
 * it cannot yield. */
const char *MP_NULLABLE mp_task_over_limit(const mp_task *task, uint64_t stretch, uint64_t stuck);
/* What a stretch that took `us` of the monotonic clock is charged: of a long one no more than the thread has run, since it may have waited for a
 * processor, or the process may have been stopped. */
uint64_t mp_vm_light_us(const mp_vm *vm, uint64_t us);
/* The running task is over one of its limits, in the Lua function `where`; NULL: in a C function. Cancels the task. */
void mp_task_cancel_over_limit(mp_task *task, lua_State *L, lua_Debug *MP_NULLABLE where, const char *why);
/* The error in `status` arose because the running task needed memory that it may not have: reports that, and true. The task is cancelled then. */
bool mp_task_lacked_memory(lua_State *L, mp_task *task, int status);

/* gc.c: charges what the task allocated in a stretch of Lua. The VM held `before` bytes when the stretch began. */
void mp_task_made(mp_task *task, size_t before);
/* gc.c: subtracts from the payer's bytes an estimate of its share of the bytes collected since the last correction. */
void mp_task_settle_memory(mp_task *task);
/* gc.c: the task ends, and the memory that it allocated is garbage. */
void mp_task_leave_memory(mp_task *task);
/* gc.c: true if a heavy task may not go on before the garbage collector has worked for it. */
bool mp_task_owes(const mp_task *task);
/* gc.c: the task is not resumed until two full cycles are over and there is room for it; otherwise it ends. */
void mp_task_begin_collecting(mp_task *task);
/* gc.c: collects garbage for some 500 us, and charges the time to the payer. */
void mp_task_collect(mp_task *task);
/* Returns a task in the state READY that will do `work`. The part of the owner's struct behind the mp_task is as the
 * last work left it. */
mp_task *mp_task_new(mp_vm *vm, const mp_work *work);
/* body.c: the first function in the coroutine of every task. Calls work->run and handles its errors.  [-1, +0, throws, parks] */
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

/* The coroutine that runs on when the task does; NULL if the task has not begun. */
static inline lua_State *MP_NULLABLE mp_task_innermost(const mp_task *task)
{
    return task->inner_count > 0 ? task->inner[0] : task->co;
}

/* Name for log lines: the label of the task's work, or of the work that started the task's group. */
static inline mp_str mp_task_label(const mp_task *task)
{
    return task->payer->work->label(task->payer);
}

extern const mp_stat mp_stat_tool_memory, mp_stat_refused_lua_memory; /* declared in limits.c */

#endif
