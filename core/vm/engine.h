/* engine.h: the engine with its Lua states, for the libraries that scripts call. Only core/lib includes it. */
#ifndef MP_VM_ENGINE_H
#define MP_VM_ENGINE_H

#include "data/data.h"
#include "vm/json/lua_json.h"
#include "vm/luax.h"
#include "vm/op.h"
#include "vm/task.h"
#include "vm/vm.h"

/* Settings that the owner of a Lua state chooses. */
typedef struct {
    /* Adds the libraries and loads the scripts. False if a script has errors, which it has reported.  [-0, +n,
     * throws] */
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
/* Removes the VM from the bus. Called on its thread when no task runs in it any more; any thread may free the VM
 * afterwards. */
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

/* Each of these adds functions to the host table on top of the stack: those of protect.c, bus.c and load.c.  [-0, +0,
 * throws] */
void mp_lib_protections(lua_State *L);
void mp_lib_bus(lua_State *L, mp_bus *bus);
void mp_lib_load(lua_State *L);

#endif
