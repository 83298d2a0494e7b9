/* metrics.c: counts and measures for /metrics on behalf of the library in Lua: times of libraries that scripts use, and
 * decisions about calls. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "rpc/observe.h"
#include "telemetry/telemetry.h"
#include <lauxlib.h>
#include <limits.h>
#include <math.h>

/* series of all scripts together: the sum of the `most` of their metrics */
#define MAX_SERIES MP_LIMIT(metrics_series, 1000)
#define MAX_LABEL_BYTES 128
#define MAX_SECONDS 86400.0

MP_HISTOGRAM(auth, "moonpool_auth_duration_seconds", mp_bounds_call, 150,
             "time of an auth script to decide about a request", "script", "outcome")
MP_HISTOGRAM(http_client, "moonpool_http_client_duration_seconds", mp_bounds_call, 300,
             "time of an HTTP request of a script, until the head of a streamed answer, by the grant that allows it",
             "grant", "outcome")
MP_HISTOGRAM(db_client, "moonpool_db_client_duration_seconds", mp_bounds_call, 150,
             "time of a database statement of a script, by the granted path", "db_system_name", "database", "outcome")
MP_HISTOGRAM(redis_client, "moonpool_redis_client_duration_seconds", mp_bounds_call, 150,
             "time of a command of a script to a Redis server, by the command's name", "command", "outcome")
MP_HISTOGRAM(redis, "moonpool_redis_duration_seconds", mp_bounds_call, 100,
             "time of an operation in the server of `cluster`: of `store`, a limit, a quota or a job", "operation",
             "outcome")
MP_HISTOGRAM(exec, "moonpool_exec_duration_seconds", mp_bounds_call, 100, "time of a program that a script ran",
             "program", "outcome")
MP_LABELLED_COUNTER(policy_decisions, "moonpool_policy_decisions", 800, "decisions of policies about calls", "policy",
                    "decision")

static const struct {
    const char *word;
    const mp_family *family;
} families[] = {{"auth", &mp_family_auth},
                {"http", &mp_family_http_client},
                {"sqlite", &mp_family_db_client},
                {"exec", &mp_family_exec},
                {"redis", &mp_family_redis_client},
                {"cluster", &mp_family_redis},
                {"policy", &mp_family_policy_decisions},
                {NULL, NULL}};

static const mp_family *check_family(lua_State *L, int index)
{
    const char *word = luaL_checkstring(L, index);
    int i = 0;
    while (families[i].word != NULL && strcmp(word, families[i].word) != 0)
        i++;
    if (families[i].word == NULL)
        luaL_error(L, "there is no family '%s'", word);
    return families[i].family;
}

/* A label's value: at most MAX_LABEL_BYTES, without a character cut in half. Texts with NUL or invalid UTF-8 become
 * "_other". */
static mp_str label_of(mp_str text)
{
    if (text.len > MAX_LABEL_BYTES) {
        text.len = MAX_LABEL_BYTES;
        while (text.len > 0 && ((unsigned char)text.ptr[text.len] & 0xc0) == 0x80)
            text.len--;
    }
    unsigned length;
    for (const char *at = text.ptr, *end = text.ptr + text.len; at < end; at += length)
        if ((length = mp_utf8_length(at, end)) == 0 || *at == '\0')
            return MP_STR("_other");
    return text;
}

/* metrics.series(family, …): the number of the series of one of the families above with these values of its labels.
 * [-0, +1, throws] */
static int l_series(lua_State *L)
{
    const mp_family *family = check_family(L, 1);
    mp_str values[MP_SERIES_LABELS];
    for (int i = 0; family->labels[i] != NULL; i++)
        values[i] = label_of(mp_check_str(L, i + 2));
    lua_pushinteger(L, mp_series_of(family, values));
    return 1;
}

/* metrics.observe(series, seconds): adds one observation to a series of a histogram.  [-0, +0, throws] */
static int l_observe(lua_State *L)
{
    lua_Integer series = luaL_checkinteger(L, 1);
    double seconds = luaL_checknumber(L, 2);
    if (mp_series_is_on() && seconds >= 0 && seconds <= MAX_SECONDS)
        mp_series_observe((mp_series)series, &mp_bounds_call, trunc(seconds * 1e6));
    return 0;
}

/* metrics.count(series): adds one to a series of a counter.  [-0, +0, throws] */
static int l_count(lua_State *L)
{
    lua_Integer series = luaL_checkinteger(L, 1);
    if (mp_series_is_on())
        mp_series_add((mp_series)series, 1);
    return 0;
}

/* -- metrics that scripts declare ---------------------------------------------------------------------------------- */

/* Reads the list of labels' names at index 4, and leaves the names on the stack.  [-0, +n, throws] */
static void read_labels(lua_State *L, mp_family *to)
{
    luaL_checktype(L, 4, LUA_TTABLE);
    int count = (int)lua_rawlen(L, 4);
    luaL_argcheck(L, count <= MP_SERIES_LABELS, 4, "too many labels");
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 4, i + 1);
        to->labels[i] = luaL_checkstring(L, -1);
    }
}

/* Reads the list of upper bounds at index 5.  [-0, +0, throws] */
static void read_bounds(lua_State *L, mp_bounds *to)
{
    luaL_checktype(L, 5, LUA_TTABLE);
    to->count = (int)lua_rawlen(L, 5);
    luaL_argcheck(L, to->count <= MP_BOUNDS_MAX, 5, "too many buckets");
    for (int i = 0; i < to->count; i++) {
        lua_rawgeti(L, 5, i + 1);
        to->most[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
}

/* metrics.declare(kind, name, text, labels, bounds): the family of a metric of scripts, one for all Lua states and
 * generations. nil, why, hint: the process has no room for it, or no script is being loaded.  [-0, +1|3, throws] */
static int l_declare(lua_State *L)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram", NULL};
    mp_bounds bounds = {0};
    mp_family wanted = {.kind = (mp_stat_kind)luaL_checkoption(L, 1, NULL, kinds), .bounds = &bounds};
    mp_str name = mp_check_str(L, 2), text = mp_check_str(L, 3);
    luaL_argcheck(L, name.len <= MP_DECLARED_NAME, 2, "too long");
    luaL_argcheck(L, text.len <= MP_DECLARED_TEXT, 3, "too long");
    wanted.name = name.ptr; /* a text of Lua ends in NUL */
    wanted.text = text.ptr;
    lua_settop(L, 5);
    if (wanted.kind == MP_STAT_HISTOGRAM)
        read_bounds(L, &bounds);
    read_labels(L, &wanted);
    mp_err err = {0};
    const mp_family *family = NULL;
    if (mp_state_of(mp_vm_of(L))->is_loading) {
        family = mp_declare(&wanted, &err);
    } else {
        mp_err_set(&err, "a metric is declared while its script loads");
        mp_err_hint(&err, "move the line out of the function that calls run, to the top of the file");
    }
    if (family != NULL) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)family);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, err.text);
    lua_pushstring(L, err.hint);
    return 3;
}

/* Only the library in Lua has values of this type: no script can make one. */
static const mp_family *check_declared(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TLIGHTUSERDATA);
    return lua_touserdata(L, 1);
}

/* metrics.member(family, values, most): the number of the series of a declared family with these values of its labels;
 * above `most` series, that of "_other".  [-0, +1, throws] */
static int l_member(lua_State *L)
{
    const mp_family *family = check_declared(L);
    mp_str values[MP_SERIES_LABELS];
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Integer most = luaL_checkinteger(L, 3);
    luaL_argcheck(L, most >= 1 && most <= INT_MAX, 3, "no limit");
    lua_settop(L, 2);
    for (int i = 0; family->labels[i] != NULL; i++) {
        lua_rawgeti(L, 2, i + 1); /* stays on the stack: the series is found by its bytes */
        values[i] = label_of(mp_check_str(L, -1));
    }
    lua_pushinteger(L, mp_series_within(family, values, (int)most));
    return 1;
}

/* metrics.enter(family, series, value, is_set): adds to a counter or gauge, sets a gauge, or adds an observation.  [-0,
 * +0, throws] */
static int l_enter(lua_State *L)
{
    const mp_family *family = check_declared(L);
    lua_Integer series = luaL_checkinteger(L, 2);
    double value = luaL_checknumber(L, 3);
    luaL_argcheck(L, isfinite(value), 3, "not a number that can be added");
    if (mp_series_is_on())
        mp_declared_enter(family, (mp_series)series, value, lua_toboolean(L, 4));
    return 0;
}

/* -- things -------------------------------------------------------------------------------------------------------- */

/* metrics.tool(name), metrics.prompt(name), metrics.resource(name): the metrics of the thing with this name, for
 * call.measure. Upvalue: which kind of thing.  [-0, +1, throws] */
static int l_thing(lua_State *L)
{
    mp_measured kind = (mp_measured)lua_tointeger(L, lua_upvalueindex(1));
    lua_pushlightuserdata(L, mp_thing_metrics_of(kind, label_of(mp_check_str(L, 1))));
    return 1;
}

/* metrics.numbers(kind, name): the numbers of a tool, prompt or resource: { calls, errors, p50_ms, p99_ms, failures = {
 * { call, at, outcome, code, ms } } }, newest first; `kind`: "tool", "prompt" or "resource".  [-0, +1, throws] */
static int l_numbers(lua_State *L)
{
    static const char *const kinds[] = {"tool", "prompt", "resource", NULL};
    mp_tool_numbers numbers;
    mp_measured kind = (mp_measured)luaL_checkoption(L, 1, NULL, kinds);
    mp_tool_numbers_of(kind, label_of(mp_check_str(L, 2)), &numbers);
    lua_createtable(L, 0, 5);
    mp_field_integer(L, "calls", numbers.calls);
    mp_field_integer(L, "errors", numbers.errors);
    if (numbers.p99_us > 0) {
        mp_field_number(L, "p50_ms", (double)numbers.p50_us / 1000);
        mp_field_number(L, "p99_ms", (double)numbers.p99_us / 1000);
    }
    lua_createtable(L, (int)numbers.failure_count, 0);
    for (size_t i = 0; i < numbers.failure_count; i++) {
        const mp_tool_failure *one = &numbers.failures[i];
        lua_createtable(L, 0, 5);
        mp_field_text(L, "call", one->mark == 0 ? "" : mp_mark_text_of(one->mark).text);
        mp_field_integer(L, "at", one->at);
        mp_field_text(L, "outcome", one->outcome);
        mp_field_integer(L, "code", one->code);
        mp_field_number(L, "ms", (double)one->us / 1000);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "failures");
    return 1;
}

/* [-0, +0, throws] */
static void add_thing(lua_State *L, const char *name, mp_measured kind)
{
    lua_pushinteger(L, kind);
    lua_pushcclosure(L, l_thing, 1);
    mp_set_member(L, -2, name);
}

MP_SCRIPT_LIBRARY(metrics)
{
    static const luaL_Reg functions[] = {{"metrics.series", l_series},   {"metrics.observe", l_observe},
                                         {"metrics.count", l_count},     {"metrics.declare", l_declare},
                                         {"metrics.member", l_member},   {"metrics.enter", l_enter},
                                         {"metrics.numbers", l_numbers}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    lua_pushinteger(L, MAX_SERIES);
    mp_set_member(L, -2, "metrics.limit");
    add_thing(L, "metrics.tool", MP_MEASURED_TOOL);
    add_thing(L, "metrics.prompt", MP_MEASURED_PROMPT);
    add_thing(L, "metrics.resource", MP_MEASURED_RESOURCE);
}
