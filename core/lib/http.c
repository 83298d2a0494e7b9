/* http.c: outgoing HTTP requests of tasks: start a request, wait for the answer or for the next bytes of a streamed
 * answer, close it. Redirects, retries and the check of grants are in lua/moonpool/lib/http. */
#include "lib/fields.h"
#include "lib/bindings.h"
#include "lib/spans.h"
#include <lauxlib.h>
#include <math.h>

#define HANDLE "moonpool.http"
#define MAX_HEADERS 200
#define MAX_TIME_S 86400.0

typedef struct waiting waiting;

/* A request and the part of its answer that was not read yet. The first user value is the table of the request, which
 * owns the bytes that the transfer uses. */
typedef struct {
    mp_resource resource; /* links it to the task that started the request */
    mp_transfer *MP_NULLABLE transfer;
    waiting *MP_NULLABLE op; /* the wait of a task for the answer, or NULL */
    bool is_stream;          /* the answer's body is read in pieces */
    bool is_late;            /* the time limit passed before the answer */
    mp_open_span span;       /* span that ends with the head of the answer, or with the failure of the request */
} handle;

struct waiting {
    mp_op super;
    mp_timer timer;
    handle *of;
};

/* -- waiting ---------------------------------------------------------------------------------------------------- */

static void abort_transfer(handle *it)
{
    if (it->is_late)
        mp_open_span_fail(&it->span, "timeout", MP_STR_NONE);
    mp_open_span_close(&it->span);
    mp_transfer_free(it->transfer);
    it->transfer = NULL;
}

static bool is_ready(const handle *it)
{
    if (it->transfer == NULL || mp_transfer_is_over(it->transfer))
        return true;
    return it->is_stream && (mp_transfer_status(it->transfer) != 0);
}

static void stop_waiting(handle *it)
{
    waiting *op = it->op;
    it->op = NULL;
    mp_timer_stop(op->super.loop, &op->timer);
}

/* Aborts the transfer and wakes the task that waits for it. */
static void abort_and_wake(handle *it)
{
    waiting *op = it->op;
    abort_transfer(it);
    if (op == NULL)
        return;
    stop_waiting(it);
    mp_op_done(&op->super);
}

static void on_release(mp_resource *resource)
{
    abort_and_wake(mp_container(resource, handle, resource));
}

static void on_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    handle *it = ctx;
    waiting *op = it->op;
    if (op == NULL || !is_ready(it))
        return;
    stop_waiting(it);
    mp_op_done(&op->super);
}

static void on_late(mp_timer *timer)
{
    waiting *op = mp_container(timer, waiting, timer);
    handle *it = op->of;
    it->is_late = true;
    it->op = NULL;
    abort_transfer(it);
    mp_op_done(&op->super);
}

static void on_cancel(mp_op *super)
{
    handle *it = mp_container(super, waiting, super)->of;
    stop_waiting(it);
    abort_transfer(it);
}

/* Parks the task until the handle at `index` is ready, or for `seconds`; 0 or less: no time limit.  [-0, +?, throws,
 * parks] */
static int wait_for(lua_State *L, int index, waiting *op, double seconds, lua_KFunction then)
{
    handle *it = lua_touserdata(L, index);
    op->of = it;
    it->op = op;
    if (seconds > 0)
        mp_timer_start(op->super.loop, &op->timer, (uint64_t)ceil(seconds * 1000), on_late);
    return mp_op_park_then(L, &op->super, then, index);
}

/* Pushes nil, why, hint, and the kind of failure or nil: "late", "refused", "unsent", "unanswered".  [-0, +4,
 * throws] */
static int push_failure(lua_State *L, const char *why, const char *hint, const char *MP_NULLABLE kind)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    lua_pushstring(L, hint);
    lua_pushstring(L, kind);
    return 4;
}

/* If the transfer failed, pushes the failure as push_failure() and returns 4; else returns 0.  [-0, +0|4, throws] */
static int push_transfer_failure(lua_State *L, const handle *it)
{
    static const char *const words[] = {[MP_TRANSFER_OTHER] = NULL,
                                        [MP_TRANSFER_REFUSED] = "refused",
                                        [MP_TRANSFER_UNSENT] = "unsent",
                                        [MP_TRANSFER_PARTIAL] = "unanswered",
                                        [MP_TRANSFER_UNANSWERED] = "unanswered"};
    if (it->is_late)
        return push_failure(L, "no answer within the time limit", "", "late");
    if (it->transfer == NULL)
        return push_failure(L, "the response is closed", "", NULL);
    const mp_err *failure = mp_transfer_failure(it->transfer);
    if (failure == NULL)
        return 0;
    return push_failure(L, failure->text, failure->hint, words[mp_transfer_trouble_of(it->transfer)]);
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

mp_address_policy mp_reach_field(lua_State *L, int index)
{
    static const char *const kinds[] = {"public", "loopback", "private", NULL};
    mp_address_policy reach = {.kind = MP_ADDRESS_POLICY_ADDRESS};
    const char *text = mp_text_field(L, index, "reach").ptr;
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(text, kinds[i]) == 0) {
            reach.kind = (mp_address_policy_kind)i;
            return reach;
        }
    if (!mp_address_canonical(text, reach.address))
        luaL_error(L, "'reach' is not an IP address");
    return reach;
}

/* Ends the span with the status, or the failure.  [-0, +0] */
static void end_span(handle *it, bool has_failed)
{
    mp_trace *trace = mp_open_span_trace(&it->span);
    if (trace == NULL)
        return;
    char text[16];
    int status = it->transfer == NULL ? 0 : mp_transfer_status(it->transfer);
    if (status > 0)
        mp_span_int(trace, it->span.span, "http.response.status_code", status);
    snprintf(text, sizeof text, "%d", status);
    if (has_failed)
        mp_open_span_fail(
            &it->span,
            it->transfer != NULL && mp_transfer_trouble_of(it->transfer) == MP_TRANSFER_REFUSED ? "refused" : "_OTHER",
            MP_STR_NONE);
    else if (status >= 400)
        mp_open_span_fail(&it->span, text, MP_STR_NONE);
    mp_open_span_close(&it->span);
}

/* Pushes the results of http(): status, head, body; for a stream status, head, handle. `context`: stack index of the
 * handle.  [-0, +3|4, throws] */
static int push_answer(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    handle *it = lua_touserdata(L, (int)context);
    int failed = push_transfer_failure(L, it);
    end_span(it, failed > 0);
    if (failed > 0) {
        abort_transfer(it);
        return failed;
    }
    mp_transfer *transfer = MP_NEVER_NULL(it->transfer); /* push_transfer_failure has checked it */
    mp_str head = mp_transfer_head(transfer), body = mp_transfer_body(transfer);
    lua_pushinteger(L, mp_transfer_status(transfer));
    lua_pushlstring(L, head.ptr == NULL ? "" : head.ptr, head.len);
    if (it->is_stream) {
        lua_pushvalue(L, (int)context);
        return 3;
    }
    lua_pushlstring(L, body.ptr == NULL ? "" : body.ptr, body.len);
    abort_transfer(it);
    return 3;
}

/* The URL without its query, which may have secrets. */
static mp_str plain_url(const char *url)
{
    return (mp_str){url, strcspn(url, "?#")};
}

/* True if requests to this host carry the trace context: traces.propagate names the host. */
static bool goes_on_to(const char *const *MP_NULLABLE patterns, mp_str host)
{
    for (; patterns != NULL && *patterns != NULL; patterns++) {
        mp_str pattern = mp_str_of(*patterns);
        if (mp_str_is(pattern, "*") || mp_str_is_nocase(host, *patterns))
            return true;
        if (!mp_str_starts(pattern, MP_STR("*.")) || host.len < pattern.len)
            continue;
        if (mp_str_is_nocase(mp_str_from(host, host.len - pattern.len + 1), pattern.ptr + 1))
            return true;
    }
    return false;
}

static bool has_header(const char *const *headers, const char *name)
{
    for (; *headers != NULL; headers++) {
        mp_str rest = mp_str_of(*headers);
        if (mp_str_is_nocase(mp_str_cut(&rest, ':'), name))
            return true;
    }
    return false;
}

/* Adds the span's context to the headers of the request, unless the script has set one. Pushes what holds the new list.
 * [-0, +3, throws] */
static void add_context(lua_State *L, const handle *it, mp_outgoing *outgoing)
{
    char parent[MP_TRACEPARENT_BYTES + 1];
    mp_trace *trace = mp_open_span_trace(&it->span);
    size_t count = 0;
    if (has_header(outgoing->headers, "traceparent"))
        return;
    while (outgoing->headers[count] != NULL)
        count++;
    mp_trace_context context = mp_span_context(trace, it->span.span);
    mp_trace_context_write(&context, parent);
    luaL_checkstack(L, 3, NULL);
    const char **list = lua_newuserdatauv(L, (count + 3) * sizeof *list, 0);
    memcpy(list, outgoing->headers, count * sizeof *list);
    list[count++] = lua_pushfstring(L, "traceparent: %s", parent);
    mp_str state = mp_trace_state(trace);
    lua_pushliteral(L, "tracestate: ");
    lua_pushlstring(L, state.ptr == NULL ? "" : state.ptr, state.len);
    lua_concat(L, 2);
    if (state.len > 0)
        list[count++] = lua_tostring(L, -1);
    list[count] = NULL;
    outgoing->headers = list;
}

/* Begins the span of the request.  [-0, +3, throws] */
static void begin_span(lua_State *L, handle *it, mp_outgoing *outgoing)
{
    mp_err err;
    mp_url url;
    it->span = mp_task_span_open(mp_lib_task_running(L), MP_SPAN_CLIENT, mp_str_of(outgoing->method));
    mp_trace *trace = mp_open_span_trace(&it->span);
    if (trace == NULL || mp_url_parse(&url, outgoing->url, NULL, &err) != 0)
        return;
    mp_span_text(trace, it->span.span, "http.request.method", mp_str_of(outgoing->method));
    mp_span_text(trace, it->span.span, "url.full", plain_url(url.text));
    mp_span_text(trace, it->span.span, "server.address", mp_str_of(url.host));
    mp_span_int(trace, it->span.span, "server.port", url.port);
    bool goes_on = goes_on_to(mp_lib_of(L)->propagate, mp_str_of(url.host));
    mp_url_clear(&url);
    if (goes_on && mp_trace_goes_on(trace))
        add_context(L, it, outgoing);
}

/* http { method, url, headers, body, most, seconds, reach, repeatable, stream }: sends a request and waits for
 * its answer. Returns status, head, body; with `stream` status, head and a handle as soon as the head has
 * push_next_piece; or nil, why, hint, kind.  [-0, +3|4, throws, parks] */
static int l_http(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    handle *it = lua_newuserdatauv(L, sizeof *it, 1);
    *it = (handle){0};
    luaL_setmetatable(L, HANDLE);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, 2, 1);
    mp_outgoing outgoing = {.method = mp_text_field(L, 1, "method").ptr,
                            .url = mp_text_field(L, 1, "url").ptr,
                            .ready = on_ready,
                            .ctx = it};
    outgoing.headers = mp_push_texts(L, 1, "headers", MAX_HEADERS);
    outgoing.most = (size_t)mp_number_field(L, 1, "most");
    outgoing.policy = mp_reach_field(L, 1);
    if (lua_getfield(L, 1, "script") == LUA_TSTRING) {
        size_t len;
        const char *script = lua_tolstring(L, -1, &len);
        outgoing.holder = mp_holder_number(script, len);
    }
    double seconds = mp_number_field(L, 1, "seconds");
    if (!(seconds > 0 && seconds <= MAX_TIME_S))
        return luaL_error(L, "'seconds' must be above 0 and at most a day");
    lua_getfield(L, 1, "repeatable");
    outgoing.is_repeatable = lua_toboolean(L, -1);
    lua_getfield(L, 1, "stream");
    outgoing.is_stream = it->is_stream = lua_toboolean(L, -1);
    if (lua_getfield(L, 1, "body") == LUA_TSTRING)
        outgoing.body.ptr = lua_tolstring(L, -1, &outgoing.body.len);
    begin_span(L, it, &outgoing);
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    mp_err err = {0};
    mp_client *client = mp_lib_of(L)->client;
    if (client == NULL)
        return luaL_error(L, MP_NOT_SERVING);
    it->transfer = mp_transfer_start(client, &outgoing, &err);
    if (it->transfer == NULL) {
        end_span(it, true);
        return push_failure(L, err.text, err.hint, NULL);
    }
    mp_resource_put(L, &it->resource, on_release);
    return wait_for(L, 2, op, seconds, push_answer);
}

/* -- reading streamed answers -------------------------------------------------------------------------------------- */

/* Pushes the bytes that have push_next_piece, false at the end of the body, or a failure.  [-0, +1|4, throws] */
static int push_piece(lua_State *L, handle *it)
{
    mp_str body = it->transfer == NULL ? MP_STR_NONE : mp_transfer_body(it->transfer);
    if (body.len > 0) {
        lua_pushlstring(L, body.ptr, body.len);
        mp_transfer_take(it->transfer);
        return 1;
    }
    int failed = push_transfer_failure(L, it);
    abort_transfer(it);
    if (failed > 0)
        return failed;
    lua_pushboolean(L, 0);
    return 1;
}

static int push_next_piece(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    return push_piece(L, lua_touserdata(L, (int)context));
}

static bool has_piece(const handle *it)
{
    return it->transfer == NULL || mp_transfer_is_over(it->transfer) || mp_transfer_body(it->transfer).len > 0;
}

/* http.read(handle[, seconds]): waits for the next bytes of a streamed answer. False at the end; or nil, why, hint,
 * kind.  [-0, +1|4, throws, parks] */
static int l_read(lua_State *L)
{
    handle *it = luaL_checkudata(L, 1, HANDLE);
    double seconds = luaL_optnumber(L, 2, 0);
    lua_settop(L, 1);
    if (it->op != NULL)
        return luaL_error(L, "another task is reading this answer");
    if (has_piece(it))
        return push_piece(L, it);
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    return wait_for(L, 1, op, seconds <= MAX_TIME_S ? seconds : MAX_TIME_S, push_next_piece);
}

/* http.close(handle): aborts the transfer; does nothing if it has ended.  [-0, +0, throws] */
static int l_close(lua_State *L)
{
    handle *it = luaL_checkudata(L, 1, HANDLE);
    mp_resource_drop(&it->resource);
    abort_and_wake(it);
    return 0;
}

static int l_collect(lua_State *L)
{
    handle *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    abort_transfer(it);
    return 0;
}

/* -- URLs -------------------------------------------------------------------------------------------------------- */

/* (mp_url) -> { url, scheme, host, port, path }.  [-1, +1, throws] */
static int push_url(lua_State *L)
{
    const mp_url *url = lua_touserdata(L, 1);
    lua_createtable(L, 0, 5);
    mp_field_text(L, "url", url->text);
    mp_field_text(L, "scheme", url->scheme);
    mp_field_text(L, "host", url->host);
    mp_field_integer(L, "port", url->port);
    mp_field_text(L, "path", url->path);
    return 1;
}

/* http.url(text[, base]): the parts of a URL, resolved against `base`; or nil, why, hint.  [-0, +1|4, throws] */
static int l_url(lua_State *L)
{
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len), *base = luaL_optstring(L, 2, NULL);
    mp_err err = {0};
    mp_url url;
    if (strlen(text) != len) {
        mp_err_set(&err, "the URL contains spaces or control characters");
        return push_failure(L, err.text, err.hint, NULL);
    }
    lua_pushcfunction(L, push_url);
    if (mp_url_parse(&url, text, base, &err) != 0)
        return push_failure(L, err.text, err.hint, NULL);
    lua_pushlightuserdata(L, &url);
    int status = lua_pcall(L, 1, 1, 0);
    mp_url_clear(&url);
    return status == LUA_OK ? 1 : lua_error(L);
}

/* http.address(text): the canonical form of an IP address; nil if the text is not an IP address.  [-0, +1, throws] */
static int l_address(lua_State *L)
{
    char address[MP_ADDRESS_TEXT];
    lua_pushstring(L, mp_address_canonical(luaL_checkstring(L, 1), address) ? address : NULL);
    return 1;
}

/* http.counted(address): the text by which limits count the client at this address, such as the prefix of an IPv6
 * address.  [-0, +1, throws] */
static int l_counted(lua_State *L)
{
    char room[MP_COUNTED_TEXT];
    size_t len;
    const char *text = luaL_checklstring(L, 1, &len);
    mp_str counted = mp_address_counted((mp_str){text, len}, room);
    lua_pushlstring(L, counted.ptr, counted.len);
    return 1;
}

MP_SCRIPT_LIBRARY(http)
{
    static const mp_lua_member limits[] = {
        MP_MEMBER_MS("time", mp_lib_config, http_time_ms), MP_MEMBER("body", mp_lib_config, http_body), {0}};
    static const luaL_Reg functions[] = {
        {"http.send", l_http}, {"http.read", l_read},       {"http.close", l_close},
        {"http.url", l_url},   {"http.address", l_address}, {"http.counted", l_counted},
        {NULL, NULL}};
    mp_set_members(L, functions, 0);
    luaL_newmetatable(L, HANDLE);
    mp_field_function(L, "__gc", l_collect);
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    mp_set_struct(L, limits, config);
    mp_set_member(L, -2, "limits.http");
}
