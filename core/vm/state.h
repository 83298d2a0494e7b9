/* state.h: a lua_State and the tasks that run in it, as the engine's files see them. */
#ifndef MP_VM_STATE_H
#define MP_VM_STATE_H

#include "vm/engine.h"

#define MP_VM_CLASSES 16 /* sizes of the blocks that are kept for reuse: 16, 32, … 256 */

typedef struct mp_vm_spare {
    struct mp_vm_spare *next;
} mp_vm_spare;

/* The messages of the bus for this VM (bus.c). */
typedef struct {
    uint64_t number;        /* of this VM on the bus, never used twice */
    mp_link link;           /* in the bus's list of VMs, while attached */
    mp_link messages;       /* messages that have arrived, and are not delivered yet */
    mp_account bytes;       /* bytes of the messages that were posted to this VM and are not delivered yet */
    atomic_bool has_missed; /* a message did not fit, and the VM has not been notified of that yet */
} mp_vm_inbox;

/* The memory that the Lua state has and may have, in bytes (memory.c, limits.c). */
typedef struct {
    size_t bytes;     /* bytes that the state holds */
    size_t limit;     /* limit of `bytes`: limits.lua_memory */
    size_t shared;    /* the part of `limit` that is for all tasks; the other part is for tasks that hold little */
    size_t little;    /* bytes up to which a task holds little */
    size_t ceiling;   /* limit of `bytes` while the running task runs */
    size_t denied;    /* size of the allocation that was refused last */
    size_t published; /* the part of `bytes` that the gauge lua_bytes has counted */
    mp_vm_spare *spares[MP_VM_CLASSES]; /* freed small blocks for reuse, by size */
    size_t spare_bytes;                 /* bytes in `spares` */
    mp_slabs slabs;                     /* allocator of blocks up to MP_SLAB_MAX bytes */
    bool is_full;                       /* the running task is over its memory limit, garbage included */
    bool is_over;                       /* the running task is over its memory limit, without garbage */
    bool is_crowded; /* `ceiling` is what limits.lua_memory leaves to the running task, not the task's own limit */
} mp_vm_memory;

/* Tasks, and the VM itself, on their way to their end (closing.c, end_errors.c). */
typedef struct {
    const void *cancelled_error; /* the userdata that is raised to end a task */
    const void *closed_error;    /* the userdata that is raised to close a script's coroutine */
    uint64_t since; /* us of the thread's processor time when the running stretch of `<close>` handlers began */
    size_t most;    /* limits.calls_in_flight: tasks whose handlers may wait at once */
    size_t tasks;   /* tasks whose handlers run or wait */
    bool is_ending; /* mp_vm_unwind was called: no task may wait any more */
    uint64_t
        ending_until;     /* monotonic ms after which `<close>` handlers end at their first instruction, if is_ending */
    int64_t ending_count; /* tasks whose handlers were ended early since is_ending */
} mp_vm_closing;

/* Processor time that loading the scripts has taken and may take. */
typedef struct {
    uint64_t us;    /* processor time for loading all scripts */
    uint64_t until; /* the thread's processor time, in us, at which loading is ended */
} mp_vm_loading;

#define MP_SHARES 256 /* shares with turns of their own: numbers of shares with the same remainder have one */
#define MP_PARTS 8    /* queues of a share, by the rest of its number, which take turns within those of the share */
/* Turns that a share had no tasks for, while others had theirs, and that it may make up for: so callers whose calls
 * come in bursts get as much as those whose calls come evenly. It begins MP_IN_ROW tasks in a turn then, instead of
 * one, so others wait at most that much longer. */
#define MP_MAX_CREDIT 64
#define MP_IN_ROW 4

typedef struct {
    mp_link tasks; /* list of mp_task_own, the next one first */
    mp_link turn;  /* link in mp_queues.turns while `tasks` is not empty */
} mp_queue;

/* Tasks of one share, which are taken by turns with those of other shares. */
typedef struct {
    mp_link turns; /* queues with tasks: the first task of each in turn */
    mp_link turn;  /* link in a list of mp_queues while `turns` is not empty */
    double credit; /* turns that the share can make up for, 0 to MP_MAX_CREDIT; 0 for preempted tasks */
    unsigned row;  /* tasks of this turn that have been taken on credit */
    mp_queue parts[MP_PARTS];
} mp_queues;

typedef struct {
    mp_queues waiting, preempted; /* tasks that have not begun, and those that were preempted */
    size_t count, heavy;          /* number of tasks in `waiting`; number of its tasks that were ever preempted */
    double left_at;               /* mp_shares.rounds when `count` became 0 */
} mp_share;

typedef struct {
    mp_link turns; /* mp_queues of tasks to start: one task of each in turn */
    size_t count;  /* shares with tasks that have not begun */
    double rounds; /* turns that a share had so far that always had tasks */
    mp_share all[MP_SHARES];
} mp_shares;

/* All tasks, and those with work in the order in which they run (task.c, report.c). */
typedef struct {
    mp_link ready;                /* tasks to resume */
    mp_shares early, others;      /* tasks to start: those of work that is_early, and all others */
    bool starts_next;             /* the next task is one to start, if there is one; else one to resume */
    mp_link heavy;                /* mp_queues of tasks that were preempted: a task of one is resumed in each turn */
    mp_link unwinding;            /* cancelled tasks to resume with an error */
    mp_link idle;                 /* tasks without work; tasks that keep a coroutine come first */
    struct mp_task_block *blocks; /* blocks of memory with the tasks of mp_state.all */
    size_t tasks;                 /* tasks with work */
    /* tasks so far that were preempted at least once; tasks so far that have begun; without tasks of work that is_early
     */
    uint64_t interrupted, begun;
    size_t spare;    /* idle tasks that keep a coroutine */
    unsigned passed; /* turns that tasks of `others` have passed on to the next of their share */
} mp_vm_schedule;

/* Time, in us: of the thread's processor time where no other clock is named. */
typedef struct {
    uint64_t stuck_at;    /* when the running stretch first could not yield; 0: it can yield */
    uint64_t cpu_us;      /* the processor time at cpu_at_us */
    uint64_t cpu_at_us;   /* of the monotonic clock: at most a millisecond and a turn ago while tasks run */
    uint64_t guard_until; /* when code outside of tasks must end; 0: no such code runs */
    uint64_t
        owed_us; /* us for which other tasks run before the next heavy task: the time that the last heavy task took */
} mp_vm_clock;

/* The garbage collector (gc.c). All sizes are bytes. */
typedef struct {
    bool is_returning;   /* mp_vm_return_memory was called: blocks for reuse are freed when no full cycle is due */
    bool is_collecting;  /* a step of the collector is running */
    size_t kept;         /* bytes that the last cycle of an idle state left, or a later one, if that left less */
    size_t much;         /* bytes that are much beside that */
    bool has_had_much;   /* it had much more than that, or tasks left as much, since memory was last returned */
    size_t collect_from; /* a cycle begins when the state holds this many bytes; 0 during a cycle */
    size_t made;         /* allocated by normal tasks since the last step: the debt that the next steps pay */
    size_t made_heavily; /* allocated by heavy tasks since the last step; heavy tasks pay for them themselves */
    size_t seen;         /* the part of memory.bytes that `made` or `made_heavily` has counted */
    size_t left;         /* allocated by tasks that have ended, and not collected yet */
    size_t left_lately;  /* the part of `left` that was added during this cycle */
    size_t gone;         /* bytes collected so far that tasks still at work had allocated */
    int dying;           /* tasks that are being ended because they are over a limit of memory */
    uint32_t deaths;     /* number of tasks that ended because of a memory limit */
} mp_vm_garbage;

struct mp_vm {
    mp_state state;                               /* first field: mp_state_of relies on it */
    void (*hook)(lua_State *L, lua_Debug *where); /* mp_task_hook: the count hook while Lua is to be interrupted */
    size_t task_size;                             /* size of a task in bytes: mp_vm_setup.task_size */
    mp_source *source;
    mp_vm_inbox inbox;
    mp_vm_memory memory;
    mp_vm_closing closing;
    mp_vm_loading loading;
    mp_vm_schedule schedule;
    mp_vm_clock clock;
    uint64_t call_us; /* limits.call.cpu */
    mp_vm_garbage garbage;
};

/* The extra space of every lua_State: its VM, and what kind of coroutine it is (schedule.h). */
static inline uintptr_t *mp_thread_word(lua_State *L)
{
    return (uintptr_t *)lua_getextraspace(L);
}

#endif
