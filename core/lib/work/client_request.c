/* client_request.c: reads headers of a call's HTTP request, sets deadlines, and sends JSON-RPC requests to the call's
 * client. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/work/call.h"
#include "lib/signal.h"
#include "lib/spans.h"
#include <lauxlib.h>
#include <math.h>

MP_REFUSED(refused_questions, "questions", MP_FAULT,
           "questions of upstreams above 8 of one call, or 32 to one principal in a minute")

/* -- the request ------------------------------------------------------------------------------------------------- */

/* call.header(call, name): the value of an HTTP header and how many headers have that name (in lower case). Nil and 0
 * if there is none; nil and nil if the call has no HTTP request any more.  [-0, +2, throws] */
static int l_header(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    const char *name = luaL_checkstring(L, 2);
    int count = -1;
    mp_str value = task->call == NULL ? MP_STR_NONE : mp_call_header(task->call, name, &count);
    if (value.ptr == NULL)
        lua_pushnil(L);
    else
        lua_pushlstring(L, mp_str_trim(value).ptr, mp_str_trim(value).len);
    if (count < 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, count);
    return 2;
}

/* call.set_deadline(call, seconds): shortens the time limit of the call to `seconds`.  [-0, +0, throws] */
static int l_deadline(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    double seconds = luaL_checknumber(L, 2);
    luaL_argcheck(L, seconds > 0 && seconds < 1e9, 2, "seconds must be above 0");
    if (task->call != NULL)
        mp_call_within(task->call, (uint64_t)ceil(seconds * 1000));
    return 0;
}

/* call.allow_cpu(call, seconds): the call may run Lua for so much longer than limits.call.cpu, the upvalue in seconds;
 * for as long again at most.  [-0, +0, throws] */
static int l_allow_cpu(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    double seconds = luaL_checknumber(L, 2);
    luaL_argcheck(L, seconds >= 0, 2, "seconds must be 0 or above");
    task->super.more_us = (uint64_t)(fmin(seconds, lua_tonumber(L, lua_upvalueindex(1))) * 1e6);
    return 0;
}

/* call.detach(call, milliseconds): closes the client's connection while the call continues. `milliseconds`: when the
 * client should reconnect.
 * False if the client could not resume the stream.
 *  [-0, +1, throws] */
static int l_detach(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    double ms = luaL_checknumber(L, 2);
    luaL_argcheck(L, ms >= 0 && ms < 1e9, 2, "milliseconds must be 0 or more");
    lua_pushboolean(L, task->call != NULL && mp_call_detach(task->call, (uint64_t)ceil(ms)));
    return 1;
}

/* -- requests to the
 * client-------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_op super;
    mp_call_handle call; /* the call on whose stream the request was sent; the task that waits may be another one's */
    mp_client_request *MP_NULLABLE ask; /* the request in flight; NULL once it is push_client_answer */
    char *MP_NULLABLE answer;           /* JSON of the client's result or error; freed by __gc */
    size_t len;
    bool is_error;
    mp_open_span span;
} ask_op;

#define ASK "moonpool.ask"

/* Begins the span of a request to the client.  [-0, +0, throws] */
static mp_open_span begin_span(lua_State *L, mp_str method)
{
    mp_open_span span = mp_task_span_open(mp_lib_task_running(L), MP_SPAN_CLIENT, method);
    mp_span_text(mp_open_span_trace(&span), span.span, "mcp.method.name", method);
    return span;
}

static void end_span(mp_open_span *span, bool has_failed)
{
    if (has_failed)
        mp_open_span_fail(span, "_OTHER", MP_STR_NONE);
    mp_open_span_close(span);
}

static int ask_gc(lua_State *L)
{
    ask_op *op = lua_touserdata(L, 1);
    free(op->answer);
    op->answer = NULL;
    return 0;
}

static void ask_done(void *ctx, bool is_error, mp_str answer)
{
    ask_op *op = ctx;
    end_span(&op->span, is_error);
    op->ask = NULL;
    op->is_error = is_error;
    op->answer = mp_dup(answer);
    op->len = answer.len;
    mp_op_done(&op->super);
}

/* The call of the handle; NULL: it has ended. */
static mp_call *MP_NULLABLE call_of(const mp_call_handle *it)
{
    return it->serial == it->task->super.serial ? it->task->call : NULL;
}

/* The task that waits is cancelled. The call may go on; if it has ended, the rpc frees its requests to the client
 * itself. */
static void ask_cancel(mp_op *op)
{
    ask_op *it = mp_container(op, ask_op, super);
    mp_call *call = call_of(&it->call);
    if (it->ask != NULL && call != NULL)
        mp_call_withdraw_one(call, mp_client_request_serial(it->ask));
    it->ask = NULL;
    end_span(&it->span, true);
}

/* Pushes the client's answer: its result; or nil and its error, { code, message, data }.  [-0, +1|2, throws] */
static int push_client_answer(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    ask_op *op = (ask_op *)context;
    if (op->is_error)
        lua_pushnil(L);
    mp_json_fault fault;
    if (mp_lua_decode_checked(L, (mp_str){op->answer, op->len}, MP_LUA_EXACT, &fault) != 0)
        return luaL_error(L, "the client's answer is not valid JSON: %s", fault.what);
    return op->is_error ? 2 : 1;
}

/* call.ask(call, method, params): sends a JSON-RPC request to the client on the call's stream, and waits for the
 * answer. False if the stream is closed.
 *  [-0, +1|2, throws, parks] */
static int l_ask(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    mp_str method;
    method.ptr = luaL_checklstring(L, 2, &method.len);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    ask_op *op = mp_op_new(L, sizeof *op, ask_cancel);
    luaL_setmetatable(L, ASK);
    op->call = (mp_call_handle){.task = task, .serial = task->super.serial};
    mp_state *state = mp_state_of(task->super.vm);
    mp_buf *out = &state->out;
    size_t start = out->len;
    mp_encode_out(L, state, 3);
    mp_check_size(L, state, start);
    op->span = begin_span(L, method);
    if (task->call != NULL)
        op->ask = mp_call_ask(task->call, method, mp_str_from(mp_buf_str(out), start), ask_done, op);
    out->len = start;
    if (op->ask == NULL) {
        end_span(&op->span, true);
        lua_pushboolean(L, 0);
        return 1;
    }
    return mp_op_park_then(L, &op->super, push_client_answer, (lua_KContext)op);
}

/* -- requests that a task need not wait for ------------------------------------------------------------------------ */

#define QUESTION "moonpool.question"

/* A request to the client whose answer sets a signal. Its user value is the signal. */
typedef struct {
    mp_resource resource;
    mp_call_handle call;
    bool is_open; /* the client has not answered, and the request was not withdrawn */
    uint64_t serial;
    void *signal;
    char *MP_NULLABLE answer; /* JSON of the client's result or error; NULL before */
    size_t len;
    bool is_error;
    mp_open_span span;
} question;

static void withdraw_question(question *it)
{
    if (!it->is_open)
        return;
    it->is_open = false;
    end_span(&it->span, true);
    mp_call *call = call_of(&it->call);
    if (call != NULL)
        mp_call_withdraw_one(call, it->serial);
}

static void on_question_release(mp_resource *resource)
{
    withdraw_question(mp_container(resource, question, resource));
}

static int question_gc(lua_State *L)
{
    question *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    withdraw_question(it);
    free(it->answer);
    it->answer = NULL;
    return 0;
}

static void on_question_answered(void *ctx, bool is_error, mp_str answer)
{
    question *it = ctx;
    end_span(&it->span, is_error);
    it->is_open = false;
    it->is_error = is_error;
    it->answer = mp_dup(answer);
    it->len = answer.len;
    mp_signal_set(it->signal);
}

/* call.question(call, method, params, signal): sends a JSON-RPC request to the client on the call's stream, and does
 * not wait. The answer sets the signal. False if the stream is closed. The request is withdrawn when the task ends.
 * [-0, +1, throws] */
static int l_question(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    mp_str method;
    method.ptr = luaL_checklstring(L, 2, &method.len);
    luaL_checktype(L, 3, LUA_TTABLE);
    void *signal = mp_check_signal(L, 4);
    lua_settop(L, 4);
    question *it = lua_newuserdatauv(L, sizeof *it, 1);
    *it = (question){.call = {.task = task, .serial = task->super.serial}, .signal = signal};
    luaL_setmetatable(L, QUESTION);
    lua_pushvalue(L, 4);
    lua_setiuservalue(L, 5, 1);
    mp_state *state = mp_state_of(task->super.vm);
    mp_buf *out = &state->out;
    size_t start = out->len;
    mp_encode_out(L, state, 3);
    mp_check_size(L, state, start);
    mp_client_request *sent = task->call == NULL ? NULL
                                                 : mp_call_ask(task->call, method, mp_str_from(mp_buf_str(out), start),
                                                               on_question_answered, it);
    out->len = start;
    if (sent == NULL) {
        lua_pushboolean(L, 0);
        return 1;
    }
    it->is_open = true;
    it->span = begin_span(L, method);
    it->serial = mp_client_request_serial(sent);
    mp_resource_put(L, &it->resource, on_question_release);
    return 1;
}

/* question:answer(): JSON of the client's result, or of its error and true; nothing before it has answered.  [-0,
 * +0|1|2, throws] */
static int l_answer(lua_State *L)
{
    const question *it = luaL_checkudata(L, 1, QUESTION);
    if (it->answer == NULL)
        return 0;
    lua_pushlstring(L, it->answer, it->len);
    lua_pushboolean(L, it->is_error);
    return 2;
}

/* question:withdraw_question(), __close: notifies the client that it need not answer any more.  [-0, +0, throws] */
static int l_withdraw_question(lua_State *L)
{
    withdraw_question(luaL_checkudata(L, 1, QUESTION));
    return 0;
}

static void add_question(lua_State *L)
{
    static const luaL_Reg methods[] = {{"answer", l_answer}, {"withdraw", l_withdraw_question}, {NULL, NULL}};
    mp_push_metatable(L, QUESTION, question_gc);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

/* call.withdraw(call): cancels the call's requests to the client that are in flight. A task that waits for one receives
 * nil and an error.
 *  [-0, +0, throws] */
static int l_withdraw(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    if (task->call != NULL)
        mp_call_withdraw(task->call);
    return 0;
}

/* call.count_question(): counts a question of an upstream that was refused because of its rate.  [-0, +0] */
static int l_count_question(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_refused_questions, 1);
    return 0;
}

MP_LIBRARY(client_request)
{
    static const luaL_Reg functions[] = {{"call.header", l_header},
                                         {"call.set_deadline", l_deadline},
                                         {"call.ask", l_ask},
                                         {"call.withdraw", l_withdraw},
                                         {"call.detach", l_detach},
                                         {"call.question", l_question},
                                         {"call.count_question", l_count_question},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
    lua_pushnumber(L, (double)config->vm.call_cpu_ms / 1000);
    lua_pushcclosure(L, l_allow_cpu, 1);
    mp_set_member(L, -2, "call.allow_cpu");
    luaL_newmetatable(L, ASK);
    mp_field_function(L, "__gc", ask_gc);
    lua_pop(L, 1);
    add_question(L);
}
