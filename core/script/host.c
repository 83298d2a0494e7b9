/* host.c: the table that the library gets by `require "moonpool.host"`: the scripts, the server's names, and what
 * only C can do. Scripts never see it. */
#include "script/lib.h"
#include "script/preempt.h"
#include <errno.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <stdlib.h>
#include <sys/random.h>

#define MOST_RANDOM 65536

/* -- load ------------------------------------------------------------------------------------------------------ */

/* Length of the UTF-8 character at `p`, 0 when there is none (RFC 3629). */
static size_t utf8_len(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xc2 && p[0] <= 0xdf ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4 : 0;
    if (len == 0 || len > left)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* Whether all of `text` is UTF-8; else `line` and `byte` are what a person looks for. */
static bool is_utf8(mp_str text, int *line, int *byte)
{
    *line = 1;
    for (size_t i = 0, len; i < text.len; i += len) {
        const unsigned char *p = (const unsigned char *)text.ptr + i;
        len = utf8_len(p, text.len - i);
        *byte = *p;
        if (len == 0)
            return false;
        if (*p == '\n')
            ++*line;
    }
    return true;
}

/* load(text, chunkname, env): a function; or nil, why, and perhaps a hint. Compiled chunks are refused: nothing checks
 * them.  [-0, +1|3, throws] */
static int l_load(lua_State *L)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    const char *chunk = luaL_checkstring(L, 2);
    const char *path = chunk[0] == '@' ? chunk + 1 : chunk;
    int line, byte;
    if (text.len > 0 && text.ptr[0] == LUA_SIGNATURE[0]) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s:1: this is compiled Lua, not its source", path);
        lua_pushliteral(L, "put the source here: only text is loaded");
        return 3;
    }
    if (!is_utf8(text, &line, &byte)) {
        char hex[8];
        lua_pushnil(L);
        snprintf(hex, sizeof hex, "0x%02x", (unsigned)byte);
        lua_pushfstring(L, "%s:%d: byte %s is not UTF-8", path, line, hex);
        lua_pushliteral(L, "save the file as UTF-8");
        return 3;
    }
    if (mp_str_starts(text, MP_STR("\xef\xbb\xbf")))
        text = mp_str_from(text, 3);
    if (luaL_loadbufferx(L, text.ptr, text.len, chunk, "t") != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (!lua_isnoneornil(L, 3)) {
        lua_pushvalue(L, 3);
        lua_setupvalue(L, -2, 1); /* a main chunk's only upvalue is _ENV */
    }
    return 1;
}

/* -- guarded --------------------------------------------------------------------------------------------------- */

#define GUARD_US 2000000
#define BRIEF_US 50000

/* The message handler of `guarded`: the script has ended, perhaps because its time is over; whatever tells of it has time of
 * its own. Upvalue: the handler that was given.  [-1, +1, throws] */
static int end_guard(lua_State *L)
{
    mp_vm_of(L)->guard_until = 0;
    lua_sethook(L, NULL, 0, 0);
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* [-0, +n, throws] */
static int guard(lua_State *L, uint64_t us)
{
    mp_vm *vm = mp_vm_of(L);
    uint64_t outer = vm->guard_until;
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, end_guard, 1);
    lua_pushvalue(L, 1);
    lua_replace(L, 2);
    lua_replace(L, 1); /* handler, f, … */
    if (outer == 0)
        vm->guard_until = mp_now_us(CLOCK_THREAD_CPUTIME_ID) + us;
    lua_State *before = mp_preempt_enter(L); /* who hears news has no task that would have done so */
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 1);
    mp_preempt_leave(before);
    vm->guard_until = outer;
    lua_sethook(L, NULL, 0, 0);
    lua_pushboolean(L, status == LUA_OK);
    lua_replace(L, 1);
    return lua_gettop(L);
}

/* guarded(f, handler, …): xpcall for a script that must end by itself, in two seconds.  [-0, +n, throws] */
static int l_guarded(lua_State *L)
{
    return guard(L, GUARD_US);
}

/* briefly(f, handler, …): the same in 50 ms, for what others wait behind.  [-0, +n, throws] */
static int l_briefly(lua_State *L)
{
    return guard(L, BRIEF_US);
}

/* -- random ---------------------------------------------------------------------------------------------------- */

/* random(n): n bytes from the kernel.  [-0, +1, throws] */
static int l_random(lua_State *L)
{
    lua_Integer wanted = luaL_checkinteger(L, 1);
    luaL_argcheck(L, wanted >= 0 && wanted <= MOST_RANDOM, 1, "from 0 to 65536 bytes");
    size_t size = (size_t)wanted;
    luaL_Buffer buffer;
    char *bytes = luaL_buffinitsize(L, &buffer, size);
    for (size_t done = 0; done < size;) {
        ssize_t got = getrandom(bytes + done, size - done, 0);
        if (got < 0 && errno != EINTR)
            return luaL_error(L, "no random bytes: %s", strerror(errno));
        done += got < 0 ? 0 : (size_t)got;
    }
    luaL_pushresultsize(&buffer, size);
    return 1;
}

/* -- cjson ----------------------------------------------------------------------------------------------------- */

/* cjson(): Debian's lua-cjson; or nil, why. Upvalues: package.searchpath, package.loadlib, where to look, the module
 * once it is loaded.  [-0, +1|2, throws] */
static int l_cjson(lua_State *L)
{
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(4));
    if (!lua_isnil(L, 1))
        return 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushliteral(L, "cjson");
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_call(L, 2, 1);
    if (lua_isnil(L, 2)) {
        lua_pushliteral(L, "lua-cjson is not installed (Debian: apt install lua-cjson)");
        return 2;
    }
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushvalue(L, 2);
    lua_pushliteral(L, "luaopen_cjson");
    lua_call(L, 2, 2);
    if (lua_isnil(L, 3)) {
        lua_pushvalue(L, 3);
        lua_pushvalue(L, 4);
        return 2;
    }
    lua_pushvalue(L, 3);
    lua_pushliteral(L, "cjson");
    lua_call(L, 1, 1);
    lua_copy(L, -1, lua_upvalueindex(4));
    return 1;
}

/* The templates of package.cpath that start at the root: what lies in the working directory is not looked at.
 *  [-0, +1, throws] */
static void push_places(lua_State *L, int package)
{
    lua_getfield(L, package, "cpath");
    mp_str rest, out;
    rest.ptr = luaL_checklstring(L, -1, &rest.len);
    luaL_Buffer buffer;
    luaL_buffinit(L, &buffer);
    while ((out = mp_str_cut(&rest, LUA_PATH_SEP[0])).ptr != NULL)
        if (out.len > 0 && out.ptr[0] == '/') {
            luaL_addlstring(&buffer, out.ptr, out.len);
            luaL_addstring(&buffer, LUA_PATH_SEP);
        }
    luaL_pushresult(&buffer);
    lua_remove(L, -2);
}

/* [-0, +1, throws] */
static void push_cjson(lua_State *L)
{
    lua_getglobal(L, LUA_LOADLIBNAME);
    int package = lua_gettop(L);
    lua_getfield(L, package, "searchpath");
    lua_getfield(L, package, "loadlib");
    push_places(L, package);
    lua_pushnil(L);
    lua_pushcclosure(L, l_cjson, 4);
    lua_remove(L, package);
}

/* -- the table ------------------------------------------------------------------------------------------------- */

/* [-0, +1, throws] */
static void push_scripts(lua_State *L, const mp_source *source)
{
    size_t count;
    const mp_source_file *files = mp_source_files(source, &count);
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, files[i].path);
        lua_setfield(L, -2, "path");
        lua_pushlstring(L, files[i].text, files[i].len);
        lua_setfield(L, -2, "text");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* [-0, +1, throws] */
static void push_server(lua_State *L, const mp_vm_config *config)
{
    lua_createtable(L, 0, 3);
    lua_pushstring(L, config->server_name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, config->server_version);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, config->instructions); /* NULL gives nil */
    lua_setfield(L, -2, "instructions");
}

/* The addresses of the endpoints as clients have them; nil where nobody said.  [-0, +1, throws] */
static void push_resources(lua_State *L, const mp_vm_config *config)
{
    const char *const paths[] = {config->mcp, config->sse};
    if (config->public_url == NULL) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 2, 0);
    for (size_t i = 0; i < 2; i++) {
        if (paths[i] == NULL)
            continue;
        lua_pushfstring(L, "%s%s%s", config->public_url, config->prefix == NULL ? "" : config->prefix, paths[i]);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
}

/* Adds one to the list on top of the stack.  [-0, +0, throws] */
static void add_grant(lua_State *L, const char *path, const mp_grant *grant)
{
    static const char *const names[] = {"net", "read", "write", "run", "env"};
    lua_createtable(L, 0, 1 + MP_GRANT_KINDS);
    lua_pushstring(L, path);
    lua_setfield(L, -2, "path");
    for (int kind = 0; kind < MP_GRANT_KINDS; kind++) {
        char **list = grant->lists[kind];
        lua_newtable(L);
        for (lua_Integer i = 0; list != NULL && list[i] != NULL; i++) {
            lua_pushstring(L, list[i]);
            lua_rawseti(L, -2, i + 1);
        }
        lua_setfield(L, -2, names[kind]);
    }
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* [-0, +1, throws] */
static void push_grants(lua_State *L, const mp_vm_config *config)
{
    lua_newtable(L);
    add_grant(L, "", config->allow);
    for (const mp_grant *grant = config->grants; grant != NULL && grant->path != NULL; grant++)
        add_grant(L, grant->path, grant);
}

/* Absolute, without links.  [-0, +1, throws] */
static void push_folder(lua_State *L, const char *folder)
{
    char room[PATH_MAX];
    lua_pushstring(L, realpath(folder, room) == NULL ? folder : room);
}

/* getenv(name): nil when it is not set.  [-0, +1, throws] */
static int l_getenv(lua_State *L)
{
    lua_pushstring(L, getenv(luaL_checkstring(L, 1)));
    return 1;
}

void mp_host_push(lua_State *L, const mp_source *source, const mp_vm_config *config)
{
    static const luaL_Reg functions[] = {{"load", l_load},     {"guarded", l_guarded}, {"briefly", l_briefly},
                                         {"random", l_random}, {"getenv", l_getenv},   {NULL, NULL}};
    mp_ops_open(L);
    luaL_newlib(L, functions);
    mp_lib_time(L);
    mp_lib_log(L);
    mp_lib_call(L);
    mp_lib_auth(L);
    mp_lib_client(L);
    mp_lib_seal(L, config->seal_keys);
    mp_lib_digest(L);
    mp_lib_store(L, config->store);
    mp_lib_signal(L);
    mp_lib_gate(L, config->gates);
    mp_lib_jobs(L, config->task_ms, config->call_ms);
    mp_lib_parallel(L);
    mp_lib_sqlite(L, config);
    mp_lib_topics(L);
    mp_lib_hear(L, config->hearers);
    mp_lib_http(L, config);
    mp_lib_fs(L, config);
    mp_lib_exec(L, config);
    mp_lib_secret(L);
    push_cjson(L);
    lua_setfield(L, -2, "cjson");
    push_scripts(L, source);
    lua_setfield(L, -2, "scripts");
    lua_pushstring(L, mp_source_dir(source));
    lua_setfield(L, -2, "root");
    push_grants(L, config);
    lua_setfield(L, -2, "grants");
    push_folder(L, config->folder);
    lua_setfield(L, -2, "folder");
    push_server(L, config);
    lua_setfield(L, -2, "server");
    lua_pushstring(L, config->audit); /* NULL gives nil */
    lua_setfield(L, -2, "audit");
    push_resources(L, config);
    lua_setfield(L, -2, "resources");
    lua_pushboolean(L, config->trust_full);
    lua_setfield(L, -2, "trust_full");
    lua_pushboolean(L, config->has_specs);
    lua_setfield(L, -2, "has_specs");
    lua_pushboolean(L, config->asks_nobody);
    lua_setfield(L, -2, "asks_nobody");
}
