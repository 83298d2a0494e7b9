/* log.c: log lines and audit lines that are written from Lua. */
#include "lib/bindings.h"
#include <lauxlib.h>

#define MAX_FIELDS 32
#define MAX_KEY_BYTES 32
#define EVENT_BUFFER_BYTES 1024 /* longer events are cut; `print` in a script writes its text as an event */

static const char *const levels[] = {"debug", "info", "warn", "error", NULL};

/* Copies an event's text to `to`. Control characters, also line ends, become spaces and '=' becomes ':', so that the
 * event is one line and cannot look like fields. The text is cut before the first UTF-8 character that does not fit. */
static void copy_event(char *to, mp_str text)
{
    size_t len = text.len < EVENT_BUFFER_BYTES ? text.len : EVENT_BUFFER_BYTES - 1;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80)
        len--;
    text.len = len;
    for (size_t i = 0; i < len;) {
        size_t width = mp_utf8_visible_at(text, i);
        memcpy(to + i, width == 0 ? " " : text.ptr[i] == '=' ? ":" : text.ptr + i, width == 0 ? 1 : width);
        i += width == 0 ? 1 : width;
    }
    to[len] = '\0';
}

static bool is_key(mp_str key)
{
    for (size_t i = 0; i < key.len; i++) {
        char c = key.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
              c == '.'))
            return false;
    }
    return key.len > 0 && key.len <= MAX_KEY_BYTES;
}

static void insert_sorted(mp_log_field *fields, size_t count, mp_log_field field)
{
    size_t at = count;
    for (; at > 0 && strcmp(fields[at - 1].key, field.key) > 0; at--)
        fields[at] = fields[at - 1];
    fields[at] = field;
}

/* Pops the value on top as a log field. The text of a float stays on the stack below the fields, so that it is not
 * collected.  [-1, +0|1, throws] */
static mp_log_field pop_field(lua_State *L, const char *key)
{
    mp_str text = {0};
    switch (lua_type(L, -1)) {
    case LUA_TSTRING: /* the table of fields holds the string */
        text.ptr = lua_tolstring(L, -1, &text.len);
        lua_pop(L, 1);
        return mp_log_str(key, text);
    case LUA_TBOOLEAN:
        text = lua_toboolean(L, -1) ? MP_STR("true") : MP_STR("false");
        lua_pop(L, 1);
        return mp_log_str(key, text);
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1)) {
            int64_t number = lua_tointeger(L, -1);
            lua_pop(L, 1);
            return mp_log_int(key, number);
        }
        text.ptr = lua_tolstring(L, -1, &text.len);
        lua_insert(L, 4);
        return mp_log_str(key, text);
    default:
        luaL_error(L, "log field '%s' is a %s, not a string, number or boolean", key, luaL_typename(L, -1));
        return mp_log_int(key, 0);
    }
}

/* log.write(level, event[, fields[, is_script]]): writes a log line, its fields sorted by name. A field `call` is
 * written as `call_`: the line has the mark of the call as `call`. `is_script`: a script has chosen the event.
 * [-0, +0, throws] */
static int l_log(lua_State *L)
{
    mp_log_level level = (mp_log_level)luaL_checkoption(L, 1, NULL, levels);
    mp_str event;
    event.ptr = luaL_checklstring(L, 2, &event.len);
    if (!lua_isnoneornil(L, 3))
        luaL_checktype(L, 3, LUA_TTABLE);
    if (!mp_log_wants(level))
        return 0;
    mp_log_field fields[MAX_FIELDS + 1];
    size_t count = 0;
    bool is_script = lua_toboolean(L, 4);
    lua_settop(L, 3);
    luaL_checkstack(L, MAX_FIELDS + LUA_MINSTACK, NULL);
    lua_pushnil(L);
    while (lua_istable(L, 3) && lua_next(L, 3) != 0) {
        mp_str key = MP_STR("");
        if (lua_type(L, -2) == LUA_TSTRING)
            key.ptr = lua_tolstring(L, -2, &key.len);
        if (!is_key(key))
            return luaL_error(L, "the name of a log field has 1 to 32 letters, digits, '_', '-' and '.'");
        if (count == MAX_FIELDS)
            return luaL_error(L, "a log line has at most %d fields", MAX_FIELDS);
        insert_sorted(fields, count, pop_field(L, mp_str_is(key, "call") ? "call_" : key.ptr));
        count++;
    }
    fields[count] = (mp_log_field){0};
    char line[EVENT_BUFFER_BYTES];
    copy_event(line, event);
    (is_script ? mp_log_write_of_script : mp_log_write)(level, line, fields);
    return 0;
}

/* log.wants(level): true if lines of this level are written. Check it before composing a costly line.  [-0, +1,
 * throws] */
static int l_logs(lua_State *L)
{
    lua_pushboolean(L, mp_log_wants((mp_log_level)luaL_checkoption(L, 1, NULL, levels)));
    return 1;
}

/* log.audit(members): writes a line of the audit. `members`: the members of a JSON object, without the braces.  [-0,
 * +0, throws] */
static int l_audit_line(lua_State *L)
{
    mp_str members;
    members.ptr = luaL_checklstring(L, 1, &members.len);
    mp_audit_write(members);
    return 0;
}

MP_LIBRARY(log)
{
    static const luaL_Reg functions[] = {
        {"log.write", l_log}, {"log.wants", l_logs}, {"log.audit", l_audit_line}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
