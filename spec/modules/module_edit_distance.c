/* module_edit_distance.c: host.script.edit_distance, as lua/moonpool gets it. */
#include "modules.h"
#include "base/base.h"

static int distance(lua_State *L)
{
    mp_str a, b;
    a.ptr = luaL_checklstring(L, 1, &a.len);
    b.ptr = luaL_checklstring(L, 2, &b.len);
    lua_pushinteger(L, mp_edit_distance(a, b));
    return 1;
}

int module_edit_distance(lua_State *L)
{
    lua_pushcfunction(L, distance);
    return 1;
}
