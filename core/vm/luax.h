/* luax.h: what every file of C functions for Lua needs. Texts are borrowed: they are valid as long as Lua holds a
 * reference to them. More checks of arguments are in lib/fields.h. */
#ifndef MP_VM_LUAX_H
#define MP_VM_LUAX_H

#include "telemetry/telemetry.h"
#include <lauxlib.h>

/* The text that the argument is, or a number as text; anything else raises an error.  [-0, +0, throws] */
mp_str mp_check_str(lua_State *L, int index);
/* Like lua_setfield and luaL_setfuncs, but "store.get" is the member `get` of the table `store` in the table at
 * `index`, or on top, which is made if there is none.  [-1, +0, throws]; [-upvalues, +0, throws] */
void mp_set_member(lua_State *L, int index, const char *name);
void mp_set_members(lua_State *L, const luaL_Reg *functions, int upvalues);

#endif
