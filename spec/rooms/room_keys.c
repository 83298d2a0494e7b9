/* room_keys.c: the module "moonpool.keys", as the library has it. */
#include "rooms.h"
#include "script/lib_keys.h"

int room_keys(lua_State *L)
{
    return mp_lib_keys(L);
}
