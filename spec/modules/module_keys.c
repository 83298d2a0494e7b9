/* module_keys.c: the module "moonpool.keys", as lua/moonpool gets it; and `digest` and `hmac`. */
#include "modules.h"
#include "lib/bindings.h"
#include "lib/modules/jwk.h"

int module_keys(lua_State *L)
{
    mp_lib_jwk(L);
    mp_lib_digest(L);
    return 1;
}
