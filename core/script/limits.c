/* limits.c: what a task may use up, of time, memory and output, and what happens where it is more. */
#include "script/lib_json.h"
#include "script/preempt.h"
#include "script/task.h"
#include <lauxlib.h>
#include <stdio.h>

#define STUCK_US 5000   /* what may run where nothing can be left: in functions that C calls */
#define LITTER_CYCLES 2 /* what the running one has seen already, the next one takes */
#define LOOK 1000       /* instructions between looks there */

/* What a task's time is measured by: the clock is at hand; the thread's own time costs a system call. */
static clockid_t clock_of(const mp_task *task)
{
    return task->is_heavy ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

/* Where in a script `L` is; false where none runs, and `at` is any place then. */
static bool find_place(lua_State *L, lua_Debug *at)
{
    mp_str dir = mp_str_of(mp_source_dir(mp_vm_of(L)->source));
    for (int level = 0; lua_getstack(L, level, at) != 0; level++) {
        lua_getinfo(L, "Sl", at);
        if (at->source[0] == '@' && mp_str_starts(mp_str_of(at->source + 1), dir) && at->currentline > 0)
            return true;
    }
    return false;
}

/* The running task is over a limit of its own, at `where`; NULL in a function of C. */
static void call_off(mp_task *task, lua_State *L, lua_Debug *where, const char *why)
{
    mp_stat counter = task->vm->is_over_memory ? MP_STAT_TOOL_MEMORY : MP_STAT_TOOL_CPU;
    lua_Debug place;
    if (where == NULL)
        find_place(L, where = &place);
    else
        lua_getinfo(L, "Sl", where);
    mp_log(MP_WARN, "call over its limit", mp_log_str("method", mp_task_method(task)),
           mp_log_str("why", mp_str_of(why)), mp_log_str("file", mp_str_of(where->short_src)),
           mp_log_int("line", where->currentline));
    task->is_over_memory = false;
    if (task->payer->call != NULL)
        mp_call_abort(task->payer->call, why, counter);
    mp_task_fail_entry(task->payer, 503, "finding out who asks took too much");
    task->cancelled = true;
    if (task->vm->is_over_memory)
        task->vm->litter = LITTER_CYCLES;
}

/* Why the running task, `stretch` us after it was resumed, `stuck` of them in one place that cannot be left, may not go on; NULL
 * if it may. */
static const char *over_limit(const mp_task *task, uint64_t stretch, uint64_t stuck)
{
    if (task->vm->is_over_memory)
        return "the call took more memory than limits.call.memory";
    if (task->payer->spent + stretch >= task->vm->call_us)
        return "the call ran Lua for longer than limits.call.cpu";
    if (stuck >= STUCK_US)
        return "the call ran for too long where it cannot take turns: in a metamethod, or in a function that C calls";
    return NULL;
}

/* Nothing here can be left but by an error, and none is the last: each that is caught is followed by the next. */
static void insist(lua_State *L, const char *why)
{
    mp_preempt_arm(L, 1);
    luaL_error(L, "%s", why);
}

/* What must end by itself has not: with its place in a script, where there is one. */
static void end_guarded(lua_State *L)
{
    lua_Debug at;
    if (!find_place(L, &at))
        insist(L, "this runs for too long");
    mp_preempt_arm(L, 1);
    lua_pushfstring(L, "%s:%d: this runs for too long", at.short_src, at.currentline);
    lua_error(L);
}

/* The running task, which can be left now, will be at once: for others to run, or for good.  */
static void take_off(mp_vm *vm, lua_State *L, lua_Debug *where)
{
    mp_task *task = vm->running;
    vm->stuck_at = 0;
    const char *why = task->cancelled ? NULL : over_limit(task, mp_now_us(clock_of(task)) - vm->clock, 0);
    if (why != NULL)
        call_off(task, L, where, why);
    if (vm->is_full && !task->cancelled)
        task->collecting = LITTER_CYCLES;
    task->preempted = true;
}

bool mp_task_should_turn(lua_State *L)
{
    return lua_gethook(L) != NULL && mp_vm_of(L)->may_wait && lua_isyieldable(L);
}

void mp_task_turn(lua_State *L)
{
    lua_sethook(L, NULL, 0, 0);
    take_off(mp_vm_of(L), L, NULL);
}

void mp_task_hook(lua_State *L, lua_Debug *where)
{
    lua_sethook(L, NULL, 0, 0);
    mp_vm *vm = mp_vm_of(L);
    mp_task *task = vm->running;
    if (vm->is_collecting && vm->guard_until == 0)
        vm->guard_until = mp_now_us(CLOCK_THREAD_CPUTIME_ID) + STUCK_US;
    if (vm->guard_until != 0) { /* a script that loads; closers; finalizers */
        if (mp_now_us(CLOCK_THREAD_CPUTIME_ID) >= vm->guard_until)
            end_guarded(L);
        mp_preempt_arm(L, LOOK);
        return;
    }
    if (task == NULL)
        return;
    if (vm->may_wait && lua_isyieldable(L)) {
        take_off(vm, L, where);
        lua_yield(L, 0);
        return;
    }
    uint64_t cpu = mp_now_us(CLOCK_THREAD_CPUTIME_ID); /* a thread that has to wait is not to blame */
    if (vm->stuck_at == 0)
        vm->stuck_at = cpu;
    const char *why =
        task->cancelled ? NULL : over_limit(task, mp_now_us(clock_of(task)) - vm->clock, cpu - vm->stuck_at);
    if (why != NULL)
        call_off(task, L, where, why);
    if (task->cancelled) {
        insist(L, "the call is off");
    } else {
        mp_preempt_arm(L, LOOK);
    }
}

/* To compare with. */
static int run_unlimited(mp_task *task, int count)
{
    mp_vm *vm = task->vm;
    vm->ceiling = vm->memory;
    vm->running = task;
    vm->may_wait = vm->loop != NULL;
    int status = lua_resume(task->co, vm->L, count, &count);
    vm->may_wait = false;
    vm->running = NULL;
    return status;
}

int mp_task_run(mp_task *task, int count)
{
    mp_vm *vm = task->vm;
    mp_task *payer = task->payer;
    if (!MP_PREEMPT)
        return run_unlimited(task, count);
    if (payer->grown >= vm->call_memory / 2) /* not before: what others made is nothing to it then */
        mp_task_settle_memory(task);
    size_t before = vm->bytes, left = payer->grown < vm->call_memory ? vm->call_memory - payer->grown : 0;
    vm->ceiling = left < vm->memory - before ? before + left : vm->memory;
    vm->denied = 0;
    vm->is_full = false;
    vm->is_over_memory = task->is_over_memory;
    vm->stuck_at = 0;
    bool is_heavy = task->is_heavy;
    if (is_heavy)
        vm->clock = mp_now_us(CLOCK_THREAD_CPUTIME_ID);
    vm->running = task;
    vm->may_wait = vm->loop != NULL;
    lua_State *outer = mp_preempt_enter(task->co);
    if (is_heavy)
        mp_preempt_slice();
    int status = lua_resume(task->co, vm->L, count, &count);
    mp_preempt_leave(outer);
    vm->may_wait = false;
    vm->running = NULL;
    vm->ceiling = vm->memory;
    mp_task_made(task, before);
    if (is_heavy)
        payer->spent += mp_now_us(CLOCK_THREAD_CPUTIME_ID) - vm->clock;
    return status;
}

mp_str mp_refuse_output(const mp_task *task, const char *what, size_t size, char room[MP_REFUSAL])
{
    size_t most = MP_LUA_ENCODE_MOST;
    int len =
        snprintf(room, MP_REFUSAL, "the %s is %s%zu bytes of JSON, more than limits.call.output (%zu): ask for less",
                 what, size > most ? "more than " : "", size > most ? most : size, task->vm->call_output);
    mp_stat_add(MP_STAT_TOOL_OUTPUT, 1);
    mp_log(MP_WARN, "call over its limit", mp_log_str("method", mp_task_method(task)),
           mp_log_str("why", mp_str_of(room)));
    return (mp_str){room, (size_t)len};
}

void mp_task_answer(lua_State *L, mp_task *task, int index)
{
    mp_vm *vm = task->vm;
    size_t size = mp_lua_encode_most(L, index, &vm->out, vm->call_output);
    mp_call *call = task->call;
    if (call == NULL)
        return; /* a finalizer ran, sent, and found the client gone */
    if (size > vm->call_output) {
        char room[MP_REFUSAL];
        mp_task_fail(task, -32603, mp_refuse_output(task, "result", size, room), MP_STR_NONE);
        return;
    }
    mp_task_settle(task);
    mp_call_answer(call, mp_buf_str(&vm->out));
}

void mp_task_answer_error(lua_State *L, mp_task *task, int error)
{
    if (!lua_istable(L, error))
        luaL_error(L, "dispatch gave neither a result nor an error");
    mp_buf *out = &task->vm->out;
    lua_getfield(L, error, "code");
    lua_getfield(L, error, "message");
    lua_getfield(L, error, "data");
    if (!lua_isinteger(L, -3) || lua_type(L, -2) != LUA_TSTRING)
        luaL_error(L, "dispatch gave an error without code and message");
    int code = (int)lua_tointeger(L, -3), data = lua_gettop(L);
    mp_str message;
    message.ptr = lua_tolstring(L, -2, &message.len);
    size_t most = task->vm->call_output, size = mp_lua_encode_most(L, data - 1, out, most);
    out->len = 0;
    if (!lua_isnil(L, data))
        size += mp_lua_encode_most(L, data, out, most);
    char room[MP_REFUSAL];
    if (size > most && task->call != NULL)
        mp_task_fail(task, -32603, mp_refuse_output(task, "error", size, room), MP_STR_NONE);
    else
        mp_task_fail(task, code, message, mp_buf_str(out));
}

void mp_vm_end(mp_vm *vm)
{
    for (mp_task *task = vm->all, *next; task != NULL; task = next) {
        next = task->next;
        if (task->call != NULL) {
            mp_call_abort(task->call, "the scripts it runs on were replaced a while ago", MP_STAT_TOOL_RELOAD);
        } else if (task->state != MP_TASK_IDLE && task->state != MP_TASK_DOOMED && task->group == NULL) {
            task->cancelled = true;
            task->state = MP_TASK_DOOMED;
            mp_link_drop(&task->link);
            mp_link_put(&vm->doomed, &task->link);
        }
    }
}
