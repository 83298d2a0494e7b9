/* engine.h: the engine with its Lua states, for the libraries that scripts call. Only core/lib includes it. */
#ifndef MP_VM_ENGINE_H
#define MP_VM_ENGINE_H

#include "data/data.h"
#include "vm/json/lua_json.h"
#include "vm/luax.h"
#include "vm/op.h"
#include "vm/vm.h"

typedef struct mp_task mp_task;

/* Settings that the owner of a Lua state chooses. */
typedef struct {
    /* Adds the libraries, loads the scripts. False: a script has errors, which it has reported.  [-0, +n, throws] */
    bool (*open)(lua_State *L, void *ctx);
    void *ctx;        /* argument for `open` */
    void *user;       /* name of the VM; the owner frees it after the VM */
    size_t task_size; /* size of the owner's struct that begins with an mp_task */
    mp_bus *bus;      /* outlives the VM */
} mp_vm_setup;

/* What the libraries use of a VM. They change `deliver`, `out`, `scratch` and `full_cycles` alone. */
typedef struct {
    lua_State *L;
    mp_loop *MP_NULLABLE loop;    /* NULL until the VM is attached: no task may wait before that */
    void *user;                   /* pointer of the owner of the state: mp_vm_setup.user */
    mp_bus *bus;                  /* mp_vm_setup.bus */
    int deliver;                  /* registry reference of the function that gets topic and text of each bus message */
    size_t call_memory;           /* bytes: limits.call.memory */
    size_t call_output;           /* bytes: limits.call.output */
    mp_task *all;                 /* every task, with work or without */
    mp_task *MP_NULLABLE running; /* the task whose Lua code runs, or NULL */
    bool may_wait;                /* the running coroutine can yield all the way down to the scheduler */
    bool is_loading;              /* true until mp_vm_new has returned */
    size_t waiting;               /* tasks with work that have not begun */
    uint64_t began_us; /* start of the running stretch by the monotonic clock; of a heavy task by the processor time */
    int full_cycles;   /* full cycles of the garbage collector that are due */
    const void *array_mt, *object_mt; /* json.array_mt and json.object_mt, which the registry holds */
    mp_buf out;                       /* JSON that is being encoded */
    mp_buf scratch;                   /* buffer of one C function, until it has pushed the content */
} mp_state;

/* The extra space of every lua_State has its VM, and in the lowest bits what kind of coroutine it is. */
static inline mp_vm *mp_vm_of(lua_State *L)
{
    return (mp_vm *)(*(uintptr_t *)lua_getextraspace(L) & ~(uintptr_t)15);
}

static inline mp_state *mp_state_of(const mp_vm *vm)
{
    return (mp_state *)(uintptr_t)vm;
}

/* Opens a Lua state with the engine's own libraries, calls setup->open, collects garbage. On an error, appends it to
 * `report` and returns NULL. */
mp_vm *MP_NULLABLE mp_vm_new(mp_source *source, const mp_vm_limits *limits, const mp_vm_setup *setup, mp_buf *report);
/* Binds the VM to the thread of `loop` and to the bus. Only that thread may use the VM from now on. */
void mp_vm_attach(mp_vm *vm, mp_loop *loop);
/* Removes the VM from the bus, on its thread and when no task runs in it any more. Any thread may free the VM then. */
void mp_vm_detach(mp_vm *vm);
/* Ends every task, whose `<close>` handlers run but may not wait, and closes the state. NULL is allowed. */
void mp_vm_free(mp_vm *MP_NULLABLE vm);
/* Counts memory that a userdata holds outside Lua: it had `before` bytes and has `now`. False, counting nothing, if
 * that is over a limit of the running task. A finalizer counts the bytes back. */
bool mp_vm_count(mp_vm *vm, size_t before, size_t now);
/* Appends one error to a report, after a blank line if it is not the first. */
void mp_report_text(mp_buf *report, mp_str text);

/* Calls `function` with `arg` as a light userdata, within the time for loading. Returns 0; or -1, with the error and
 * its trace appended to `report`. Never throws. */
int mp_vm_run_protected(lua_State *L, lua_CFunction function, void *MP_NULLABLE arg, mp_buf *report);

/* lua_pcall of a C function that leaks memory if Lua raises an error in it: no limit refuses it memory. A task that is
 * over its limit afterwards ends at its next instruction.  [-(arguments + 1), +results|1] */
int mp_vm_pcall_unlimited(lua_State *L, int arguments, int results);

/* The work of a task. A function that is NULL does nothing; `run` and `label` must not be NULL. */
typedef struct {
    const char *name;  /* "call", "note" or "auth": for people who debug */
    lua_CFunction run; /* the body of the coroutine; the task is at index 1, a light userdata [-1, +0, throws, parks] */
    /* The task waits for an op (`waits`), or was preempted. Called until it sets `was_parked`. */
    void (*MP_NULLABLE parked)(mp_task *task, bool waits);
    /* The work cannot be done: a Lua error, or no memory. */
    void (*failed)(mp_task *task);
    /* Called on the task whose limits count (`payer`): it is over one of them, or limits.lua_memory is used up
     * (mp_stat_refused_lua_memory). `why` names the limit, `counter` is its statistic. */
    void (*MP_NULLABLE over_limit)(mp_task *task, const char *why, const mp_stat *counter);
    /* Name of the work for log lines: the method, or another name. Valid while the task lasts. */
    mp_str (*label)(const mp_task *task);
    /* The object of the work: a tool's or prompt's name, or a URI; may be empty. The client has chosen the text. */
    mp_str (*MP_NULLABLE subject)(const mp_task *task);
    /* The task ends: frees the data of the work. Runs no Lua. */
    void (*end)(mp_task *task);
    bool is_early; /* its tasks begin before others, in half of each turn: they decide whose others are */
} mp_work;

/* A task is a coroutine that the engine schedules, and the work that it does. Tasks are pooled and never freed before
 * their VM. So a handle that keeps a task's address and serial number can find out whether that work has ended. The
 * owner's struct begins with the mp_task; the engine's own data is in front of it. */
struct mp_task {
    mp_vm *vm;
    mp_task *next;   /* in mp_state.all */
    uint64_t serial; /* incremented when the task's work ends */
    const mp_work *work;
    mp_task *payer;  /* the task whose limits count: this task, or the one that started its group; set before it runs */
    uint16_t share;  /* see mp_task_new */
    bool cancelled;  /* the task ends by an error as soon as it can */
    bool was_parked; /* set by the function mp_work.parked */
    bool is_gentle;  /* the task gets short time slices, since clients would otherwise wait for background work */
    int cancel_at;   /* number of waits after which the task is cancelled, for specs of scripts; 0: it is not */
    uint64_t closing_until; /* loop time (ms) after which its `<close>` handlers may not wait; 0: not set yet */
    uint64_t more_us;       /* time in Lua (us) beyond limits.call.cpu, for work of the gateway and replays */
    size_t more_bytes;      /* memory beyond limits.call.memory for such work; it still counts for limits.lua_memory */
};

/* A task that is ready to do `work`; what is behind the mp_task is as the last work left it. `share`: of its principal;
 * 0: the gateway. Shares take turns by their low 8 bits, within these by the others; each begins its tasks in order. */
mp_task *mp_task_new(mp_vm *vm, const mp_work *work, unsigned share);
/* The running task, which has just begun, will do nothing: the next task of its share begins in the same turn. */
void mp_task_pass_turn(const mp_task *task);
/* What the payer of `task` holds when it ends is the payer's of `heir` from then on: work that goes on with its values.
 */
void mp_task_set_heir(const mp_task *task, mp_task *heir);
/* Resumes a task with an error in the next turn; a running one gets it at its next wait. Without work: no effect. */
void mp_task_cancel(mp_task *task);
/* The task that runs on this thread; NULL: none. */
mp_task *MP_NULLABLE mp_task_running_here(void);
/* File and `*line` of the script that this thread runs; or empty. Allocates nothing: the handler of a crash may ask. */
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

extern const mp_stat mp_stat_tool_memory, mp_stat_refused_lua_memory; /* declared in over_limit.c */

/* Each adds functions to the host table on top of the stack: those of protect.c, bus.c and load.c.  [-0, +0, throws] */
void mp_lib_protections(lua_State *L);
void mp_lib_bus(lua_State *L, mp_bus *bus);
void mp_lib_load(lua_State *L);

#endif
