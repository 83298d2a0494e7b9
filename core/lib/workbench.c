/* workbench.c: runs a command of lua/moonpool/workbench: moonpool's own Lua code, with the whole standard library, in a process without a gateway. */
#include "lib/lib.h"
#include "vm/engine.h"
#include "lib/bindings.h"
#include "lib/event_reader.h"
#include "lib/jwk.h"
#include "lib/mcp/revisions.h"
#include "lib/wire.h"
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>

typedef struct {
    const char *command;
    const mp_workbench_argument *list;
    size_t count;
} workbench_command;

/* Pushes a table of the arguments: words by number; the last value of each option by the option's name; in the table "every", a list of
 * all values of an option by the option's name.
 * [-0, +1, throws] */
static void push_arguments(lua_State *L, const workbench_command *e)
{
    lua_Integer words = 0;
    lua_newtable(L);
    lua_newtable(L);
    for (size_t i = 0; i < e->count; i++) {
        const mp_workbench_argument *one = &e->list[i];
        lua_pushstring(L, one->value);
        if (one->name == NULL) {
            lua_rawseti(L, -3, ++words);
            continue;
        }
        lua_pushvalue(L, -1);
        lua_setfield(L, -4, one->name);
        luaL_getsubtable(L, -2, one->name);
        lua_insert(L, -2);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        lua_pop(L, 1);
    }
    lua_setfield(L, -2, "every");
}

/* The members of moonpool.host that commands use, too: moonpool.runtime.suggest needs the edit distance.  [-0, +1, throws] */
static int push_host(lua_State *L)
{
    static const luaL_Reg functions[] = {{"script.edit_distance", mp_lib_edit_distance}, {NULL, NULL}};
    lua_newtable(L);
    mp_set_members(L, functions, 0);
    return 1;
}

static int run_command(lua_State *L)
{
    const workbench_command *e = lua_touserdata(L, 1);
    luaL_openlibs(L);
    luaL_requiref(L, "moonpool.host", push_host, 0);
    luaL_requiref(L, "moonpool.json", mp_lib_json, 0);
    luaL_requiref(L, "moonpool.keys", mp_lib_jwk, 0);
    luaL_requiref(L, "moonpool.events", mp_lib_event_reader, 0);
    luaL_requiref(L, "moonpool.revisions", mp_lib_revisions, 0);
    luaL_requiref(L, "moonpool.error_codes", mp_lib_error_codes, 0);
    luaL_requiref(L, "moonpool.wire", mp_lib_wire, 0);
    mp_set_searchers(L, false);
    lua_settop(L, 0);
    lua_getglobal(L, "require");
    lua_pushfstring(L, "moonpool.workbench.%s", e->command);
    lua_call(L, 1, 1);
    push_arguments(L, e);
    lua_call(L, 1, 1);
    return 1;
}

static int add_traceback(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

int mp_workbench_run(const char *command, const mp_workbench_argument *arguments, size_t count)
{
    workbench_command e = {command, arguments, count};
    signal(SIGPIPE, SIG_IGN);
    lua_State *L = luaL_newstate();
    if (L == NULL)
        return 1;
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, run_command);
    lua_pushlightuserdata(L, &e);
    int code = 1;
    if (lua_pcall(L, 1, 1, 1) == LUA_OK)
        code = (int)lua_tointeger(L, -1);
    else
        fprintf(stderr, "moonpool: %s\n", lua_tostring(L, -1));
    lua_close(L);
    return fflush(stdout) == 0 ? code : 1;
}
