/* module_hysteresis.c: mp_hysteresis of core/gateway: new() → userdata; step(hysteresis, value, limit, ms) → whether it
 * is over the limit. */
#include "modules.h"
#include "admin/saturation.h"

static int l_new(lua_State *L)
{
    *(mp_hysteresis *)lua_newuserdatauv(L, sizeof(mp_hysteresis), 0) = (mp_hysteresis){.is_over = false};
    luaL_setmetatable(L, "hysteresis");
    return 1;
}

static int l_step(lua_State *L)
{
    mp_hysteresis *hysteresis = luaL_checkudata(L, 1, "hysteresis");
    lua_pushboolean(L, mp_hysteresis_step(hysteresis, luaL_checknumber(L, 2), luaL_checknumber(L, 3),
                                          (uint64_t)luaL_checkinteger(L, 4)));
    return 1;
}

int module_hysteresis(lua_State *L)
{
    luaL_newmetatable(L, "hysteresis");
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, l_new);
    lua_setfield(L, -2, "new");
    lua_pushcfunction(L, l_step);
    lua_setfield(L, -2, "step");
    return 1;
}
