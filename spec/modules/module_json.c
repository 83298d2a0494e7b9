/* module_json.c: core/json, and the `json` of scripts: modules.json.lua. */
#include "modules.h"
#include "json/json.h"
#include "vm/json/lua_json.h"

static const char *const types[] = {"null", "false", "true", "number", "string", "array", "object"};
static const char *const tokens[] = {"null", "false", "true", "integer", "float", "string", "[", "]", "{", "}", "end"};

static mp_str check_str(lua_State *L, int index)
{
    mp_str s;
    s.ptr = luaL_checklstring(L, index, &s.len);
    return s;
}

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr, s.len);
}

static int push_buf(lua_State *L, mp_buf *buf)
{
    push_str(L, mp_buf_str(buf));
    mp_buf_clear(buf);
    return 1;
}

static const char *result_name(mp_json_result result)
{
    return result == MP_JSON_OK         ? "ok"
           : result == MP_JSON_BROKEN   ? "broken"
           : result == MP_JSON_REPEATED ? "repeated"
                                        : "stopped";
}

static int push_result(lua_State *L, mp_json_result result, mp_json_type type, const mp_json_fault *fault)
{
    lua_pushstring(L, result_name(result));
    lua_pushstring(L, types[type]);
    if (result != MP_JSON_BROKEN && result != MP_JSON_REPEATED)
        return 2;
    lua_pushstring(L, fault->what);
    lua_pushinteger(L, (lua_Integer)fault->offset);
    return 4;
}

/* scan(text) -> result, type[, what, offset]; fails if a scan in parts of any of some sizes says something else */
static int l_scan(lua_State *L)
{
    mp_json_type type;
    mp_json_fault fault = {0};
    mp_json_result result = mp_json_scan(check_str(L, 1), NULL, &type, &fault);
    mp_json_check *check = lua_newuserdatauv(L, mp_json_check_size(), 0);
    for (size_t bytes = 1; bytes < 40; bytes += bytes / 2 + 1) {
        mp_json_fault other = {0};
        mp_json_result in_parts;
        mp_json_check_begin(check, check_str(L, 1));
        while ((in_parts = mp_json_check_part(check, bytes, &other)) == MP_JSON_STOPPED)
            continue;
        if (in_parts != result || other.what != fault.what || other.offset != fault.offset)
            return luaL_error(L, "in parts of %d bytes: %d, %s at %d", (int)bytes, (int)in_parts, other.what,
                              (int)other.offset);
    }
    return push_result(L, result, type, &fault);
}

/* A visit: the text is at index 1, the keys to enter at 2, the key to stop at at 3, the list of members at 4. */
static bool enter(void *ctx, unsigned level, mp_str key)
{
    (void)level;
    lua_State *L = ctx;
    push_str(L, key);
    bool wanted = lua_rawget(L, 2) != LUA_TNIL;
    lua_pop(L, 1);
    return wanted;
}

static int member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    lua_State *L = ctx;
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, level);
    lua_setfield(L, -2, "level");
    push_str(L, key);
    lua_setfield(L, -2, "key");
    lua_pushstring(L, types[type]);
    lua_setfield(L, -2, "type");
    push_str(L, value);
    lua_setfield(L, -2, "value");
    lua_rawseti(L, 4, (lua_Integer)lua_rawlen(L, 4) + 1);
    return lua_type(L, 3) == LUA_TSTRING && mp_str_is(key, lua_tostring(L, 3));
}

/* members(text[, {[key to enter] = true}[, key to stop at]]) -> list of {level, key, type, value}, result, type[, what,
 * offset] */
static int l_members(lua_State *L)
{
    mp_str text = check_str(L, 1);
    mp_json_type type;
    mp_json_fault fault;
    lua_settop(L, 3);
    if (lua_isnil(L, 2)) {
        lua_newtable(L);
        lua_replace(L, 2);
    }
    lua_newtable(L);
    mp_json_visitor visitor = {.enter = enter, .member = member, .ctx = L};
    mp_json_result result = mp_json_scan(text, &visitor, &type, &fault);
    return 1 + push_result(L, result, type, &fault);
}

/* tokens(text) -> list of "type span", of a text that a scan found good */
static int l_tokens(lua_State *L)
{
    mp_str text = check_str(L, 1);
    mp_json_cursor cursor = {text.ptr, text.ptr + text.len};
    mp_json_token token;
    lua_newtable(L);
    do {
        token = mp_json_next(&cursor);
        lua_pushfstring(L, "%s%s ", tokens[token.type], token.escaped ? "+" : "");
        push_str(L, token.span);
        lua_concat(L, 2);
        lua_rawseti(L, 2, (lua_Integer)lua_rawlen(L, 2) + 1);
    } while (token.type != MP_JSON_T_END);
    return 1;
}

static int l_id_eq(lua_State *L)
{
    lua_pushboolean(L, mp_json_id_eq(check_str(L, 1), check_str(L, 2)));
    return 1;
}

static int l_is_id(lua_State *L)
{
    mp_json_type type;
    mp_str span = check_str(L, 1);
    lua_pushboolean(L, mp_json_scan(span, NULL, &type, NULL) == MP_JSON_OK && mp_json_is_id(type, span));
    return 1;
}

static int l_string_is(lua_State *L)
{
    lua_pushboolean(L, mp_json_string_is(check_str(L, 1), check_str(L, 2)));
    return 1;
}

static int l_unescape(lua_State *L)
{
    mp_buf out = {0};
    mp_json_unescape(&out, check_str(L, 1));
    return push_buf(L, &out);
}

static int l_string(lua_State *L)
{
    mp_str s = check_str(L, 1);
    mp_buf out = {0};
    mp_json_put_string(&out, s);
    return push_buf(L, &out);
}

static int l_int(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 1);
    mp_buf out = {0};
    mp_json_put_int(&out, n);
    return push_buf(L, &out);
}

/* double(n) -> text, or nil if n is not finite */
static int l_double(lua_State *L)
{
    lua_Number n = luaL_checknumber(L, 1);
    mp_buf out = {0};
    if (mp_json_put_double(&out, n) == 0)
        return push_buf(L, &out);
    lua_pushnil(L);
    return 1;
}

/* read_int(lexeme) -> integer, or nil if it does not fit; read_double(lexeme) -> float */
static int l_read_int(lua_State *L)
{
    int64_t n;
    if (mp_json_int(check_str(L, 1), &n))
        lua_pushinteger(L, n);
    else
        lua_pushnil(L);
    return 1;
}

static int l_read_double(lua_State *L)
{
    lua_pushnumber(L, mp_json_double(check_str(L, 1)));
    return 1;
}

int module_json(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"scan", l_scan},   {"members", l_members},     {"tokens", l_tokens},     {"id_eq", l_id_eq},
        {"is_id", l_is_id}, {"string_is", l_string_is}, {"unescape", l_unescape}, {"string", l_string},
        {"int", l_int},     {"double", l_double},       {"read_int", l_read_int}, {"read_double", l_read_double},
        {NULL, NULL}};
    luaL_newlib(L, functions);
    lua_pushcfunction(L, mp_lib_json);
    lua_call(L, 0, 1);
    lua_setfield(L, -2, "lua");
    return 1;
}
