/* hidden_address.h: the text of a Lua value, without addresses of the process. */
#ifndef MP_VM_HIDDEN_ADDRESS_H
#define MP_VM_HIDDEN_ADDRESS_H

#include <lua.h>

/* Like luaL_tolstring, but the number behind "table: 0x" is a keyed hash of a number that no other object of the
 * process has, not even a later one at its address. [-0, +1, throws] */
const char *mp_push_shown(lua_State *L, int index, size_t *MP_NULLABLE len);
/* Replaces the global `tostring` by one that calls mp_push_shown. Before lib/trust.h takes the meaning of `__mode`.
 * [-0, +0, throws] */
void mp_lib_shown(lua_State *L);

#endif
