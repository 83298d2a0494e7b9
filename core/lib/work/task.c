/* task.c: the tasks of this module: a task of the engine, with the call or request that it works for. */
#include "lib/bindings.h"
#include <lauxlib.h>

mp_lib_task *mp_lib_task_new(mp_vm *vm, const mp_work *work, unsigned share)
{
    mp_lib_task *task = mp_container(mp_task_new(vm, work, share), mp_lib_task, super);
    task->call = NULL;
    task->entry = NULL;
    task->mark = 0;
    task->era = NULL;
    task->id = NULL;
    task->job = LUA_NOREF;
    task->span = MP_ROOT_SPAN;
    task->has_session = task->has_plan = task->has_progress = task->has_succeeded = false;
    task->progress = 0;
    task->scheduled = NULL;
    task->group = NULL;
    mp_link_init(&task->member);
    task->place = task->members = 0;
    task->method_len = 0;
    return task;
}

mp_lib_task *mp_lib_task_start(mp_vm *vm, const mp_work *work, mp_call *call)
{
    mp_lib_task *task = mp_lib_task_new(vm, work, mp_call_share(call));
    task->call = call;
    task->super.is_gentle = mp_call_is_hidden(call);
    mp_call_set_user(call, task);
    return task;
}

mp_call *MP_NULLABLE mp_task_settle(mp_lib_task *task)
{
    mp_call *call = task->call;
    if (call == NULL)
        return NULL;
    mp_call_set_user(call, NULL);
    task->mark = mp_call_known_mark(call);
    task->call = NULL;
    return call;
}

mp_authn *MP_NULLABLE mp_task_settle_entry(mp_lib_task *task)
{
    mp_authn *entry = task->entry;
    task->entry = NULL;
    if (entry != NULL)
        mp_authn_set_user(entry, NULL);
    return entry;
}

void mp_task_fail(mp_lib_task *task, int code, mp_str message, mp_str data)
{
    mp_call *call = mp_task_settle(task);
    if (call != NULL)
        mp_call_fail(call, code, message, data);
}

void mp_lib_running_marks(mp_marks *marks)
{
    mp_task *running = mp_task_running_here();
    if (running == NULL)
        return;
    mp_lib_task *task = mp_container(running->payer, mp_lib_task, super);
    if (task->call == NULL) {
        marks->call = task->entry != NULL ? mp_stream_mark(mp_authn_stream(task->entry)) : task->mark;
        return;
    }
    marks->call = mp_call_mark(task->call);
    if (mp_call_trace(task->call) != NULL)
        mp_trace_put_id(mp_call_trace(task->call), marks->trace);
}

void mp_lib_put_work(void)
{
    mp_marks marks = {0};
    const mp_task *running = mp_task_running_here();
    if (running != NULL) {
        mp_lib_running_marks(&marks);
        mp_str method = mp_task_label(running->payer);
        mp_crash_put("method", method);
        if (marks.call != 0)
            mp_crash_put("call", mp_str_of(mp_mark_text_of(marks.call).text));
        if (marks.trace[0] != '\0')
            mp_crash_put("trace_id", mp_str_of(marks.trace));
        /* the URI of a resource may have arguments */
        bool has_name = mp_str_is(method, "tools/call") || mp_str_is(method, "prompts/get");
        if (has_name && running->payer->work->subject != NULL)
            mp_crash_put("name", running->payer->work->subject(running->payer));
    }
    int line;
    mp_str file = mp_vm_running_place(&line);
    if (file.len > 0)
        mp_crash_put_place("at", file, line);
}

mp_str mp_task_principal(const mp_lib_task *task)
{
    task = mp_container(task->super.payer, mp_lib_task, super);
    if (task->call != NULL)
        return mp_principal_id(mp_call_principal(task->call));
    return mp_str_from(mp_buf_str(&task->text), task->method_len);
}

void mp_task_forget_job(lua_State *L, mp_lib_task *task)
{
    luaL_unref(L, LUA_REGISTRYINDEX, task->job); /* frees a slot of the registry, so it allocates nothing */
    task->job = LUA_NOREF;
}
