/* task.h: a coroutine that runs one handler. Tasks are pooled and never freed before their VM, so a handle that kept
 * a task and its serial number can always be asked whether it is stale. */
#ifndef MP_SCRIPT_TASK_H
#define MP_SCRIPT_TASK_H

#include "script/op.h"
#include "script/vm.h"

typedef enum {
    MP_TASK_IDLE,    /* in vm->idle */
    MP_TASK_READY,   /* in vm->ready */
    MP_TASK_RUNNING, /* vm->running, in no ring */
    MP_TASK_PARKED,  /* waits for `op`, in no ring */
    MP_TASK_DOOMED   /* called off: in vm->doomed */
} mp_task_state;

typedef struct mp_group mp_group; /* lib_parallel.c */

struct mp_task {
    mp_link link;
    mp_vm *vm;
    mp_task *next; /* in vm->all */
    lua_State *co; /* NULL until it first runs */
    int ref;       /* holds `co` in the registry */
    mp_task_state state;
    uint64_t serial; /* goes up when the work ends */

    mp_call *call;   /* NULL for a note, and once answered or called off */
    mp_entry *entry; /* finds out who sent it; NULL for most, and once that is decided */
    const mp_era *era;
    mp_op *op;     /* what it waits for */
    int job;       /* holds { f, call } in the registry: a background task that has not started; else LUA_NOREF */
    mp_link holds; /* what it opened */
    bool is_note, is_entry, started, was_parked;
    bool cancelled, has_session; /* has_session: as it was when the call was called off */
    bool has_progress;
    double progress;     /* the last that was sent */
    bool preempted;      /* it left because its slice was over */
    bool is_heavy;       /* it was preempted once: its time is measured exactly from then on */
    bool is_over_memory; /* to be ended for that where it goes on */
    int collecting;      /* cycles of the collector until it may go on */
    uint64_t spent;      /* us of Lua */
    size_t grown;        /* bytes that it holds more than when it began, as far as is known */
    size_t gone_then;    /* the VM's `gone` that is not in there any more */

    mp_task *payer;  /* whose call it works for, and whose limits count: itself, or who waits for it and others */
    mp_group *group; /* that it is a member of; else NULL */
    mp_link member;  /* among them */
    struct mp_scheduled *scheduled; /* what it runs, if it is that; else NULL */
    int place, members;             /* its number there; how many such tasks work for it */
    bool went_well;

    /* The script's own coroutines that the wait goes through, innermost first. */
    lua_State **inner;
    size_t inner_count, inner_cap;

    /* A note: its method, then its params. A call that is off: its method, then its principal, for closers that ask. */
    mp_buf text;
    size_t method_len;
};

/* A wait leaves `co` on its way down to the scheduler; the next resume forgets it. */
void mp_task_leave(mp_task *task, lua_State *co);
/* op.c: lets go of what the task opened. */
void mp_holds_release(mp_task *task);
/* What Lua calls where preempt.h asked for it. */
void mp_task_hook(lua_State *L, lua_Debug *where);
/* The same within a function of C that takes long: whether the hook waits for it and would yield here, */
bool mp_task_should_turn(lua_State *L);
/* and then what comes before that yield, which must follow at once. */
void mp_task_turn(lua_State *L);
/* One stretch of Lua, with `count` values on its coroutine's stack; what it takes is charged. Gives lua_resume's status. */
int mp_task_run(mp_task *task, int count);
/* A bearer token that was good a moment ago, where nothing else decides: admits the entry at once. */
bool mp_entry_is_known(mp_vm *vm, mp_entry *entry);
/* collect.c: it ran, and the VM held `before` bytes then. */
void mp_task_made(mp_task *task, size_t before);
/* Takes off what was collected since, which may have been its own. */
void mp_task_settle_memory(mp_task *task);
/* It ends: what it made is garbage now. */
void mp_task_leave_memory(mp_task *task);
/* Before a heavy task goes on: the collector is behind with what such tasks made, or it waits for the collector. */
bool mp_task_owes(const mp_task *task);
/* Then this instead: collects for a moment, on its account. */
void mp_task_collect(mp_task *task);
/* The call has its answer. */
void mp_task_settle(mp_task *task);
/* It is decided who sent it. Gives the entry. */
mp_entry *mp_task_settle_entry(mp_task *task);
/* It will never be: refuses it. */
void mp_task_fail_entry(mp_task *task, int status, const char *why);
/* One that is ready: of a call, or, without one, of a note. */
mp_task *mp_task_new(mp_vm *vm, mp_call *call);
/* Answers its call with an error, if it has one still. */
void mp_task_fail(mp_task *task, int code, mp_str message, mp_str data);
#define MP_REFUSAL 160
/* Counts and logs that its result, or another `what`, is over limits.call.output; gives the words for it, in `room`. */
mp_str mp_refuse_output(const mp_task *task, const char *what, size_t size, char room[MP_REFUSAL]);
/* Answers the task's call with the value at `index`, or with an error when that is over limits.call.output.  [-0, +0, throws] */
void mp_task_answer(lua_State *L, mp_task *task, int index);
/* The same with an error, { code, message, data } at `error`.  [-0, +n, throws] */
void mp_task_answer_error(lua_State *L, mp_task *task, int error);
/* A task for a job that mp_call_spawn gave; `ref` is what `job` holds. */
mp_task *mp_task_start_job(mp_vm *vm, mp_call *call, int ref);
/* A task for a call that mp_call_spawn_alone gave. */
void mp_task_start_scheduled(mp_vm *vm, mp_call *call, struct mp_scheduled *scheduled);
/* A task that works for `parent`, which waits for it. */
mp_task *mp_task_start_member(mp_task *parent, int place);
/* Its work is over. Calls others off, if they are to end with it. */
void mp_group_leave(mp_task *task);
/* Calls it off, where no Lua runs. */
void mp_task_unwind(mp_task *task);
/* `L`: whichever runs. */
void mp_task_forget_job(lua_State *L, mp_task *task);
/* Unwinds whatever is there and frees the tasks; `L` is closed in between. */
void mp_tasks_unwind(mp_vm *vm);
void mp_tasks_free(mp_vm *vm);

/* Method and principal, while the task lasts. */
mp_str mp_task_method(const mp_task *task);
mp_str mp_task_principal(const mp_task *task);

#endif
