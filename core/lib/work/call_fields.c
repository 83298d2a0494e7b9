/* call_fields.c: the fields of `call`: principal, revision, method, and the facts that the client sent about itself. */
#include "lib/work/call.h"
#include "vm/engine.h"
#include <lauxlib.h>

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr == NULL ? "" : s.ptr, s.len);
}

void mp_call_push_params(lua_State *L)
{
    if (lua_getiuservalue(L, 1, MP_CALL_PARAMS) != LUA_TBOOLEAN)
        return;
    lua_pop(L, 1);
    const mp_call_handle *handle = lua_touserdata(L, 1);
    const mp_lib_task *task = handle->task;
    mp_str params = MP_STR_NONE;
    if (handle->serial == task->super.serial)
        params = task->call == NULL ? mp_buf_str(&task->params) : mp_call_params(task->call);
    if (params.len == 0 || mp_lua_decode_with(L, params, MP_LUA_EXACT) != 0)
        lua_pushnil(L);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, MP_CALL_PARAMS);
}

/* Pushes the request's _meta, or one member of it; nil if it is absent.  [-0, +1, throws] */
static void push_meta(lua_State *L, const char *MP_NULLABLE member)
{
    mp_call_push_params(L);
    if (!lua_istable(L, -1))
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

/* Replaces the value on top of the stack by a read-only view of it. Upvalue 3: host.hooks.  [-1, +1, throws] */
static void freeze_top(lua_State *L)
{
    lua_getfield(L, lua_upvalueindex(3), "view");
    lua_insert(L, -2);
    lua_pushliteral(L, "what the client sent");
    lua_call(L, 2, 1);
}

/* Pushes a read-only view of the request's _meta. Policies, the tool and the library share one view.  [-0, +1,
 * throws] */
static void push_frozen_meta(lua_State *L)
{
    if (lua_getiuservalue(L, 1, MP_CALL_META) != LUA_TNIL)
        return;
    push_meta(L, NULL);
    freeze_top(L);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, MP_CALL_META);
}

/* Pushes the client's info or capabilities: from `initialize` of the session, or from _meta of a stateless request.
 * They are decoded once.  [-0, +1, throws] */
static void push_client_field(lua_State *L, const mp_lib_task *task, int slot)
{
    if (lua_getiuservalue(L, 1, slot) != LUA_TNIL)
        return;
    if (task->call == NULL)
        luaL_error(L, "this call has ended");
    const mp_session *session = mp_call_session(task->call);
    if (session == NULL) {
        push_meta(L, slot == MP_CALL_CLIENT ? "io.modelcontextprotocol/clientInfo"
                                            : "io.modelcontextprotocol/clientCapabilities");
    } else {
        mp_str span = slot == MP_CALL_CLIENT ? mp_session_client(session) : mp_session_capabilities(session);
        if (span.len == 0 || mp_lua_decode(L, span) != 0)
            lua_pushnil(L);
    }
    freeze_top(L);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, slot);
}

/* Pushes call.principal. Without a table from an auth script, host.hooks.principal(id) creates one, and
 * hooks.described_principal(json) that of a console. Upvalue 3: host.hooks.  [-0, +1, throws] */
static void push_principal(lua_State *L, const mp_lib_task *task)
{
    if (lua_getiuservalue(L, 1, MP_CALL_PRINCIPAL) != LUA_TNIL)
        return;
    const mp_lib_task *payer = mp_container(task->super.payer, mp_lib_task, super);
    mp_str described = payer->call == NULL ? MP_STR_NONE : mp_call_described_principal(payer->call);
    lua_getfield(L, lua_upvalueindex(3), described.len > 0 ? "described_principal" : "principal");
    push_str(L, described.len > 0 ? described : mp_task_principal(task));
    lua_call(L, 1, 1);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, MP_CALL_PRINCIPAL);
}

static const mp_era *MP_NULLABLE era_of(const mp_lib_task *task)
{
    return task->call != NULL ? mp_call_era(task->call) : task->era;
}

static bool is_initialized(const mp_lib_task *task)
{
    const mp_session *session = task->call == NULL ? NULL : mp_call_session(task->call);
    if (session != NULL)
        return mp_session_era(session) != NULL;
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
    CANCELLED,
    OVERLOADED
};
static const char *const field_names[] = {"revision",  "method",       "principal",   "address",     "meta",
                                          "client",    "capabilities", "initialized", "has_session", "task",
                                          "cancelled", "overloaded",   NULL};

/* Pushes the client's address; nil if the call has no connection.  [-0, +1, throws] */
static void push_address(lua_State *L, const mp_call *MP_NULLABLE call)
{
    mp_str address = call == NULL ? MP_STR_NONE : mp_call_address(call);
    if (address.len == 0)
        lua_pushnil(L);
    else
        push_str(L, address);
}

static void push_field(lua_State *L, const mp_lib_task *task, lua_Integer field)
{
    const mp_era *era = era_of(task);
    switch (field) {
    case REVISION:
        lua_pushstring(L, era == NULL ? NULL : era->date);
        break;
    case METHOD:
        push_str(L, mp_task_label(&task->super));
        break;
    case PRINCIPAL:
        push_principal(L, task);
        break;
    case ADDRESS:
        push_address(L, task->call);
        break;
    case META:
        push_frozen_meta(L);
        break;
    case CLIENT_INFO:
        push_client_field(L, task, MP_CALL_CLIENT);
        break;
    case CLIENT_CAPABILITIES:
        push_client_field(L, task, MP_CALL_CAPABILITIES);
        break;
    case INITIALIZED:
        lua_pushboolean(L, is_initialized(task));
        break;
    case HAS_SESSION:
        lua_pushboolean(L, task->call == NULL ? task->has_session : mp_call_session(task->call) != NULL);
        break;
    case TASK_NAME:
        lua_getiuservalue(L, 1, MP_CALL_TASK);
        break;
    case OVERLOADED:
        lua_pushboolean(L, task->call != NULL && mp_call_is_overloaded(task->call));
        break;
    default:
        lua_pushboolean(L, task->super.cancelled);
    }
}

/* __index of `call`. Upvalues: a table from field name to number, host.call_methods, the host table.  [-2, +1,
 * throws] */
static int l_index(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNUMBER) {
        push_field(L, task, lua_tointeger(L, -1));
    } else {
        lua_pushvalue(L, 2);
        lua_rawget(L, lua_upvalueindex(2));
    }
    return 1;
}

void mp_call_set_index(lua_State *L, int hooks, int methods)
{
    lua_newtable(L);
    for (int i = 0; field_names[i] != NULL; i++) {
        lua_pushinteger(L, i + 1);
        lua_setfield(L, -2, field_names[i]);
    }
    lua_pushvalue(L, methods);
    lua_pushvalue(L, hooks);
    lua_pushcclosure(L, l_index, 3);
    lua_setfield(L, -2, "__index");
}
