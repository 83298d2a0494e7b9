/* module_revisions.c: the module "moonpool.revisions", as lua/moonpool gets it. */
#include "modules.h"
#include "lib/modules/revisions.h"

int module_revisions(lua_State *L)
{
    return mp_lib_revisions(L);
}

int module_error_codes(lua_State *L)
{
    return mp_lib_error_codes(L);
}
