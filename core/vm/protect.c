/* protect.c: pcall and xpcall, which do not catch the errors that end a task or a coroutine (closing.h). Scripts have a
 * version of their own: its xpcall runs the script's handler after the stack has unwound. A message handler of Lua
 * would run where the error is raised. That may be in the count hook, where no further hook could stop it. */
#include "vm/closing.h"
#include <lauxlib.h>

static bool is_good(int status)
{
    return status == LUA_OK || status == LUA_YIELD;
}

/* -- the library's --------------------------------------------------------------------------------------------- */

static int pcall_end(lua_State *L, int status, lua_KContext began)
{
    mp_catch_end(L, began, !is_good(status));
    if (is_good(status))
        return lua_gettop(L);
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

/* pcall(f, …)  [-n, +m, throws] */
static int l_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    lua_KContext began = mp_catch_begin(L);
    return pcall_end(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, began, pcall_end), began);
}

static int xpcall_end(lua_State *L, int status, lua_KContext began)
{
    mp_catch_end(L, began, !is_good(status));
    if (is_good(status))
        return lua_gettop(L) - 2;
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

/* Puts the stack in the order f, handler, true, f, … */
static int arrange_results(lua_State *L)
{
    int arguments = lua_gettop(L) - 2;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushboolean(L, 1);
    lua_pushvalue(L, 1);
    lua_rotate(L, 3, 2);
    return arguments;
}

/* xpcall(f, handler, …): `handler` runs where the error is raised, so it may run nothing of a script.  [-n, +m,
 * throws] */
static int l_xpcall(lua_State *L)
{
    int arguments = arrange_results(L);
    lua_KContext began = mp_catch_begin(L);
    return xpcall_end(L, lua_pcallk(L, arguments, LUA_MULTRET, 2, began, xpcall_end), began);
}

/* -- the scripts' ---------------------------------------------------------------------------------------------- */

/* A handler that needs input of the client ends by an error that the script's own pcalls must not catch. Upvalue 1:
 * the kind of such an error (lua/moonpool/runtime/frozen.lua). The error is on top. [-0, +0, throws] */
static void pass_input(lua_State *L)
{
    if (!lua_getmetatable(L, -1))
        return;
    lua_pushliteral(L, "kind");
    lua_rawget(L, -2);
    bool is_input = lua_rawequal(L, -1, lua_upvalueindex(1));
    lua_pop(L, 2);
    if (is_input)
        lua_error(L);
}

static int script_pcall_end(lua_State *L, int status, lua_KContext began)
{
    if (!is_good(status))
        pass_input(L);
    return pcall_end(L, status, began);
}

static int script_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    lua_KContext began = mp_catch_begin(L);
    return script_pcall_end(L, lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 0, began, script_pcall_end), began);
}

/* The results of the script's handler are above the `false` at index 1. [-n, +m, throws] */
static int handler_end(lua_State *L, int status, lua_KContext began)
{
    if (!is_good(status))
        pass_input(L);
    mp_catch_end(L, began, !is_good(status));
    return lua_gettop(L);
}

static int script_xpcall_end(lua_State *L, int status, lua_KContext began)
{
    if (is_good(status)) {
        mp_catch_end(L, began, false);
        return lua_gettop(L) - 2;
    }
    pass_input(L);
    mp_catch_end(L, began, true);
    if (status == LUA_ERRMEM || lua_rawequal(L, 2, lua_upvalueindex(2))) {
        lua_pushboolean(L, 0);
        lua_insert(L, -2);
        return 2;
    }
    lua_pushboolean(L, 0);
    lua_replace(L, 1); /* the stack is: false, handler, true, error */
    lua_remove(L, 3);
    began = mp_catch_begin(L);
    return handler_end(L, lua_pcallk(L, 1, LUA_MULTRET, 0, began, handler_end), began);
}

/* Upvalue 2: debug.traceback, which runs no code of a script, and is useful only where the error is raised. */
static int script_xpcall(lua_State *L)
{
    int arguments = arrange_results(L), handler = lua_rawequal(L, 2, lua_upvalueindex(2)) ? 2 : 0;
    lua_KContext began = mp_catch_begin(L);
    return script_xpcall_end(L, lua_pcallk(L, arguments, LUA_MULTRET, handler, began, script_xpcall_end), began);
}

/* task.is_ending(value): true if it is an error that ends a task or a coroutine.  [-0, +1] */
static int l_is_ending(lua_State *L)
{
    lua_pushboolean(L, mp_is_ending_error(L, 1));
    return 1;
}

/* script.protections(input): pcall and xpcall for scripts; they pass on errors of the kind `input`.  [-0, +2,
 * throws] */
static int l_protections(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, script_pcall, 1);
    lua_pushvalue(L, 1);
    lua_getglobal(L, "debug");
    lua_getfield(L, -1, "traceback");
    lua_remove(L, -2);
    lua_pushcclosure(L, script_xpcall, 2);
    return 2;
}

void mp_lib_protect(lua_State *L)
{
    lua_register(L, "pcall", l_pcall);
    lua_register(L, "xpcall", l_xpcall);
}

void mp_lib_protections(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"script.protections", l_protections}, {"task.is_ending", l_is_ending}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
