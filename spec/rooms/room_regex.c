/* room_regex.c: the module "moonpool.regex", as scripts' VMs have it. */
#include "rooms.h"
#include "lib/regex.h"

int room_regex(lua_State *L)
{
    return mp_lib_regex(L);
}
