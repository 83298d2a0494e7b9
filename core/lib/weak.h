/* weak.h: scripts cannot make weak tables. */
#ifndef MP_LIB_WEAK_H
#define MP_LIB_WEAK_H

#include <lua.h>

/* From now on the field `__mode` of newly compiled code means nothing to the collector: tables with it are ordinary
 * ones. Code that was compiled before has the original name among its constants and can still make weak tables. Call
 * it once, after the gateway's own modules are loaded and before scripts are. [-0, +0, throws] */
void mp_hide_weak_mode(lua_State *L);

#endif
