/* rooms.h: modules of core/ for specs: `require "rooms"` gives a table of tables, one per module. A module is opened to specs by a file
 * room_<name>.c with one function that pushes its table, and a line below. */
#ifndef ROOMS_H
#define ROOMS_H

#include <lauxlib.h>
#include <lua.h>

/* X(name) wants `int room_<name>(lua_State *L)`. */
#define ROOMS(X) X(envelope) X(error_codes) X(json) X(keys) X(regex) X(net) X(revisions) X(sql) X(string)

#define ROOM_DECLARE(name) int room_##name(lua_State *L);
ROOMS(ROOM_DECLARE)
#undef ROOM_DECLARE

#endif
