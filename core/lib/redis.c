/* redis.c: Redis for tasks: sends commands on connections that all tasks of the worker share, waits for the replies,
 * and makes Lua values of them. lua/moonpool/lib/redis.lua checks grants and commands. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/seat.h"
#include "lib/spans.h"
#include "lib/work/listening.h"
#include "redis/redis.h"
#include <lauxlib.h>
#include <math.h>

MP_REFUSED(refused_redis, "redis_connections", MP_LIMIT_REACHED, "connections to Redis servers above 32 of one worker")
MP_GAUGE(redis_messages, "redis_messages", "", "", "messages of channels of Redis servers that no job has taken yet")
MP_COUNTER(dropped_messages, "dropped", "reason", "redis_messages",
           "messages of channels of Redis servers above 1,024 or 16 MiB that waited for a job")

#define MAX_CONNECTIONS MP_LIMIT(redis_connections, 32) /* of one worker's scripts: each is a descriptor */
#define MAX_WORDS 65536 /* of one request: what a server takes at once in some milliseconds */
#define CONNECTION "moonpool.redis"
#define CHANNEL "moonpool.redis.channel"
#define USER_VALUES 1 /* of a connection: the metatable of lists */

/* A connection of scripts. It is opened by the first command. */
typedef struct {
    mp_seat place;
    mp_redis *MP_NULLABLE redis; /* NULL: no command has been sent, or the VM is detached */
    mp_lib *lib;
    mp_redis_server server; /* owns its texts */
    char *address;          /* "cache.internal:6379" */
} connection;

/* A command in the task that waits for it. */
typedef struct {
    mp_owning_op super;
    mp_timer timer;
    mp_redis_command *MP_NULLABLE command; /* NULL: it has ended for the task */
    mp_redis_end late;                     /* how it stood when its time was over; MP_REDIS_WAITS: it was not */
    mp_open_span span;
} waiting;

static void drop_command(waiting *it)
{
    mp_open_span_close(&it->span);
    mp_timer_stop(it->super.super.loop, &it->timer);
    if (it->command != NULL)
        mp_redis_command_free(it->command, false);
    it->command = NULL;
}

static void on_cancel(mp_op *op)
{
    drop_command(mp_container(op, waiting, super.super));
}

static void on_release(mp_resource *resource)
{
    drop_command(mp_container(resource, waiting, super.resource));
}

static void on_done(void *ctx)
{
    waiting *it = ctx;
    mp_timer_stop(it->super.super.loop, &it->timer);
    mp_op_done(&it->super.super);
}

static void on_late(mp_timer *timer)
{
    waiting *it = mp_container(timer, waiting, timer);
    it->late = mp_redis_command_free(MP_NEVER_NULL(it->command), true); /* the timer runs while there is a command */
    it->command = NULL;
    mp_op_done(&it->super.super);
}

/* -- connections --------------------------------------------------------------------------------------------------- */

static void close_connection(connection *it)
{
    mp_link_drop(&it->place.link);
    mp_redis_free(it->redis);
    it->redis = NULL;
}

void mp_lib_close_redis(mp_lib *lib)
{
    MP_EACH(connection, it, &lib->redis, place.link) /* no job listens any more: all are connections */
        close_connection(it);
}

static int l_collect(lua_State *L)
{
    connection *it = luaL_checkudata(L, 1, CONNECTION);
    close_connection(it);
    mp_str_free(mp_str_of(it->server.host));
    mp_str_free(it->server.user);
    mp_str_free(it->server.password);
    free(it->address);
    it->server = (mp_redis_server){0};
    it->address = MP_UNSET;
    return 0;
}

/* redis.connection { host, port, tls, database, user, password, reach, script, place, lists }: a connection, which is
 * not open yet. `lists`: the metatable of lists. `script` "": the gateway itself.  [-0, +1, throws] */
static int l_connection(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    connection *it = lua_newuserdatauv(L, sizeof *it, USER_VALUES);
    *it = (connection){.lib = mp_lib_of(L)};
    luaL_setmetatable(L, CONNECTION);
    mp_str host = mp_text_field(L, 1, "host"), user = mp_text_field(L, 1, "user"),
           password = mp_text_field(L, 1, "password"), script = mp_text_field(L, 1, "script");
    it->server.policy = mp_reach_field(L, 1);
    it->server.port = (uint16_t)mp_number_field(L, 1, "port");
    it->server.database = (int)mp_number_field(L, 1, "database");
    lua_getfield(L, 1, "tls");
    it->server.is_tls = lua_toboolean(L, -1);
    it->server.holder = script.len == 0 ? 0 : mp_holder_number(script.ptr, script.len);
    it->server.host = mp_dup(host);
    it->server.user = (mp_str){mp_dup(user), user.len};
    it->server.password = (mp_str){mp_dup(password), password.len};
    it->address = mp_dup(mp_text_field(L, 1, "place"));
    lua_getfield(L, 1, "lists");
    lua_setiuservalue(L, 2, 1);
    lua_settop(L, 2);
    return 1;
}

/* The open connection, or a new one; NULL: there are too many.  [-0, +0, throws] */
static mp_redis *MP_NULLABLE need_redis(lua_State *L, connection *it)
{
    mp_lib *lib = it->lib;
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    if (it->redis != NULL)
        return it->redis;
    if (loop == NULL || lib->client == NULL)
        luaL_error(L, MP_NOT_SERVING);
    if (mp_seat_take(&lib->redis, &it->place, it->server.holder, MAX_CONNECTIONS, &mp_stat_refused_redis))
        it->redis = mp_redis_new(loop, MP_NEVER_NULL(lib->client), &it->server);
    return it->redis;
}

/* redis.load(connection): how many requests it has to answer.  [-0, +1, throws] */
static int l_load(lua_State *L)
{
    const connection *it = luaL_checkudata(L, 1, CONNECTION);
    lua_pushinteger(L, it->redis == NULL ? 0 : (lua_Integer)mp_redis_load(it->redis));
    return 1;
}

/* -- replies ------------------------------------------------------------------------------------------------------- */

/* Pushes the value at `at`, and returns where the next one is. nil in a list is json.null, an error { error = text }.
 * `lists`: stack index of the metatable of lists.  [-0, +1, throws] */
static const char *push_value(lua_State *L, const char *at, int lists, bool is_inner)
{
    mp_redis_value value;
    at = mp_redis_next(at, &value);
    luaL_checkstack(L, 4, "too many lists");
    switch (value.kind) {
    case MP_REDIS_NIL:
        if (is_inner)
            mp_lua_push_null(L);
        else
            lua_pushnil(L);
        break;
    case MP_REDIS_INTEGER:
        lua_pushinteger(L, value.integer);
        break;
    case MP_REDIS_TEXT:
        lua_pushlstring(L, value.text.ptr, value.text.len);
        break;
    case MP_REDIS_ERROR:
        lua_createtable(L, 0, 1);
        lua_pushlstring(L, value.text.ptr, value.text.len);
        lua_setfield(L, -2, "error");
        break;
    case MP_REDIS_LIST:
        lua_createtable(L, (int)value.integer, 0);
        lua_pushvalue(L, lists);
        lua_setmetatable(L, -2);
        for (lua_Integer i = 1; i <= value.integer; i++) {
            at = push_value(L, at, lists, true);
            lua_rawseti(L, -2, i);
        }
        break;
    }
    return at;
}

/* Pushes nil, why, the reason, "unavailable" or "unknown", and `how`.  [-0, +4, throws] */
static int push_failure(lua_State *L, mp_redis_end end, const char *place, const char *why, const char *how)
{
    const char *reason = end == MP_REDIS_UNKNOWN ? "unknown" : "unavailable";
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s: %s", reason, place, why);
    lua_pushstring(L, reason);
    lua_pushstring(L, how);
    return 4;
}

/* Pushes the results of redis.send(). Stack: 1 the connection, 2 the requests, 3 the seconds, 5 the op.  [-0, +?,
 * throws] */
static int push_results(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    waiting *it = lua_touserdata(L, (int)context);
    const connection *of = lua_touserdata(L, 1);
    mp_redis_command *command = it->command;
    mp_redis_end end = command == NULL ? it->late : mp_redis_end_of(command);
    if (end != MP_REDIS_ANSWERED || command == NULL) {
        char why[64];
        snprintf(why, sizeof why, "no answer within %g s", lua_tonumber(L, 3));
        mp_open_span_fail(&it->span, end == MP_REDIS_UNKNOWN ? "unknown" : "unavailable", MP_STR_NONE);
        int count = command == NULL ? push_failure(L, end, of->address, why, "late")
                                    : push_failure(L, end, of->address, mp_redis_why(command), "lost");
        drop_command(it);
        return count;
    }
    const char *at = mp_redis_replies(command);
    if (at == NULL) {
        mp_open_span_fail(&it->span, "_OTHER", MP_STR_NONE);
        drop_command(it);
        return push_failure(L, MP_REDIS_UNKNOWN, of->address, "the replies together are larger than 16 MiB", "refused");
    }
    lua_Integer count = (lua_Integer)lua_rawlen(L, 2);
    lua_getiuservalue(L, 1, 1);
    int lists = lua_gettop(L);
    mp_redis_value first;
    mp_redis_next(at, &first);
    if (count == 1 && first.kind == MP_REDIS_ERROR) {
        mp_open_span_fail(&it->span, "error", MP_STR_NONE);
        lua_pushnil(L);
        lua_pushlstring(L, first.text.ptr, first.text.len);
        lua_pushliteral(L, "error");
        drop_command(it);
        return 3;
    }
    lua_pushboolean(L, true);
    if (count == 1) {
        push_value(L, at, lists, false);
    } else {
        lua_createtable(L, (int)count, 0);
        lua_pushvalue(L, lists);
        lua_setmetatable(L, -2);
        for (lua_Integer i = 1; i <= count; i++) {
            at = push_value(L, at, lists, true);
            lua_rawseti(L, -2, i);
        }
    }
    drop_command(it);
    return 2;
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* Adds the request on top of the stack, a list of texts. Returns NULL, or the error text.  [-0, +0, throws] */
static const char *MP_NULLABLE add_request(lua_State *L, mp_redis_command *command)
{
    luaL_checktype(L, -1, LUA_TTABLE);
    lua_Unsigned count = lua_rawlen(L, -1);
    int request = lua_gettop(L);
    if (count == 0 || count > MAX_WORDS)
        return "a command has from 1 to 65,536 words";
    const char **words = lua_newuserdatauv(L, (size_t)count * sizeof *words, 0);
    size_t *lens = lua_newuserdatauv(L, (size_t)count * sizeof *lens, 0);
    for (lua_Unsigned i = 0; i < count; i++) {
        if (lua_rawgeti(L, request, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "a word of a command is a %s", luaL_typename(L, -1));
        words[i] = lua_tolstring(L, -1, &lens[i]); /* the list keeps it */
        lua_pop(L, 1);
    }
    int failed = mp_redis_command_add(command, (int)count, words, lens);
    lua_settop(L, request);
    return failed != 0 ? "the command is larger than 16 MiB" : NULL;
}

/* Begins the span of a command: it has no keys and no values.  [-0, +0, throws] */
static mp_open_span begin_span(lua_State *L, const connection *of, mp_str operation, lua_Integer count)
{
    char name[MP_SPAN_NAME_BYTES], database[16];
    mp_lib_task *task = mp_lib_task_running(L);
    if (mp_task_trace(task) == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    snprintf(name, sizeof name, "%.*s %s", MP_STR_ARG(operation), of->address);
    mp_open_span span = mp_task_span_open(task, MP_SPAN_CLIENT, mp_str_of(name));
    mp_trace *trace = mp_open_span_trace(&span);
    snprintf(database, sizeof database, "%d", of->server.database);
    mp_span_text(trace, span.span, "db.system.name", MP_STR("redis"));
    mp_span_text(trace, span.span, "db.namespace", mp_str_of(database));
    mp_span_text(trace, span.span, "db.operation.name", operation);
    mp_span_text(trace, span.span, "server.address", mp_str_of(of->server.host));
    mp_span_int(trace, span.span, "server.port", of->server.port);
    if (count > 1)
        mp_span_int(trace, span.span, "db.operation.batch.size", count);
    return span;
}

/* redis.send(connection, requests, seconds, operation, script): sends the requests, each a list of texts, together, and
 * waits. `script` is the path of the script that has opened the cache: the scripts share what may wait.
 * One request: true and the value of its reply; or nil, the error's text, "error". Several: true and the list of their
 * replies. Else nil, why, "unavailable" or "unknown", and "late", its time is over, "lost", the connection is, or
 * "refused", by the gateway. `operation`: the name of the command, for the span.  [-0, +2|3|4, throws, parks] */
static int l_send(lua_State *L)
{
    connection *of = luaL_checkudata(L, 1, CONNECTION);
    luaL_checktype(L, 2, LUA_TTABLE);
    double seconds = luaL_checknumber(L, 3);
    mp_str operation = mp_check_str(L, 4), script = mp_check_str(L, 5);
    luaL_argcheck(L, seconds > 0 && seconds <= 86400, 3, "from above 0 to a day");
    lua_settop(L, 4);
    waiting *it = mp_owning_op_new(L, sizeof *it, on_cancel, on_release);
    it->command = mp_redis_command_new(on_done, it);
    mp_redis_command *command = MP_NEVER_NULL(it->command);
    lua_Integer count = (lua_Integer)lua_rawlen(L, 2);
    const char *why = count == 0 ? "there is no command" : NULL;
    for (lua_Integer i = 1; why == NULL && i <= count; i++) {
        lua_rawgeti(L, 2, i);
        why = add_request(L, command);
        lua_pop(L, 1);
    }
    mp_err err;
    mp_redis *redis = why != NULL ? NULL : need_redis(L, of);
    if (why == NULL && redis == NULL)
        why = "more than 32 connections to Redis servers are open, or more than this script may have of the last ones";
    if (redis != NULL) {
        it->span = begin_span(L, of, operation, count);
        if (mp_redis_send(redis, command, mp_holder_number(script.ptr, script.len), &err) != 0)
            why = err.text;
    }
    if (why != NULL) {
        mp_open_span_fail(&it->span, "unavailable", MP_STR_NONE);
        drop_command(it);
        return push_failure(L, MP_REDIS_UNAVAILABLE, of->address, why, "refused");
    }
    if (mp_redis_end_of(command) == MP_REDIS_WAITS)
        mp_timer_start(it->super.super.loop, &it->timer, (uint64_t)ceil(seconds * 1000), on_late);
    return mp_op_park_then(L, &it->super.super, push_results, 5);
}

/* -- channels ------------------------------------------------------------------------------------------------------ */

/* A channel that a job follows, on a connection of its own. Its user values are the connection that says which server,
 * and the name. */
typedef struct {
    mp_listening super;
    mp_seat place;
    const connection *MP_NULLABLE of; /* a user value, too; NULL: the server is not known yet */
    mp_str channel;                   /* a user value */
    bool is_pattern;
    bool is_open;                                    /* the job listens */
    mp_redis_subscription *MP_NULLABLE subscription; /* NULL: the job does not listen, or there is no server */
} channel;

static channel *channel_of(const mp_listening *source)
{
    return mp_container(source, channel, super);
}

/* True if the channel is followed. Without a server it will be. */
static bool follow_channel(channel *it, mp_loop *loop)
{
    const mp_redis_reader reader = {mp_listening_put, mp_listening_put_gap, &it->super};
    const connection *of = it->of;
    if (of == NULL)
        return true;
    mp_lib *lib = of->lib;
    mp_client *client = lib->client;
    if (client == NULL ||
        !mp_seat_take(&lib->redis, &it->place, of->server.holder, MAX_CONNECTIONS, &mp_stat_refused_redis))
        return false;
    it->subscription = mp_redis_subscribe(loop, client, &of->server, it->channel, it->is_pattern, &reader);
    return true;
}

static bool open_channel(mp_listening *source, mp_loop *loop)
{
    channel *it = channel_of(source);
    it->is_open = follow_channel(it, loop);
    return it->is_open;
}

static void unfollow_channel(channel *it)
{
    mp_redis_subscription_free(it->subscription);
    it->subscription = NULL;
    mp_link_drop(&it->place.link);
}

static void close_channel(mp_listening *source)
{
    channel *it = channel_of(source);
    it->is_open = false;
    unfollow_channel(it);
}

static void on_dropped(mp_listening *source, bool is_first)
{
    const channel *it = channel_of(source);
    mp_stat_add(&mp_stat_dropped_messages, 1);
    if (is_first && it->of != NULL)
        mp_log(MP_WARN, "redis messages dropped", mp_log_str("server", mp_str_of(it->of->address)),
               mp_log_str("channel", it->channel), mp_log_int("waiting", source->count));
}

static const mp_listening_kind channels = {open_channel, close_channel, on_dropped, &mp_stat_redis_messages};

/* redis.channel(connection, channel, is_pattern): what a listening job takes its messages from; nil instead of a
 * connection: redis.renew will say the server.  [-0, +1, throws] */
static int l_channel(lua_State *L)
{
    const connection *of = lua_isnil(L, 1) ? NULL : luaL_checkudata(L, 1, CONNECTION);
    mp_str name = mp_check_str(L, 2);
    bool is_pattern = lua_toboolean(L, 3);
    channel *it = mp_listening_new(L, sizeof *it, &channels, CHANNEL);
    it->of = of;
    it->channel = name;
    it->is_pattern = is_pattern;
    return 1;
}

/* redis.renew(channel, connection): takes the messages from the server of this connection from now on, by a new
 * subscription if a job listens. False if this server has refused the one there is: it is tried again as it is.
 * [-0, +1, throws] */
static int l_renew(lua_State *L)
{
    channel *it = luaL_checkudata(L, 1, CHANNEL);
    const connection *of = luaL_checkudata(L, 2, CONNECTION), *before = it->of;
    const mp_redis_subscription *now = it->subscription;
    bool is_refused = now != NULL && before != NULL && mp_redis_subscription_is_refused(now) &&
                      strcmp(before->address, of->address) == 0;
    lua_pushboolean(L, !is_refused);
    if (is_refused)
        return 1;
    it->of = of;
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, 1, 1);
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    if (it->is_open && loop != NULL) {
        unfollow_channel(it);
        it->is_open = follow_channel(it, loop);
    }
    return 1;
}

MP_SCRIPT_LIBRARY(redis)
{
    static const luaL_Reg functions[] = {
        {"redis.connection", l_connection}, {"redis.load", l_load},   {"redis.send", l_send},
        {"redis.channel", l_channel},       {"redis.renew", l_renew}, {NULL, NULL}};
    (void)config;
    mp_set_members(L, functions, 0);
    mp_push_metatable(L, CONNECTION, l_collect);
    mp_push_metatable(L, CHANNEL, NULL);
    lua_pushboolean(L, true);
    lua_setfield(L, -2, MP_LISTENING);
    lua_pop(L, 2);
}
