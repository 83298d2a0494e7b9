/* work.c: the kinds of work (mp_work) that tasks of the engine do: calls, notifications, requests to authenticate,
 * detached and scheduled calls, members of a group. */
#include "lib/bindings.h"
#include "lib/shortcut/audit_line.h"
#include "lib/work/cron.h"
#include <lauxlib.h>

#define MAX_SUBJECT_PARAMS ((size_t)16 << 10) /* longer params are not scanned for the name in them */

/* -- calls ------------------------------------------------------------------------------------------------------- */

static mp_lib_task *lib_task(mp_task *task)
{
    return mp_container(task, mp_lib_task, super);
}

/* The call's task waits for the first time: starts the call's time limit, and watches for the client to disconnect. */
static void park_call(mp_task *super, MP_UNUSED bool waits)
{
    mp_lib_task *task = lib_task(super);
    if (task->call == NULL)
        return;
    super->was_parked = true;
    mp_call_park(task->call);
}

static void fail_call(mp_task *super)
{
    mp_task_fail(lib_task(super), MP_CODE_INTERNAL, MP_STR("internal error"), MP_STR_NONE);
}

static void abort_call(mp_task *super, const char *why, const mp_stat *counter)
{
    mp_lib_task *task = lib_task(super);
    if (task->call != NULL && counter == &mp_stat_refused_lua_memory)
        mp_call_refuse_crowded(task->call, why, counter);
    else if (task->call != NULL)
        mp_call_abort(task->call, why, counter);
}

/* The method that the task copied from its notification or cancelled call. */
static mp_str copied_label(const mp_task *super)
{
    const mp_lib_task *task = mp_container(super, mp_lib_task, super);
    return (mp_str){task->text.ptr, task->method_len};
}

static mp_str call_label(const mp_task *super)
{
    const mp_lib_task *task = mp_container(super, mp_lib_task, super);
    return task->call != NULL ? mp_call_method(task->call) : copied_label(super);
}

static int see_subject(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *found = ctx;
    if (level == 1 && type == MP_JSON_STRING && (mp_str_is(key, "name") || mp_str_is(key, "uri")))
        *found = (mp_str){value.ptr + 1, value.len - 2};
    return 0;
}

/* Tools, prompts and resources have names without escapes. */
static mp_str call_subject(const mp_task *super)
{
    const mp_call *call = mp_container(super, mp_lib_task, super)->call;
    mp_str found = call == NULL ? MP_STR_NONE : mp_call_tool(call);
    if (call == NULL || found.len > 0 || mp_call_params(call).len == 0 || mp_call_params(call).len > MAX_SUBJECT_PARAMS)
        return found;
    mp_json_scan(mp_call_params(call), &(mp_json_visitor){.member = see_subject, .ctx = &found}, NULL, NULL);
    return found;
}

static void end_call(mp_task *super)
{
    mp_lib_task *task = lib_task(super);
    if (task->call != NULL) {
        mp_log(MP_ERROR, "task ended without an answer", mp_log_str("method", call_label(super)));
        fail_call(super);
    }
    if (task->job != LUA_NOREF)
        mp_task_forget_job(mp_state_of(super->vm)->L, task);
    if (mp_audit_is_begun(&task->audit)) /* the handler did not end by itself */
        mp_audit_end(&task->audit, &(mp_audit_outcome){.outcome = "cancelled"});
    mp_buf_clear(&task->text);
    mp_buf_clear(&task->params);
}

static void end_scheduled(mp_task *super)
{
    mp_lib_task *task = lib_task(super);
    end_call(super);
    if (task->scheduled != NULL)
        mp_cron_ended(task->scheduled);
}

/* Ends a detached call, also one that was cancelled, failed or never began, and notifies all Lua states of its end. */
static void end_detached(mp_task *super)
{
    mp_lib_task *task = lib_task(super);
    end_call(super);
    if (task->id == NULL)
        return;
    mp_bus_broadcast(mp_state_of(super->vm)->bus, MP_STR("ended"), mp_str_of(task->id));
    free(task->id);
    task->id = NULL;
}

const mp_work mp_call_work = {"call",     mp_run_call,  park_call, fail_call, abort_call,
                              call_label, call_subject, end_call,  false};
const mp_work mp_detached_work = {"detached", mp_run_job,   park_call,    fail_call, abort_call,
                                  call_label, call_subject, end_detached, false};
const mp_work mp_cron_work = {"cron", mp_run_scheduled, park_call, fail_call, abort_call, call_label,
                              NULL,   end_scheduled,    false};

/* -- notifications ----------------------------------------------------------------------------------------------- */

static void end_note(mp_task *super)
{
    mp_lib_task *task = lib_task(super);
    mp_lib *lib = mp_lib_of_vm(super->vm);
    lib->notes--;
    lib->note_bytes -= task->text.len;
    mp_buf_clear(&task->text);
    mp_buf_clear(&task->params);
}

const mp_work mp_note_work = {.name = "note", .run = mp_run_note, .label = copied_label, .end = end_note};

/* -- authentication ---------------------------------------------------------------------------------------------- */

static void park_authn(mp_task *super, bool waits)
{
    mp_lib_task *task = lib_task(super);
    if (task->entry == NULL || !waits)
        return;
    super->was_parked = true;
    mp_authn_park(task->entry);
}

static void refuse_authn(mp_task *super, int status, const char *why)
{
    mp_authn *entry = mp_task_settle_entry(lib_task(super));
    if (entry != NULL)
        mp_authn_refuse(entry, &(mp_refusal){.status = status, .message = mp_str_of(why)});
}

static void fail_authn(mp_task *super)
{
    refuse_authn(super, 500, "internal error");
}

static void limit_authn(mp_task *super, const char *why, const mp_stat *counter)
{
    bool is_crowded = counter == &mp_stat_refused_lua_memory;
    if (is_crowded)
        mp_stat_add(counter, 1);
    refuse_authn(super, 503, is_crowded ? why : "authentication took too much processor time or memory");
}

static mp_str authn_label(MP_UNUSED const mp_task *super)
{
    return MP_STR("auth");
}

static void end_authn(mp_task *super)
{
    if (lib_task(super)->entry == NULL)
        return;
    mp_log(MP_ERROR, "task ended without an answer", mp_log_str("method", MP_STR("auth")));
    fail_authn(super);
}

const mp_work mp_authn_work = {"auth",      mp_run_entry, park_authn, fail_authn, limit_authn,
                               authn_label, NULL,         end_authn,  true};

/* -- members of a group ------------------------------------------------------------------------------------------ */

static void end_member(mp_task *super)
{
    mp_group_leave(lib_task(super));
}

/* The task that started the group has the call, so the engine reports a member's exceeded limit there. */
const mp_work mp_member_work = {.name = "member", .run = mp_run_member, .label = copied_label, .end = end_member};
