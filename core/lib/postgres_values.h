/* postgres_values.h: values of PostgreSQL as values of Lua. */
#ifndef MP_LIB_POSTGRES_VALUES_H
#define MP_LIB_POSTGRES_VALUES_H

#include "base/base.h"
#include <lua.h>

/* Pushes a value of the type with the OID `type`, as the server writes it. `lists`: stack index of the metatable of
 * lists.  [-0, +1, throws] */
void mp_postgres_push_value(lua_State *L, int64_t type, mp_str text, int lists);

#endif
