/* rooms.h: modules of core/ for specs: `require "rooms"` returns a table of tables, one per module. To add a module:
 * a file room_<name>.c with one function that pushes its table, and a line below. */
#ifndef ROOMS_H
#define ROOMS_H

#include <lauxlib.h>
#include <lua.h>

/* X(name): the function `int room_<name>(lua_State *L)` must exist. */
#define ROOMS(X) X(envelope) X(error_codes) X(json) X(keys) X(regex) X(net) X(revisions) X(sql) X(string)

#define ROOM_DECLARE(name) int room_##name(lua_State *L);
ROOMS(ROOM_DECLARE)
#undef ROOM_DECLARE

#endif
