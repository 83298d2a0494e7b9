/* luax.h: checks of arguments and of fields of a table, for C functions. A wrong value raises an error. Values of
 * scripts are checked by lua/moonpool first. Texts are borrowed: they are valid as long as Lua holds a reference to
 * them. */
#ifndef MP_VM_LUAX_H
#define MP_VM_LUAX_H

#include "telemetry/telemetry.h"
#include <lauxlib.h>

/* [-0, +0, throws] */
mp_str mp_check_str(lua_State *L, int index);
/* MP_STR_NONE if the argument is nil or absent. [-0, +0, throws] */
mp_str mp_opt_str(lua_State *L, int index);
/* luaL_checkudata for frequent use: compares the address of the metatable instead of looking it up by its name.  [-0,
 * +0, throws] */
void *mp_check_udata(lua_State *L, int index, const char *kind, const void *metatable);

/* Fields of the table at `index`, which must be absolute.  [-0, +0, throws] */
mp_str mp_text_field(lua_State *L, int index, const char *name);
lua_Number mp_number_field(lua_State *L, int index, const char *name);
/* The list of at most `most` texts in field `name`, NULL-terminated, in a userdata on top of the stack. [-0, +1,
 * throws] */
const char *const *mp_push_texts(lua_State *L, int index, const char *name, lua_Unsigned most);

/* Like lua_setfield and luaL_setfuncs, but "store.get" is the member `get` of the table `store` in the table at
 * `index`, or on top, which is made if there is none.  [-1, +0, throws]; [-upvalues, +0, throws] */
void mp_set_member(lua_State *L, int index, const char *name);
void mp_set_members(lua_State *L, const luaL_Reg *functions, int upvalues);

#endif
