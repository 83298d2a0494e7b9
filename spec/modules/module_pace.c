/* module_pace.c: mp_pace of core/base, with times that the spec gives: new() → userdata with count, learn, time and
 * refuse. */
#include "modules.h"
#include "base/base.h"

static mp_pace *pace_of(lua_State *L)
{
    return luaL_checkudata(L, 1, "pace");
}

static uint64_t number_at(lua_State *L, int i)
{
    return (uint64_t)luaL_checkinteger(L, i);
}

static int l_new(lua_State *L)
{
    mp_pace_init(lua_newuserdatauv(L, sizeof(mp_pace), 0));
    luaL_setmetatable(L, "pace");
    return 1;
}

static int l_count(lua_State *L)
{
    mp_pace_count(pace_of(L), number_at(L, 2));
    return 0;
}

static int l_learn(lua_State *L)
{
    mp_pace_learn(pace_of(L), number_at(L, 2), number_at(L, 3));
    return 0;
}

static int l_time(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_pace_time_us(pace_of(L), number_at(L, 2)));
    return 1;
}

static int l_refuse(lua_State *L)
{
    lua_pushinteger(L, mp_pace_refuse(pace_of(L), number_at(L, 2), number_at(L, 3), number_at(L, 4)));
    return 1;
}

int module_pace(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"count", l_count}, {"learn", l_learn}, {"time", l_time}, {"refuse", l_refuse}, {NULL, NULL}};
    luaL_newmetatable(L, "pace");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, l_new);
    lua_setfield(L, -2, "new");
    return 1;
}
