/* module_hold.c: mp_hold of core/gateway: new() → userdata; step(hold, value, limit, ms) → whether it is over the
 * limit. */
#include "modules.h"
#include "admin/saturation.h"

static int l_new(lua_State *L)
{
    *(mp_hold *)lua_newuserdatauv(L, sizeof(mp_hold), 0) = (mp_hold){.is_over = false};
    luaL_setmetatable(L, "hold");
    return 1;
}

static int l_step(lua_State *L)
{
    mp_hold *hold = luaL_checkudata(L, 1, "hold");
    lua_pushboolean(
        L, mp_hold_step(hold, luaL_checknumber(L, 2), luaL_checknumber(L, 3), (uint64_t)luaL_checkinteger(L, 4)));
    return 1;
}

int module_hold(lua_State *L)
{
    luaL_newmetatable(L, "hold");
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, l_new);
    lua_setfield(L, -2, "new");
    lua_pushcfunction(L, l_step);
    lua_setfield(L, -2, "step");
    return 1;
}
