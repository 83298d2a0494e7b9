/* index_depth.h: a check of the text of a script before Lua compiles it: how many indexings an expression has. */
#ifndef MP_VM_INDEX_DEPTH_H
#define MP_VM_INDEX_DEPTH_H

#include "telemetry/telemetry.h"

#define MP_MAX_CHAIN 200 /* indexings in one expression such as a.b[c.d].e */

/* The line of the first expression with more than MP_MAX_CHAIN indexings in a row, as in a.b.b.b; 0 if there is
 * none. To name the variable that an error is about takes long where there are very many (docs/dev/lua.md). */
int mp_chain_find(mp_str text);

#endif
