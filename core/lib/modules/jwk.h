/* jwk.h: the Lua module "moonpool.keys": cryptographic keys, signatures, splitting of JSON Web Tokens, IP networks. */
#ifndef MP_LIB_JWK_H
#define MP_LIB_JWK_H

#include <lua.h>

/* Pushes the module's table.  [-0, +1, throws] */
int mp_lib_jwk(lua_State *L);

#endif
