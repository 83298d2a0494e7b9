/* luax.c: checks of arguments and fields. */
#include "vm/luax.h"
#include <lauxlib.h>

mp_str mp_check_str(lua_State *L, int index)
{
    mp_str s;
    s.ptr = luaL_checklstring(L, index, &s.len);
    return s;
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
