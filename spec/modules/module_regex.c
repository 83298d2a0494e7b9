/* module_regex.c: the module "moonpool.regex", as scripts' VMs have it. */
#include "modules.h"
#include "lib/modules/regex.h"

int module_regex(lua_State *L)
{
    return mp_lib_regex(L);
}
