/* vm.h: Lua states and the tasks that run in them, as the rest of the process sees them. The engine knows no MCP. This
 * header has no lua_State; the libraries, which do have one, include vm/engine.h instead.
 *
 *   vm      a lua_State with its scheduler and limits, owned by one worker
 *   task    a coroutine that does one piece of work; waits for at most one op
 *   op      one thing that a task waits for; can always be cancelled
 *   bus     messages from each VM of the process to all of them
 *   where   which line a thread runs, for a watchdog in another thread */
#ifndef MP_VM_H
#define MP_VM_H

#include "net/net.h"

typedef struct mp_vm mp_vm;

/* Time that the `<close>` handlers of a cancelled task may wait, in all: for one more request or write. */
#define MP_CLEANUP_MS ((uint64_t)MP_LIMIT(cleanup_ms, 2000))
typedef struct mp_bus mp_bus;

/* Limits of one Lua state and its tasks. */
typedef struct {
    size_t memory;        /* bytes that the state may hold: limits.lua_memory */
    size_t call_memory;   /* bytes that one task may add: limits.call.memory */
    size_t call_output;   /* bytes of JSON of one result or message: limits.call.output */
    uint64_t call_cpu_ms; /* time that one task may run Lua: limits.call.cpu */
    int64_t cleanups;     /* cancelled tasks whose handlers may wait at once: limits.calls_in_flight */
} mp_vm_limits;

/* The bus: one per process. It outlives its VMs. */
mp_bus *mp_bus_new(void);
void mp_bus_free(mp_bus *bus);
/* Sets the function that carries the messages of host.bus.relay to the other processes of the gateway. `relay` is
 * called on the threads of VMs, and returns false if the message does not fit. Call it before a VM runs. Without it,
 * there are no other processes. */
void mp_bus_relay_by(mp_bus *bus, bool (*relay)(void *ctx, mp_str topic, mp_str text), void *ctx);
/* Passes a message on to other processes, like host.bus.relay. False if it does not fit. Any thread, once there are
 * VMs. */
bool mp_bus_relay(const mp_bus *bus, mp_str topic, mp_str text);
/* Sends a message to every VM, which delivers it in its next turn. False if the queue of a VM is full: that VM gets a
 * message with the topic "missed". Any thread. */
bool mp_bus_broadcast(mp_bus *bus, mp_str topic, mp_str text);
/* Delivers `text` under `topic` only to this VM, in its next turn, even if its queue is full. Called on the VM's
 * thread. */
void mp_vm_bus_deliver(mp_vm *vm, mp_str topic, mp_str text);

/* One turn: delivers bus messages, resumes tasks that are ready, collects garbage. Call it at the bottom of the
 * loop's turn, with no function of another library on the C stack. True if the VM has more to do at once. */
bool mp_vm_turn(mp_vm *vm);
/* True if a turn has something to do: bus messages, tasks that are ready or to be ended, much garbage. */
bool mp_vm_has_work(const mp_vm *vm);
/* The numbers of tasks that wait to begin or to continue, and that have begun so far. */
typedef struct {
    size_t waiting;       /* tasks that have not begun; 0 if all of them are of work that is_early */
    size_t preempted;     /* tasks that were preempted and are to go on; counting stops at some hundreds */
    uint64_t begun;       /* tasks that have begun so far, without those of work that is_early: they are short */
    uint64_t interrupted; /* number of `begun` tasks that were preempted at least once */
} mp_vm_load;
mp_vm_load mp_vm_load_of(const mp_vm *vm);
/* Tasks that begin before a new one of the share. True: none of it waits or was preempted; it has turns left over. */
size_t mp_vm_ahead(const mp_vm *vm, unsigned share, bool *is_alone, bool *has_credit);
/* In the next turns the VM collects all garbage, then frees the memory that it keeps for reuse. */
void mp_vm_return_memory(mp_vm *vm);
/* True if the VM has had much garbage since: the same is to be done once there is little to do. */
bool mp_vm_has_had_much(const mp_vm *vm);
/* The bytes that the VM holds: those of its Lua state and those kept for reuse. */
size_t mp_vm_held(const mp_vm *vm);
/* True until the turns after mp_vm_return_memory() are over. */
bool mp_vm_is_returning_memory(const mp_vm *vm);
/* True if the VM has no task with work. */
bool mp_vm_is_idle(const mp_vm *vm);
/* True if `<close>` handlers of cancelled tasks run or wait in the VM. */
bool mp_vm_is_cleaning(const mp_vm *vm);
/* Ends every task of a VM that will be freed. Their `<close>` handlers run but may not wait, and each one that is left
 * at `until` (ms of the monotonic clock) is ended at its first instruction. A second call does nothing. */
void mp_vm_unwind(mp_vm *vm, uint64_t until);

/* -- stuck threads --------------------------------------------------------------------------------------------- */

/* Which line of Lua a thread runs, for another thread that finds it stuck. How a watchdog uses it:
 *
 *   - Each watched thread owns a zeroed mp_where that outlives the thread and its watcher (one in mp_worker, one of the
 *     main thread), and calls mp_where_watch(&where) once, on itself, before it runs Lua. This is per thread, not per
 *     VM:
 *     it works for whichever VM or generation the thread runs.
 *   - The watching thread finds that a loop has not turned and calls mp_vm_where(&where, text, sizeof text), again in
 *     each of its rounds. The first call posts a question and returns false. The count hook of the stuck thread answers
 *     within some 2 ms of Lua, in every kind of script code; a later call then returns true, once per answer, with
 *     "path:line" in `text`.
 *   - While the thread is in a C function that runs no Lua, the text names the call. Where none runs, mp_vm_where
 * returns false, and the watchdog reports that no line is known.
 *   - When the loop turns again, the watchdog calls mp_where_forget: an answer that was not read is out of date by
 *     then. A pending question is answered by the next long stretch of Lua; mp_where_forget drops that answer, too.
 *
 * At most one thread asks per mp_where. Without a question, the hook costs one atomic read. */
#define MP_WHERE_TEXT 256
typedef struct {
    _Atomic int state;
    char text[MP_WHERE_TEXT]; /* texts are cut at this length, which includes a NUL */
} mp_where;

/* The calling thread writes its line to `where` from now on; NULL ends that. */
void mp_where_watch(mp_where *MP_NULLABLE where);
/* Called on the watching thread; the comment on mp_where explains it. */
bool mp_vm_where(mp_where *where, char *room, size_t size);
/* Drops an answer that was not read. */
void mp_where_forget(mp_where *where);

/* Makes every running and later mp_vm_new of any thread fail soon, with an error that says that the gateway was
 * asked to stop. For the start of a shutdown; it cannot be undone. Async-signal-safe; any thread may call it. */
void mp_vm_stop_loading(void);

/* -- profiles ------------------------------------------------------------------------------------------------------ */

/* The samples that one thread gathers while a profile runs: of processor time, or of allocations. A profile is made and
 * read by another thread; it is counted, since its own thread may not answer. */
typedef struct mp_profile mp_profile;

typedef struct {
    unsigned hz;    /* samples in a second of the thread's processor time; not used for memory */
    bool memory;    /* a sample for each 512 KiB that Lua allocates, instead of time */
    char tool[256]; /* samples only what serves a tool, prompt or resource of this pattern; "": everything */
} mp_profile_options;

typedef struct {
    uint64_t taken, lost; /* lost: they found no place */
} mp_profile_totals;

typedef struct {
    mp_phase phase;
    uint64_t count;
    size_t depth;
    const mp_profile *profile;
    const uint32_t *frames; /* for mp_profile_frame */
} mp_profile_stack;

/* `bytes`: memory for the samples. */
mp_profile *mp_profile_new(const mp_profile_options *options, size_t bytes);
mp_profile *mp_profile_ref(mp_profile *profile);
void mp_profile_unref(mp_profile *MP_NULLABLE profile);
/* The calling thread gathers from now on. False if it has got no timer; the profile is over then. */
bool mp_profile_begin(mp_profile *profile);
/* The calling thread gathers no more. No effect if it does not. */
void mp_profile_end(void);
/* Samples the allocations of the VM, if the calling thread gathers those. Call it for each VM of the thread. */
void mp_vm_sample_memory(mp_vm *vm);
/* Any thread. */
mp_profile_totals mp_profile_count(const mp_profile *profile);
/* True once its thread gathers no more samples: any thread may read the profile then. */
bool mp_profile_is_over(const mp_profile *profile);
/* Reads the first stack from position `at` on; the first position is 0. Returns the next position, or 0: there is no
 * further stack. */
size_t mp_profile_read(const mp_profile *profile, size_t at, mp_profile_stack *stack);
/* Frame `i`, counted from the outermost one. The outermost one of a call is its method and tool, with the line 0. */
mp_str mp_profile_frame(const mp_profile_stack *stack, size_t i, unsigned *line);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_lua_bytes, mp_stat_tool_faults;

#endif
