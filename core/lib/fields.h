/* fields.h: what bindings push again and again: a field of a table, a failure, the metatable of a userdata. */
#ifndef MP_LIB_FIELDS_H
#define MP_LIB_FIELDS_H

#include "base/base.h"
#include <lauxlib.h>
#include <stdbool.h>

/* Each of these sets the field `name` of the table on top of the stack.  [-0, +0, throws] */

/* NULL: nil. */
static inline void mp_field_text(lua_State *L, const char *name, const char *MP_NULLABLE text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static inline void mp_field_integer(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static inline void mp_field_number(lua_State *L, const char *name, double value)
{
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static inline void mp_field_bool(lua_State *L, const char *name, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, name);
}

static inline void mp_field_function(lua_State *L, const char *name, lua_CFunction function)
{
    lua_pushcfunction(L, function);
    lua_setfield(L, -2, name);
}

/* Pushes a new metatable for userdata of `kind`, which scripts can neither read nor replace. `gc` frees the userdata; NULL: nothing to
 * free.  [-0, +1, throws] */
static inline void mp_push_metatable(lua_State *L, const char *kind, lua_CFunction MP_NULLABLE gc)
{
    luaL_newmetatable(L, kind);
    if (gc != NULL)
        mp_field_function(L, "__gc", gc);
    mp_field_bool(L, "__metatable", false);
}

/* nil, why  [-0, +2, throws] */
static inline int mp_push_failure(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

#endif
