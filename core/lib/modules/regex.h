/* regex.h: the Lua module "moonpool.regex": the regular expressions of JSON Schema, executed by PCRE2. */
#ifndef MP_LIB_REGEX_H
#define MP_LIB_REGEX_H

#include <lua.h>

/* Pushes the module's table.  [-0, +1, throws] */
int mp_lib_regex(lua_State *L);

#endif
