/* workbench_sys.h: the Lua module "moonpool.wire" of the workbench: child processes, requests to an admin listener, and
 * files. Its functions block the thread. Scripts cannot load it. */
#ifndef MP_LIB_WORKBENCH_SYS_H
#define MP_LIB_WORKBENCH_SYS_H

#include <lua.h>

/* Pushes the module's table.  [-0, +1, throws] */
int mp_lib_wire(lua_State *L);

#endif
