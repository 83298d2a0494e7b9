/* secret.c: secrets: texts that print as ***. The library can read the text of a secret; scripts cannot. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include <lauxlib.h>

/* The text of the secret, string or number at `index`; ptr == NULL for a value of another type.  [-0, +0, -] */
static mp_str text_of(lua_State *L, int index)
{
    mp_str text = {0};
    if (luaL_testudata(L, index, MP_LUA_SECRET) != NULL) {
        text = (mp_str){lua_touserdata(L, index), lua_rawlen(L, index) - 1};
    } else if (lua_isstring(L, index)) {
        text.ptr = lua_tolstring(L, index, &text.len);
    }
    return text;
}

/* Pushes a secret whose text is `first` followed by `second`.  [-0, +1, throws] */
static void push_secret(lua_State *L, mp_str first, mp_str second)
{
    char *bytes = lua_newuserdatauv(L, first.len + second.len + 1, 0);
    if (first.len > 0)
        memcpy(bytes, first.ptr, first.len);
    if (second.len > 0)
        memcpy(bytes + first.len, second.ptr, second.len);
    bytes[first.len + second.len] = '\0';
    luaL_setmetatable(L, MP_LUA_SECRET);
}

void mp_push_secret(lua_State *L, mp_str text)
{
    push_secret(L, text, MP_STR(""));
}

/* secret.new(text): a secret with this text.  [-0, +1, throws] */
static int l_secret(lua_State *L)
{
    luaL_checkstring(L, 1);
    push_secret(L, text_of(L, 1), MP_STR(""));
    return 1;
}

/* secret.reveal(value): the text of a secret; nothing for a value of another type.  [-0, +1, throws] */
static int l_reveal(lua_State *L)
{
    if (luaL_testudata(L, 1, MP_LUA_SECRET) == NULL)
        return 0;
    mp_str text = text_of(L, 1);
    lua_pushlstring(L, text.ptr, text.len);
    return 1;
}

/* __concat: a secret joined with a text is a secret.  [-0, +1, throws] */
static int l_concat(lua_State *L)
{
    mp_str first = text_of(L, 1), second = text_of(L, 2);
    if (first.ptr == NULL || second.ptr == NULL)
        return luaL_error(L, "attempt to concatenate a secret and a %s", luaL_typename(L, first.ptr == NULL ? 1 : 2));
    push_secret(L, first, second);
    return 1;
}

static int l_tostring(lua_State *L)
{
    lua_pushliteral(L, "***");
    return 1;
}

MP_LIBRARY(secret)
{
    static const luaL_Reg functions[] = {{"secret.new", l_secret}, {"secret.reveal", l_reveal}, {NULL, NULL}};
    static const luaL_Reg rules[] = {{"__concat", l_concat}, {"__tostring", l_tostring}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    luaL_newmetatable(L, MP_LUA_SECRET);
    luaL_setfuncs(L, rules, 0);
    lua_pushliteral(L, "secret");
    lua_setfield(L, -2, "__name");
    mp_field_bool(L, "__metatable", false);
    lua_pop(L, 1);
}
