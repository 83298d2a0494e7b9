/* client_request.c: reads headers of a call's HTTP request, sets deadlines, and sends JSON-RPC requests to the call's client. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "vm/engine.h"
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>

/* -- the request ------------------------------------------------------------------------------------------------- */

/* call.header(call, name): the value of an HTTP header and how many headers have that name (in lower case). Nil and 0 if there is none; nil
 * and nil if the call has no HTTP request any more.  [-0, +2, throws] */
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

/* call.detach(call, milliseconds): closes the client's connection while the call continues. `milliseconds`: when the client should reconnect.
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

/* -- requests to the client-------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_op super;
    mp_client_request *ask; /* the request in flight; NULL once it is push_client_answer */
    char *answer;           /* JSON of the client's result or error; freed by __gc */
    size_t len;
    bool is_error;
} ask_op;

#define ASK "moonpool.ask"

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
    op->ask = NULL;
    op->is_error = is_error;
    op->answer = mp_dup(answer);
    op->len = answer.len;
    mp_op_done(&op->super);
}

static void ask_cancel(mp_op *op)
{
    /* the call ended, and rpc freed its requests to the client */
    mp_container(op, ask_op, super)->ask = NULL;
}

/* Pushes the client's answer: its result; or nil and its error, { code, message, data }.  [-0, +1|2, throws] */
static int push_client_answer(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    ask_op *op = (ask_op *)context;
    if (op->is_error)
        lua_pushnil(L);
    mp_json_fault fault;
    if (mp_lua_decode_checked(L, (mp_str){op->answer, op->len}, MP_LUA_EXACT, &fault) != 0)
        return luaL_error(L, "the client's answer is not valid JSON: %s", fault.what);
    return op->is_error ? 2 : 1;
}

/* call.ask(call, method, params): sends a JSON-RPC request to the client on the call's stream, and waits for the answer. False if the stream is
 * closed.
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
    mp_buf *out = &task->super.vm->out;
    size_t start = out->len;
    mp_encode_out(L, task->super.vm, 3);
    mp_check_size(L, task->super.vm, start);
    if (task->call != NULL)
        op->ask = mp_call_ask(task->call, method, mp_str_from(mp_buf_str(out), start), ask_done, op);
    out->len = start;
    if (op->ask == NULL) {
        lua_pushboolean(L, 0);
        return 1;
    }
    return mp_op_park_then(L, &op->super, push_client_answer, (lua_KContext)op);
}

/* call.withdraw(call): cancels the call's requests to the client that are in flight. A task that waits for one receives nil and an error.
 *  [-0, +0, throws] */
static int l_withdraw(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    if (task->call != NULL)
        mp_call_withdraw(task->call);
    return 0;
}

void mp_lib_client_request(lua_State *L)
{
    static const luaL_Reg functions[] = {{"call.header", l_header}, {"call.set_deadline", l_deadline},
                                         {"call.ask", l_ask},       {"call.withdraw", l_withdraw},
                                         {"call.detach", l_detach}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    luaL_newmetatable(L, ASK);
    mp_field_function(L, "__gc", ask_gc);
    lua_pop(L, 1);
}
