/* workbench.c: runs a command of lua/moonpool/workbench: moonpool's own Lua code, with the whole standard library, in a
 * process without a gateway. */
#include "lib/bindings.h"
#include "lib/modules/embedded.h"
#include "lib/modules/event_reader.h"
#include "lib/modules/jwk.h"
#include "lib/modules/revisions.h"
#include "lib/workbench_sys.h"
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

typedef struct {
    const char *command;
    const mp_workbench_argument *list;
    size_t count;
    const mp_workbench_tools *tools;
} workbench_command;

/* Pushes a table of the arguments: words by number; the last value of each option by the option's name; in the table
 * "every", a list of all values of an option by the option's name.
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

/* The members of moonpool.host that commands use, too: moonpool.runtime.suggest needs the edit distance.  [-0, +1,
 * throws] */
static int push_host(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"script.edit_distance", mp_lib_edit_distance}, {"digest.scrypt", mp_lib_scrypt_at_once}, {NULL, NULL}};
    lua_newtable(L);
    mp_set_members(L, functions, 0);
    return 1;
}

#define MAX_ADDED 256 /* upstreams that one command adds */

/* config_file.add_upstreams(path, entries, names, is_dry): true, or the new text if `is_dry`; or nil, a report.
 * Upvalue: the tools.
 * [-0, +2, throws] */
static int l_add_upstreams(lua_State *L)
{
    const mp_workbench_tools *tools = lua_touserdata(L, lua_upvalueindex(1));
    const char *names[MAX_ADDED + 1] = {0};
    lua_Unsigned count = lua_rawlen(L, 3);
    bool is_dry = lua_toboolean(L, 4);
    mp_scoped_buf out = {0}, report = {0};
    luaL_argcheck(L, count <= MAX_ADDED, 3, "too many upstreams");
    for (lua_Unsigned i = 0; i < count; i++) {
        lua_rawgeti(L, 3, (lua_Integer)i + 1); /* the table keeps the text */
        names[i] = lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    int result = tools->add_upstreams(luaL_checkstring(L, 1), mp_check_str(L, 2), names, is_dry ? &out : NULL, &report);
    if (result == 0 && is_dry)
        lua_pushlstring(L, out.ptr, out.len);
    else if (result == 0)
        lua_pushboolean(L, true);
    else
        lua_pushnil(L);
    lua_pushlstring(L, report.len == 0 ? "" : report.ptr, report.len);
    return 2;
}

/* config_file.upstream_names(path): a table whose keys are the names of the upstreams. Upvalue: the tools.  [-0, +1,
 * throws] */
static int l_upstream_names(lua_State *L)
{
    const mp_workbench_tools *tools = lua_touserdata(L, lua_upvalueindex(1));
    mp_scoped_buf names = {0};
    tools->put_upstreams(luaL_checkstring(L, 1), &names);
    mp_str rest = mp_buf_str(&names);
    lua_newtable(L);
    while (rest.len > 0) {
        mp_str name = mp_str_cut(&rest, '\n');
        lua_pushlstring(L, name.ptr, name.len);
        lua_pushboolean(L, true);
        lua_rawset(L, -3);
    }
    return 1;
}

/* config_file.replace(path, text): true; or nil, a report. Upvalue: the tools.  [-0, +1|2, throws] */
static int l_replace(lua_State *L)
{
    const mp_workbench_tools *tools = lua_touserdata(L, lua_upvalueindex(1));
    mp_scoped_buf report = {0};
    if (tools->replace_file(luaL_checkstring(L, 1), mp_check_str(L, 2), &report) == 0) {
        lua_pushboolean(L, true);
        return 1;
    }
    lua_pushnil(L);
    lua_pushlstring(L, report.ptr, report.len);
    return 2;
}

/* [-0, +1, throws] */
static int push_config_file(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"add_upstreams", l_add_upstreams}, {"upstream_names", l_upstream_names}, {"replace", l_replace}, {NULL, NULL}};
    lua_newtable(L);
    lua_getfield(L, LUA_REGISTRYINDEX, "moonpool.workbench.tools");
    luaL_setfuncs(L, functions, 1);
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
    lua_pushlightuserdata(L, (void *)(uintptr_t)e->tools);
    lua_setfield(L, LUA_REGISTRYINDEX, "moonpool.workbench.tools");
    luaL_requiref(L, "moonpool.config_file", push_config_file, 0);
    mp_set_searchers(L, false);
    lua_settop(L, 0);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "moonpool.workbench.format.terminal");
    lua_call(L, 1, 0);
    lua_getglobal(L, "require");
    lua_pushfstring(L, "moonpool.workbench.commands.%s", e->command);
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

int mp_workbench_run(const char *command, const mp_workbench_argument *arguments, size_t count,
                     const mp_workbench_tools *tools)
{
    workbench_command e = {command, arguments, count, tools};
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
    int error = fflush(stdout) == 0 ? 0 : errno;
    if (error == 0 && !ferror(stdout))
        return code;
    if (error == 0) /* earlier lines were lost, and their errno: another one is refused for the same reason */
        error = write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    /* A pipe without a reader: `head` has all that it wanted, which is nothing to report. */
    bool has_no_reader = poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
    if (code == 0 && !has_no_reader)
        fprintf(stderr, "moonpool: cannot write to stdout: %s\n",
                error != 0 ? strerror(error) : "a part of the output was lost");
    return 1;
}
