/* postgres_values.c: values of PostgreSQL as values of Lua, by the OIDs of their types, which never change. */
#include "lib/postgres_values.h"
#include "vm/engine.h"
#include <lauxlib.h>

enum { BOOL = 16, BYTEA = 17, INT8 = 20, INT2 = 21, INT4 = 23, TEXT = 25, OID = 26, JSON = 114 };
enum { FLOAT4 = 700, FLOAT8 = 701, TIMESTAMPTZ = 1184, JSONB = 3802 };

/* Types of arrays, and of their elements, where TEXT stands for all that become texts. */
static const uint16_t arrays[][2] = {
    {1000, BOOL},  {1001, BYTEA},  {1005, INT2},   {1007, INT4},        {1016, INT8}, {1028, OID},  {199, JSON},
    {3807, JSONB}, {1021, FLOAT4}, {1022, FLOAT8}, {1185, TIMESTAMPTZ}, {1009, TEXT}, {1015, TEXT}, {1014, TEXT},
    {1002, TEXT},  {1003, TEXT},   {1231, TEXT},   {2951, TEXT},        {1115, TEXT}, {1182, TEXT}, {1183, TEXT},
    {1270, TEXT},  {1187, TEXT},   {1041, TEXT},   {651, TEXT},
};

static int digit(char c)
{
    return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
}

static bool is_octal(const char *at)
{
    return at[0] >= '0' && at[0] <= '3' && at[1] >= '0' && at[1] <= '7' && at[2] >= '0' && at[2] <= '7';
}

/* The format "escape", which a server may be set to: "a\\\000b" is an a, a backslash, a zero byte and a b. */
static void push_escaped_bytes(lua_State *L, mp_str text)
{
    luaL_Buffer buffer;
    char *room = luaL_buffinitsize(L, &buffer, text.len);
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *at = text.ptr + i;
        char c = *at;
        if (c == '\\' && i + 3 < text.len && is_octal(at + 1)) {
            c = (char)((at[1] - '0') << 6 | (at[2] - '0') << 3 | (at[3] - '0'));
            i += 3;
        } else if (c == '\\' && i + 1 < text.len) {
            c = at[1];
            i++;
        }
        room[count++] = c;
    }
    luaL_pushresultsize(&buffer, count);
}

/* "\x6162" as bytes. */
static void push_bytes(lua_State *L, mp_str text)
{
    luaL_Buffer buffer;
    if (!mp_str_starts(text, MP_STR("\\x"))) {
        push_escaped_bytes(L, text);
        return;
    }
    size_t count = text.len < 2 ? 0 : text.len / 2 - 1;
    char *room = luaL_buffinitsize(L, &buffer, count);
    for (size_t i = 0; i < count; i++)
        room[i] = (char)(digit(text.ptr[2 * i + 2]) << 4 | digit(text.ptr[2 * i + 3]));
    luaL_pushresultsize(&buffer, count);
}

/* "2024-05-01 12:00:00.5+00" as RFC 3339 has it. Years that have not four digits, and infinity, stay as they are. */
static void push_time(lua_State *L, mp_str text)
{
    char room[48];
    size_t len = text.len;
    if (len < 22 || len > 40 || text.ptr[4] != '-' || text.ptr[10] != ' ' || text.ptr[len - 1] == 'C') {
        lua_pushlstring(L, text.ptr, len);
        return;
    }
    memcpy(room, text.ptr, len);
    room[10] = 'T';
    if (memcmp(room + len - 3, "+00", 3) == 0) {
        room[len - 3] = 'Z';
        len -= 2;
    } else if (room[len - 3] == '+' || room[len - 3] == '-') {
        memcpy(room + len, ":00", 3);
        len += 3;
    }
    lua_pushlstring(L, room, len);
}

#define MAX_DIMENSIONS 6 /* of an array, as PostgreSQL has it */

/* The list whose elements begin at `at`, behind the brace. Returns where it ends. `dimensions`: of lists in it.  [-0,
 * +1, throws] */
static const char *push_list(lua_State *L, const char *at, const char *end, int64_t element, int lists, int dimensions)
{
    mp_buf *text = &mp_state_of(mp_vm_of(L))->scratch;
    luaL_checkstack(L, 6, "too many arrays in arrays");
    lua_newtable(L);
    lua_pushvalue(L, lists);
    lua_setmetatable(L, -2);
    for (lua_Integer i = 1; at < end && *at != '}'; i++) {
        const char *from = at;
        if (*at == '{' && dimensions > 0) {
            at = push_list(L, at + 1, end, element, lists, dimensions - 1);
        } else if (*at == '"') {
            text->len = 0;
            for (at++; at < end && *at != '"'; at++)
                mp_buf_putc(text, at + 1 < end && *at == '\\' ? *++at : *at);
            at++;
            mp_postgres_push_value(L, element, text->len == 0 ? MP_STR("") : mp_buf_str(text), lists);
        } else {
            while (at < end && *at != ',' && *at != '}')
                at++;
            mp_str word = {from, (size_t)(at - from)};
            if (mp_str_is(word, "NULL"))
                mp_lua_push_null(L);
            else
                mp_postgres_push_value(L, element, word, lists);
        }
        lua_rawseti(L, -2, i);
        at += at < end && *at == ',';
    }
    return at + 1;
}

static void push_array(lua_State *L, int64_t element, mp_str text, int lists)
{
    const char *from = memchr(text.ptr, '{', text.len); /* an array that does not begin at 1 says so before it */
    if (from == NULL)
        lua_pushlstring(L, text.ptr, text.len);
    else
        push_list(L, from + 1, text.ptr + text.len, element, lists, MAX_DIMENSIONS - 1);
}

static void push_number(lua_State *L, int64_t type, mp_str text)
{
    char room[64];
    size_t len = text.len < sizeof room - 1 ? text.len : sizeof room - 1;
    memcpy(room, text.ptr, len);
    room[len] = '\0';
    if (type == FLOAT4 || type == FLOAT8)
        lua_pushnumber(L, strtod(room, NULL)); /* NaN and Infinity, too */
    else
        lua_pushinteger(L, strtoll(room, NULL, 10));
}

void mp_postgres_push_value(lua_State *L, int64_t type, mp_str text, int lists)
{
    switch (type) {
    case BOOL:
        lua_pushboolean(L, mp_str_is(text, "t"));
        return;
    case INT2:
    case INT4:
    case INT8:
    case OID:
    case FLOAT4:
    case FLOAT8:
        push_number(L, type, text);
        return;
    case BYTEA:
        push_bytes(L, text);
        return;
    case TIMESTAMPTZ:
        push_time(L, text);
        return;
    case JSON:
    case JSONB:
        if (mp_lua_decode_checked(L, text, MP_LUA_EXACT, NULL) == MP_JSON_OK)
            return;
        break; /* a key twice: PostgreSQL's json keeps it */
    default:
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            if (arrays[i][0] == type) {
                push_array(L, arrays[i][1], text, lists);
                return;
            }
    }
    lua_pushlstring(L, text.ptr, text.len);
}
