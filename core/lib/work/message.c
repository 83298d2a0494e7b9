/* message.c: the body of the coroutine of a client's request or notification: it decodes the params, calls the library
 * in Lua and encodes the result. */
#include "lib/shortcut/forward.h"
#include "lib/shortcut/plan.h"
#include "rpc/observe.h"
#include "vm/engine.h"

/* A call that waited too long is refused only if at least this number of tasks waits behind it. With fewer, the machine
 * was suspended, and refusing would help no client. */
#define CROWD 8

/* A call that was answered on the way (mp_call_open_session) or cancelled gets no answer. */
int mp_call_done(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    if (task->call == NULL)
        return 0;
    return lua_isnil(L, 2) ? mp_task_answer_error(L, task, 3) : mp_task_answer(L, task, 2);
}

/* Continues a call after its params were decoded; nil: it has none.  [-1, +0, throws, parks] */
static int call_decoded(lua_State *L, void *ctx, const char *MP_NULLABLE repeated)
{
    mp_lib_task *task = ctx;
    if (task->call == NULL)
        return 0; /* cancelled while the params were decoded */
    if (repeated != NULL) {
        mp_task_fail(task, MP_CODE_INVALID_PARAMS, MP_STR("Invalid params: an object repeats a key"), MP_STR_NONE);
        return 0;
    }
    mp_phase_set(MP_PHASE_HANDLER);
    const mp_era *era = mp_call_era(task->call);
    const mp_lib *lib = mp_lib_of_vm(task->super.vm);
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->is_recorded ? lib->record : lib->dispatch);
    mp_call_push(L, task, 2);
    lua_rotate(L, 2, -1); /* the stack is: dispatch, call, params */
    lua_pushstring(L, era == NULL ? NULL : era->date);
    mp_str method = mp_task_label(&task->super);
    lua_pushlstring(L, method.ptr, method.len);
    lua_callk(L, 4, 2, (lua_KContext)task, mp_call_done);
    return mp_call_done(L, LUA_OK, (lua_KContext)task);
}

/* Refuses a call whose decoded params would not fit in limits.call.memory, before they are decoded. */
static void refuse_large_params(mp_lib_task *task, const mp_call *call)
{
    char text[MP_REFUSAL];
    int len =
        snprintf(text, sizeof text,
                 "the message would take %zu bytes of memory, more than limits.call.memory (%zu): send less at once",
                 mp_call_weight(call), mp_state_of(task->super.vm)->call_memory);
    mp_stat_add(&mp_stat_tool_memory, 1);
    mp_log(MP_WARN, "call over its limit", mp_log_str("method", mp_task_label(&task->super)),
           mp_log_str("why", (mp_str){text, (size_t)len}));
    mp_task_fail(task, MP_CODE_INVALID_PARAMS, (mp_str){text, (size_t)len}, MP_STR_NONE);
}

/* Decode, dispatch(call, params, revision, method), encode. */
int mp_run_call_in_lua(lua_State *L, mp_lib_task *task, const mp_call *call)
{
    mp_str params = mp_call_params(call);
    mp_phase_set(MP_PHASE_DECODE);
    if (params.len > 0)
        return mp_lua_decode_in_turns(L, params, MP_LUA_EXACT, call_decoded, task);
    lua_pushnil(L);
    return call_decoded(L, task, NULL);
}

/* True if the recorder is to see the call. The library in Lua alone knows the names of some tools. */
static bool is_wanted(const mp_call *call)
{
    mp_str tool = mp_call_tool(call);
    return mp_str_is(mp_call_method(call), "tools/call") && (tool.len == 0 || mp_record_wants(tool));
}

/* The body of a call's coroutine.  [-1, +0, throws, parks] */
int mp_run_call(lua_State *L)
{
    mp_lib_task *task = lua_touserdata(L, 1);
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled while its coroutine was created */
    if (mp_call_is_late(call, mp_state_of(task->super.vm)->began_us) && mp_state_of(task->super.vm)->waiting >= CROWD) {
        mp_task_pass_turn(&task->super);
        mp_task_settle(task);
        mp_call_refuse_late(call);
        return 0;
    }
    if (mp_call_weight(call) > mp_state_of(task->super.vm)->call_memory) {
        refuse_large_params(task, call);
        return 0;
    }
    if (mp_record_is_on() && is_wanted(call)) {
        task->is_recorded = true;
        return mp_run_call_in_lua(L, task, call); /* a call plan would not pass the recorder */
    }
    mp_phase_set(MP_PHASE_VALIDATE);
    int count;
    mp_plain it;
    bool is_plain = mp_shortcut_ask_of_tool(mp_lib_of_vm(task->super.vm), call, &it) == MP_PLAIN;
    if (is_plain && mp_plan_run(L, task, &it, &count) == MP_PLAIN)
        return count;
    mp_phase_set(MP_PHASE_HANDLER);
    if (is_plain && mp_forward_run(L, task, &it, &count) == MP_PLAIN)
        return count;
    return mp_run_call_in_lua(L, task, call);
}

static int note_done(MP_UNUSED lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    return 0;
}

/* Continues a notification after its params were decoded; nil: it has none.  [-1, +0, throws, parks] */
static int note_decoded(lua_State *L, void *ctx, const char *MP_NULLABLE repeated)
{
    mp_lib_task *task = ctx;
    if (repeated != NULL)
        return 0; /* a notification has no answer */
    mp_phase_set(MP_PHASE_HANDLER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_lib_of_vm(task->super.vm)->note);
    lua_insert(L, 2);
    lua_pushlstring(L, task->text.ptr, task->method_len);
    lua_insert(L, 3); /* the stack is: note, method, params */
    if (task->era != NULL)
        lua_pushstring(L, task->era->date);
    else
        lua_pushnil(L);
    if (task->params.len > 0)
        lua_pushlstring(L, task->params.ptr, task->params.len);
    else
        lua_pushnil(L);
    lua_callk(L, 4, 0, 0, note_done);
    return 0;
}

/* The body of a notification's coroutine: note(method, params, revision, id of the session).  [-1, +0, throws,
 * parks] */
int mp_run_note(lua_State *L)
{
    mp_lib_task *task = lua_touserdata(L, 1);
    mp_str params = mp_str_from(mp_buf_str(&task->text), task->method_len);
    mp_phase_set(MP_PHASE_DECODE);
    if (params.len > 0)
        return mp_lua_decode_in_turns(L, params, MP_LUA_PLAIN, note_decoded, task);
    lua_pushnil(L);
    return note_decoded(L, task, NULL);
}
