/* record.c: keeps what the recorder (lua/moonpool/replay/recorder.lua) has written of a call. */
#include "lib/bindings.h"
#include "rpc/rpc.h"
#include "vm/engine.h"
#include <lauxlib.h>

/* record.put(line, what): keeps the JSON of a recorded call; `what` is true if some of the call is missing, or "skipped" if all of it is.  [-0, +0, throws] */
static int l_put(lua_State *L)
{
    mp_record_put(mp_check_str(L, 1), lua_type(L, 2) == LUA_TSTRING ? MP_RECORD_SKIPPED
                                      : lua_toboolean(L, 2)         ? MP_RECORD_CUT
                                                                    : MP_RECORD_WHOLE);
    return 0;
}

/* record.claim(tool): true if a call of this tool is to be recorded. It counts as one of a recording that an operator has begun.  [-0, +1, throws] */
static int l_claim(lua_State *L)
{
    lua_pushboolean(L, mp_record_claim(mp_check_str(L, 1)));
    return 1;
}

/* record.room(): the bytes that one recorded call may have.  [-0, +1] */
static int l_room(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_record_call_bytes());
    return 1;
}

void mp_lib_record(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"record.put", l_put}, {"record.claim", l_claim}, {"record.room", l_room}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
