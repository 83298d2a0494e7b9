/* module_string.c: open(steps, bytes, every) returns the functions that replace those of `string` and `table`, all in
 * one table, with these limits; taken(): the steps that they have taken. With `every`, a match in a coroutine yields
 * after each `every` steps; turns(): the number of these yields. */
#include "modules.h"
#include "vm/strings/strings.h"

static int taken(lua_State *L)
{
    const mp_string_limits *limits = lua_touserdata(L, lua_upvalueindex(1));
    lua_pushinteger(L, (lua_Integer)limits->taken);
    return 1;
}

static lua_Integer turns_taken;

static int turns(lua_State *L)
{
    lua_pushinteger(L, turns_taken);
    return 1;
}

static bool is_wanted(lua_State *L)
{
    return lua_isyieldable(L);
}

static void prepare(lua_State *L)
{
    (void)L;
    turns_taken++;
}

static int open(lua_State *L)
{
    lua_Integer every = luaL_optinteger(L, 3, -1);
    lua_Integer steps = luaL_optinteger(L, 1, MP_STRING_STEPS), bytes = luaL_optinteger(L, 2, MP_STRING_BYTES);
    lua_settop(L, 0);
    lua_newtable(L);
    lua_getglobal(L, "string");
    lua_getfield(L, 2, "format");
    lua_setfield(L, 1, "format");
    mp_string_limits *limits = mp_lib_string(L, 1, 1, steps, (size_t)bytes);
    if (every >= 0) {
        mp_string_turns *often = lua_newuserdatauv(L, sizeof *often, 0);
        *often = (mp_string_turns){every, is_wanted, prepare};
        limits->turns = often;
        lua_setfield(L, 1, "often");
    }
    lua_pushlightuserdata(L, limits);
    lua_pushcclosure(L, taken, 1);
    lua_setfield(L, 1, "taken");
    lua_pushcfunction(L, turns);
    lua_setfield(L, 1, "turns");
    lua_settop(L, 1);
    return 1;
}

int module_string(lua_State *L)
{
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, open);
    lua_setfield(L, -2, "open");
    return 1;
}
