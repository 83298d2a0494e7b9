/* lib_wire.h: "moonpool.wire", with which the workbench talks to a gateway: connections, children, and a look at the files. It
 * waits by blocking; no script ever sees it. */
#ifndef MP_SCRIPT_LIB_WIRE_H
#define MP_SCRIPT_LIB_WIRE_H

#include <lua.h>

int mp_lib_wire(lua_State *L);

#endif
