/* pubsub.c: subscribing to topics and publishing on them. A session subscribes to topics one by one
 * (`session.subscribe`); a call of `subscriptions/listen` subscribes to a list of topics for as long as its stream is
 * open (`listen`). */
#include "lib/fields.h"
#include "lib/bindings.h"
#include <lauxlib.h>

static mp_session *MP_NULLABLE session_of(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    return task->call == NULL ? NULL : mp_call_session(task->call);
}

/* call.id(call): the request's id as JSON.  [-0, +1, throws] */
static int l_id(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    if (task->call == NULL)
        return luaL_error(L, "this call was cancelled");
    mp_str id = mp_call_id(task->call);
    lua_pushlstring(L, id.ptr, id.len);
    return 1;
}

/* session.subscribe(call, topic[, is_asked]): subscribes the call's session to the topic. `is_asked`: its client has
 * chosen the topic, and its bytes are counted. True; or nil and "no session", "too many" or "no room".
 * [-0, +1|2, throws] */
static int l_subscribe(lua_State *L)
{
    mp_session *session = session_of(L);
    mp_str topic = mp_check_str(L, 2);
    bool is_asked = lua_toboolean(L, 3);
    switch (session == NULL ? MP_SUBSCRIBE_CLOSED : mp_session_subscribe(session, topic, is_asked)) {
    case MP_SUBSCRIBE_CLOSED:
        return mp_push_failure(L, "no session");
    case MP_SUBSCRIBE_TOO_MANY:
        return mp_push_failure(L, "too many");
    case MP_SUBSCRIBE_FULL:
        return mp_push_failure(L, "no room");
    default:
        lua_pushboolean(L, 1);
        return 1;
    }
}

/* Calls `act` with the call's session, if it has one, and the text at index 2.  [-0, +0, throws] */
static int with_session(lua_State *L, void (*act)(mp_session *session, mp_str text))
{
    mp_session *session = session_of(L);
    mp_str text = mp_check_str(L, 2);
    if (session != NULL)
        act(session, text);
    return 0;
}

/* session.set_audience(call, audience): moves all subscriptions of the call's session to `audience`.  [-0, +0,
 * throws] */
static int l_set_audience(lua_State *L)
{
    return with_session(L, mp_session_subscribe_as);
}

/* session.unsubscribe(call, topic): ends the session's subscription to the topic.  [-0, +0, throws] */
static int l_unsubscribe(lua_State *L)
{
    return with_session(L, mp_session_unsubscribe);
}

/* topic.publish(topic, plain, before, after[, unless]): sends the text `plain` to the sessions that are subscribed to
 * the topic, and the text before .. id .. after to each `subscriptions/listen` call, where `id` is the call's. Reaches
 * all workers. If a topic is published several times in one turn, only the last is sent. `plain`, or `before` and
 * `after`, may be nil. Sends nothing if the table `unless` has a field `is_over`: other tasks may set it before this
 * function runs, and not while it runs.  [-0, +0, throws] */
static int l_publish(lua_State *L)
{
    const mp_lib *lib = mp_lib_of(L);
    mp_str topic = mp_check_str(L, 1), plain = mp_opt_str(L, 2), before = mp_opt_str(L, 3), after = mp_opt_str(L, 4);
    bool is_over = lua_type(L, 5) == LUA_TTABLE && lua_getfield(L, 5, "is_over") != LUA_TNIL;
    if (lib->rpc != NULL && !is_over)
        mp_topic_publish(lib->rpc, topic, plain, before, after);
    return 0;
}

/* Pushes a list of the lines that are in the buffer after `start`, and removes them.  [-0, +1, throws] */
static int push_lines(lua_State *L, mp_buf *out, size_t start)
{
    lua_newtable(L);
    lua_Integer i = 1;
    for (size_t at = start, end = out->len; at < end; i++) {
        mp_str rest = mp_str_from(mp_buf_str(out), at);
        mp_str line = mp_str_cut(&rest, '\n');
        at += line.len + 1;
        lua_pushlstring(L, line.ptr, line.len);
        lua_rawseti(L, -2, i);
    }
    out->len = start;
    return 1;
}

/* What `put` appends for the text at index 1, as a list.  [-0, +1, throws] */
static int list_topics(lua_State *L, void (*put)(mp_rpc *rpc, mp_str text, mp_buf *out))
{
    mp_buf *out = &mp_state_of(mp_vm_of(L))->out;
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    mp_str text = mp_check_str(L, 1);
    size_t start = out->len;
    if (rpc != NULL)
        put(rpc, text, out);
    return push_lines(L, out, start);
}

/* topic.audiences(topic): a list of the audiences of the topic's subscribers.  [-0, +1, throws] */
static int l_audiences(lua_State *L)
{
    return list_topics(L, mp_topic_audiences);
}

/* topic.names(prefix[, from]): a list of names without the prefix, of topics with subscribers that begin with it; and
 * where to go on, nil at the end. Names that come or go meanwhile may be missing, or be there twice.
 * [-0, +2, throws] */
static int l_names(lua_State *L)
{
    mp_buf *out = &mp_state_of(mp_vm_of(L))->out;
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    mp_str prefix = mp_check_str(L, 1);
    size_t start = out->len, from = (size_t)luaL_optinteger(L, 2, 0);
    from = rpc == NULL ? 0 : mp_topic_names(rpc, prefix, from, out);
    push_lines(L, out, start);
    if (from == 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, (lua_Integer)from);
    return 2;
}

MP_COUNTER(fanout_gaps, "fanout_gaps", "", "",
           "times that what other nodes of the cluster had published was lost on the way: clients got notifications of "
           "changes that there may have been")
MP_GAUGE(fanout_waiting, "fanout_waiting", "", "", "publications that wait to be sent to other nodes of the cluster")
MP_COUNTER(dropped_fanout, "dropped", "reason", "fanout",
           "publications for other nodes of the cluster that were larger than 4 KiB, or above 4,096 that waited")

/* topic.count(what, n): adds to a number about publications for other nodes.  [-0, +0, throws] */
static int l_count(lua_State *L)
{
    static const char *const words[] = {"gap", "waits", "dropped", NULL};
    static const mp_stat *const numbers[] = {&mp_stat_fanout_gaps, &mp_stat_fanout_waiting, &mp_stat_dropped_fanout};
    mp_stat_add(numbers[luaL_checkoption(L, 1, NULL, words)], luaL_checkinteger(L, 2));
    return 0;
}

/* topic.revived(prefix): a list of the lines of mp_topic_revived.  [-0, +1, throws] */
static int l_revived(lua_State *L)
{
    return list_topics(L, mp_topic_revived);
}

/* session.revived(call, prefix): a list of the lines of mp_session_revived_topics for the call's session.
 *  [-0, +1, throws] */
static int l_session_revived(lua_State *L)
{
    mp_buf *out = &mp_state_of(mp_vm_of(L))->out;
    mp_session *session = session_of(L);
    mp_str prefix = mp_check_str(L, 2);
    size_t start = out->len;
    if (session != NULL)
        mp_session_revived_topics(session, prefix, out);
    return push_lines(L, out, start);
}

/* -- listening --------------------------------------------------------------------------------------------------- */

/* Pushes a userdata with the texts of the list at index 2. The list owns the bytes of the texts.  [-0, +1, throws] */
static mp_str *push_topics(lua_State *L, size_t count)
{
    mp_str *topics = lua_newuserdatauv(L, count * sizeof *topics + 1, 0);
    for (size_t i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, 2, "a list of strings is needed");
        topics[i].ptr = lua_tolstring(L, -1, &topics[i].len); /* the list holds a reference to the text */
        lua_pop(L, 1);
    }
    return topics;
}

/* call.listen(call, topics, closing, acknowledged): makes the call a subscriber of the topics and separates it from its
 * task. `acknowledged`, a message as JSON, is sent once the call is a subscriber: its client may cause at once what it
 * is to be told. Then messages on the topics are sent on the call's stream until the client disconnects, or the gateway
 * ends the call with `closing`, a result as JSON. True; or nil and "too many" or "no room", and nothing is sent.
 * [-0, +1|2, throws] */
static int l_listen(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    mp_str closing = mp_check_str(L, 3), acknowledged = mp_check_str(L, 4);
    lua_settop(L, 4);
    size_t count = lua_rawlen(L, 2);
    const mp_str *topics = push_topics(L, count);
    if (&task->super != mp_state_of(mp_vm_of(L))->running)
        return luaL_error(L, "listen must be called by the task of the call itself");
    mp_call *call = task->call;
    mp_listen_result result = call == NULL ? MP_LISTEN_OVER : mp_call_listen(call, topics, count, closing);
    if (result == MP_LISTEN_TOO_MANY)
        return mp_push_failure(L, "too many");
    if (result == MP_LISTEN_NO_ROOM)
        return mp_push_failure(L, "no room");
    if (call != NULL)
        mp_call_send(call, acknowledged); /* ends the call if its client has left, or its connection has no room */
    if (result == MP_LISTEN_STARTED && task->call != NULL)
        mp_call_stay(MP_NEVER_NULL(mp_task_settle(task)));
    lua_pushboolean(L, 1);
    return 1;
}

MP_LIBRARY(topics)
{
    static const luaL_Reg functions[] = {{"call.id", l_id},
                                         {"session.subscribe", l_subscribe},
                                         {"session.unsubscribe", l_unsubscribe},
                                         {"topic.publish", l_publish},
                                         {"call.listen", l_listen},
                                         {"topic.audiences", l_audiences},
                                         {"topic.names", l_names},
                                         {"topic.count", l_count},
                                         {"topic.revived", l_revived},
                                         {"session.revived", l_session_revived},
                                         {"session.set_audience", l_set_audience},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
