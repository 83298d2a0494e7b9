/* lib_regex.h: the Lua module "moonpool.regex": regular expressions as JSON Schema means them, on PCRE2. */
#ifndef MP_SCRIPT_LIB_REGEX_H
#define MP_SCRIPT_LIB_REGEX_H

#include <lua.h>

/* Pushes the module  [-0, +1, throws] */
int mp_lib_regex(lua_State *L);

#endif
