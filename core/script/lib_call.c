/* lib_call.c: the `call` that handlers see, and what the library does with it. The userdata names its task and the
 * task's serial number, so a call that a script kept is told from the task's next work. */
#include "script/fields.h"
#include "script/lib.h"
#include "script/lib_json.h"
#include <lauxlib.h>
#include <math.h>

#define CALL "call"

typedef struct {
    mp_task *task;
    uint64_t serial;
} handle;

enum { PARAMS = 1, CLIENT, CAPABILITIES, TASK, PRINCIPAL_VALUE, USER_VALUES = PRINCIPAL_VALUE };

void mp_call_push(lua_State *L, mp_task *task, int params)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, USER_VALUES);
    *h = (handle){task, task->serial};
    lua_pushvalue(L, params);
    lua_setiuservalue(L, -2, PARAMS);
    /* A finalizer may have sent meanwhile, and found the client gone. Of nobody nothing is kept. */
    if (task->call != NULL && mp_call_principal(task->call) != mp_nobody) {
        mp_principal_push(L, mp_call_principal(task->call));
        lua_setiuservalue(L, -2, PRINCIPAL_VALUE);
    }
    luaL_setmetatable(L, CALL);
}

void mp_call_push_like(lua_State *L)
{
    const handle *like = luaL_checkudata(L, 1, CALL);
    handle *h = lua_newuserdatauv(L, sizeof *h, USER_VALUES);
    *h = (handle){like->task, 0}; /* no task has this number: it has ended, for now */
    for (int slot = 1; slot <= USER_VALUES; slot++) {
        lua_getiuservalue(L, 1, slot);
        lua_setiuservalue(L, -2, slot);
    }
    luaL_setmetatable(L, CALL);
}

void mp_call_push_new(lua_State *L)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, USER_VALUES);
    *h = (handle){NULL, 0};
    luaL_setmetatable(L, CALL);
}

void mp_call_bind(lua_State *L, int index, mp_task *task)
{
    *(handle *)lua_touserdata(L, index) = (handle){task, task->serial};
}

mp_task *mp_check_call(lua_State *L)
{
    const handle *h = mp_check_udata(L, 1, CALL, mp_vm_of(L)->call_metatable);
    if (h->serial != h->task->serial || (h->task->call == NULL && !h->task->cancelled))
        luaL_error(L, "this call has ended");
    return h->task;
}

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr == NULL ? "" : s.ptr, s.len);
}

/* -- fields ---------------------------------------------------------------------------------------------------- */

/* The request's _meta, or one of its members; nil where there is none.  [-0, +1, throws] */
static void push_meta(lua_State *L, const char *member)
{
    if (lua_getiuservalue(L, 1, PARAMS) != LUA_TTABLE)
        goto none;
    lua_pushliteral(L, "_meta");
    if (lua_rawget(L, -2) != LUA_TTABLE)
        goto none;
    if (member == NULL)
        return;
    lua_pushstring(L, member);
    lua_rawget(L, -2);
    return;
none:
    lua_pushnil(L);
}

/* What the client said of itself: with its session, or with each request. Decoded once.  [-0, +1, throws] */
static void push_said(lua_State *L, const mp_task *task, int slot)
{
    if (lua_getiuservalue(L, 1, slot) != LUA_TNIL)
        return;
    if (task->call == NULL)
        luaL_error(L, "this call has ended");
    const mp_session *session = mp_call_session(task->call);
    if (session == NULL) {
        push_meta(L,
                  slot == CLIENT ? "io.modelcontextprotocol/clientInfo" : "io.modelcontextprotocol/clientCapabilities");
    } else {
        mp_str span = slot == CLIENT ? mp_session_client(session) : mp_session_capabilities(session);
        if (span.len == 0 || mp_lua_decode(L, span) != 0)
            lua_pushnil(L);
    }
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, slot);
}

/* Who calls, as host.principal makes it of what C knows. Upvalue 3: host.  [-0, +1, throws] */
static void push_principal(lua_State *L, const mp_task *task)
{
    if (lua_getiuservalue(L, 1, PRINCIPAL_VALUE) != LUA_TNIL)
        return;
    lua_getfield(L, lua_upvalueindex(3), "principal");
    push_str(L, mp_task_principal(task));
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, PRINCIPAL_VALUE);
}

static const mp_era *era_of(const mp_task *task)
{
    return task->call != NULL ? mp_call_era(task->call) : task->era;
}

static bool is_initialized(const mp_task *task)
{
    if (task->call != NULL && mp_call_session(task->call) != NULL)
        return mp_session_era(mp_call_session(task->call)) != NULL;
    const mp_era *era = era_of(task);
    return era != NULL && !era->has_sessions;
}

enum {
    REVISION = 1,
    METHOD,
    PRINCIPAL,
    ADDRESS,
    META,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    INITIALIZED,
    HAS_SESSION,
    TASK_NAME,
    CANCELLED
};
static const char *const field_names[] = {"revision",    "method", "principal",    "address",
                                          "meta",        "client", "capabilities", "initialized",
                                          "has_session", "task",   "cancelled",    NULL};

/* nil where there is none.  [-0, +1, throws] */
static void push_address(lua_State *L, const mp_call *call)
{
    mp_str address = call == NULL ? MP_STR_NONE : mp_call_address(call);
    if (address.len == 0)
        lua_pushnil(L);
    else
        push_str(L, address);
}

static void push_field(lua_State *L, const mp_task *task, lua_Integer field)
{
    const mp_era *era = era_of(task);
    switch (field) {
    case REVISION:
        lua_pushstring(L, era == NULL ? NULL : era->date);
        break;
    case METHOD:
        push_str(L, mp_task_method(task));
        break;
    case PRINCIPAL:
        push_principal(L, task);
        break;
    case ADDRESS:
        push_address(L, task->call);
        break;
    case META:
        push_meta(L, NULL);
        break;
    case CLIENT_INFO:
        push_said(L, task, CLIENT);
        break;
    case CLIENT_CAPABILITIES:
        push_said(L, task, CAPABILITIES);
        break;
    case INITIALIZED:
        lua_pushboolean(L, is_initialized(task));
        break;
    case HAS_SESSION:
        lua_pushboolean(L, task->call == NULL ? task->has_session : mp_call_session(task->call) != NULL);
        break;
    case TASK_NAME:
        lua_getiuservalue(L, 1, TASK);
        break;
    default:
        lua_pushboolean(L, task->cancelled);
    }
}

/* __index. Upvalues: the fields' numbers, host.call_methods, host.  [-2, +1, throws] */
static int l_index(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNUMBER) {
        push_field(L, task, lua_tointeger(L, -1));
    } else {
        lua_pushvalue(L, 2);
        lua_rawget(L, lua_upvalueindex(2));
    }
    return 1;
}

static int l_tostring(lua_State *L)
{
    lua_pushliteral(L, CALL);
    return 1;
}

/* -- sending --------------------------------------------------------------------------------------------------- */

static bool says_message(const mp_era *era)
{
    return era != NULL && strcmp(era->date, "2025-03-26") >= 0;
}

static void put_number(lua_State *L, int index, mp_buf *out)
{
    if (lua_isinteger(L, index))
        mp_json_put_int(out, lua_tointeger(L, index));
    else
        mp_json_put_double(out, lua_tonumber(L, index));
}

static void check_finite(lua_State *L, int index)
{
    luaL_argcheck(L, isfinite(luaL_checknumber(L, index)), index, "a finite number is needed");
}

void mp_check_size(lua_State *L, mp_vm *vm, size_t start)
{
    size_t size = vm->out.len - start;
    if (size <= vm->call_output)
        return;
    vm->out.len = start;
    luaL_error(L, "this message is %I bytes of JSON, more than limits.call.output (%I)", (LUAI_UACINT)size,
               (LUAI_UACINT)vm->call_output);
}

/* call:progress(progress[, total[, message]]). Quiet where nobody asked, nobody listens, or it did not grow (F-1).
 *  [-0, +0, throws] */
static int l_progress(lua_State *L)
{
    mp_task *task = mp_check_call(L);
    check_finite(L, 2);
    bool has_total = !lua_isnoneornil(L, 3);
    if (has_total)
        check_finite(L, 3);
    mp_str message = MP_STR_NONE;
    if (!lua_isnoneornil(L, 4))
        message.ptr = luaL_checklstring(L, 4, &message.len);
    if (task->call == NULL)
        return 0;
    mp_str token = mp_call_progress_token(task->call);
    double progress = lua_tonumber(L, 2);
    if (token.len == 0 || (task->has_progress && progress <= task->progress))
        return 0;
    task->has_progress = true;
    task->progress = progress;

    mp_buf *out = &task->vm->out;
    size_t start = out->len;
    mp_buf_put(out,
               MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":"));
    mp_buf_put(out, token);
    mp_buf_put(out, MP_STR(",\"progress\":"));
    put_number(L, 2, out);
    if (has_total) {
        mp_buf_put(out, MP_STR(",\"total\":"));
        put_number(L, 3, out);
    }
    if (message.ptr != NULL && says_message(mp_call_era(task->call))) {
        mp_buf_put(out, MP_STR(",\"message\":"));
        mp_json_put_string(out, message);
    }
    mp_buf_put(out, MP_STR("}}"));
    mp_check_size(L, task->vm, start);
    mp_call_send(task->call, mp_str_from(mp_buf_str(out), start)); /* may find the client gone: the task is off then */
    out->len = start;
    return 0;
}

/* (value, buffer): appends the value's JSON.  [-2, +0, throws] */
static int encode(lua_State *L)
{
    mp_lua_encode(L, 1, lua_touserdata(L, 2));
    return 0;
}

void mp_encode_out(lua_State *L, mp_vm *vm, int index)
{
    size_t start = vm->out.len;
    lua_pushcfunction(L, encode);
    lua_pushvalue(L, index);
    lua_pushlightuserdata(L, &vm->out);
    if (lua_pcall(L, 2, 0, 0) == LUA_OK)
        return;
    vm->out.len = start;
    lua_error(L);
}

/* call:send(message): whether somebody reads the call's stream.  [-0, +1, throws] */
static int l_send(lua_State *L)
{
    mp_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    bool sent = false;
    if (task->call != NULL) {
        mp_buf *out = &task->vm->out;
        size_t start = out->len;
        mp_encode_out(L, task->vm, 2);
        mp_check_size(L, task->vm, start);
        if (task->call != NULL) /* a finalizer may have found the client gone */
            sent = mp_call_send(task->call, mp_str_from(mp_buf_str(out), start)) == 0;
        out->len = start;
    }
    lua_pushboolean(L, sent);
    return 1;
}

/* -- for the library ------------------------------------------------------------------------------------------- */

/* over_output(call, what, size): nil where so many bytes of JSON are within limits.call.output; else, counted and logged, the
 * words for it.  [-0, +0|1, throws] */
static int l_over_output(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    const char *what = luaL_checkstring(L, 2);
    size_t size = (size_t)luaL_checkinteger(L, 3);
    if (size <= task->vm->call_output)
        return 0;
    char room[MP_REFUSAL];
    lua_pushstring(L, mp_refuse_output(task, what, size, room).ptr);
    return 1;
}

static mp_str opt_json(lua_State *L, int index)
{
    mp_str text = MP_STR_NONE;
    if (!lua_isnoneornil(L, index))
        text.ptr = luaL_checklstring(L, index, &text.len);
    return text;
}

/* open_session(call, revision, client, capabilities): true; or nil, and then the call has been answered.
 *  [-0, +1, throws] */
static int l_open_session(lua_State *L)
{
    mp_task *task = mp_check_call(L);
    const mp_era *era = mp_era_find(mp_str_of(luaL_checkstring(L, 2)));
    luaL_argcheck(L, era != NULL && era->has_sessions, 2, "no revision with sessions has this date");
    mp_str client = opt_json(L, 3), capabilities = opt_json(L, 4);
    if (task->call != NULL && mp_call_open_session(task->call, era, client, capabilities) == 0) {
        lua_pushboolean(L, 1);
        return 1;
    }
    if (task->call != NULL) /* refused, and answered */
        mp_task_settle(task);
    lua_pushnil(L);
    return 1;
}

static mp_session *session_of(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    return task->call == NULL ? NULL : mp_call_session(task->call);
}

/* set_log_level(call, n)  [-0, +0, throws] */
static int l_set_log_level(lua_State *L)
{
    mp_session *session = session_of(L);
    lua_Integer level = luaL_checkinteger(L, 2);
    luaL_argcheck(L, level >= 0 && level <= 7, 2, "levels go from 0 (debug) to 7 (emergency)");
    if (session != NULL)
        mp_session_set_log_level(session, (int)level);
    return 0;
}

/* log_level(call): 0 to 7; nil without a session, or before it asked for one.  [-0, +1, throws] */
static int l_log_level(lua_State *L)
{
    const mp_session *session = session_of(L);
    int level = session == NULL ? -1 : mp_session_log_level(session);
    if (level < 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, level);
    return 1;
}

/* session(call): the id of its session, or nil.  [-0, +1, throws] */
static int l_session(lua_State *L)
{
    const mp_session *session = session_of(L);
    if (session == NULL)
        lua_pushnil(L);
    else
        push_str(L, mp_session_id(session));
    return 1;
}

/* name_task(call, id): what call.task is from now on.  [-0, +0, throws] */
static int l_name_task(lua_State *L)
{
    mp_check_call(L);
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, TASK);
    return 0;
}

/* unhurried(call): the call may take as long as it likes.  [-0, +0, throws] */
static int l_unhurried(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    if (task->call != NULL)
        mp_call_unhurried(task->call);
    return 0;
}

/* fault(): a script failed, and the library has said so to the log.  [-0, +0] */
static int l_fault(lua_State *L)
{
    (void)L;
    mp_stat_add(MP_STAT_TOOL_FAULTS, 1);
    return 0;
}

/* put_off(call, seconds): the error that answers it says when to try again; whether it can still say so.  [-0, +1, throws] */
static int l_put_off(lua_State *L)
{
    mp_task *task = mp_check_call(L);
    lua_Integer seconds = luaL_checkinteger(L, 2);
    lua_pushboolean(L, task->call != NULL && mp_call_put_off(task->call, seconds));
    return 1;
}

/* over_limit(): a policy refused somebody who asks too often.  [-0, +0] */
static int l_over_limit(lua_State *L)
{
    (void)L;
    mp_stat_add(MP_STAT_REFUSED_RATE, 1);
    return 0;
}

/* forbid(call, scopes): the error that answers it says which scopes it needs; whether it can still say so.  [-0, +1, throws] */
static int l_forbid(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    mp_str scopes;
    scopes.ptr = luaL_checklstring(L, 2, &scopes.len);
    lua_pushboolean(L, task->call != NULL && mp_call_forbid(task->call, scopes));
    return 1;
}

void mp_lib_call(lua_State *L)
{
    static const luaL_Reg functions[] = {{"open_session", l_open_session},
                                         {"set_log_level", l_set_log_level},
                                         {"log_level", l_log_level},
                                         {"session", l_session},
                                         {"name_task", l_name_task},
                                         {"unhurried", l_unhurried},
                                         {"fault", l_fault},
                                         {"forbid", l_forbid},
                                         {"put_off", l_put_off},
                                         {"over_limit", l_over_limit},
                                         {"over_output", l_over_output},
                                         {NULL, NULL}};
    static const luaL_Reg methods[] = {{"progress", l_progress}, {"send", l_send}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    luaL_newlib(L, methods);
    luaL_newmetatable(L, CALL); /* host, methods, metatable */
    mp_vm_of(L)->call_metatable = lua_topointer(L, -1);
    lua_newtable(L);
    for (int i = 0; field_names[i] != NULL; i++) {
        lua_pushinteger(L, i + 1);
        lua_setfield(L, -2, field_names[i]);
    }
    lua_pushvalue(L, -3);
    lua_pushvalue(L, -5);
    lua_pushcclosure(L, l_index, 3);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_setfield(L, -2, "call_methods");
}
