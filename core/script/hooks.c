/* hooks.c: what a worker's rpc tells its VM. Nothing here runs Lua: tasks begin, or are doomed. */
#include "script/task.h"

#define MOST_NOTES 1024
#define MOST_NOTE_BYTES ((size_t)8 << 20)

static void on_call(void *ctx, mp_call *call)
{
    mp_call_set_user(call, mp_task_new(ctx, call));
}

static void on_note(void *ctx, const mp_era *era, mp_session *session, mp_str method, mp_str params)
{
    mp_vm *vm = ctx;
    size_t bytes = method.len + params.len;
    if (vm->notes >= MOST_NOTES || bytes > MOST_NOTE_BYTES - vm->note_bytes) {
        mp_stat_add(MP_STAT_DROPPED_NOTES, 1);
        return;
    }
    mp_task *task = mp_task_new(vm, NULL);
    task->era = era == NULL && session != NULL ? mp_session_era(session) : era;
    mp_buf_put(&task->text, method);
    mp_buf_put(&task->text, params);
    task->method_len = method.len;
    vm->notes++;
    vm->note_bytes += bytes;
}

/* Nobody wants it any more. */
static void doom(mp_task *task)
{
    task->cancelled = true;
    if (task->state == MP_TASK_RUNNING)
        return; /* its own sending found out: it is unwound where it waits next */
    mp_link_drop(&task->link);
    task->state = MP_TASK_DOOMED;
    mp_link_put(&task->vm->doomed, &task->link);
}

/* The call is valid for the last time: what closers may ask for is kept. */
static void on_cancel(void *ctx, mp_call *call, const char *why)
{
    (void)ctx; /* the call may be an older VM's */
    (void)why;
    mp_task *task = mp_call_user(call);
    if (task == NULL)
        return;
    mp_str method = mp_call_method(call);
    task->era = mp_call_era(call);
    task->has_session = mp_call_session(call) != NULL;
    mp_buf_put(&task->text, method);
    mp_buf_put(&task->text, mp_principal_id(mp_call_principal(call)));
    task->method_len = method.len;
    mp_task_settle(task);
    doom(task);
}

static const mp_auth_facts *auth(void *ctx)
{
    return &((mp_vm *)ctx)->auth;
}

static void on_entry(void *ctx, mp_entry *entry)
{
    if (mp_entry_is_known(ctx, entry))
        return;
    mp_task *task = mp_task_new(ctx, NULL);
    task->is_note = false;
    task->is_entry = true;
    task->entry = entry;
    mp_entry_set_user(entry, task);
}

static void on_entry_cancel(void *ctx, mp_entry *entry)
{
    (void)ctx;
    mp_task *task = mp_entry_user(entry);
    if (task == NULL)
        return;
    mp_task_settle_entry(task);
    doom(task);
}

const mp_rpc_hooks mp_vm_hooks = {on_call, on_note, on_cancel, auth, on_entry, on_entry_cancel};
