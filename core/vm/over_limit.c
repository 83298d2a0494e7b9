/* over_limit.c: which limit a task exceeds, and how that is reported. */
#include "vm/schedule.h"

MP_COUNTER(tool_cpu, "tool_aborted", "reason", "cpu", "calls over limits.call.cpu")
MP_REFUSED(refused_lua_memory, "lua_memory", MP_LIMIT_REACHED, "calls that needed memory above limits.lua_memory")
MP_COUNTER(tool_memory, "tool_aborted", "reason", "memory", "calls over limits.call.memory")

const char *MP_NULLABLE mp_task_over_limit(const mp_task *task, uint64_t stretch, uint64_t stuck)
{
    if (task->vm->memory.is_over)
        return task->vm->memory.is_crowded ? MP_TASK_CROWDED : "the call took more memory than limits.call.memory";
    if (mp_own(task->payer)->spent_us + stretch >= task->vm->call_us + task->payer->more_us)
        return "the call ran Lua for longer than limits.call.cpu";
    if (stuck >= MP_STUCK_US)
        return "the call ran too long where it cannot be suspended: in a metamethod, or in a function that C calls";
    return NULL;
}

void mp_task_cancel_over_limit(mp_task *task, lua_State *L, lua_Debug *MP_NULLABLE where, const char *why)
{
    const mp_stat *counter = !task->vm->memory.is_over     ? &mp_stat_tool_cpu
                             : task->vm->memory.is_crowded ? &mp_stat_refused_lua_memory
                                                           : &mp_stat_tool_memory;
    lua_Debug place;
    bool has_place = true;
    if (where == NULL)
        has_place = mp_vm_find_place(L, where = &place);
    else
        lua_getinfo(L, "Sl", where);
    mp_log_field method = mp_log_str("method", mp_task_label(task)), text = mp_log_str("why", mp_str_of(why));
    if (has_place)
        mp_log(MP_WARN, "call over its limit", method, text, mp_log_str("file", mp_str_of(where->short_src)),
               mp_log_int("line", where->currentline));
    else
        mp_log(MP_WARN, "call over its limit", method, text);
    mp_own(task)->is_over_memory = false;
    if (task->payer->work->over_limit != NULL)
        task->payer->work->over_limit(task->payer, why, counter);
    task->cancelled = true;
    if (!task->vm->memory.is_over)
        return;
    mp_task_dies(task);
    task->vm->state.full_cycles = MP_FULL_CYCLES;
}

bool mp_task_lacked_memory(lua_State *L, mp_task *task, int status)
{
    if (status != LUA_ERRMEM || !task->vm->memory.is_over || task->cancelled)
        return false;
    const char *why = mp_task_over_limit(task, 0, 0);
    if (why != NULL)
        mp_task_cancel_over_limit(task, L, NULL, why);
    return true;
}
