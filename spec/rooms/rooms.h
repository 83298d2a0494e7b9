/* rooms.h: C rooms as specs see them: `require "rooms"` gives a table of tables, one per room. A room is shown by a file
 * room_<name>.c with one function that pushes its table, and a line below. */
#ifndef ROOMS_H
#define ROOMS_H

#include <lauxlib.h>
#include <lua.h>

/* X(name) wants `int room_<name>(lua_State *L)`. */
#define ROOMS(X) X(json) X(keys) X(regex) X(net) X(string)

#define ROOM_DECLARE(name) int room_##name(lua_State *L);
ROOMS(ROOM_DECLARE)
#undef ROOM_DECLARE

#endif
