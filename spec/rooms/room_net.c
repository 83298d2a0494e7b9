/* room_net.c: rooms.net, what of the net room has no socket.
 *   reach(kind, address)   whether a connection of that kind may lead there; `kind` as host.http takes it
 *   canonical(text)        an address as it is usually written, or nil */
#include "net/net.h"
#include "net/reach.h"
#include "rooms.h"

static int l_reach(lua_State *L)
{
    static const char *const kinds[] = {"public", "loopback", "private", NULL};
    mp_reach reach = {.kind = MP_REACH_ADDRESS};
    const char *kind = luaL_checkstring(L, 1);
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(kind, kinds[i]) == 0)
            reach.kind = (mp_reach_kind)i;
    if (reach.kind == MP_REACH_ADDRESS && !mp_address_canonical(kind, reach.address))
        return luaL_error(L, "no address: %s", kind);
    lua_pushboolean(L, mp_reach_allows_text(&reach, luaL_checkstring(L, 2)));
    return 1;
}

static int l_canonical(lua_State *L)
{
    char address[MP_ADDRESS_TEXT];
    lua_pushstring(L, mp_address_canonical(luaL_checkstring(L, 1), address) ? address : NULL);
    return 1;
}

int room_net(lua_State *L)
{
    static const luaL_Reg functions[] = {{"reach", l_reach}, {"canonical", l_canonical}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
