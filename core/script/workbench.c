/* workbench.c: runs a command of lua/moonpool/workbench: our own Lua, with the whole standard library, alone in its process. */
#include "script/embedded.h"
#include "script/lib_json.h"
#include "script/lib_keys.h"
#include "script/lib_wire.h"
#include "script/vm.h"
#include <lauxlib.h>
#include <lualib.h>
#include <signal.h>
#include <stdio.h>

typedef struct {
    const char *command;
    const mp_bench_argument *list;
    size_t count;
} errand;

/* A table: the words by number, each option's last value by its name, and under "every" by its name the list of its values.
 * [-0, +1, throws] */
static void push_arguments(lua_State *L, const errand *e)
{
    lua_Integer words = 0;
    lua_newtable(L);
    lua_newtable(L);
    for (size_t i = 0; i < e->count; i++) {
        const mp_bench_argument *one = &e->list[i];
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

static int run(lua_State *L)
{
    const errand *e = lua_touserdata(L, 1);
    luaL_openlibs(L);
    luaL_requiref(L, "moonpool.json", mp_lib_json, 0);
    luaL_requiref(L, "moonpool.keys", mp_lib_keys, 0);
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

static int trace(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

int mp_bench_run(const char *command, const mp_bench_argument *arguments, size_t count)
{
    errand e = {command, arguments, count};
    signal(SIGPIPE, SIG_IGN);
    lua_State *L = luaL_newstate();
    if (L == NULL)
        return 1;
    lua_pushcfunction(L, trace);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, &e);
    int code = 1;
    if (lua_pcall(L, 1, 1, 1) == LUA_OK)
        code = (int)lua_tointeger(L, -1);
    else
        fprintf(stderr, "moonpool: %s\n", lua_tostring(L, -1));
    lua_close(L);
    return fflush(stdout) == 0 ? code : 1;
}
