/* fields.h: texts, numbers, lists and userdata that bindings are given, as arguments or as fields of a table. What is wrong
 * raises: the library sees to it that scripts never get that far. All borrow: the texts live as long as Lua holds them. */
#ifndef MP_SCRIPT_FIELDS_H
#define MP_SCRIPT_FIELDS_H

#include "base/base.h"
#include <lua.h>

/* [-0, +0, throws] */
mp_str mp_check_str(lua_State *L, int index);
/* MP_STR_NONE where there is none.  [-0, +0, throws] */
mp_str mp_opt_str(lua_State *L, int index);
/* luaL_checkudata for what is given often: that looks the metatable of `kind` up by its name.  [-0, +0, throws] */
void *mp_check_udata(lua_State *L, int index, const char *kind, const void *metatable);

/* Fields of the table at `index`, which must be absolute.  [-0, +0, throws] */
mp_str mp_text_field(lua_State *L, int index, const char *name);
lua_Number mp_number_field(lua_State *L, int index, const char *name);
/* The list of at most `most` texts in field `name`, NULL-terminated, in a userdata on top of the stack.  [-0, +1, throws] */
const char *const *mp_push_texts(lua_State *L, int index, const char *name, lua_Unsigned most);

#endif
