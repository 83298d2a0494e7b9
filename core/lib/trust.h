/* trust.h: what `scripts.trust` changes in a Lua state. */
#ifndef MP_LIB_TRUST_H
#define MP_LIB_TRUST_H

#include <lua.h>
#include <stdbool.h>

/* Call it once, after the gateway's own modules are loaded and before scripts are.
 *
 * Full: the functions of `io` that open files count each file for the script below the folder `root` that opens it.
 * Otherwise the field `__mode` of newly compiled code means nothing to the collector: tables with it are ordinary ones.
 * Code that was compiled before has the original name among its constants and can still make weak tables.  [-0, +0,
 * throws] */
void mp_apply_trust(lua_State *L, bool is_full, const char *root);

#endif
