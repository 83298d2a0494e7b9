/* revisions.c: the tables of core/mcp as the library in Lua sees them: C and Lua read the same rows. */
#include "lib/modules/revisions.h"
#include "lib/fields.h"
#include "mcp/mcp.h"
#include <lauxlib.h>

int mp_lib_revisions(lua_State *L)
{
    lua_createtable(L, (int)mp_era_count, 0);
    for (size_t i = 0; i < mp_era_count; i++) {
        lua_newtable(L);
        mp_field_text(L, "date", mp_eras[i].date);
        mp_field_bool(L, "stateless", !mp_eras[i].has_sessions);
#define SET_FACT(name) (lua_pushboolean(L, mp_eras[i].name), lua_setfield(L, -2, #name));
        MP_ERA_FACTS(SET_FACT)
#undef SET_FACT
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

int mp_lib_error_codes(lua_State *L)
{
    lua_createtable(L, 0, (int)mp_error_code_count);
    for (size_t i = 0; i < mp_error_code_count; i++)
        mp_field_integer(L, mp_error_codes[i].name, mp_error_codes[i].code);
    return 1;
}
