/* metrics.c: what the library in Lua counts and measures for /metrics: times of what scripts use, and decisions about calls. */
#include "lib/bindings.h"
#include "telemetry/telemetry.h"
#include "vm/engine.h"
#include <lauxlib.h>
#include <math.h>

#define MAX_LABEL_BYTES 128
#define MAX_SECONDS 86400.0

MP_HISTOGRAM(auth, "moonpool_auth_duration_seconds", MP_BUCKETS_CALL, 150,
             "time of an auth script to decide about a request", "script", "outcome")
MP_HISTOGRAM(http_client, "moonpool_http_client_duration_seconds", MP_BUCKETS_CALL, 300,
             "time of an HTTP request of a script, until the head of a streamed answer, by the grant that allows it",
             "grant", "outcome")
MP_HISTOGRAM(db_client, "moonpool_db_client_duration_seconds", MP_BUCKETS_CALL, 150,
             "time of a database statement of a script, by the granted path", "db_system_name", "database", "outcome")
MP_HISTOGRAM(exec, "moonpool_exec_duration_seconds", MP_BUCKETS_CALL, 100, "time of a program that a script ran",
             "program", "outcome")
MP_LABELLED_COUNTER(policy_decisions, "moonpool_policy_decisions", 800, "decisions of policies about calls", "policy",
                    "decision")

static const struct {
    const char *word;
    const mp_family *family;
} families[] = {{"auth", &mp_family_auth}, {"http", &mp_family_http_client},        {"sqlite", &mp_family_db_client},
                {"exec", &mp_family_exec}, {"policy", &mp_family_policy_decisions}, {NULL, NULL}};

static const mp_family *check_family(lua_State *L, int index)
{
    const char *word = luaL_checkstring(L, index);
    for (int i = 0; families[i].word != NULL; i++)
        if (strcmp(word, families[i].word) == 0)
            return families[i].family;
    luaL_error(L, "there is no family '%s'", word);
    return NULL;
}

/* A label's value: at most MAX_LABEL_BYTES, without a character cut in half. Texts with NUL or invalid UTF-8 become "_other". */
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

/* metrics.series(family, …): the number of the series of one of the families above with these values of its labels.  [-0, +1, throws] */
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
        mp_series_observe((mp_series)series, MP_BUCKETS_CALL, (uint64_t)(seconds * 1e6));
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

/* metrics.tool(name), metrics.prompt(name), metrics.resource(name): the metrics of the thing with this name, for call.measure. Upvalue: which
 * kind of thing.  [-0, +1, throws] */
static int l_thing(lua_State *L)
{
    mp_measured kind = (mp_measured)lua_tointeger(L, lua_upvalueindex(1));
    lua_pushlightuserdata(L, mp_tool_metrics_of(kind, label_of(mp_check_str(L, 1))));
    return 1;
}

/* [-0, +0, throws] */
static void add_thing(lua_State *L, const char *name, mp_measured kind)
{
    lua_pushinteger(L, kind);
    lua_pushcclosure(L, l_thing, 1);
    mp_set_member(L, -2, name);
}

void mp_lib_metrics(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"metrics.series", l_series}, {"metrics.observe", l_observe}, {"metrics.count", l_count}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    add_thing(L, "metrics.tool", MP_MEASURED_TOOL);
    add_thing(L, "metrics.prompt", MP_MEASURED_PROMPT);
    add_thing(L, "metrics.resource", MP_MEASURED_RESOURCE);
}
