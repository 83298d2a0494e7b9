/* record.c: stores the record of a call that the recorder (lua/moonpool/replay/recorder.lua) has written. */
#define _GNU_SOURCE /* for memmem */
#include "lib/bindings.h"
#include "rpc/observe.h"
#include <lauxlib.h>

/* record.put(line, what): keeps the JSON of a recorded call; `what` is true if some of the call is missing, or
 * "skipped" if all of it is.  [-0, +0, throws] */
static int l_put(lua_State *L)
{
    mp_record_put(mp_check_str(L, 1), lua_type(L, 2) == LUA_TSTRING ? MP_RECORD_SKIPPED
                                      : lua_toboolean(L, 2)         ? MP_RECORD_CUT
                                                                    : MP_RECORD_WHOLE);
    return 0;
}

/* record.claim(tool): true if a call of this tool is to be recorded. It counts as one of a recording that an operator
 * has begun.  [-0, +1, throws] */
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

/* record.replace(text, value, with): the text with another one in the place of each occurrence of a value, which is not
 * empty. string.find compares the whole value at each place of the text, and clients choose both; memmem takes a time
 * linear in the length of the text.  [-0, +1, throws] */
static int l_replace(lua_State *L)
{
    mp_str text = mp_check_str(L, 1), value = mp_check_str(L, 2), with = mp_check_str(L, 3);
    const char *at = value.len == 0 ? NULL : memmem(text.ptr, text.len, value.ptr, value.len);
    if (at == NULL) {
        lua_pushvalue(L, 1);
        return 1;
    }
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    for (; at != NULL; at = memmem(text.ptr, text.len, value.ptr, value.len)) {
        luaL_addlstring(&out, text.ptr, (size_t)(at - text.ptr));
        luaL_addlstring(&out, with.ptr, with.len);
        text = mp_str_from(text, (size_t)(at - text.ptr) + value.len);
    }
    luaL_addlstring(&out, text.ptr, text.len);
    luaL_pushresult(&out);
    return 1;
}

MP_LIBRARY(record)
{
    static const luaL_Reg functions[] = {{"record.put", l_put},
                                         {"record.claim", l_claim},
                                         {"record.room", l_room},
                                         {"record.replace", l_replace},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
