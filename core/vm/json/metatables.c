/* metatables.c: the metatables of arrays and objects, and getmetatable, which does not show those of byte-preserving
 * tables. */
#include "vm/json/source.h"
#include "vm/json/lua_json.h"
#include <lauxlib.h>
#include <lualib.h>

/* The addresses of these variables are keys in the registry. */
static const char array_key = 0, object_key = 0;

void mp_lua_push_null(lua_State *L)
{
    lua_pushlightuserdata(L, NULL);
}

static int l_sealed(lua_State *L)
{
    return luaL_error(L, "this metatable is shared by all scripts: fields cannot be added");
}

static void push_shared(lua_State *L, const void *key)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, key) == LUA_TTABLE)
        return;
    lua_pop(L, 1);
    lua_newtable(L);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, l_sealed);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, key);
}

void mp_lua_push_array_mt(lua_State *L)
{
    push_shared(L, &array_key);
}

void mp_lua_push_object_mt(lua_State *L)
{
    push_shared(L, &object_key);
}

/* -- getmetatable -------------------------------------------------------------------------------------------------- */

/* Replaces the metatable on top by the one that Lua sees instead, which may be nil.  [-1, +1, throws memory] */
static void show_metatable(lua_State *L)
{
    const void *metatable = lua_topointer(L, -1);
    const mp_json_source *source = mp_json_source_of(L);
    if (source == NULL)
        return;
    bool is_array = metatable == source->array_mt;
    lua_pop(L, 1);
    if (is_array)
        mp_lua_push_array_mt(L);
    else
        lua_pushnil(L);
}

/* getmetatable(value)  [-0, +1, throws] */
static int l_getmetatable(lua_State *L)
{
    luaL_checkany(L, 1);
    if (!lua_getmetatable(L, 1)) {
        lua_pushnil(L);
        return 1;
    }
    if (luaL_getmetafield(L, 1, "__metatable") == LUA_TNIL)
        show_metatable(L);
    return 1;
}

/* debug.getmetatable(value)  [-0, +1, throws] */
static int l_raw_getmetatable(lua_State *L)
{
    luaL_checkany(L, 1);
    if (!lua_getmetatable(L, 1))
        lua_pushnil(L);
    else
        show_metatable(L);
    return 1;
}

void mp_lib_metatables(lua_State *L)
{
    lua_register(L, "getmetatable", l_getmetatable);
    lua_getglobal(L, LUA_DBLIBNAME);
    lua_pushcfunction(L, l_raw_getmetatable);
    lua_setfield(L, -2, "getmetatable");
    lua_pop(L, 1);
}
