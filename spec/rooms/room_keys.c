/* room_keys.c: the module "moonpool.keys", as lua/moonpool gets it; and `digest` and `hmac`. */
#include "rooms.h"
#include "lib/bindings.h"
#include "lib/jwk.h"

int room_keys(lua_State *L)
{
    mp_lib_jwk(L);
    mp_lib_digest(L);
    return 1;
}
