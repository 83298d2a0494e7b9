/* state.h: the data of the libraries for one VM and for one task. */
#ifndef MP_LIB_STATE_H
#define MP_LIB_STATE_H

#include "lib/lib.h"
#include "vm/engine.h"

typedef struct mp_frozen_answers mp_frozen_answers;

/* The rights of a principal in one snapshot of the registry (principal.c). */
typedef struct {
    uint64_t generation; /* of the snapshot; 0: not known yet */
    uint64_t
        scopes; /* bit set of the scopes that the principal holds, as lua/moonpool/registry/plan.lua numbers them */
    mp_str audience; /* for subscriptions of the principal's sessions: the bytes of the Lua string `audience_ref` */
    int audience_ref;
} mp_rights;

/* How much audit lines show of the arguments of a call: log.audit_arguments, or OFF without an audit. */
typedef enum { MP_AUDIT_MODE_OFF, MP_AUDIT_MODE_NONE, MP_AUDIT_MODE_NAMES, MP_AUDIT_MODE_VALUES } mp_audit_mode;

/* Bytes of a text in an audit line: longer ones are cut, as those of arguments in audit.lua. */
#define MP_AUDIT_TEXT 256

/* An audit line that C writes (shortcut/audit_line.h). Empty, with `text.len` 0, unless the line is begun and not yet
 * written. */
typedef struct {
    mp_buf text;    /* the members before the outcome, then those after `ms` */
    size_t head;    /* bytes of the members before the outcome */
    double began_s; /* start of the task by the monotonic clock */
} mp_audit_line;

/* One per VM: the field `user` of the mp_vm. */
typedef struct {
    mp_vm *vm;
    mp_rpc *MP_NULLABLE rpc;                 /* NULL until attached */
    mp_client *MP_NULLABLE client;           /* NULL until attached */
    mp_upstream_host *MP_NULLABLE upstreams; /* NULL until attached */
    bool has_upstreams; /* the configuration names some: call.current() gives the handle that the call has */
    mp_store *store;
    size_t upstream_answer; /* bytes: limits.upstreams.answer */
    int dispatch, record, note, authenticate, answer_page, pack, unpack, run_job, describe, summary,
        difference; /* functions of moonpool, as registry references */

    const void *call_metatable; /* address of the metatable of the userdata `call`, for a quick type check */
    int principals; /* registry reference of a table: from an mp_principal (light userdata) to its principal reference
                     */
    mp_link principal_refs; /* all principal references of the VM (principal.c) */
    mp_rights rights[2];    /* of the principals `anonymous` and `local`, which belong to no VM */
    struct mp_token_cache *tokens;
    bool has_auth; /* the configuration turns auth scripts on */
    mp_auth_facts auth;
    char *auth_texts[3];  /* owns the texts of `auth` */
    int64_t unread_files; /* files of auth scripts that were never read: part of the gauge auth_files_unread */

    struct mp_cron *MP_NULLABLE schedule; /* scheduled jobs of this VM */
    bool runs_schedule;                   /* the timers of the scheduled jobs are started */

    /* the quick ways of calls (shortcut/); MOONPOOL_PLANS is read in builds for specs alone */
    bool is_general;  /* MOONPOOL_PLANS=off: no call takes a quick way */
    bool is_proven;   /* MOONPOOL_PLANS=both: each quick answer is compared with that of the general way, or the process
                         ends */
    bool has_private; /* the scopes or `visible` of a served thing decide who sees it */
    mp_frozen_answers *frozen;    /* the VM's stored answers (shortcut/frozen_answer.h) */
    struct mp_plans *plans;       /* the VM's plans (shortcut/plan.h) */
    struct mp_forwards *forwards; /* the VM's routes to upstreams (shortcut/forward.h) */
    mp_audit_mode audit;
    const char *const
        *MP_NULLABLE propagate; /* hosts whose requests carry the trace: a userdata of the state; NULL: none */
    bool propagates_upstreams;  /* requests to upstreams carry it */
    uint64_t snapshot_begun, snapshot_served; /* generations of the registry's snapshots (served.c) */

    mp_timer nodes;   /* of nodes.c */
    mp_link redis;    /* connections to Redis servers (redis.c) */
    mp_link postgres; /* databases of PostgreSQL servers that have connections (postgres.c) */

    size_t notes, note_bytes; /* notifications that are queued or running, and the bytes of their methods and params */
} mp_lib;

static inline mp_lib *mp_lib_of_vm(const mp_vm *vm)
{
    return mp_state_of(vm)->user;
}

static inline mp_lib *mp_lib_of(lua_State *L)
{
    return mp_state_of(mp_vm_of(L))->user;
}

typedef struct mp_group mp_group; /* defined in parallel.c */

/* A task of the engine, and the libraries' data for it. */
typedef struct {
    mp_task super; /* first field: a pointer to an mp_lib_task is also a pointer to its mp_task */
    /* the call that the task answers. NULL once it is answered or cancelled, and for other work */
    mp_call *MP_NULLABLE call;
    /* the request that the task authenticates. NULL once that is decided, and for other work */
    mp_authn *MP_NULLABLE entry;
    uint64_t mark; /* of the call that was answered or cancelled; 0: not known, or there is a call or a request */
    const mp_era *MP_NULLABLE era; /* revision of a notification or of a cancelled call; NULL if unknown */
    /* a detached task: the text of the bus message "ended", sent when the task has ended; or NULL */
    char *MP_NULLABLE id;
    int job;           /* registry reference of { f, call }: a detached task that has not started; else LUA_NOREF */
    mp_span span;      /* the current span of the task, in the trace of its call: new ones are below it */
    bool has_session;  /* the cancelled call had a session */
    bool has_plan;     /* the call is served by a plan */
    bool is_recorded;  /* the call is recorded for `moonpool replay` */
    bool is_forwarded; /* an upstream gave the result, which may be as large as limits.upstreams.answer */
    bool has_progress; /* `progress` was sent at least once */
    double progress;   /* the last progress value that was sent */
    struct mp_cron *MP_NULLABLE scheduled; /* the scheduled job that the task runs, or NULL */

    mp_group *MP_NULLABLE group; /* the group that the task is a member of, or NULL */
    mp_link member;              /* link in the group's members */
    int place, members;          /* the task's number in its group, from 1; how many member tasks work for this task */
    bool has_succeeded;          /* the member's function returned true */

    /* A notification: its method, then its params. A cancelled call: its method, then its principal's id, for `<close>`
     * handlers that read them. */
    mp_buf text;
    size_t method_len;
    mp_buf
        params; /* a cancelled call that was served by a plan: its params, for `<close>` handlers that read call.meta */
    mp_audit_line audit; /* audit line of a call that is served by a plan */
} mp_lib_task;

/* The kinds of work. */
extern const mp_work mp_call_work, mp_note_work, mp_authn_work, mp_detached_work, mp_cron_work, mp_member_work;

/* Creates a task that is ready to run. */
mp_lib_task *mp_lib_task_new(mp_vm *vm, const mp_work *work, unsigned share);
/* The task whose Lua code runs; NULL outside of tasks. */
static inline mp_lib_task *MP_NULLABLE mp_lib_task_running(lua_State *L)
{
    mp_task *task = mp_state_of(mp_vm_of(L))->running;
    return task == NULL ? NULL : mp_container(task, mp_lib_task, super);
}

/* Creates a ready task for `call`, and makes the task the call's user. */
mp_lib_task *mp_lib_task_start(mp_vm *vm, const mp_work *work, mp_call *call);
/* Separates the task from its call, which is answered or cancelled. Returns the call; NULL if they were already
 * separate. */
mp_call *MP_NULLABLE mp_task_settle(mp_lib_task *task);
/* Separates the task from the request that it authenticates. Returns the request; NULL if they were already
 * separate. */
mp_authn *MP_NULLABLE mp_task_settle_entry(mp_lib_task *task);
/* Answers the call with an error, if it has no answer yet. */
void mp_task_fail(mp_lib_task *task, int code, mp_str message, mp_str data);
/* The principal's id of the call that the task works for, even after the call was cancelled. Valid until the task
 * ends. */
mp_str mp_task_principal(const mp_lib_task *task);
/* Releases the function and the call that a detached task has not used yet. */
void mp_task_forget_job(lua_State *L, mp_lib_task *task);
/* Removes an ended member from its group (parallel.c). A member that failed cancels the other members. */
void mp_group_leave(mp_lib_task *task);

#define MP_REFUSAL 160 /* bytes of a buffer for an error text */
/* Counts and logs that `what` (a result, an error, a message) has `size` bytes of JSON, over limits.call.output.
 * Returns the text for the client, which is stored in `why`. */
mp_str mp_refuse_output(const mp_lib_task *task, const char *what, size_t size, char why[MP_REFUSAL]);
/* Ends the answer that mp_call_begin_answer began for the task's call, and whose result has `size` bytes: with an
 * error, if the result is over limits.call.output. */
void mp_task_end_answer(mp_lib_task *task, size_t size);
/* Answers the task's call with the value at `index`, or with an error if the value is over limits.call.output. The
 * result is for a lua_CFunction to return.  [-0, +0, throws, yields] */
int mp_task_answer(lua_State *L, mp_lib_task *task, int index);
/* Answers the task's call with the error { code, message, data } at `error`, an index of 3 or less. The result is for a
 * lua_CFunction to return.
 *  [-0, +0, throws, yields] */
int mp_task_answer_error(lua_State *L, mp_lib_task *task, int error);

#endif
