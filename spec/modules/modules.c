/* modules.c: the entry point of the Lua module `modules`, which has every table that modules.h lists. */
#include "modules.h"

#define MODULE_ROW(name) {#name, module_##name},
static const luaL_Reg modules[] = {MODULES(MODULE_ROW){NULL, NULL}};
#undef MODULE_ROW

__attribute__((visibility("default"))) int luaopen_modules(lua_State *L)
{
    lua_newtable(L);
    for (const luaL_Reg *module = modules; module->name != NULL; module++) {
        lua_pushcfunction(L, module->func);
        lua_call(L, 0, 1);
        lua_setfield(L, -2, module->name);
    }
    return 1;
}
