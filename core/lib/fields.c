/* fields.c: structs of C as tables of Lua, by a list of their members; checks of arguments and fields. */
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

mp_str mp_opt_str(lua_State *L, int index)
{
    return lua_isnoneornil(L, index) ? MP_STR_NONE : mp_check_str(L, index);
}

void *mp_check_udata(lua_State *L, int index, const char *kind, const void *metatable)
{
    const void *found = NULL;
    if (lua_isuserdata(L, index) && lua_getmetatable(L, index)) {
        found = lua_topointer(L, -1);
        lua_pop(L, 1);
    }
    return found == metatable ? lua_touserdata(L, index) : luaL_checkudata(L, index, kind);
}

mp_str mp_text_field(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TSTRING)
        luaL_error(L, "'%s' must be a string", name);
    mp_str text;
    text.ptr = lua_tolstring(L, -1, &text.len);
    lua_pop(L, 1); /* the text stays valid: the table holds a reference to it */
    return text;
}

lua_Number mp_number_field(lua_State *L, int index, const char *name)
{
    if (lua_getfield(L, index, name) != LUA_TNUMBER)
        luaL_error(L, "'%s' must be a number", name);
    lua_Number number = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return number;
}

const char *const *mp_push_texts(lua_State *L, int index, const char *name, lua_Unsigned most)
{
    if (lua_getfield(L, index, name) != LUA_TTABLE)
        luaL_error(L, "'%s' must be a list", name);
    lua_Unsigned count = lua_rawlen(L, -1);
    if (count > most)
        luaL_error(L, "'%s' must have at most %I strings", name, (lua_Integer)most);
    const char **texts = lua_newuserdatauv(L, ((size_t)count + 1) * sizeof *texts, 0);
    for (lua_Unsigned i = 0; i < count; i++) {
        if (lua_rawgeti(L, -2, (lua_Integer)i + 1) != LUA_TSTRING)
            luaL_error(L, "'%s' has an item that is not a string", name);
        texts[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    texts[count] = NULL;
    lua_remove(L, -2);
    return texts;
}
