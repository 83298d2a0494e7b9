/* luax.c: checks of arguments and fields. */
#include "vm/luax.h"
#include <lauxlib.h>

mp_str mp_check_str(lua_State *L, int index)
{
    mp_str s;
    s.ptr = luaL_checklstring(L, index, &s.len);
    return s;
}

mp_str mp_opt_str(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? MP_STR_NONE : mp_check_str(L, index);
}

void *mp_check_udata(lua_State *L, int index, const char *kind, const void *metatable)
{
    const void *found = NULL;
    if (lua_isuserdata(L, index) && lua_getmetatable(L, index)) {
        found = lua_topointer(L, -1);
        lua_pop(L, 1);
    }
    return found == metatable ? lua_touserdata(L, index) : luaL_checkudata(L, index, kind);
}

mp_str mp_text_field(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TSTRING)
        luaL_error(L, "'%s' must be a string", name);
    mp_str text;
    text.ptr = lua_tolstring(L, -1, &text.len);
    lua_pop(L, 1); /* the text stays valid: the table holds a reference to it */
    return text;
}

lua_Number mp_number_field(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TNUMBER)
        luaL_error(L, "'%s' must be a number", name);
    lua_Number number = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return number;
}

const char *const *mp_push_texts(lua_State *L, int index, const char *name, lua_Unsigned most)
{
    if (lua_getfield(L, index, name) != LUA_TTABLE)
        luaL_error(L, "'%s' must be a list", name);
    lua_Unsigned count = lua_rawlen(L, -1);
    if (count > most)
        luaL_error(L, "'%s' must have at most %I strings", name, (lua_Integer)most);
    const char **texts = lua_newuserdatauv(L, ((size_t)count + 1) * sizeof *texts, 0);
    for (lua_Unsigned i = 0; i < count; i++) {
        if (lua_rawgeti(L, -2, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "'%s' has an item that is not a string", name);
        texts[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    texts[count] = NULL;
    lua_remove(L, -2);
    return texts;
}

void mp_set_member(lua_State *L, int index, const char *name)
{
    const char *dot = strchr(name, '.');
    if (dot == NULL) {
        lua_setfield(L, index, name);
        return;
    }
    index = lua_absindex(L, index);
    lua_pushlstring(L, name, (size_t)(dot - name));
    lua_pushvalue(L, -1);
    if (lua_rawget(L, index) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -2);
        lua_pushvalue(L, -2);
        lua_rawset(L, index);
    }
    lua_pushvalue(L, -3); /* value, name of the table, table */
    lua_setfield(L, -2, dot + 1);
    lua_pop(L, 3);
}

void mp_set_members(lua_State *L, const luaL_Reg *functions, int upvalues)
{
    for (; functions->name != NULL; functions++) {
        for (int i = 0; i < upvalues; i++)
            lua_pushvalue(L, -upvalues);
        lua_pushcclosure(L, functions->func, upvalues);
        mp_set_member(L, -(upvalues + 2), functions->name);
    }
    lua_pop(L, upvalues);
}
