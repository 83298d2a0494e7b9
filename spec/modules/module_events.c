/* module_events.c: the module "moonpool.events", as lua/moonpool gets it. */
#include "modules.h"
#include "lib/modules/event_reader.h"

int module_events(lua_State *L)
{
    return mp_lib_event_reader(L);
}
