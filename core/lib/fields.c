/* fields.c: structs of C as tables of Lua, by a list of their members. */
#include "lib/fields.h"
#include "vm/engine.h"

void mp_set_struct(lua_State *L, const mp_lua_member *fields, const void *from)
{
    for (; fields->name != NULL; fields++) {
        const void *member = (const char *)from + fields->at;
        if (fields->kind == MP_MEMBER_TEXT)
            lua_pushstring(L, *(const char *const *)member); /* NULL gives nil */
        else if (fields->kind == MP_MEMBER_STR)
            lua_pushlstring(L, ((const mp_str *)member)->ptr, ((const mp_str *)member)->len);
        else if (fields->kind == MP_MEMBER_FLAG)
            lua_pushboolean(L, *(const bool *)member);
        else if (fields->kind == MP_MEMBER_INTEGER)
            lua_pushinteger(L, *(const lua_Integer *)member);
        else
            lua_pushnumber(L, (double)*(const uint64_t *)member / 1000);
        mp_set_member(L, -2, fields->name);
    }
}

static void read_field(lua_State *L, const mp_lua_member *field, void *member)
{
    if (field->kind == MP_MEMBER_TEXT)
        *(const char **)member = luaL_checkstring(L, -1);
    else if (field->kind == MP_MEMBER_STR)
        *(mp_str *)member = mp_check_str(L, -1);
    else if (field->kind == MP_MEMBER_FLAG)
        *(bool *)member = lua_toboolean(L, -1);
    else if (field->kind == MP_MEMBER_INTEGER)
        *(lua_Integer *)member = luaL_checkinteger(L, -1);
    else
        *(uint64_t *)member = (uint64_t)(luaL_checknumber(L, -1) * 1000);
}

void mp_read_struct(lua_State *L, int index, const mp_lua_member *fields, void *to)
{
    for (; fields->name != NULL; fields++) {
        if (lua_getfield(L, index, fields->name) != LUA_TNIL)
            read_field(L, fields, (char *)to + fields->at);
        lua_pop(L, 1);
    }
}
