/* fields.h: what bindings push again and again: a field of a table, a failure, the metatable of a userdata; tables by
 * which a struct of C becomes a table of Lua, or options of Lua a struct of C; and checks of what bindings are given.
 */
#ifndef MP_LIB_FIELDS_H
#define MP_LIB_FIELDS_H

#include "base/base.h"
#include <lauxlib.h>

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

/* A list of texts that ends with NULL. NULL: the field stays unset. */
static inline void mp_field_texts(lua_State *L, const char *name, char *const *MP_NULLABLE list)
{
    if (list == NULL)
        return;
    lua_newtable(L);
    for (lua_Integer i = 0; list[i] != NULL; i++) {
        lua_pushstring(L, list[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

static inline void mp_field_function(lua_State *L, const char *name, lua_CFunction function)
{
    lua_pushcfunction(L, function);
    lua_setfield(L, -2, name);
}

/* Pushes a new metatable for userdata of `kind`, which scripts can neither read nor replace. `gc` frees the userdata;
 * NULL: nothing to free.  [-0, +1, throws] */
static inline void mp_push_metatable(lua_State *L, const char *kind, lua_CFunction MP_NULLABLE gc)
{
    luaL_newmetatable(L, kind);
    if (gc != NULL)
        mp_field_function(L, "__gc", gc);
    mp_field_bool(L, "__metatable", false);
}

/* A member of a struct of C, and its name in Lua. */
typedef struct {
    const char *name;
    enum { MP_MEMBER_TEXT, MP_MEMBER_STR, MP_MEMBER_FLAG, MP_MEMBER_INTEGER, MP_MEMBER_SECONDS } kind;
    size_t at; /* where the member is, in bytes from the struct's beginning */
} mp_lua_member;

#define MP_MEMBER(name, type, member)                                                                                  \
    {name,                                                                                                             \
     _Generic(((type *)NULL)->member,                                                                                  \
         char *: MP_MEMBER_TEXT,                                                                                       \
         const char *: MP_MEMBER_TEXT,                                                                                 \
         mp_str: MP_MEMBER_STR,                                                                                        \
         bool: MP_MEMBER_FLAG,                                                                                         \
         int64_t: MP_MEMBER_INTEGER,                                                                                   \
         uint64_t: MP_MEMBER_INTEGER),                                                                                 \
     offsetof(type, member)}
/* A uint64_t of milliseconds, which Lua has in seconds. */
#define MP_MEMBER_MS(name, type, member) {name, MP_MEMBER_SECONDS, offsetof(type, member)}

/* Sets the fields of the table on top of the stack to the members of `from`. A name may have a dot, as in
 * mp_set_member(). The last row has no name.  [-0, +0, throws] */
void mp_set_struct(lua_State *L, const mp_lua_member *fields, const void *from);
/* Sets the members of `to` to the fields of the table at `index`; a member whose field is nil stays as it is. An mp_str
 * is that of Lua.
 * [-0, +0, throws] */
void mp_read_struct(lua_State *L, int index, const mp_lua_member *fields, void *to);

/* Checks of arguments and of fields of a table. A wrong value raises an error. Values of scripts are checked by
 * lua/moonpool first. Texts are borrowed: they are valid as long as Lua holds a reference to them. */

/* MP_STR_NONE if the argument is nil or absent. [-0, +0, throws] */
mp_str mp_opt_str(lua_State *L, int index);
/* luaL_checkudata for frequent use: compares the address of the metatable instead of looking it up by its name.  [-0,
 * +0, throws] */
void *mp_check_udata(lua_State *L, int index, const char *kind, const void *metatable);
/* Fields of the table at `index`, which must be absolute.  [-0, +0, throws] */
mp_str mp_text_field(lua_State *L, int index, const char *name);
lua_Number mp_number_field(lua_State *L, int index, const char *name);
/* The list of at most `most` texts in field `name`, NULL-terminated, in a userdata on top of the stack. [-0, +1,
 * throws] */
const char *const *mp_push_texts(lua_State *L, int index, const char *name, lua_Unsigned most);

/* nil, why  [-0, +2, throws] */
static inline int mp_push_failure(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

#endif
