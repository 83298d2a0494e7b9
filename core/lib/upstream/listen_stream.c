/* listen_stream.c: host.upstream: listen streams of channels, and messages of upstreams that belong to no exchange. */
#include "lib/fields.h"
#include "lib/upstream/handles.h"
#include "vm/engine.h"

#define HEAD_MS 1000 /* how long a task waits for the head of a listen stream */
#define MAX_HEADERS 64

typedef struct {
    mp_op super;
    mp_timer timer;
    mp_listen_stream_opening *MP_NULLABLE opening; /* NULL once the wait is over, or its task was cancelled */
    int status;                                    /* as mp_listen_stream_status() */
} stand_op;

/* -- listen streams ---------------------------------------------------------------------------------------------- */

static void on_listen(void *ctx)
{
    stand_op *op = ctx;
    mp_listen_stream_opening *opening = op->opening;
    if (opening == NULL)
        return;
    mp_timer_stop(op->super.loop, &op->timer);
    op->status = mp_listen_stream_status(opening);
    mp_listen_stream_free(opening);
    op->opening = NULL;
    mp_op_done(&op->super);
}

static void on_late(mp_timer *timer)
{
    stand_op *op = mp_container(timer, stand_op, timer);
    mp_listen_stream_free(op->opening);
    op->opening = NULL;
    mp_op_done(&op->super);
}

static void on_stand_cancel(mp_op *super)
{
    stand_op *op = mp_container(super, stand_op, super);
    mp_timer_stop(super->loop, &op->timer);
    mp_listen_stream_free(op->opening);
    op->opening = NULL;
}

static int push_opening(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    int http = ((stand_op *)context)->status;
    lua_pushstring(L, http == 200 ? "open" : http == 0 ? "late" : "none");
    if (http <= 0)
        return 1;
    lua_pushinteger(L, http);
    return 2;
}

static mp_str text_field(lua_State *L, const char *name)
{
    mp_str text = MP_STR_NONE;
    if (lua_getfield(L, 2, name) != LUA_TNIL)
        text = mp_check_str(L, -1);
    lua_pop(L, 1);
    return text;
}

/* channel:listen([options]): opens a listen stream: the GET of the channel; or, with `id` and `message` in the
 * options, that of a request. Waits for the head of the answer: "open", "none" with the HTTP status if there was one,
 * or "late" after a second, when the stream may still be opened.
 *  [-0, +1|2, throws, parks] */
int mp_upstream_listen(lua_State *L)
{
    mp_channel *channel = mp_upstream_check_channel(L);
    if (lua_isnoneornil(L, 2)) {
        lua_settop(L, 1);
        lua_newtable(L);
    }
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    mp_listen_stream_options options = {.message = text_field(L, "message"), .revision = text_field(L, "revision")};
    lua_getfield(L, 2, "id");
    options.id = (int64_t)luaL_optinteger(L, -1, 0);
    lua_pop(L, 1);
    luaL_argcheck(L, (options.id != 0) == (options.message.len > 0), 2, "'id' and 'message' belong together");
    if (lua_getfield(L, 2, "headers") != LUA_TNIL)
        options.headers = mp_push_texts(L, 2, "headers", MAX_HEADERS);
    stand_op *op = mp_op_new(L, sizeof *op, on_stand_cancel);
    options.done = on_listen;
    options.ctx = op;
    op->opening = mp_channel_listen(mp_upstreams_of(L), channel, &options);
    mp_timer_start(op->super.loop, &op->timer, HEAD_MS, on_late);
    return mp_op_park_then(L, &op->super, push_opening, (lua_KContext)op);
}

/* channel:unlisten(id): closes the listen stream of a request.  [-0, +0, throws] */
int mp_upstream_unlisten(lua_State *L)
{
    mp_channel_unlisten(mp_upstream_check_channel(L), (int64_t)luaL_checkinteger(L, 2));
    return 0;
}

/* channel:hold(is_held): while `is_held` is true, the channel is not ended for being idle.  [-0, +0, throws] */
int mp_upstream_hold(lua_State *L)
{
    mp_channel_hold(mp_upstream_check_channel(L), lua_toboolean(L, 2));
    return 0;
}

/* -- observations -------------------------------------------------------------------------------------------------- */

void mp_lib_on_observed(void *ctx)
{
    mp_vm_bus_deliver(ctx, MP_STR("observed"), MP_STR(""));
}

static void put_text(lua_State *L, const char *name, mp_str text)
{
    if (text.len == 0)
        return;
    lua_pushlstring(L, text.ptr, text.len);
    lua_setfield(L, -2, name);
}

/* upstream.observed(): the next observation, a message of an upstream that belongs to no exchange, or the gap or end of
 * a stream of such messages: { kind = "message", "gap", "ended" or "lost", upstream, key, serial, channel, method?,
 * id?, bytes?, listen_stream?, status? }; nil: there is none.  [-0, +1, throws] */
static int l_observed(lua_State *L)
{
    static const char *const kinds[] = {[MP_OBSERVED_MESSAGE] = "message",
                                        [MP_OBSERVED_GAP] = "gap",
                                        [MP_OBSERVED_ENDED] = "ended",
                                        [MP_OBSERVED_LOST] = "lost"};
    mp_lib *lib = mp_lib_of(L);
    mp_upstream_host *host = lib->upstreams;
    const mp_observation *it = host == NULL ? NULL : mp_upstream_observed(host);
    if (it == NULL)
        return 0;
    lua_createtable(L, 0, 8);
    mp_field_text(L, "kind", kinds[it->kind]);
    put_text(L, "upstream", mp_channel_name(it->channel));
    put_text(L, "key", mp_channel_key_text(it->channel));
    put_text(L, "method", it->method);
    put_text(L, "id", it->id);
    put_text(L, "bytes", it->bytes);
    mp_field_integer(L, "serial", (lua_Integer)mp_channel_serial(it->channel));
    if (it->kind == MP_OBSERVED_ENDED) {
        mp_field_integer(L, "stream_id", it->stream_id);
        mp_field_integer(L, "status", it->status);
    }
    mp_upstream_push_channel(L, it->channel);
    lua_setfield(L, -2, "channel");
    return 1;
}

void mp_lib_observer(lua_State *L)
{
    static const luaL_Reg functions[] = {{"upstream.observed", l_observed}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
