/* task.h: a task is a coroutine that the engine schedules, and the work that it does. Tasks are pooled and never freed before their
 * VM. So a handle that keeps a task's address and serial number can find out whether that work has ended. */
#ifndef MP_VM_TASK_H
#define MP_VM_TASK_H

#include "vm/op.h"
#include "vm/state.h"

typedef enum {
    MP_TASK_IDLE,     /* has no work: in vm->idle */
    MP_TASK_READY,    /* will be resumed: in vm->ready or vm->heavy */
    MP_TASK_RUNNING,  /* is vm->running, in no list */
    MP_TASK_PARKED,   /* waits for `op`, in no list */
    MP_TASK_UNWINDING /* is cancelled, and will be resumed with an error: in vm->unwinding */
} mp_task_state;

/* What a task works for. The engine knows nothing else about it. A NULL function does nothing, except `run` and `label`. */
typedef struct {
    const char *name;  /* "call", "note", "auth": for people who debug */
    lua_CFunction run; /* the body of the coroutine; the task is at 1, a light userdata  [-1, +0, throws, parks] */
    /* The task waits, or was preempted: it will take more than one turn. Called until it sets `was_parked`. */
    void (*parked)(mp_task *task);
    /* The work cannot be done: a Lua error, or no memory. */
    void (*failed)(mp_task *task);
    /* Of the task whose limits count (`payer`): it is over one of them. `why` names the limit, `counter` counts it. */
    void (*over_limit)(mp_task *task, const char *why, const mp_stat *counter);
    /* For log lines: the method, or what else names the work. Valid while the task lasts. */
    mp_str (*label)(const mp_task *task);
    /* The task ends: frees what the work has. Runs no Lua. */
    void (*end)(mp_task *task);
} mp_work;

struct mp_task {
    mp_link link; /* in the list of its state */
    mp_vm *vm;
    mp_task *next; /* in vm->all */
    lua_State *co; /* its coroutine; NULL until the task first runs */
    int ref;       /* registry reference of `co` */
    mp_task_state state;
    uint64_t serial; /* incremented when its work ends */

    const mp_work *work;
    mp_op *op;           /* the op that it waits for, or NULL */
    mp_link holds;       /* the mp_holds of what it opened */
    bool started;        /* its coroutine has begun */
    bool was_parked;     /* set by mp_work.parked */
    bool cancelled;      /* it ends by an error as soon as it can */
    bool preempted;      /* its last stretch ended because its time slice was over */
    bool is_heavy;       /* it was preempted once: from then on its processor time is measured by the thread's clock */
    bool is_over_memory; /* the garbage collector found it over limits.call.memory: the next instruction ends it */

    /* How a cancelled task ends (closing.c). */
    int cancel_at;  /* number of waits until it is cancelled, for specs of scripts; 0: it is not */
    int closing;    /* MP_OPEN, MP_CLOSING or MP_FORCED */
    bool raise;     /* raise the error of a cancelled task when the task is resumed */
    bool is_late;   /* its `<close>` handlers may not wait any more */
    bool is_cut;    /* limits.call.cleanup ended the wait of a handler, which is yet to raise its error */
    bool is_excess; /* it was cancelled when too many other tasks ran handlers: its own may not wait */
    bool has_closing_timer, has_exceeded;
    uint64_t closing_us;    /* processor time of its handlers */
    uint64_t late_from;     /* closing_us when `is_late` was set */
    uint64_t closing_until; /* the loop's time (ms) after which its handlers may not wait; 0: not set yet */
    size_t closing_room;    /* bytes that its handlers may still allocate */
    mp_timer closing_timer;

    /* What it used, of a task that is its own payer. */
    int collecting;    /* full cycles of the garbage collector before it is resumed */
    uint64_t spent_us; /* time in Lua */
    size_t grown;      /* bytes that it allocated, less what was collected since, as far as is known */
    size_t gone_then;  /* vm->gone when `grown` was last corrected */

    mp_task *payer; /* the task whose limits count: itself, or for a member of a group the task that began it */

    /* The script's own coroutines through which the task yielded, innermost first. */
    lua_State **inner;
    size_t inner_count, inner_cap;
};

/* Records that the task yields through the coroutine `co`. The next resume clears the record. */
void mp_task_leave(mp_task *task, lua_State *co);
/* op.c: releases what the task opened. */
void mp_holds_release(mp_task *task);
/* The count hook that preempt.h sets. Ends, yields or goes on. */
void mp_task_hook(lua_State *L, lua_Debug *where);
/* For a function of C that runs for long: true if the count hook is due and the function can yield here. */
bool mp_task_should_turn(lua_State *L);
/* Does what the count hook does before it yields. The caller must yield at once when this returns.  [-0, +0, throws] */
void mp_task_turn(lua_State *L);
/* Resumes the coroutine with `count` values on its stack, and charges the time and memory to the payer. Gives lua_resume's status. */
int mp_task_run(mp_task *task, int count);
/* gc.c: charges what the task allocated in a stretch of Lua. The VM held `before` bytes when the stretch began. */
void mp_task_made(mp_task *task, size_t before);
/* gc.c: subtracts from the payer's bytes what was collected since the last correction, which may have been its own. */
void mp_task_settle_memory(mp_task *task);
/* gc.c: the task ends, and what it allocated is garbage. */
void mp_task_leave_memory(mp_task *task);
/* gc.c: true if a heavy task may not go on before the garbage collector has worked for it. */
bool mp_task_owes(const mp_task *task);
/* gc.c: collects garbage for some 500 us, and charges the time to the payer. */
void mp_task_collect(mp_task *task);
/* A task that is ready and will do `work`. The part of the owner's struct behind the mp_task is as the last work left it. */
mp_task *mp_task_new(mp_vm *vm, const mp_work *work);
/* body.c: the first function in the coroutine of every task. Calls work->run and handles its errors.  [-1, +0, throws, parks] */
int mp_run_body(lua_State *L);
/* Resumes the task's coroutine, or starts it. */
void mp_task_resume(mp_task *task);
/* Ends the task's work, and puts the task among the idle ones. */
void mp_task_end(mp_task *task);
/* Frees all tasks, after their lua_State was closed. */
void mp_tasks_free(mp_vm *vm);

/* For log lines: what the task, or the task that it works for, is called. */
static inline mp_str mp_task_label(const mp_task *task)
{
    return task->payer->work->label(task->payer);
}

extern const mp_stat mp_stat_tool_memory; /* declared in limits.c */

#endif
