/* exchange.c: exchanges of tasks with upstreams: channel:send, and the events of an exchange until its answer. */
#include "lib/fields.h"
#include "lib/signal.h"
#include "lib/upstream/handles.h"
#include "vm/engine.h"
#include <lauxlib.h>
#include <math.h>

#define EXCHANGE "moonpool.exchange"
#define JOURNAL "moonpool.journal"
#define MAX_HEADERS 64
#define MAX_FAREWELLS 256

typedef struct exchange_handle exchange_handle;

typedef struct {
    mp_op super;
    exchange_handle *of;
} next_op;

/* The userdata of an exchange. Its user value keeps the event of the member `signal` alive. */
struct exchange_handle {
    mp_resource resource;
    mp_exchange *MP_NULLABLE exchange; /* NULL once it was closed */
    next_op *MP_NULLABLE op;           /* the wait of a task, or NULL */
    void *MP_NULLABLE signal;          /* the host.task event that is set when something arrives; NULL: none */
    mp_open_span span;
};

/* -- failures ------------------------------------------------------------------------------------------------------ */

int mp_upstream_push_failure(lua_State *L, const mp_upstream_failure *failure)
{
    lua_pushnil(L);
    lua_createtable(L, 0, 7);
    mp_field_text(L, "outcome", failure->may_have_run ? "unknown" : "not_run");
    mp_field_text(L, "reason", mp_failure_name(failure->reason));
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

int mp_upstream_push_reason(lua_State *L, mp_failure_reason reason, const char *why)
{
    mp_upstream_failure failure = {.reason = reason, .retry_after_ms = -1};
    snprintf(failure.why, sizeof failure.why, "%s", why);
    return mp_upstream_push_failure(L, &failure);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static void release_exchange(exchange_handle *it)
{
    mp_exchange *exchange = it->exchange;
    it->exchange = NULL;
    mp_open_span_close(&it->span);
    mp_exchange_free(exchange);
}

static void wake_reader(exchange_handle *it)
{
    next_op *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(&op->super);
}

static void on_exchange_release(mp_resource *resource)
{
    exchange_handle *it = mp_container(resource, exchange_handle, resource);
    release_exchange(it);
    wake_reader(it);
}

static void on_exchange_ready(void *ctx)
{
    const exchange_handle *it = ctx;
    if (it->signal != NULL)
        mp_signal_set(it->signal);
    wake_reader(ctx);
}

static int l_exchange_gc(lua_State *L)
{
    exchange_handle *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

/* Pushes a handle without an exchange.  [-0, +1, throws] */
static exchange_handle *push_handle(lua_State *L)
{
    exchange_handle *handle = lua_newuserdatauv(L, sizeof *handle, 1);
    *handle = (exchange_handle){0};
    luaL_setmetatable(L, EXCHANGE);
    return handle;
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

/* Reads a field of the options at index 3, which is in seconds, as milliseconds; 0 if it is nil.  [-0, +0, throws] */
static uint64_t ms_field(lua_State *L, const char *name)
{
    double seconds = 0;
    if (lua_getfield(L, 3, name) != LUA_TNIL)
        seconds = luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (!(seconds >= 0 && seconds <= MP_MAX_UPSTREAM_TIME_S))
        luaL_error(L, "'%s' must be at most a day, in seconds", name);
    return (uint64_t)ceil(seconds * 1000);
}

/* Reads the options at index 3; pushes a userdata with the headers.  [-0, +1, throws] */
static mp_exchange_options read_options(lua_State *L)
{
    static const mp_lua_member fields[] = {MP_MEMBER("revision", mp_exchange_options, revision),
                                           MP_MEMBER("session", mp_exchange_options, session),
                                           MP_MEMBER("cancel", mp_exchange_options, cancel),
                                           MP_MEMBER("id", mp_exchange_options, id),
                                           MP_MEMBER("answer", mp_exchange_options, answer),
                                           MP_MEMBER("takes_questions", mp_exchange_options, takes_questions),
                                           MP_MEMBER("is_retry", mp_exchange_options, is_retry),
                                           MP_MEMBER("is_trial", mp_exchange_options, is_trial),
                                           MP_MEMBER("is_opening", mp_exchange_options, is_opening),
                                           {0}};
    mp_exchange_options options = {.timeout_ms = ms_field(L, "timeout"), .total_ms = ms_field(L, "total")};
    mp_read_struct(L, 3, fields, &options);
    options.has_id = lua_getfield(L, 3, "id") != LUA_TNIL;
    lua_pop(L, 1);
    if (lua_getfield(L, 3, "headers") != LUA_TNIL)
        options.headers = mp_push_texts(L, 3, "headers", MAX_HEADERS);
    return options;
}

/* Sends the message for the handle on top of the stack. False: `failure` says why.  [-0, +0, throws] */
static bool send_for(lua_State *L, exchange_handle *handle, mp_channel *channel, mp_exchange_options *options,
                     mp_upstream_failure *failure)
{
    options->ready = on_exchange_ready;
    options->ctx = handle;
    handle->exchange = mp_exchange_send(mp_upstreams_of(L), channel, options, failure);
    if (handle->exchange == NULL)
        return false;
    mp_resource_put(L, &handle->resource, on_exchange_release);
    return true;
}

bool mp_upstream_begin_exchange(lua_State *L, mp_channel *channel, mp_exchange_options *options,
                                mp_upstream_failure *failure)
{
    if (send_for(L, push_handle(L), channel, options, failure))
        return true;
    lua_pop(L, 1);
    return false;
}

void mp_upstream_set_span(lua_State *L, const mp_open_span *span)
{
    exchange_handle *it = lua_touserdata(L, -1);
    it->span = *span;
}

int mp_upstream_push_exchange(lua_State *L, mp_channel *channel)
{
    mp_str message = mp_check_str(L, 2);
    mp_upstream_failure failure;
    if (lua_isnoneornil(L, 3)) {
        lua_settop(L, 2);
        lua_newtable(L);
    }
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    mp_exchange_options options = read_options(L);
    options.message = message;
    exchange_handle *handle = push_handle(L);
    if (lua_getfield(L, 3, "signal") != LUA_TNIL)
        handle->signal = mp_check_signal(L, -1);
    lua_setiuservalue(L, -2, 1);
    return send_for(L, handle, channel, &options, &failure) ? 1 : mp_upstream_push_failure(L, &failure);
}

/* -- what comes ---------------------------------------------------------------------------------------------------- */

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
        return mp_upstream_push_reason(L, MP_FAILURE_CANCELLED, "the exchange was closed");
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
        return mp_upstream_push_failure(L, failure);
    if (mp_exchange_is_over(it->exchange))
        return mp_upstream_push_reason(L, MP_FAILURE_CANCELLED, "the exchange is over");
    return 0;
}

static void on_next_cancel(mp_op *super)
{
    mp_container(super, next_op, super)->of->op = NULL;
}

static int push_next_then(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
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

static bool has_news(const mp_exchange *exchange)
{
    return mp_exchange_peek(exchange) != NULL || mp_exchange_is_over(exchange);
}

/* exchange:wake(signal): the host.task event `signal` is set when something arrives, and now if something has. [-0, +0,
 * throws] */
static int l_wake(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    void *signal = mp_check_signal(L, 2);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, 1);
    it->signal = signal;
    if (it->exchange == NULL || has_news(it->exchange))
        mp_signal_set(MP_NEVER_NULL(signal));
    return 0;
}

/* exchange:take(): like next(), but returns nothing if no event has arrived.  [-0, +0|1|2, throws] */
static int l_take(lua_State *L)
{
    return push_next(L, luaL_checkudata(L, 1, EXCHANGE));
}

int mp_upstream_wait(lua_State *L, int index, lua_KFunction then)
{
    exchange_handle *it = lua_touserdata(L, index);
    if (it->exchange == NULL || has_news(it->exchange))
        return then(L, LUA_OK, index);
    next_op *op = mp_op_new(L, sizeof *op, on_next_cancel);
    op->of = it;
    it->op = op;
    return mp_op_park_then(L, &op->super, then, index);
}

const mp_exchange_event *MP_NULLABLE mp_upstream_peek(lua_State *L, int index)
{
    const exchange_handle *it = lua_touserdata(L, index);
    return it->exchange == NULL ? NULL : mp_exchange_peek(it->exchange);
}

void mp_upstream_skip(lua_State *L, int index)
{
    const exchange_handle *it = lua_touserdata(L, index);
    if (it->exchange != NULL)
        mp_exchange_next(it->exchange);
}

void mp_upstream_release_exchange(lua_State *L, int index)
{
    exchange_handle *it = lua_touserdata(L, index);
    mp_resource_drop(&it->resource);
    release_exchange(it);
}

mp_str mp_upstream_channel_key(lua_State *L, int index)
{
    const exchange_handle *it = lua_touserdata(L, index);
    return it->exchange == NULL ? MP_STR_NONE : mp_channel_key_text(mp_exchange_channel(it->exchange));
}

bool mp_upstream_push_channel_of(lua_State *L, int index, int64_t *id)
{
    const exchange_handle *it = lua_touserdata(L, index);
    const mp_exchange *exchange = it->exchange;
    if (exchange == NULL)
        return false;
    mp_upstream_push_channel(L, mp_exchange_channel(exchange));
    *id = mp_exchange_id(exchange);
    return true;
}

/* exchange:reply([bytes]): answers a request of the upstream; without bytes: the upstream has cancelled that request.
 * False if the exchange has ended.  [-0, +1, throws] */
static int l_reply(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_str message = lua_isnoneornil(L, 2) ? MP_STR_NONE : mp_check_str(L, 2);
    lua_pushboolean(L, it->exchange != NULL && mp_exchange_reply(it->exchange, message));
    return 1;
}

/* exchange:hand_on(bytes): gives a question of the upstream, a whole message, to another exchange of the channel, as
 * this one has ended; the question is refused if there is none.  [-0, +0, throws] */
static int l_hand_on(lua_State *L)
{
    const exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_str message = mp_check_str(L, 2);
    if (it->exchange != NULL)
        mp_exchange_hand_on(it->exchange, message);
    return 0;
}

/* __close: ends the exchange, since its task needs no answer any more. A message without an id is still sent.  [-0, +0,
 * throws] */
static int l_exchange_close(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_resource_drop(&it->resource);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

/* -- pending exchanges --------------------------------------------------------------------------------------------- */

static mp_pending_options pending_options(lua_State *L, int seconds, int principal)
{
    double wait = luaL_checknumber(L, seconds);
    luaL_argcheck(L, wait > 0 && wait <= MP_MAX_UPSTREAM_TIME_S, seconds, "seconds, at most a day");
    return (mp_pending_options){.principal = mp_check_str(L, principal), .ms = (uint64_t)ceil(wait * 1000)};
}

/* exchange:make_pending(seconds, cancel_messages, principal): makes the exchange pending, so that a later task can take
 * it up: a handle; or nil and a failure, and the exchange is as before. `cancel_messages`: messages that are sent
 * upstream if no task takes it up in time.  [-0, +1|2, throws] */
static int l_make_pending(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    char handle[MP_PENDING_HANDLE];
    mp_upstream_failure failure;
    lua_settop(L, 4);
    mp_pending_options options = pending_options(L, 2, 4);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_Unsigned count = lua_rawlen(L, 3);
    luaL_argcheck(L, count <= MAX_FAREWELLS, 3, "too many messages");
    mp_str *cancel_messages = lua_newuserdatauv(L, (count + 1) * sizeof *cancel_messages, 0);
    for (lua_Unsigned i = 0; i < count; i++) {
        lua_rawgeti(L, 3, (lua_Integer)i + 1);
        cancel_messages[i] = mp_check_str(L, -1); /* the table keeps the text */
        lua_pop(L, 1);
    }
    options.cancel_messages = cancel_messages;
    options.cancel_count = count;
    if (it->exchange == NULL)
        return mp_upstream_push_reason(L, MP_FAILURE_CANCELLED, "the exchange was closed");
    if (!mp_exchange_make_pending(it->exchange, &options, handle, &failure))
        return mp_upstream_push_failure(L, &failure);
    it->exchange = NULL;
    mp_resource_drop(&it->resource);
    wake_reader(it);
    lua_pushstring(L, handle);
    return 1;
}

/* upstream.take_up(handle, principal[, signal]): the pending exchange; nil if there is none for this principal. A
 * handle works once.
 *  [-0, +1, throws] */
static int l_take_up(lua_State *L)
{
    mp_str handle = mp_check_str(L, 1), principal = mp_check_str(L, 2);
    mp_upstream_host *host = mp_upstreams_of(L);
    lua_settop(L, 3);
    exchange_handle *it = push_handle(L);
    if (!lua_isnil(L, 3)) {
        it->signal = mp_check_signal(L, 3);
        lua_pushvalue(L, 3);
        lua_setiuservalue(L, -2, 1);
    }
    it->exchange = mp_exchange_take_up(host, handle, principal, on_exchange_ready, it);
    if (it->exchange == NULL)
        return 0;
    mp_resource_put(L, &it->resource, on_exchange_release);
    return 1;
}

/* upstream.keep(bytes, seconds, principal): keeps bytes for a later task of any worker: a handle; or nil and a failure.
 *  [-0, +1|2, throws] */
static int l_keep(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    char handle[MP_PENDING_HANDLE];
    mp_upstream_failure failure;
    lua_settop(L, 3);
    mp_pending_options options = pending_options(L, 2, 3);
    mp_upstream_host *host = mp_upstreams_of(L);
    if (!mp_journal_keep(mp_upstream_host_table(host), bytes, &options, handle, &failure))
        return mp_upstream_push_failure(L, &failure);
    lua_pushstring(L, handle);
    return 1;
}

/* A handle that the client must get with the answer to its call. */
typedef struct {
    mp_upstreams *table;
    char handle[MP_PENDING_HANDLE];
} expected;

static void on_delivery(void *ctx, mp_delivery_end end)
{
    expected *it = ctx;
    if (end == MP_DELIVERY_LOST)
        mp_pending_abandon(it->table, mp_str_of(it->handle));
    free(it);
}

/* upstream.expect(call, handle): the answer to the call carries the handle. If the client certainly never gets that
 * answer, the pending exchange or the kept bytes end, since no retry can name them.  [-0, +0, throws] */
static int l_expect(lua_State *L)
{
    mp_call *call = mp_check_call(L)->call;
    mp_str handle = mp_check_str(L, 2);
    mp_upstreams *table = mp_upstream_host_table(mp_upstreams_of(L));
    luaL_argcheck(L, handle.len < MP_PENDING_HANDLE, 2, "no handle");
    if (call == NULL || !mp_call_has_client(call)) {
        mp_pending_abandon(table, handle);
        return 0;
    }
    expected *it = mp_new(sizeof *it);
    it->table = table;
    memcpy(it->handle, handle.ptr, handle.len);
    mp_call_on_delivery(call, on_delivery, it);
    return 0;
}

static int l_journal_gc(lua_State *L)
{
    char **held = lua_touserdata(L, 1);
    free(*held);
    *held = NULL;
    return 0;
}

/* upstream.fetch(handle, principal): the bytes; nil if there are none for this principal. A handle works once.  [-0,
 * +1, throws] */
static int l_fetch(lua_State *L)
{
    mp_str handle = mp_check_str(L, 1), principal = mp_check_str(L, 2);
    size_t len;
    mp_upstream_host *host = mp_lib_of(L)->upstreams;
    if (host == NULL)
        return 0;
    char **held = lua_newuserdatauv(L, sizeof *held, 0); /* frees the bytes if Lua has no memory for the copy */
    *held = NULL;
    luaL_setmetatable(L, JOURNAL);
    *held = mp_journal_take(mp_upstream_host_table(host), handle, principal, &len);
    if (*held == NULL)
        return 0;
    lua_pushlstring(L, *held, len);
    free(*held);
    *held = NULL;
    return 1;
}

/* exchange:cancel([bytes]): ends the exchange.  [-0, +0, throws] */
static int l_cancel(lua_State *L)
{
    exchange_handle *it = luaL_checkudata(L, 1, EXCHANGE);
    mp_str message = lua_type(L, 2) == LUA_TSTRING ? mp_check_str(L, 2) : MP_STR_NONE;
    mp_resource_drop(&it->resource);
    if (it->exchange != NULL)
        mp_exchange_cancel(it->exchange, message);
    release_exchange(it);
    wake_reader(it);
    return 0;
}

void mp_upstream_add_handle(lua_State *L, const char *kind, lua_CFunction gc, lua_CFunction close,
                            const luaL_Reg *methods)
{
    mp_push_metatable(L, kind, gc);
    mp_field_function(L, "__close", close);
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
}

void mp_upstream_add_exchange(lua_State *L)
{
    static const luaL_Reg functions[] = {{"upstream.take_up", l_take_up},
                                         {"upstream.keep", l_keep},
                                         {"upstream.fetch", l_fetch},
                                         {"upstream.expect", l_expect},
                                         {NULL, NULL}};
    static const luaL_Reg exchange[] = {{"next", l_next},
                                        {"take", l_take},
                                        {"wake", l_wake},
                                        {"reply", l_reply},
                                        {"hand_on", l_hand_on},
                                        {"cancel", l_cancel},
                                        {"make_pending", l_make_pending},
                                        {NULL, NULL}};
    mp_set_members(L, functions, 0);
    mp_push_metatable(L, JOURNAL, l_journal_gc);
    lua_pop(L, 1);
    mp_upstream_add_handle(L, EXCHANGE, l_exchange_gc, l_exchange_close, exchange);
}
