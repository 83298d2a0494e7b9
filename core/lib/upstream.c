/* upstream.c: host.upstream: channels and exchanges of tasks with other MCP servers. What messages mean is in lua/moonpool/upstream. This file
 * is long because a channel and an exchange share how they wait, fail and end. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/mcp/call.h"
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>

#define CHANNEL "moonpool.channel"
#define EXCHANGE "moonpool.exchange"
#define MAX_HEADERS 64
#define MAX_TIME_S 86400.0

typedef struct channel_handle channel_handle;
typedef struct exchange_handle exchange_handle;

typedef struct {
    mp_op super;
    mp_timer timer;
    channel_handle *of;
} take_op;

/* The first user value is the call that the channel belongs to, then the card's table. */
struct channel_handle {
    mp_hold hold;
    mp_take *take; /* NULL once it has its result */
    take_op *op;   /* the wait of the task, or NULL */
    mp_channel *channel;
    bool is_claimed; /* the task opens the channel */
    bool is_once;    /* the channel ends with the task */
    bool is_late;    /* waited too long */
};

typedef struct {
    mp_op super;
    exchange_handle *of;
} next_op;

struct exchange_handle {
    mp_hold hold;
    mp_exchange *exchange; /* NULL once it was closed */
    next_op *op;           /* the wait of a task, or NULL */
};

/* -- failures ------------------------------------------------------------------------------------------------------ */

/* Pushes nil and a table.  [-0, +2, throws] */
static int push_failure(lua_State *L, const mp_upstream_failure *failure)
{
    lua_pushnil(L);
    lua_createtable(L, 0, 7);
    mp_field_text(L, "outcome", failure->may_have_run ? "unknown" : "not_run");
    mp_field_text(L, "reason", failure->reason);
    mp_field_text(L, "why", failure->why);
    if (failure->status > 0)
        mp_field_integer(L, "status", failure->status);
    if (failure->retry_after_ms >= 0)
        mp_field_number(L, "retry_after", (double)failure->retry_after_ms / 1000);
    if (failure->head != NULL) {
        lua_pushlstring(L, failure->head, failure->head_len);
        lua_setfield(L, -2, "head");
    }
    if (failure->body != NULL) {
        lua_pushlstring(L, failure->body, failure->body_len);
        lua_setfield(L, -2, "body");
    }
    return 2;
}

static int push_simple_failure(lua_State *L, const char *reason, const char *why)
{
    mp_upstream_failure failure = {.reason = reason, .retry_after_ms = -1};
    snprintf(failure.why, sizeof failure.why, "%s", why);
    return push_failure(L, &failure);
}

/* A literal of the reasons that Lua may give for a channel that could not be opened. */
static const char *reason_of(mp_str text)
{
    static const char *const reasons[] = {"refused", "address",    "closed",    "timeout", "total",   "status",
                                          "busy",    "unreadable", "too_large", "down",    "stopped", "barred"};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (mp_str_is(text, reasons[i]))
            return reasons[i];
    return "refused";
}

/* -- taking a channel ---------------------------------------------------------------------------------------------- */

static void end_take(channel_handle *it)
{
    mp_take_free(it->take);
    it->take = NULL;
}

static void release_channel(channel_handle *it)
{
    end_take(it);
    if (it->channel == NULL)
        return;
    if (it->is_claimed)
        mp_channel_give_back(it->channel);
    if (it->is_once)
        mp_channel_end(it->channel);
    mp_channel_unref(it->channel);
    it->channel = NULL;
}

static void on_channel_release(mp_hold *hold)
{
    release_channel(mp_container(hold, channel_handle, hold));
}

static int l_channel_gc(lua_State *L)
{
    channel_handle *it = lua_touserdata(L, 1);
    mp_hold_drop(&it->hold);
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
    mp_timer_stop(mp_op_loop(&op->super), &op->timer);
    mp_op_done(&op->super);
}

static void on_take_late(mp_timer *timer)
{
    take_op *op = mp_container(timer, take_op, timer);
    channel_handle *it = op->of;
    if (mp_take_result_of(it->take) != MP_TAKE_WAITS)
        return; /* its result is on the way */
    it->is_late = true;
    it->op = NULL;
    end_take(it);
    mp_op_done(&op->super);
}

static void on_take_cancel(mp_op *super)
{
    channel_handle *it = mp_container(super, take_op, super)->of;
    mp_timer_stop(mp_op_loop(super), &mp_container(super, take_op, super)->timer);
    it->op = NULL;
    end_take(it);
}

/* The channel belongs to the call's session, or, without one, to the task.  [-0, +0] */
static void own_channel(lua_State *L, int handle, channel_handle *it)
{
    if (lua_getiuservalue(L, handle, 1) != LUA_TUSERDATA) {
        lua_pop(L, 1);
        return;
    }
    const mp_call_handle *call = lua_touserdata(L, -1);
    lua_pop(L, 1);
    bool is_alive = call->task != NULL && call->serial == call->task->super.serial && call->task->call != NULL;
    mp_session *session = is_alive ? mp_call_session(call->task->call) : NULL;
    if (session == NULL) {
        it->is_once = true;
        return;
    }
    mp_channel_own(it->channel, mp_session_id(session));
    if (!mp_session_is_open(session))
        mp_channel_end(it->channel);
}

/* Pushes the results of channel(): the channel and a word, or nil and a failure. `context`: index of the handle.  [-0, +2, throws] */
static int push_taken(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    static const char *const words[] = {
        [MP_TAKE_OPEN] = "open", [MP_TAKE_PROBE] = "probe", [MP_TAKE_CLAIMED] = "claimed"};
    channel_handle *it = lua_touserdata(L, (int)context);
    if (it->is_late)
        return push_simple_failure(L, "open", "no channel was opened within `open`");
    mp_take_result result = mp_take_result_of(it->take);
    if (result == MP_TAKE_REFUSED)
        return push_failure(L, mp_take_failure(it->take));
    it->channel = mp_take_fetch(it->take);
    it->is_claimed = result == MP_TAKE_CLAIMED;
    mp_hold_put(L, &it->hold, on_channel_release);
    end_take(it);
    if (it->is_claimed)
        own_channel(L, (int)context, it);
    lua_pushvalue(L, (int)context);
    lua_pushstring(L, words[result]);
    return 2;
}

/* upstream.channel(name, key[, options]): takes the channel of a sharing key: channel and "open", "probe" or "claimed"; or nil and a failure.
 *  [-0, +2, throws, parks] */
static int l_channel(lua_State *L)
{
    mp_lib *lib = mp_lib_of(L);
    mp_str name = mp_check_str(L, 1), key = mp_check_str(L, 2);
    if (!lua_isnoneornil(L, 3))
        luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    if (lib->upstreams == NULL)
        return luaL_error(L, "the gateway is not serving yet: scripts are loading");
    channel_handle *it = lua_newuserdatauv(L, sizeof *it, 2);
    *it = (channel_handle){0};
    mp_link_init(&it->hold.link);
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
    it->take =
        mp_channel_take(lib->upstreams, &(mp_take_options){.name = name, .key = key, .done = on_taken, .ctx = it});
    if (mp_take_result_of(it->take) != MP_TAKE_WAITS)
        return push_taken(L, LUA_OK, 4);
    op->of = it;
    it->op = op;
    mp_timer_start(mp_op_loop(&op->super), &op->timer, mp_take_open_ms(it->take), on_take_late);
    return mp_op_park_then(L, &op->super, push_taken, 4);
}

/* -- channels ------------------------------------------------------------------------------------------------------ */

static channel_handle *check_channel(lua_State *L)
{
    channel_handle *it = luaL_checkudata(L, 1, CHANNEL);
    if (it->channel == NULL)
        luaL_error(L, "this channel was released: the task that took it has ended");
    return it;
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

/* channel:opened(card): the claim is done. False if the channel has ended meanwhile.  [-0, +1, throws] */
static int l_opened(lua_State *L)
{
    channel_handle *it = check_channel(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    mp_vm *vm = mp_vm_of(L);
    mp_str revision = header_field(L, "revision"), session = header_field(L, "session");
    size_t start = vm->out.len;
    mp_encode_out(L, vm, 2);
    bool is_open = mp_channel_opened(it->channel, mp_str_from(mp_buf_str(&vm->out), start), revision, session);
    vm->out.len = start;
    it->is_claimed = false;
    lua_pushboolean(L, is_open);
    return 1;
}

/* channel:card(): the table that was given to opened, with `serial`; nil before.  [-0, +1, throws] */
static int l_card(lua_State *L)
{
    channel_handle *it = check_channel(L);
    lua_settop(L, 1);
    if (lua_getiuservalue(L, 1, 2) == LUA_TTABLE)
        return 1;
    mp_str card = mp_channel_card(it->channel);
    if (card.len == 0 || mp_lua_decode(L, card) != 0)
        return 0;
    mp_field_integer(L, "serial", (lua_Integer)mp_channel_serial(it->channel));
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, 2);
    return 1;
}

/* channel:failed(failure): the channel could not be opened.  [-0, +0, throws] */
static int l_failed(lua_State *L)
{
    channel_handle *it = check_channel(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_getfield(L, 2, "reason");
    mp_upstream_failure failure = {.reason = reason_of(mp_opt_str(L, 3)), .retry_after_ms = -1};
    lua_getfield(L, 2, "why");
    snprintf(failure.why, sizeof failure.why, "%s", luaL_optstring(L, 4, failure.reason));
    lua_getfield(L, 2, "retry_after");
    double seconds = luaL_optnumber(L, 5, -1);
    if (seconds >= 0 && seconds <= MAX_TIME_S)
        failure.retry_after_ms = (int64_t)(uint64_t)ceil(seconds * 1000);
    it->is_claimed = false;
    mp_channel_failed(it->channel, &failure);
    return 0;
}

/* channel:lost([serial]): the upstream does not know the session any more. True for the first call.  [-0, +1, throws] */
static int l_lost(lua_State *L)
{
    const channel_handle *it = check_channel(L);
    lua_Integer serial = luaL_optinteger(L, 2, (lua_Integer)mp_channel_serial(it->channel));
    lua_pushboolean(L, serial == (lua_Integer)mp_channel_serial(it->channel) && mp_channel_lost(it->channel));
    return 1;
}

/* channel:use(transport): after "claimed": tries another transport, "http" or "sse". False: there is no such one here.  [-0, +1, throws] */
static int l_use(lua_State *L)
{
    const channel_handle *it = check_channel(L);
    lua_pushboolean(L, it->is_claimed && mp_channel_use(it->channel, mp_check_str(L, 2)));
    return 1;
}

/* channel:close(): ends the channel for all tasks, and its session at the upstream.  [-0, +0, throws] */
static int l_channel_close(lua_State *L)
{
    channel_handle *it = check_channel(L);
    it->is_claimed = false;
    mp_channel_end(it->channel);
    return 0;
}

/* channel:release(): the task does not use the channel any more.  [-0, +0, throws] */
static int l_channel_release(lua_State *L)
{
    channel_handle *it = luaL_checkudata(L, 1, CHANNEL);
    mp_hold_drop(&it->hold);
    release_channel(it);
    return 0;
}

static int l_next_id(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_channel_next_id(check_channel(L)->channel));
    return 1;
}

static int l_serial(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_channel_serial(check_channel(L)->channel));
    return 1;
}

static int l_transport(lua_State *L)
{
    lua_pushstring(L, mp_channel_transport(check_channel(L)->channel));
    return 1;
}

/* -- exchanges ----------------------------------------------------------------------------------------------------- */

static void release_exchange(exchange_handle *it)
{
    mp_exchange *exchange = it->exchange;
    it->exchange = NULL;
    mp_exchange_free(exchange);
}

static void wake_reader(exchange_handle *it)
{
    next_op *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(&op->super);
}

static void on_exchange_release(mp_hold *hold)
{
    exchange_handle *it = mp_container(hold, exchange_handle, hold);
    release_exchange(it);
    wake_reader(it);
}

static void on_exchange_ready(void *ctx)
{
    wake_reader(ctx);
}

static int l_exchange_gc(lua_State *L)
{
    exchange_handle *it = lua_touserdata(L, 1);
    mp_hold_drop(&it->hold);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

/* Milliseconds of a field of the options at index 3, in seconds; 0 if it is nil.  [-0, +0, throws] */
static uint64_t ms_field(lua_State *L, const char *name)
{
    double seconds = 0;
    if (lua_getfield(L, 3, name) != LUA_TNIL)
        seconds = luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (!(seconds >= 0 && seconds <= MAX_TIME_S))
        luaL_error(L, "'%s' must be at most a day, in seconds", name);
    return (uint64_t)ceil(seconds * 1000);
}

static mp_str opt_text_field(lua_State *L, const char *name)
{
    mp_str text = MP_STR_NONE;
    if (lua_getfield(L, 3, name) != LUA_TNIL)
        text = mp_check_str(L, -1);
    lua_pop(L, 1);
    return text;
}

/* Reads the options at index 3; pushes a userdata with the headers.  [-0, +1, throws] */
static mp_exchange_options read_options(lua_State *L)
{
    mp_exchange_options options = {.timeout_ms = ms_field(L, "timeout"), .total_ms = ms_field(L, "total")};
    options.revision = opt_text_field(L, "revision");
    options.session = opt_text_field(L, "session");
    options.cancel = opt_text_field(L, "cancel");
    lua_getfield(L, 3, "id");
    options.has_id = !lua_isnil(L, -1);
    options.id = options.has_id ? (int64_t)luaL_checkinteger(L, -1) : 0;
    lua_getfield(L, 3, "answer");
    options.answer = (size_t)luaL_optinteger(L, -1, 0);
    lua_pop(L, 2);
    if (lua_getfield(L, 3, "headers") != LUA_TNIL)
        options.headers = mp_push_texts(L, 3, "headers", MAX_HEADERS);
    return options;
}

/* channel:send(bytes[, options]): sends one message: an exchange; or nil and a failure.  [-0, +1|2, throws] */
static int l_send(lua_State *L)
{
    channel_handle *it = check_channel(L);
    mp_str message = mp_check_str(L, 2);
    mp_upstream_failure failure;
    if (lua_isnoneornil(L, 3)) {
        lua_settop(L, 2);
        lua_newtable(L);
    }
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    mp_exchange_options options = read_options(L);
    exchange_handle *handle = lua_newuserdatauv(L, sizeof *handle, 0);
    *handle = (exchange_handle){0};
    mp_link_init(&handle->hold.link);
    luaL_setmetatable(L, EXCHANGE);
    options.message = message;
    options.ready = on_exchange_ready;
    options.ctx = handle;
    handle->exchange = mp_exchange_send(mp_lib_of(L)->upstreams, it->channel, &options, &failure);
    if (handle->exchange == NULL)
        return push_failure(L, &failure);
    mp_hold_put(L, &handle->hold, on_exchange_release);
    return 1;
}

static void push_span(lua_State *L, const char *name, mp_str span)
{
    if (span.ptr == NULL)
        return;
    lua_pushlstring(L, span.ptr, span.len);
    lua_setfield(L, -2, name);
}

/* Pushes the table of an event.  [-0, +1, throws] */
static void push_event(lua_State *L, const mp_exchange_event *event)
{
    static const char *const kinds[] = {[MP_EVENT_ANSWER] = "answer",
                                        [MP_EVENT_REQUEST] = "request",
                                        [MP_EVENT_NOTE] = "notification",
                                        [MP_EVENT_ACCEPTED] = "accepted"};
    lua_createtable(L, 0, 4);
    mp_field_text(L, "kind", kinds[event->kind]);
    if (event->status > 0)
        mp_field_integer(L, "status", event->status);
    if (event->kind == MP_EVENT_ANSWER) {
        push_span(L, event->is_error ? "error" : "result", event->answer);
    } else {
        push_span(L, "method", event->method);
        push_span(L, "id", event->id);
        push_span(L, "bytes", event->bytes);
    }
}

/* True if next() need not wait. Pushes its results then.  [-0, +0|1|2, throws] */
static int push_next(lua_State *L, exchange_handle *it)
{
    if (it->exchange == NULL)
        return push_simple_failure(L, "cancelled", "the exchange was closed");
    const mp_exchange_event *event = mp_exchange_next(it->exchange);
    if (event != NULL) {
        mp_str session = mp_exchange_session(it->exchange);
        push_event(L, event);
        if (event->kind == MP_EVENT_ANSWER && session.len > 0)
            push_span(L, "session", session);
        return 1;
    }
    const mp_upstream_failure *failure = mp_exchange_failure(it->exchange);
    if (failure != NULL)
        return push_failure(L, failure);
    if (mp_exchange_is_over(it->exchange))
        return push_simple_failure(L, "cancelled", "the exchange is over");
    return 0;
}

static void on_next_cancel(mp_op *super)
{
    mp_container(super, next_op, super)->of->op = NULL;
}

static int push_next_then(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    return push_next(L, lua_touserdata(L, (int)context));
}

/* exchange:next(): waits for the next event; or nil and a failure.  [-0, +1|2, throws, parks] */
static int l_next(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    lua_settop(L, 1);
    if (it->op != NULL)
        return luaL_error(L, "another task waits for this exchange");
    int count = push_next(L, it);
    if (count > 0)
        return count;
    next_op *op = mp_op_new(L, sizeof *op, on_next_cancel);
    op->of = it;
    it->op = op;
    return mp_op_park_then(L, &op->super, push_next_then, 1);
}

/* exchange:reply(bytes): answers a request of the upstream. False if the exchange is over.  [-0, +1, throws] */
static int l_reply(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_str message = mp_check_str(L, 2);
    bool is_open = it->exchange != NULL && !mp_exchange_is_over(it->exchange);
    if (is_open)
        mp_exchange_reply(it->exchange, message);
    lua_pushboolean(L, is_open);
    return 1;
}

/* __close: the task needs no answer any more. A message without an id is still sent.  [-0, +0, throws] */
static int l_exchange_close(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_hold_drop(&it->hold);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

/* exchange:cancel([bytes]): ends the exchange.  [-0, +0, throws] */
static int l_cancel(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_str message = lua_type(L, 2) == LUA_TSTRING ? mp_check_str(L, 2) : MP_STR_NONE;
    mp_hold_drop(&it->hold);
    if (it->exchange != NULL)
        mp_exchange_cancel(it->exchange, message);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

static void add_metatable(lua_State *L, const char *kind, lua_CFunction gc, lua_CFunction close,
                          const luaL_Reg *methods)
{
    mp_push_metatable(L, kind, gc);
    mp_field_function(L, "__close", close);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void mp_lib_upstream(lua_State *L, mp_upstreams *upstreams)
{
    static const luaL_Reg functions[] = {{"upstream.channel", l_channel}, {NULL, NULL}};
    static const luaL_Reg channel[] = {{"opened", l_opened},
                                       {"card", l_card},
                                       {"failed", l_failed},
                                       {"lost", l_lost},
                                       {"use", l_use},
                                       {"close", l_channel_close},
                                       {"release", l_channel_release},
                                       {"next_id", l_next_id},
                                       {"serial", l_serial},
                                       {"transport", l_transport},
                                       {"send", l_send},
                                       {NULL, NULL}};
    static const luaL_Reg exchange[] = {{"next", l_next}, {"reply", l_reply}, {"cancel", l_cancel}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    mp_lib_catalogue(L, upstreams);
    lua_pushstring(L, upstreams == NULL ? "" : mp_upstreams_instance(upstreams));
    mp_set_member(L, -2, "upstream.instance");
    add_metatable(L, CHANNEL, l_channel_gc, l_channel_release, channel);
    add_metatable(L, EXCHANGE, l_exchange_gc, l_exchange_close, exchange);
}
