/* room_string.c: open(steps, bytes) gives the functions that replace those of `string` and `table`, all in one table, with
 * these limits; taken(): the steps they took so far. */
#include "rooms.h"
#include "script/lib_string.h"

static int taken(lua_State *L)
{
    const mp_string_limits *limits = lua_touserdata(L, lua_upvalueindex(1));
    lua_pushinteger(L, (lua_Integer)limits->taken);
    return 1;
}

static int open(lua_State *L)
{
    lua_Integer steps = luaL_optinteger(L, 1, MP_STRING_STEPS), bytes = luaL_optinteger(L, 2, MP_STRING_BYTES);
    lua_settop(L, 0);
    lua_newtable(L);
    lua_getglobal(L, "string");
    lua_getfield(L, 2, "format");
    lua_setfield(L, 1, "format");
    lua_pushlightuserdata(L, mp_lib_string(L, 1, 1, steps, (size_t)bytes));
    lua_pushcclosure(L, taken, 1);
    lua_setfield(L, 1, "taken");
    lua_settop(L, 1);
    return 1;
}

int room_string(lua_State *L)
{
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, open);
    lua_setfield(L, -2, "open");
    return 1;
}
