/* lib_topics.c: following, listening and publishing. */
#include "script/fields.h"
#include "script/lib.h"
#include <lauxlib.h>

/* [-0, +2] */
static int refuse(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

static mp_session *session_of(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    return task->call == NULL ? NULL : mp_call_session(task->call);
}

/* id(call): the request's id as JSON.  [-0, +1, throws] */
static int l_id(lua_State *L)
{
    const mp_task *task = mp_check_call(L);
    if (task->call == NULL)
        return luaL_error(L, "this call is off");
    mp_str id = mp_call_id(task->call);
    lua_pushlstring(L, id.ptr, id.len);
    return 1;
}

/* follow(call, topic): true; or nil and "no session" or "too many".  [-0, +1|2, throws] */
static int l_follow(lua_State *L)
{
    mp_session *session = session_of(L);
    mp_str topic = mp_check_str(L, 2);
    switch (session == NULL ? MP_FOLLOW_CLOSED : mp_session_follow(session, topic)) {
    case MP_FOLLOW_CLOSED:
        return refuse(L, "no session");
    case MP_FOLLOW_TOO_MANY:
        return refuse(L, "too many");
    default:
        lua_pushboolean(L, 1);
        return 1;
    }
}

/* follow_as(call, audience): of all that its session follows.  [-0, +0, throws] */
static int l_follow_as(lua_State *L)
{
    mp_session *session = session_of(L);
    mp_str audience = mp_check_str(L, 2);
    if (session != NULL)
        mp_session_follow_as(session, audience);
    return 0;
}

/* unfollow(call, topic)  [-0, +0, throws] */
static int l_unfollow(lua_State *L)
{
    mp_session *session = session_of(L);
    mp_str topic = mp_check_str(L, 2);
    if (session != NULL)
        mp_session_unfollow(session, topic);
    return 0;
}

/* publish(topic, plain, before, after): `plain` to sessions that follow, before .. id .. after to calls that listen, of the
 * whole process; the last of a turn. Either form may be nil.  [-0, +0, throws] */
static int l_publish(lua_State *L)
{
    const mp_vm *vm = mp_vm_of(L);
    mp_str topic = mp_check_str(L, 1), plain = mp_opt_str(L, 2), before = mp_opt_str(L, 3), after = mp_opt_str(L, 4);
    if (vm->rpc != NULL)
        mp_topic_publish(vm->rpc, topic, plain, before, after);
    return 0;
}

/* audiences(topic): a list of those with which somebody follows it or listens to it.  [-0, +1, throws] */
static int l_audiences(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    mp_str topic = mp_check_str(L, 1);
    lua_newtable(L);
    if (vm->rpc == NULL)
        return 1;
    size_t start = vm->out.len;
    mp_topic_audiences(vm->rpc, topic, &vm->out);
    lua_Integer i = 1;
    for (size_t at = start, end = vm->out.len; at < end; i++) {
        mp_str rest = mp_str_from(mp_buf_str(&vm->out), at); /* anew: a finalizer may send, and `out` moves */
        mp_str audience = mp_str_cut(&rest, '\n');
        at += audience.len + 1;
        lua_pushlstring(L, audience.ptr, audience.len);
        lua_rawseti(L, -2, i);
    }
    vm->out.len = start;
    return 1;
}

/* -- listening --------------------------------------------------------------------------------------------------- */

/* The texts of the list at 2, in memory that Lua collects; they stay where they are.  [-0, +1, throws] */
static mp_str *push_topics(lua_State *L, size_t count)
{
    mp_str *topics = lua_newuserdatauv(L, count * sizeof *topics + 1, 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, 2, "a list of texts is needed");
        topics[i].ptr = lua_tolstring(L, -1, &topics[i].len); /* the list holds it */
        lua_pop(L, 1);
    }
    return topics;
}

/* listen(call, topics, closing): from now on the call is nobody's work: what is published on the topics goes out on its stream
 * until its client leaves, or the gateway ends it with `closing`, a result as JSON. True; or nil and "too many".  [-0, +1|2, throws] */
static int l_listen(lua_State *L)
{
    mp_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    mp_str closing = mp_check_str(L, 3);
    lua_settop(L, 3);
    size_t count = lua_rawlen(L, 2);
    const mp_str *topics = push_topics(L, count);
    if (task != mp_vm_of(L)->running || task->call == NULL)
        return luaL_error(L, "only a call itself can listen");
    switch (mp_call_listen(task->call, topics, count, closing)) {
    case MP_LISTEN_TOO_MANY:
        return refuse(L, "too many");
    case MP_LISTEN_STARTED:
        mp_task_settle(task);
        break;
    default: /* the gateway stops: what the library answers is the end of it */
        break;
    }
    lua_pushboolean(L, 1);
    return 1;
}

void mp_lib_topics(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"id", l_id},         {"follow", l_follow},       {"unfollow", l_unfollow},   {"publish", l_publish},
        {"listen", l_listen}, {"audiences", l_audiences}, {"follow_as", l_follow_as}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
