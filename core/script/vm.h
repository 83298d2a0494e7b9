/* vm.h: a lua_State and the tasks that run in it, as the files of this room see them. */
#ifndef MP_SCRIPT_VM_H
#define MP_SCRIPT_VM_H

#include "script/script.h"
#include <lua.h>
#include <time.h>

typedef struct mp_task mp_task;

#define MP_VM_CLASSES 16 /* sizes of small blocks: 16, 32, … 256 */

typedef struct mp_vm_spare {
    struct mp_vm_spare *next;
} mp_vm_spare;

struct mp_vm {
    lua_State *L;
    mp_loop *loop; /* NULL until attached: nothing may wait */
    mp_rpc *rpc;   /* NULL until attached */
    mp_client *client;
    mp_source *source;
    mp_store *store;
    mp_hearers *hearers;
    uint64_t hearer_number;
    mp_link hearer;                     /* among them, once attached */
    size_t bytes, memory;               /* held, and the most that may be held */
    size_t ceiling, denied;             /* the most while a task runs; what was refused last */
    size_t published;                   /* what of `bytes` the gauge knows */
    mp_vm_spare *spares[MP_VM_CLASSES]; /* freed small blocks, by size */
    size_t spare_bytes;
    int summary, difference, dispatch, note, describe, hear, run_job, authenticate; /* registry references */
    int principals; /* and one of a table: principals of C to what Lua has made of them */
    const void *call_metatable;
    mp_link seats;            /* lib_auth.c: who keeps principals */
    struct mp_tokens *tokens; /* tokens.c: those that came lately */
    bool has_auth;            /* the configuration lets scripts decide who comes in */
    mp_auth_facts auth;
    char *auth_texts[3];

    struct mp_scheduled *schedule;
    bool keeps_schedule;

    mp_link ready;  /* tasks to start or resume */
    mp_link heavy;  /* tasks that were taken off after their slice: they go on one a turn */
    mp_link doomed; /* tasks to unwind */
    mp_link idle;   /* tasks without work, those with a coroutine in front */
    mp_link heard;  /* what was told, and is yet to run */
    size_t heard_count, heard_bytes;
    mp_task *all;
    mp_task *running;    /* whose Lua runs now */
    bool may_wait;       /* the running coroutine can be left, all the way down to the scheduler */
    size_t tasks, spare; /* tasks at work; idle ones that keep a coroutine */
    size_t notes, note_bytes;
    uint64_t
        stuck_at; /* the thread's time when the running stretch was first found where it cannot be left; 0: not yet */
    uint64_t clock, guard_until; /* us: when the running stretch began; when what is guarded must be over */
    uint64_t owed;               /* us: what others may take first, as the last heavy task took as much */
    uint64_t call_us;            /* limits.call.cpu */
    size_t call_memory;          /* limits.call.memory */
    size_t call_output;          /* limits.call.output */
    int litter;                  /* cycles of the collector until what a task left behind is gone */
    bool is_collecting;
    size_t collect_from;       /* bytes held with which a cycle begins; 0 while there is one */
    size_t made, made_heavily; /* by all but heavy tasks, and by those, for which the collector has yet to work */
    size_t seen;               /* what of `bytes` is in these or was not made since */
    size_t left, left_lately;  /* bytes made by tasks that have ended, not collected yet; those of this cycle */
    size_t gone;               /* bytes ever collected beyond those: tasks that go on made them */
    bool is_full;              /* the running task is above its ceiling, garbage included */
    bool is_over_memory;       /* the running task is, and garbage is none of it */

    mp_buf out;     /* JSON on its way out */
    mp_buf scratch; /* of one binding, until it has pushed what is in it */
};

/* What every lua_State carries in its extra space: its VM, and what kind of coroutine it is. */
enum {
    MP_THREAD_TASK = 1, /* belongs to a task: scripts may not resume or close it */
    MP_THREAD_BUSY = 2  /* a script's own, left because its task waits: nobody else may resume it */
};

static inline uintptr_t *mp_thread_word(lua_State *L)
{
    return (uintptr_t *)lua_getextraspace(L);
}

static inline mp_vm *mp_vm_of(lua_State *L)
{
    return (mp_vm *)(*mp_thread_word(L) & ~(uintptr_t)3);
}

/* Empties `out`, and makes it small again after a large answer. Only where no Lua runs: users of `out` append and take
 * away again what is theirs, since a finalizer may send while something is encoded. */
void mp_vm_reset_out(mp_vm *vm);
/* Logs the error on top of `from` with a trace of its stack, and pops it. Never throws. */
void mp_vm_log_error(mp_vm *vm, lua_State *from, const char *event, mp_str method);
uint64_t mp_now_us(clockid_t clock);
/* collect.c: from now on nothing is collected but by these and mp_task_collect. Not while Lua runs. */
void mp_vm_collect_by_turns(mp_vm *vm);
/* Collects for what was made since, for a moment, or some of what a task left that took too much: true while there is more of
 * that. */
bool mp_vm_tidy(mp_vm *vm);
/* Brings the gauge of bytes up to date. */
void mp_vm_publish(mp_vm *vm);

/* source.c: the files, sorted by path. */
typedef struct {
    char *path; /* relative to the folder, '/' between names */
    char *text;
    size_t len;
} mp_source_file;

const mp_source_file *mp_source_files(const mp_source *source, size_t *count);
const char *mp_source_dir(const mp_source *source);

#endif
