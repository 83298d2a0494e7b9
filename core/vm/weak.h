/* weak.h: scripts cannot make weak tables. */
#ifndef MP_VM_WEAK_H
#define MP_VM_WEAK_H

#include <lua.h>

/* From now on the field `__mode` that newly compiled code names means nothing to the collector: tables with it are ordinary
 * ones. Code that was compiled before, which has the old name among its constants, can make weak tables as ever. Call it once,
 * after the gateway's own modules are loaded and before scripts are.  [-0, +0, throws] */
void mp_hide_weak_mode(lua_State *L);

#endif
