/* revisions.h: the Lua modules "moonpool.revisions" and "moonpool.error_codes": the tables of core/mcp for the library
 * in Lua. */
#ifndef MP_LIB_REVISIONS_H
#define MP_LIB_REVISIONS_H

#include <lua.h>

/* Pushes an array with a table for each revision, oldest first: { date = "2025-11-25", stateless = false,
 * has_sessions = true, … }, with all facts of mp_era. [-0, +1, throws memory] */
int mp_lib_revisions(lua_State *L);
/* Pushes a table of the codes of JSON-RPC errors by name: { invalid_params = -32602, … }.  [-0, +1, throws memory] */
int mp_lib_error_codes(lua_State *L);

#endif
