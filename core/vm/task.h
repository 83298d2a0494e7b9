/* task.h: a task is a coroutine that the engine schedules, and the work that it does. Tasks are pooled and never freed
 * before their VM. So a handle that keeps a task's address and serial number can find out whether that work has
 * ended. */
#ifndef MP_VM_TASK_H
#define MP_VM_TASK_H

#include "vm/op.h"
#include "vm/vm.h"

typedef struct mp_task mp_task;

typedef enum {
    MP_TASK_IDLE,     /* the task has no work: it is in vm->schedule.idle */
    MP_TASK_READY,    /* the task will be resumed: it is in vm->schedule.ready or vm->schedule.heavy */
    MP_TASK_RUNNING,  /* the task is vm->state.running, in no list */
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
    /* The object of the task's work: the name of a tool or prompt, the URI of a resource. May be empty; the client has
     * chosen the text. */
    mp_str (*MP_NULLABLE subject)(const mp_task *task);
    /* The task ends: frees the data of the work. Runs no Lua. */
    void (*end)(mp_task *task);
} mp_work;

/* The flags of a task by its state (0, 1, or - for either). Builds for specs assert them when a task is resumed and
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
 *   (3) In vm->schedule.heavy is_heavy is 1; only there cycles are run.
 *   (4) 0 until it has a coroutine.
 *   (5) `op` or `preempted` is set, one of them, just before the task yields.
 * is_late, is_cut, is_excess, has_exceeded and has_closing_timer are 1 only while `closing` is not MP_OPEN. */
struct mp_task {
    mp_link link; /* link in the list of the task's state */
    mp_vm *vm;
    mp_task *next;             /* link in vm->state.all */
    lua_State *MP_NULLABLE co; /* the task's coroutine; NULL until the task first runs */
    int ref;                   /* registry reference of `co` */
    mp_task_state state;
    uint64_t serial; /* incremented when the task's work ends */

    const mp_work *work;
    mp_op *MP_NULLABLE op; /* the op that the task waits for, or NULL */
    mp_link resources;     /* list of mp_resource: the resources that the task opened */
    bool started;          /* the coroutine has begun */
    bool was_parked;       /* set by the function mp_work.parked */
    bool cancelled;        /* the task ends by an error as soon as it can */
    unsigned char phase;   /* the mp_phase that the task is in while it does not run */
    bool preempted;        /* the last stretch ended because the time slice was over */
    bool is_gentle;        /* the task gets short time slices, since clients would otherwise wait for background work */
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
    uint64_t more_us;   /* time in Lua (us) beyond limits.call.cpu, for work of the gateway and replays */
    size_t more_bytes;  /* memory beyond limits.call.memory for such work; it still counts for limits.lua_memory */
    size_t grown;       /* estimate of the bytes that the task allocated, less those collected since */
    size_t gone_then;   /* vm->garbage.gone when `grown` was last corrected */

    mp_task *payer; /* the task whose limits count: this task itself, or for a member of a group the task that started
                       the group */

    /* The script's own coroutines through which the task yielded, innermost first. */
    lua_State **inner;
    size_t inner_count, inner_cap;
};

/* Returns a task in the state READY that will do `work`. The part of the owner's struct behind the mp_task is as the
 * last work left it. */
mp_task *mp_task_new(mp_vm *vm, const mp_work *work);
/* Cancels a task. It is resumed with an error in the next turn; a running task gets the error at its next wait. */
void mp_task_cancel(mp_task *task);
/* The task that runs on this thread; NULL: none. */
mp_task *MP_NULLABLE mp_task_running_here(void);
/* The file and `*line` of the script that the calling thread runs; empty if it runs none. Allocates nothing, so that
 * the handler of a crash may ask. */
mp_str mp_vm_running_place(int *line);

/* Every function of C that catches errors of scripts calls mp_catch_begin before its protected call, and mp_catch_end
 * after it. If the task was cancelled or the coroutine closed in between, mp_catch_end raises that error again, so that
 * scripts cannot catch it. With `failed`, the caught error is on top of the stack.  [-0, +0, throws in mp_catch_end] */
lua_KContext mp_catch_begin(lua_State *L);
void mp_catch_end(lua_State *L, lua_KContext began, bool failed);

/* Name for log lines: the label of the task's work, or of the work that started the task's group. */
static inline mp_str mp_task_label(const mp_task *task)
{
    return task->payer->work->label(task->payer);
}

extern const mp_stat mp_stat_tool_memory, mp_stat_refused_lua_memory; /* declared in limits.c */

#endif
