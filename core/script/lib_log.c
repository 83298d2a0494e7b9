/* lib_log.c: one event, one line in the log, from Lua. */
#include "script/lib.h"
#include <lauxlib.h>

#define MOST_FIELDS 32
#define LONGEST_KEY 32
#define LONGEST_EVENT 256

/* `text` without what commands a terminal, cut before the character that does not fit: an event is never two lines. Nor has
 * it fields of its own: there is no '=' in it. */
static void copy_event(char *to, mp_str text)
{
    size_t len = text.len < LONGEST_EVENT ? text.len : LONGEST_EVENT - 1;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80)
        len--;
    text.len = len;
    for (size_t i = 0; i < len;) {
        size_t width = mp_visible_at(text, i);
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
    return key.len > 0 && key.len <= LONGEST_KEY;
}

static void insert_sorted(mp_log_field *fields, size_t count, mp_log_field field)
{
    size_t at = count;
    for (; at > 0 && strcmp(fields[at - 1].key, field.key) > 0; at--)
        fields[at] = fields[at - 1];
    fields[at] = field;
}

/* The value on top as a field. Text that has to be made stays on the stack, and so alive.  [-1, +0|1, throws] */
static mp_log_field take_value(lua_State *L, const char *key)
{
    mp_str text = {0};
    switch (lua_type(L, -1)) {
    case LUA_TSTRING: /* held by the table */
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

/* log(level, event[, fields])  [-0, +0, throws] */
static int l_log(lua_State *L)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", NULL};
    mp_log_level level = (mp_log_level)luaL_checkoption(L, 1, NULL, levels);
    mp_str event;
    event.ptr = luaL_checklstring(L, 2, &event.len);
    if (!lua_isnoneornil(L, 3))
        luaL_checktype(L, 3, LUA_TTABLE);
    if (!mp_log_wants(level))
        return 0;
    mp_log_field fields[MOST_FIELDS + 1];
    size_t count = 0;
    lua_settop(L, 3);
    luaL_checkstack(L, MOST_FIELDS + LUA_MINSTACK, NULL);
    lua_pushnil(L);
    while (lua_istable(L, 3) && lua_next(L, 3) != 0) {
        mp_str key = {0};
        if (lua_type(L, -2) == LUA_TSTRING)
            key.ptr = lua_tolstring(L, -2, &key.len);
        if (!is_key(key))
            return luaL_error(L, "log fields have short names of letters, digits, '_', '-' and '.'");
        if (count == MOST_FIELDS)
            return luaL_error(L, "a log line has %d fields at most", MOST_FIELDS);
        insert_sorted(fields, count, take_value(L, key.ptr));
        count++;
    }
    fields[count] = (mp_log_field){0};
    char line[LONGEST_EVENT];
    copy_event(line, event);
    mp_log_write(level, line, fields);
    return 0;
}

/* audit_line(members): a line of the audit: JSON, without the braces.  [-0, +0, throws] */
static int l_audit_line(lua_State *L)
{
    mp_str members;
    members.ptr = luaL_checklstring(L, 1, &members.len);
    mp_audit_write(members);
    return 0;
}

void mp_lib_log(lua_State *L)
{
    static const luaL_Reg functions[] = {{"log", l_log}, {"audit_line", l_audit_line}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}
