/* hooks.c: the callbacks of a worker's rpc into its VM. They create or cancel tasks; none of them runs Lua. */
#include "lib/bindings.h"
#include "lib/shortcut/frozen_answer.h"
#include "lib/principal.h"

MP_COUNTER(dropped_notes, "dropped", "reason", "notes",
           "notifications of clients that were dropped because the queue of a Lua state was full")

#define MAX_NOTES 1024 /* notifications that are queued or running in one VM */
#define MAX_NOTE_BYTES ((size_t)8 << 20)

static void on_call(void *ctx, mp_call *call)
{
    if (mp_call_tool(call).len > 0 || mp_frozen_answer(mp_lib_of_vm(ctx), call) != MP_PLAIN)
        mp_lib_task_start(ctx, &mp_call_work, call);
}

static void on_note(void *ctx, const mp_era *MP_NULLABLE era, mp_session *MP_NULLABLE session, mp_str method,
                    mp_str params, unsigned share)
{
    mp_lib *lib = mp_lib_of_vm(ctx);
    size_t bytes = method.len + params.len;
    if (lib->notes >= MAX_NOTES || bytes > MAX_NOTE_BYTES - lib->note_bytes) {
        mp_stat_add(&mp_stat_dropped_notes, 1);
        return;
    }
    mp_lib_task *task = mp_lib_task_new(ctx, &mp_note_work, share);
    task->era = era == NULL && session != NULL ? mp_session_era(session) : era;
    mp_buf_put(&task->text, method);
    mp_buf_put(&task->text, params);
    task->method_len = method.len;
    if (session != NULL)
        mp_buf_put(&task->params, mp_session_id(session));
    lib->notes++;
    lib->note_bytes += bytes;
}

/* The call is freed after this function returns. The task copies the fields that its `<close>` handlers may read. */
static void on_cancel(void *ctx, mp_call *call, MP_UNUSED const char *why)
{
    (void)ctx; /* the call may belong to the VM of an older generation */
    mp_lib_task *task = mp_call_user(call);
    if (task == NULL)
        return;
    mp_str method = mp_call_method(call);
    task->era = mp_call_era(call);
    task->has_session = mp_call_session(call) != NULL;
    mp_buf_put(&task->text, method);
    mp_buf_put(&task->text, mp_principal_id(mp_call_principal(call)));
    task->method_len = method.len;
    if (task->has_plan)
        mp_buf_put(&task->params, mp_call_params(call));
    mp_call_mark(call); /* marks the lines that its `<close>` handlers log */
    mp_task_settle(task);
    mp_task_cancel(&task->super);
}

static const mp_auth_facts *auth_facts(void *ctx)
{
    return &mp_lib_of_vm(ctx)->auth;
}

static void on_entry(void *ctx, mp_authn *entry, unsigned share)
{
    if (!mp_authn_is_page(entry) && mp_authn_packed(entry).len == 0 && mp_authn_is_known(ctx, entry))
        return;
    mp_lib_task *task = mp_lib_task_new(ctx, &mp_authn_work, share);
    task->entry = entry;
    mp_authn_set_user(entry, task);
}

static void put_principal(void *ctx, const mp_principal *principal, mp_buf *out)
{
    mp_principal_put_packed(ctx, principal, out);
}

static size_t find_ahead(void *ctx, unsigned share, bool *is_alone, bool *has_credit)
{
    return mp_vm_ahead(ctx, share, is_alone, has_credit);
}

static bool on_message(void *ctx, bool is_switch, mp_str text)
{
    mp_vm *vm = ctx;
    if (!is_switch)
        return mp_bus_broadcast(mp_state_of(vm)->bus, MP_STR("task_message"), text);
    mp_vm_bus_deliver(vm, MP_STR("node_message"), text);
    return true;
}

static void on_entry_cancel(MP_UNUSED void *ctx, mp_authn *entry)
{
    mp_lib_task *task = mp_authn_user(entry);
    if (task == NULL)
        return;
    mp_task_settle_entry(task);
    mp_task_cancel(&task->super);
}

const mp_rpc_hooks mp_lib_hooks = {on_call,       on_note,    on_cancel,       auth_facts, on_entry,
                                   put_principal, on_message, on_entry_cancel, find_ahead};
