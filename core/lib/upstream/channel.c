/* channel.c: host.upstream: channels of tasks to other MCP servers. What messages mean is in lua/moonpool/upstream. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/upstream/handles.h"
#include <lauxlib.h>
#include <math.h>

#define CHANNEL "moonpool.channel"
#define MAX_TOKEN_BYTES ((size_t)16 << 10)

typedef struct channel_handle channel_handle;

typedef struct {
    mp_op super;
    mp_timer timer;
    channel_handle *of;
} take_op;

/* User values: 1: the call, or the id of the session, that the channel belongs to; 2: the table of the channel's
 * server info. */
struct channel_handle {
    mp_resource resource;
    mp_channel_request *MP_NULLABLE request; /* the request for a channel; NULL once it has its result */
    take_op *MP_NULLABLE op;                 /* the wait of the task, or NULL */
    mp_channel *MP_NULLABLE channel;
    bool is_claimed; /* the task opens the channel */
    bool is_once;    /* the channel ends with the task */
};

/* The failure reason with the name that Lua gives, for a channel that could not be opened. REFUSED for names that
 * failure.def lacks, and for reasons that only exchanges have. */
static mp_failure_reason reason_named(mp_str name)
{
    mp_failure_reason reason = mp_failure_named(name);
    switch (reason) {
    case MP_FAILURE_NONE:
    case MP_FAILURE_LOST:
    case MP_FAILURE_OPEN:
    case MP_FAILURE_QUESTIONS:
    case MP_FAILURE_UNKNOWN:
    case MP_FAILURE_CANCELLED:
        return MP_FAILURE_REFUSED;
    default:
        return reason;
    }
}

/* -- taking a channel ---------------------------------------------------------------------------------------------- */

static void end_take(channel_handle *it)
{
    mp_channel_request_free(it->request);
    it->request = NULL;
}

static void release_channel(channel_handle *it)
{
    end_take(it);
    if (it->channel == NULL)
        return;
    if (it->is_claimed)
        mp_channel_give_back(it->channel);
    if (it->is_once)
        mp_channel_end_unused(it->channel);
    mp_channel_unref(it->channel);
    it->channel = NULL;
}

static void on_channel_release(mp_resource *resource)
{
    release_channel(mp_container(resource, channel_handle, resource));
}

static int l_channel_gc(lua_State *L)
{
    channel_handle *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    release_channel(it);
    return 0;
}

static void on_taken(void *ctx)
{
    channel_handle *it = ctx;
    take_op *op = it->op;
    if (op == NULL)
        return;
    it->op = NULL;
    mp_timer_stop(op->super.loop, &op->timer);
    mp_op_done(&op->super);
}

static void on_take_late(mp_timer *timer)
{
    take_op *op = mp_container(timer, take_op, timer);
    channel_handle *it = op->of;
    mp_channel_request *request = it->request;
    if (request == NULL || mp_channel_request_result_of(request) != MP_ACQUIRE_WAITS)
        return; /* the message with the result is on its way */
    it->op = NULL;
    mp_channel_request_expire(request);
    mp_op_done(&op->super);
}

static void on_take_cancel(mp_op *super)
{
    channel_handle *it = mp_container(super, take_op, super)->of;
    mp_timer_stop(super->loop, &mp_container(super, take_op, super)->timer);
    it->op = NULL;
    end_take(it);
}

/* The id of the session of a call; empty if the call has ended, or has none. */
static mp_str session_of(const mp_call_handle *call)
{
    bool is_alive = call->task != NULL && call->serial == call->task->super.serial && call->task->call != NULL;
    mp_session *session = is_alive ? mp_call_session(call->task->call) : NULL;
    return session == NULL ? MP_STR_NONE : mp_session_id(session);
}

/* The channel belongs to the session that the first user value names, by its id or by a call; without one, to the task.
 * [-0, +0, throws memory] */
static void own_channel(lua_State *L, int handle, channel_handle *it, mp_channel *channel)
{
    int type = lua_getiuservalue(L, handle, 1);
    mp_str id = MP_STR_NONE;
    if (type == LUA_TUSERDATA)
        id = session_of(lua_touserdata(L, -1));
    else if (type == LUA_TSTRING)
        id.ptr = lua_tolstring(L, -1, &id.len);
    if (id.len > 0) {
        mp_rpc *rpc = mp_lib_of(L)->rpc;
        mp_channel_own(channel, id);
        if (rpc == NULL || !mp_session_is_known(rpc, id))
            mp_channel_end(channel);
    } else if (type == LUA_TUSERDATA) {
        it->is_once = true;
    }
    lua_pop(L, 1);
}

/* Pushes the results of channel(): the channel and "open", "probe" or "claimed"; or nil and a failure. `context`: index
 * of the handle.  [-0, +2, throws] */
static int push_taken(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    static const char *const words[] = {
        [MP_ACQUIRE_OPEN] = "open", [MP_ACQUIRE_PROBE] = "probe", [MP_ACQUIRE_CLAIMED] = "claimed"};
    channel_handle *it = lua_touserdata(L, (int)context);
    mp_channel_request *request = it->request;
    if (request == NULL)
        return mp_upstream_push_reason(L, MP_FAILURE_CANCELLED, "the wait for the channel was cancelled");
    mp_channel_request_result result = mp_channel_request_result_of(request);
    if (result == MP_ACQUIRE_REFUSED)
        return mp_upstream_push_failure(L, mp_channel_request_failure(request));
    mp_channel *channel = mp_channel_request_fetch(request);
    it->channel = channel;
    it->is_claimed = result == MP_ACQUIRE_CLAIMED;
    end_take(it);
    if (channel != NULL && it->is_claimed)
        own_channel(L, (int)context, it, channel);
    lua_pushvalue(L, (int)context);
    lua_pushstring(L, words[result]);
    return 2;
}

mp_upstream_host *mp_upstreams_of(lua_State *L)
{
    mp_upstream_host *host = mp_lib_of(L)->upstreams;
    if (host == NULL)
        luaL_error(L, MP_NOT_SERVING);
    return host;
}

/* upstream.channel(name, key[, options]): takes the channel of a sharing key: channel and "open", "probe" or "claimed";
 * or nil and a failure.
 *  [-0, +2, throws, parks] */
static int l_channel(lua_State *L)
{
    mp_lib *lib = mp_lib_of(L);
    mp_str name = mp_check_str(L, 1), key = mp_check_str(L, 2);
    if (!lua_isnoneornil(L, 3))
        luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    mp_upstream_host *host = mp_upstreams_of(L);
    channel_handle *it = lua_newuserdatauv(L, sizeof *it, 2);
    *it = (channel_handle){0};
    luaL_setmetatable(L, CHANNEL);
    if (!lua_isnil(L, 3)) {
        lua_getfield(L, 3, "once");
        it->is_once = lua_toboolean(L, -1);
        if (lua_getfield(L, 3, "own") == LUA_TUSERDATA)
            mp_check_udata(L, -1, MP_CALL, lib->call_metatable);
        lua_setiuservalue(L, 4, 1);
        lua_pop(L, 1);
    }
    take_op *op = mp_op_new(L, sizeof *op, on_take_cancel);
    mp_upstream_failure unknown;
    mp_channel_request_options options = {.name = name, .key = key, .done = on_taken, .ctx = it};
    mp_channel_request *request = mp_channel_request_new(host, &options, &unknown);
    if (request == NULL)
        return mp_upstream_push_failure(L, &unknown);
    bool waits = mp_channel_request_result_of(request) == MP_ACQUIRE_WAITS;
    uint64_t ms = mp_channel_request_open_ms(request);
    it->request = request;
    /* If the task ends from here on, on_channel_release() gives the channel back, also one that the task has not read
     * from its request. */
    mp_resource_put(L, &it->resource, on_channel_release);
    if (!waits)
        return push_taken(L, LUA_OK, 4);
    op->of = it;
    it->op = op;
    mp_timer_start(op->super.loop, &op->timer, ms, on_take_late);
    return mp_op_park_then(L, &op->super, push_taken, 4);
}

/* upstream.open_channel(name, key): the channel of a key if it is open; else nil. Nothing waits, and nothing is opened.
 * [-0, +1, throws] */
static int l_open_channel(lua_State *L)
{
    mp_upstream_host *host = mp_lib_of(L)->upstreams;
    mp_str name = mp_check_str(L, 1), key = mp_check_str(L, 2);
    channel_handle *it = lua_newuserdatauv(L, sizeof *it, 2); /* first, since it may throw */
    *it = (channel_handle){0};
    luaL_setmetatable(L, CHANNEL);
    it->channel = host == NULL ? NULL : mp_channel_find_open(host, name, key);
    if (it->channel == NULL)
        lua_pushnil(L);
    else
        mp_resource_put(L, &it->resource, on_channel_release);
    return 1;
}

/* -- channels ------------------------------------------------------------------------------------------------------ */

mp_channel *mp_upstream_check_channel(lua_State *L)
{
    channel_handle *it = luaL_checkudata(L, 1, CHANNEL);
    if (it->channel == NULL)
        luaL_error(L, "this channel was released: the task that took it has ended");
    return it->channel;
}

void mp_upstream_push_channel(lua_State *L, mp_channel *channel)
{
    channel_handle *it = lua_newuserdatauv(L, sizeof *it, 2);
    *it = (channel_handle){0};
    luaL_setmetatable(L, CHANNEL);
    it->channel = mp_channel_ref(channel);
    mp_resource_put(L, &it->resource, on_channel_release);
}

/* The handle at index 1, and in `*channel` its channel. Raises an error if the channel was released.  [-0, +0,
 * throws] */
static channel_handle *check_handle(lua_State *L, mp_channel **channel)
{
    *channel = mp_upstream_check_channel(L);
    return lua_touserdata(L, 1);
}

/* The text in a field of the table at index 2 for a header; empty if it is nil.  [-0, +0, throws] */
static mp_str header_field(lua_State *L, const char *name)
{
    mp_str text = MP_STR_NONE;
    if (lua_getfield(L, 2, name) != LUA_TNIL)
        text = mp_check_str(L, -1);
    lua_pop(L, 1);
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < 0x21 || text.ptr[i] > 0x7e)
            luaL_error(L, "'%s' has a character that a header may not have", name);
    return text;
}

/* channel:opened(server_info): ends the claim: the channel is open for all tasks. False if the channel has ended
 * meanwhile.
 * [-0, +1, throws] */
static int l_opened(lua_State *L)
{
    mp_channel *channel;
    channel_handle *it = check_handle(L, &channel);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    mp_state *state = mp_state_of(mp_vm_of(L));
    mp_str revision = header_field(L, "revision"), session = header_field(L, "session");
    mp_channel_classify(channel, header_field(L, "class"));
    size_t start = state->out.len;
    mp_encode_out(L, state, 2);
    bool is_open = mp_channel_opened(channel, mp_str_from(mp_buf_str(&state->out), start), revision, session);
    state->out.len = start;
    it->is_claimed = false;
    lua_pushboolean(L, is_open);
    return 1;
}

/* channel:server_info(): the table that channel:opened() was given, with the member `serial`; nil before.  [-0, +1,
 * throws] */
static int l_server_info(lua_State *L)
{
    mp_channel *channel = mp_upstream_check_channel(L);
    lua_settop(L, 1);
    if (lua_getiuservalue(L, 1, 2) == LUA_TTABLE)
        return 1;
    mp_str server_info = mp_channel_server_info(channel);
    if (server_info.len == 0 || mp_lua_decode(L, server_info) != 0)
        return 0;
    mp_field_integer(L, "serial", (lua_Integer)mp_channel_serial(channel));
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, 2);
    return 1;
}

/* channel:failed(failure): ends the claim: the channel could not be opened.  [-0, +0, throws] */
static int l_failed(lua_State *L)
{
    mp_channel *channel;
    channel_handle *it = check_handle(L, &channel);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_getfield(L, 2, "reason");
    mp_upstream_failure failure = {.reason = reason_named(mp_opt_str(L, 3)), .retry_after_ms = -1};
    lua_getfield(L, 2, "why");
    snprintf(failure.why, sizeof failure.why, "%s", luaL_optstring(L, 4, mp_failure_name(failure.reason)));
    lua_getfield(L, 2, "retry_after");
    double seconds = luaL_optnumber(L, 5, -1);
    if (seconds >= 0 && seconds <= MP_MAX_UPSTREAM_TIME_S)
        failure.retry_after_ms = (int64_t)(uint64_t)ceil(seconds * 1000);
    it->is_claimed = false;
    mp_channel_failed(channel, &failure);
    return 0;
}

/* channel:lost([serial]): ends the channel, because the upstream has forgotten its session. True for the first call.
 * [-0, +1, throws] */
static int l_lost(lua_State *L)
{
    mp_channel *channel = mp_upstream_check_channel(L);
    lua_Integer serial = luaL_optinteger(L, 2, (lua_Integer)mp_channel_serial(channel));
    lua_pushboolean(L, serial == (lua_Integer)mp_channel_serial(channel) && mp_channel_lost(channel));
    return 1;
}

/* channel:use(transport): after "claimed": changes the transport to "http" or "sse". False if the channel cannot use
 * it.  [-0, +1, throws] */
static int l_use(lua_State *L)
{
    mp_channel *channel;
    const channel_handle *it = check_handle(L, &channel);
    lua_pushboolean(L, it->is_claimed && mp_channel_use(channel, mp_check_str(L, 2)));
    return 1;
}

/* channel:authorize(token): requests of the channel have this bearer token from now on.  [-0, +0, throws] */
static int l_authorize(lua_State *L)
{
    mp_channel *channel = mp_upstream_check_channel(L);
    mp_str token = mp_check_str(L, 2);
    bool is_good = token.len > 0 && token.len <= MAX_TOKEN_BYTES;
    for (size_t i = 0; i < token.len && is_good; i++)
        is_good = token.ptr[i] > ' ' && token.ptr[i] <= '~';
    if (!is_good)
        return luaL_error(L, "the token has a character that a header may not have, or is too long");
    mp_channel_authorize(channel, token);
    return 0;
}

/* channel:close(): ends the channel for all tasks, and its session at the upstream.  [-0, +0, throws] */
static int l_channel_close(lua_State *L)
{
    mp_channel *channel;
    channel_handle *it = check_handle(L, &channel);
    it->is_claimed = false;
    mp_channel_end(channel);
    return 0;
}

/* channel:release(): the task does not use the channel any more.  [-0, +0, throws] */
static int l_channel_release(lua_State *L)
{
    channel_handle *it = luaL_checkudata(L, 1, CHANNEL);
    mp_resource_drop(&it->resource);
    release_channel(it);
    return 0;
}

static int l_next_id(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_channel_next_id(mp_upstream_check_channel(L)));
    return 1;
}

static int l_serial(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_channel_serial(mp_upstream_check_channel(L)));
    return 1;
}

static int l_transport(lua_State *L)
{
    lua_pushstring(L, mp_channel_transport(mp_upstream_check_channel(L)));
    return 1;
}

/* channel:send(bytes[, options]): sends one message: an exchange; or nil and a failure.  [-0, +1|2, throws] */
static int l_send(lua_State *L)
{
    return mp_upstream_push_exchange(L, mp_upstream_check_channel(L));
}

MP_LIBRARY(upstream)
{
    static const luaL_Reg functions[] = {
        {"upstream.channel", l_channel}, {"upstream.open_channel", l_open_channel}, {NULL, NULL}};
    static const luaL_Reg channel[] = {{"opened", l_opened},
                                       {"server_info", l_server_info},
                                       {"failed", l_failed},
                                       {"lost", l_lost},
                                       {"use", l_use},
                                       {"authorize", l_authorize},
                                       {"close", l_channel_close},
                                       {"release", l_channel_release},
                                       {"next_id", l_next_id},
                                       {"serial", l_serial},
                                       {"transport", l_transport},
                                       {"send", l_send},
                                       {"listen", mp_upstream_listen},
                                       {"unlisten", mp_upstream_unlisten},
                                       {"hold", mp_upstream_hold},
                                       {NULL, NULL}};
    mp_set_members(L, functions, 0);
    mp_lib_catalogue(L, config->upstream_table);
    mp_lib_traits(L);
    mp_lib_observer(L);
    lua_pushstring(L, mp_upstreams_instance(config->upstream_table));
    mp_set_member(L, -2, "upstream.instance");
    lua_pushstring(L, mp_upstreams_hops(config->upstream_table));
    mp_set_member(L, -2, "upstream.hops");
    mp_upstream_add_handle(L, CHANNEL, l_channel_gc, l_channel_release, channel);
    mp_upstream_add_exchange(L);
}
