/* rooms.c: the entry point of the Lua module `rooms`, which has every table that rooms.h lists. */
#include "rooms.h"

#define ROOM_ROW(name) {#name, room_##name},
static const luaL_Reg rooms[] = {ROOMS(ROOM_ROW){NULL, NULL}};
#undef ROOM_ROW

__attribute__((visibility("default"))) int luaopen_rooms(lua_State *L)
{
    lua_newtable(L);
    for (const luaL_Reg *room = rooms; room->name != NULL; room++) {
        lua_pushcfunction(L, room->func);
        lua_call(L, 0, 1);
        lua_setfield(L, -2, room->name);
    }
    return 1;
}
