/* catalogues.c: host.upstream: the lists that upstreams have sent (catalogues), and reports about upstreams for
 * people. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include <lauxlib.h>

#define CATALOGUE "moonpool.catalogue"
#define CLAIM "moonpool.catalogue_claim"

MP_COUNTER(tokens_got, "upstream_tokens", "outcome", "got", "tokens for upstreams that authorization servers gave")
MP_COUNTER(tokens_refused, "upstream_tokens", "outcome", "refused",
           "requests for tokens that authorization servers refused, and tokens that upstreams refused")
MP_COUNTER(tokens_failed, "upstream_tokens", "outcome", "failed",
           "requests for tokens that authorization servers did not answer")
MP_COUNTER(tokens_evicted, "upstream_tokens", "outcome", "evicted",
           "tokens of callers that gave way to others above 4,096")

MP_REFUSED(
    refused_links, "upstream_links", MP_LIMIT_REACHED,
    "links in results of upstreams above 1,024 an hour of one principal, 16,384 of one upstream, or 256 of one result")
MP_REFUSED(
    refused_upstream_subscriptions, "upstream_subscriptions", MP_LIMIT_REACHED,
    "resources and MCP tasks of upstreams above 1,024 resources, 256 of one principal, or 256 tasks of one upstream")
MP_REFUSED(refused_lists, "upstream_lists", MP_LIMIT_REACHED,
           "lists of upstreams that were cut (10,000 items, 32 MiB, 100 pages), and definitions that "
           "were left out, above 256 KiB")
MP_REFUSED(refused_rounds, "upstream_rounds", MP_FAULT,
           "requests that upstreams answered with questions more often than 10 times, or with more than 16 "
           "at once")
MP_REFUSED(refused_routes, "upstream_routes", MP_FAULT,
           "names and URIs of upstreams that clients do not get, since another upstream has them")
MP_REFUSED(refused_journals, "upstream_journals", MP_LIMIT_REACHED,
           "calls whose results of upstreams are larger than 1 MiB")

/* Pushes nil and a failure for a message that C refused to send.  [-0, +2, throws] */
static int push_refusal(lua_State *L, mp_failure_reason reason, const char *why)
{
    lua_pushnil(L);
    lua_createtable(L, 0, 3);
    mp_field_text(L, "outcome", "not_run");
    mp_field_text(L, "reason", mp_failure_name(reason));
    mp_field_text(L, "why", why);
    return 2;
}

/* -- catalogues ---------------------------------------------------------------------------------------------------- */

/* upstream.catalogue(name, class): the newest catalogue of a class: its bytes, their SHA-256, and true if a reload has
 * changed the upstream's connection since it was published; nil if none was published.  [-0, +1|3, throws] */
static int l_catalogue(lua_State *L)
{
    bool is_stale;
    mp_catalogue *catalogue =
        mp_catalogue_find(lua_touserdata(L, lua_upvalueindex(1)), mp_check_str(L, 1), mp_check_str(L, 2), &is_stale);
    if (catalogue == NULL)
        return 0;
    mp_catalogue **held = lua_newuserdatauv(L, sizeof *held, 0);
    *held = catalogue;
    luaL_setmetatable(L, CATALOGUE);
    mp_str bytes = mp_catalogue_bytes(catalogue), hash = mp_catalogue_hash(catalogue);
    lua_pushlstring(L, bytes.ptr, bytes.len);
    lua_pushlstring(L, hash.ptr, hash.len);
    mp_catalogue_unref(catalogue);
    *held = NULL;
    lua_pushboolean(L, is_stale);
    return 3;
}

/* upstream.catalogue_hash(name, class): as upstream.catalogue, but with the number of bytes in place of the bytes,
 * which are not copied: SHA-256, number, true if stale; nil if none was published.  [-0, +1|3, throws] */
static int l_catalogue_hash(lua_State *L)
{
    bool is_stale;
    char text[MP_CATALOGUE_HASH];
    mp_catalogue *catalogue =
        mp_catalogue_find(lua_touserdata(L, lua_upvalueindex(1)), mp_check_str(L, 1), mp_check_str(L, 2), &is_stale);
    if (catalogue == NULL)
        return 0;
    size_t len = mp_catalogue_bytes(catalogue).len;
    memcpy(text, mp_catalogue_hash(catalogue).ptr, sizeof text);
    mp_catalogue_unref(catalogue); /* before Lua can throw */
    lua_pushlstring(L, text, sizeof text);
    lua_pushinteger(L, (lua_Integer)len);
    lua_pushboolean(L, is_stale);
    return 3;
}

/* upstream.publications(): the number of catalogues that were published in this process and were new.  [-0, +1, -] */
static int l_publications(lua_State *L)
{
    lua_pushinteger(L, mp_catalogue_publications(lua_touserdata(L, lua_upvalueindex(1))));
    return 1;
}

/* Appends one class to the buffer `ctx`: its name, which has no NUL, a NUL, and the hash of its catalogue. */
static void note_caller(mp_str class_name, mp_str hash, void *ctx)
{
    mp_buf_put(ctx, class_name);
    mp_buf_put(ctx, (mp_str){"", 1});
    mp_buf_put(ctx, hash);
}

/* upstream.callers(name): a table of the classes that belong to one caller each: name of the class -> SHA-256 of its
 * catalogue.  [-0, +1, throws] */
static int l_callers(lua_State *L)
{
    mp_buf *out = &mp_state_of(mp_vm_of(L))->out;
    size_t start = out->len;
    mp_catalogue_each_caller(lua_touserdata(L, lua_upvalueindex(1)), mp_check_str(L, 1), note_caller, out);
    lua_newtable(L);
    mp_str rest = mp_str_from(mp_buf_str(out), start);
    while (rest.len > 0) {
        mp_str class = mp_str_cut(&rest, '\0');
        lua_pushlstring(L, class.ptr, class.len);
        lua_pushlstring(L, rest.ptr, MP_CATALOGUE_HASH);
        lua_rawset(L, -3);
        rest = mp_str_from(rest, MP_CATALOGUE_HASH);
    }
    out->len = start;
    return 1;
}

/* upstream.join(lines): the texts of a list with line ends between them, like table.concat, but as long as memory
 * allows: MP_UPSTREAM_LIST_BYTES bounds what callers join.  [-0, +1, throws] */
static int l_join(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    size_t size = 0, len;
    lua_Integer count = (lua_Integer)lua_rawlen(L, 1);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        luaL_argcheck(L, lua_type(L, 2) == LUA_TSTRING, 1, "a line is no string");
        lua_tolstring(L, 2, &len);
        size += len + 1;
        lua_settop(L, 1);
    }
    luaL_Buffer out;
    char *at = luaL_buffinitsize(L, &out, size + 1);
    size_t written = 0;
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, 1, i);
        const char *line = lua_tolstring(L, -1, &len);
        if (i > 1)
            at[written++] = '\n';
        memcpy(at + written, line, len);
        written += len;
        lua_pop(L, 1);
    }
    luaL_pushresultsize(&out, written);
    return 1;
}

/* upstream.count_token(outcome): counts the outcome of a request for a token for an upstream: "got", "refused",
 * "failed" or "evicted".  [-0, +0, throws] */
static int l_count_token(lua_State *L)
{
    static const char *const outcomes[] = {"got", "refused", "failed", "evicted", NULL};
    const mp_stat *const stats[] = {&mp_stat_tokens_got, &mp_stat_tokens_refused, &mp_stat_tokens_failed,
                                    &mp_stat_tokens_evicted};
    mp_stat_add(stats[luaL_checkoption(L, 1, NULL, outcomes)], 1);
    return 0;
}

/* upstream.count_refused(what): counts a refusal by its cause: a limit of upstreams that was reached ("links",
 * "subscriptions", "lists", "rounds", "journals", "questions"), or a name that another upstream serves ("routes"). [-0,
 * +0, throws] */
static int l_count_refused(lua_State *L)
{
    static const char *const kinds[] = {"links",    "subscriptions", "lists",     "rounds",
                                        "journals", "routes",        "questions", NULL};
    const mp_stat *const stats[] = {&mp_stat_refused_links,
                                    &mp_stat_refused_upstream_subscriptions,
                                    &mp_stat_refused_lists,
                                    &mp_stat_refused_rounds,
                                    &mp_stat_refused_journals,
                                    &mp_stat_refused_routes,
                                    &mp_stat_refused_upstream_questions};
    mp_stat_add(stats[luaL_checkoption(L, 1, NULL, kinds)], 1);
    return 0;
}

static int l_catalogue_gc(lua_State *L)
{
    mp_catalogue **held = lua_touserdata(L, 1);
    mp_catalogue_unref(*held);
    *held = NULL;
    return 0;
}

typedef struct {
    mp_resource resource;
    mp_upstream *MP_NULLABLE upstream; /* NULL once it was released */
    char *MP_NULLABLE class;
} catalogue_claim;

/* upstream.publish(name, class, bytes[, claim]): makes the bytes the catalogue of the class. True if they differ from
 * those before: then the bus message "catalogue" with "name\0class" is sent. Else false; or nil and a failure.  [-0,
 * +1|2, throws] */
static int l_publish(lua_State *L)
{
    mp_str name = mp_check_str(L, 1), class = mp_check_str(L, 2), bytes = mp_check_str(L, 3);
    unsigned char hash[MP_SHA256_BYTES];
    mp_sha256(bytes, hash);
    mp_upstreams *table = lua_touserdata(L, lua_upvalueindex(1));
    const catalogue_claim *claim = lua_isnoneornil(L, 4) ? NULL : luaL_checkudata(L, 4, CLAIM);
    mp_upstream *claimed = claim == NULL ? NULL : claim->upstream;
    mp_publish_result result = mp_catalogue_publish(table, claimed, name, class, bytes, hash);
    if (result == MP_PUBLISH_UNKNOWN)
        return push_refusal(L, MP_FAILURE_UNKNOWN, "the configuration has no upstream of this name");
    if (result == MP_PUBLISH_TOO_LARGE)
        return push_refusal(L, MP_FAILURE_TOO_LARGE, "the list is larger than 32 MiB");
    if (result == MP_PUBLISH_NEW) {
        lua_pushlstring(L, name.ptr, name.len);
        lua_pushlstring(L, "", 1);
        lua_pushlstring(L, class.ptr, class.len);
        lua_concat(L, 3);
        mp_bus_broadcast(mp_state_of(mp_vm_of(L))->bus, MP_STR("catalogue"), mp_check_str(L, -1));
    }
    lua_pushboolean(L, result == MP_PUBLISH_NEW);
    return 1;
}

static void release_claim(catalogue_claim *it)
{
    if (it->upstream != NULL)
        mp_catalogue_release(it->upstream, mp_str_of(it->class));
    it->upstream = NULL;
    free(it->class);
    it->class = NULL;
}

static void on_claim_release(mp_resource *resource)
{
    release_claim(mp_container(resource, catalogue_claim, resource));
}

static int l_claim_release(lua_State *L)
{
    catalogue_claim *it = luaL_checkudata(L, 1, CLAIM);
    mp_resource_drop(&it->resource);
    release_claim(it);
    return 0;
}

/* upstream.claim(name, class): the right to read the lists of this class, until the claim is released, collected, or
 * the task ends; nil: another task has it.  [-0, +1, throws] */
static int l_claim(lua_State *L)
{
    mp_str name = mp_check_str(L, 1), class = mp_check_str(L, 2);
    catalogue_claim *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (catalogue_claim){0};
    luaL_setmetatable(L, CLAIM);
    it->upstream = mp_catalogue_claim(lua_touserdata(L, lua_upvalueindex(1)), name, class);
    if (it->upstream == NULL)
        return 0;
    it->class = mp_dup(class);
    mp_resource_put(L, &it->resource, on_claim_release);
    return 1;
}

/* -- facts --------------------------------------------------------------------------------------------------------- */

/* Pushes the table of a report.  [-0, +1, throws] */
static void push_report(lua_State *L, const mp_upstream_report *report)
{
    static const char *const states[] = {"unused", "up", "down", "barred"};
    lua_createtable(L, 0, 20);
    mp_field_text(L, "name", report->name);
    mp_field_text(L, "kind", report->kind == MP_UPSTREAM_COMMAND ? "command" : "url");
    mp_field_text(L, "state", states[report->state]);
    mp_field_text(L, "revision", report->revision[0] == '\0' ? NULL : report->revision);
    mp_field_text(L, "transport", report->transport);
    mp_field_integer(L, "channels", report->channels);
    mp_field_integer(L, "opening", report->opening);
    mp_field_integer(L, "running", report->running);
    mp_field_integer(L, "waiting", report->waiting);
    mp_field_integer(L, "calls", (lua_Integer)report->calls);
    mp_field_integer(L, "errors", (lua_Integer)report->errors);
    mp_field_integer(L, "lost", (lua_Integer)report->lost);
    mp_field_integer(L, "dropped", (lua_Integer)report->dropped);
    mp_field_integer(L, "refused", (lua_Integer)report->refused);
    mp_field_integer(L, "opened", (lua_Integer)report->opened);
    mp_field_number(L, "p50", (double)report->p50_us / 1e6);
    mp_field_number(L, "p99", (double)report->p99_us / 1e6);
    mp_field_number(L, "retry_after", (double)report->retry_ms / 1000);
    mp_field_text(L, "error", report->error[0] == '\0' ? NULL : report->error);
    mp_field_integer(L, "error_at", report->error_at);
    mp_field_integer(L, "processes", report->processes);
    mp_field_integer(L, "restarts", report->restarts);
}

typedef struct {
    const mp_upstream_report *list;
    size_t count;
} report_list;

/* (report_list) -> a list of tables.  [-1, +1, throws] */
static int push_reports(lua_State *L)
{
    const report_list *all = lua_touserdata(L, 1);
    lua_createtable(L, (int)all->count, 0);
    for (size_t i = 0; i < all->count; i++) {
        push_report(L, &all->list[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* upstream.status(): facts about all upstreams, a list of tables.  [-0, +1, throws] */
static int l_status(lua_State *L)
{
    lua_settop(L, 0);
    lua_pushcfunction(L, push_reports);
    report_list all;
    mp_upstream_report *list = mp_upstreams_report(lua_touserdata(L, lua_upvalueindex(1)), &all.count);
    all.list = list;
    lua_pushlightuserdata(L, &all);
    int status = lua_pcall(L, 1, 1, 0);
    mp_upstream_report_free(list, all.count);
    return status == LUA_OK ? 1 : lua_error(L);
}

/* upstream.describe(name, text): sets what /status says about the definitions of an upstream: the members of a JSON
 * object. False if the text is too long.  [-0, +1, throws] */
static int l_describe(lua_State *L)
{
    mp_upstreams *table = lua_touserdata(L, lua_upvalueindex(1));
    lua_pushboolean(L, mp_upstreams_describe(table, mp_check_str(L, 1), mp_check_str(L, 2)));
    return 1;
}

void mp_lib_catalogue(lua_State *L, mp_upstreams *upstreams)
{
    static const luaL_Reg functions[] = {{"upstream.catalogue", l_catalogue},
                                         {"upstream.catalogue_hash", l_catalogue_hash},
                                         {"upstream.publications", l_publications},
                                         {"upstream.callers", l_callers},
                                         {"upstream.publish", l_publish},
                                         {"upstream.claim", l_claim},
                                         {"upstream.status", l_status},
                                         {"upstream.describe", l_describe},
                                         {"upstream.join", l_join},
                                         {"upstream.count_token", l_count_token},
                                         {"upstream.count_refused", l_count_refused},
                                         {NULL, NULL}};
    lua_pushlightuserdata(L, upstreams);
    mp_set_members(L, functions, 1);
    mp_push_metatable(L, CLAIM, l_claim_release);
    mp_field_function(L, "__close", l_claim_release);
    lua_newtable(L);
    mp_field_function(L, "release", l_claim_release);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    mp_push_metatable(L, CATALOGUE, l_catalogue_gc);
    lua_pop(L, 1);
}
