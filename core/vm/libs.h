/* libs.h: the Lua libraries that belong to the engine. */
#ifndef MP_VM_LIBS_H
#define MP_VM_LIBS_H

#include "vm/vm.h"
#include <lua.h>

/* Each of these adds functions to the host table on top of the stack: those of protect.c, bus.c and load.c.  [-0, +0,
 * throws] */
void mp_lib_protections(lua_State *L);
void mp_lib_bus(lua_State *L, mp_bus *bus);
void mp_lib_load(lua_State *L);

#endif
