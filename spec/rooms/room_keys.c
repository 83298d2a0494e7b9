/* room_keys.c: the module "moonpool.keys", as the library has it; and `digest` and `hmac`. */
#include "rooms.h"
#include "script/lib.h"
#include "script/lib_keys.h"

int room_keys(lua_State *L)
{
    mp_lib_keys(L);
    mp_lib_digest(L);
    return 1;
}
