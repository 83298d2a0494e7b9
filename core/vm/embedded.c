/* embedded.c: how `require` finds the modules in the binary. */
#include "vm/embedded.h"
#include <lauxlib.h>
#include <lualib.h>
#include <string.h>

/* Pushes a loader and the path; or a text that says that the binary has no such module. [-1, +1|2, throws] */
static int find(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    for (size_t i = 0; i < mp_embedded_count; i++) {
        const mp_embedded_file *file = &mp_embedded[i];
        if (strcmp(file->name, name) != 0)
            continue;
        lua_pushfstring(L, "@%s", file->path);
        if (luaL_loadbufferx(L, file->ptr, file->len, lua_tostring(L, -1), "b") != LUA_OK)
            return lua_error(L);
        lua_pushstring(L, file->path);
        return 2;
    }
    lua_pushfstring(L, "no module '%s' in moonpool", name);
    return 1;
}

void mp_set_searchers(lua_State *L, bool has_files)
{
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_getfield(L, -1, "searchers");
    lua_createtable(L, 5, 0);
    lua_rawgeti(L, -2, 1); /* the table package.preload */
    lua_rawseti(L, -2, 1);
    lua_pushcfunction(L, find);
    lua_rawseti(L, -2, 2);
    for (int i = 2; has_files && i <= 4; i++) {
        lua_rawgeti(L, -2, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -3, "searchers");
    lua_pop(L, 2);
}
