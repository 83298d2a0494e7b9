/* lib_keys.h: the Lua module "moonpool.keys": keys, signatures, the form of tokens, networks. */
#ifndef MP_SCRIPT_LIB_KEYS_H
#define MP_SCRIPT_LIB_KEYS_H

#include <lua.h>

/* Pushes the module  [-0, +1, throws] */
int mp_lib_keys(lua_State *L);

#endif
