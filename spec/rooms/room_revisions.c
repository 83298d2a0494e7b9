/* room_revisions.c: the module "moonpool.revisions", as lua/moonpool gets it. */
#include "rooms.h"
#include "lib/mcp/revisions.h"

int room_revisions(lua_State *L)
{
    return mp_lib_revisions(L);
}

int room_error_codes(lua_State *L)
{
    return mp_lib_error_codes(L);
}
