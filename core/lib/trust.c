/* trust.c: what `scripts.trust` changes in a Lua state. Scripts without `trust: full` have no weak tables: `__mode` is
 * an ordinary field for them. For scripts with it, files of Lua's io are counted.
 *
 * The collector handles weak tables in its atomic step, which nothing interrupts; for weak keys the step is quadratic
 * in the number of entries, and it comes again in every cycle. To refuse `__mode` in setmetatable is not enough, since
 * a script can write the field into a metatable later, and copies of metatables would break `getmetatable(x) == Class`.
 *
 * So the name is changed. Lua keeps one short string "__mode" per state, which is fixed, and the collector compares
 * keys with that object by identity. hide_weak_mode writes other bytes into it. Code that uses the string "__mode"
 * from then on gets a new object, which is an ordinary key to the collector. The new bytes are random, so that no
 * script can spell the old object. */
#include "lib/trust.h"
#include "os/os.h"
#include "vm/engine.h"
#include <errno.h>
#include <sys/random.h>

/* -- without full trust ------------------------------------------------------------------------------------------ */

#define NAME "__mode"

static void hide_weak_mode(lua_State *L)
{
    char bytes[sizeof NAME - 1];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        luaL_error(L, "no random bytes");
    const char *old = lua_pushlstring(L, NAME, sizeof bytes);
    memcpy((char *)(uintptr_t)old, bytes, sizeof bytes); /* the block is on the heap and writable */
    const char *new = lua_pushlstring(L, NAME, sizeof bytes);
    if (new == old || strcmp(new, NAME) != 0)
        luaL_error(L, "this Lua does not keep one object per short string: weak tables cannot be hidden from scripts");
    lua_pop(L, 2);
}

/* -- full trust ---------------------------------------------------------------------------------------------------- */

/* The functions of Lua's io that open files. Each file and each pipe is counted, for the script that opened it, until
 * it is closed or collected: no script takes the descriptors of others and of the gateway. Modules in C that open files
 * by themselves are not counted. */

#define LEVELS 64 /* calls in progress among which the script is looked for: each one takes longer than the last */
#define CYCLES 2  /* full cycles after which a file that was garbage before them is closed */
#define FULL                                                                                                           \
    "too many open files, programs, databases and connections to servers: close files that are no longer used "        \
    "(local f <close> = io.open(…)), or raise the limit of open files"

/* A file of io: its luaL_Stream comes first, as in liolib.c. */
typedef struct {
    luaL_Stream stream;
    unsigned holder; /* the script, as of mp_outgoing_take */
} counted;

static const char root_key; /* the registry's key of the folder of scripts */

/* The number of the script, or other file of Lua, whose function called the function that runs. */
static unsigned calling_script(lua_State *L)
{
    lua_Debug frame;
    for (int level = 1; level <= LEVELS && lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "S", &frame);
        mp_str file = {frame.source, frame.srclen};
        if (file.ptr[0] != '@')
            continue;
        lua_rawgetp(L, LUA_REGISTRYINDEX, &root_key);
        mp_str root = mp_str_of(lua_tostring(L, -1)); /* "@scripts/" */
        file = mp_str_from(file, mp_str_starts(file, root) ? root.len : 1);
        lua_pop(L, 1); /* the registry has it still */
        return mp_holder_number(file.ptr, file.len);
    }
    return mp_holder_number("", 0);
}

/* Pushes a file that is closed, with a descriptor for it. NULL: there is none, and the files that are garbage are going
 * to be collected.  [-0, +1, throws] */
static counted *MP_NULLABLE new_file(lua_State *L)
{
    counted *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (counted){.holder = calling_script(L)};
    luaL_setmetatable(L, LUA_FILEHANDLE);
    mp_state *state = mp_state_of(mp_vm_of(L));
    bool is_taken = mp_outgoing_take(1, it->holder);
    if ((!is_taken || mp_outgoing_is_tight()) && state->full_cycles < CYCLES)
        state->full_cycles = CYCLES;
    return is_taken ? it : NULL;
}

/* The `closef` of the luaL_Stream of a file, and of that of a pipe: each closes it.  [-0, +1|3] */
static int close_file(lua_State *L)
{
    counted *it = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    int rc = fclose(it->stream.f), error = errno;
    mp_outgoing_give(1, it->holder);
    errno = error;
    return luaL_fileresult(L, rc == 0, NULL);
}

static int close_pipe(lua_State *L)
{
    counted *it = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    int status = pclose(it->stream.f), error = errno;
    mp_outgoing_give(1, it->holder);
    errno = error;
    return luaL_execresult(L, status);
}

/* Opens the file on top of the stack as `f`, or fails.  [-0, +0|3] */
static int finish(lua_State *L, counted *it, FILE *MP_NULLABLE f, lua_CFunction close, const char *MP_NULLABLE name)
{
    int error = errno;
    if (f == NULL) {
        mp_outgoing_give(1, it->holder);
        errno = error;
        return luaL_fileresult(L, 0, name);
    }
    it->stream = (luaL_Stream){f, close};
    return 1;
}

static int refuse(lua_State *L)
{
    lua_pushnil(L);
    lua_pushliteral(L, FULL);
    lua_pushinteger(L, EMFILE);
    return 3;
}

/* As l_checkmode of Lua's liolib.c. */
static bool is_mode(const char *mode)
{
    if (mode[0] == '\0' || strchr("rwa", mode[0]) == NULL)
        return false;
    mode += mode[1] == '+' ? 2 : 1;
    return strspn(mode, "b") == strlen(mode);
}

/* io.open  [-0, +1|3, throws] */
static int l_open(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1), *mode = luaL_optstring(L, 2, "r");
    luaL_argcheck(L, is_mode(mode), 2, "invalid mode");
    counted *it = new_file(L);
    return it == NULL ? refuse(L) : finish(L, it, fopen(name, mode), close_file, name);
}

/* io.popen  [-0, +1|3, throws] */
static int l_popen(lua_State *L)
{
    const char *program = luaL_checkstring(L, 1), *mode = luaL_optstring(L, 2, "r");
    luaL_argcheck(L, strcmp(mode, "r") == 0 || strcmp(mode, "w") == 0, 2, "invalid mode");
    counted *it = new_file(L);
    if (it == NULL)
        return refuse(L);
    fflush(NULL);
    errno = 0;
    return finish(L, it, popen(program, mode), close_pipe, program);
}

/* io.tmpfile  [-0, +1|3] */
static int l_tmpfile(lua_State *L)
{
    counted *it = new_file(L);
    return it == NULL ? refuse(L) : finish(L, it, tmpfile(), close_file, NULL);
}

/* Replaces the name at index 1 by the opened file, or raises an error.  [-0, +0, throws] */
static void open_named(lua_State *L, const char *mode)
{
    const char *name = lua_tostring(L, 1);
    counted *it = new_file(L);
    if (it == NULL)
        luaL_error(L, "cannot open file '%s' (" FULL ")", name);
    else if (finish(L, it, fopen(name, mode), close_file, NULL) != 1)
        luaL_error(L, "cannot open file '%s' (%s)", name, lua_tostring(L, -2));
    lua_replace(L, 1);
}

/* io.input and io.output; upvalues: Lua's own function, the mode.  [-0, +1, throws] */
static int l_default(lua_State *L)
{
    if (lua_isstring(L, 1))
        open_named(L, lua_tostring(L, lua_upvalueindex(2)));
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* The iterator of io.lines with a name; upvalues: the file, the iterator of its method `lines`. At its end the file is
 * closed.  [-0, +n, throws] */
static int next_line(lua_State *L)
{
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_call(L, 0, LUA_MULTRET);
    if (lua_gettop(L) > 0 && lua_toboolean(L, 1))
        return lua_gettop(L);
    lua_getfield(L, lua_upvalueindex(1), "close");
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_call(L, 1, 0);
    return lua_gettop(L);
}

/* io.lines; upvalue: Lua's own function.  [-0, +1|4, throws] */
static int l_lines(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        lua_pushvalue(L, lua_upvalueindex(1));
        lua_insert(L, 1);
        lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
        return lua_gettop(L);
    }
    luaL_checkstring(L, 1);
    open_named(L, "r");
    int formats = lua_gettop(L) - 1;
    lua_pushvalue(L, 1);
    lua_getfield(L, 1, "lines");
    lua_pushvalue(L, 1);
    lua_rotate(L, 2, 3);
    lua_call(L, formats + 1, 1);
    lua_pushcclosure(L, next_line, 2);
    lua_pushnil(L);
    lua_pushnil(L);
    lua_pushvalue(L, 1);
    return 4;
}

static void count_files(lua_State *L, const char *root)
{
    static const luaL_Reg functions[] = {{"open", l_open}, {"popen", l_popen}, {"tmpfile", l_tmpfile}, {NULL, NULL}};
    lua_pushfstring(L, "@%s/", root);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &root_key);
    lua_getglobal(L, "io");
    luaL_setfuncs(L, functions, 0);
    lua_getfield(L, -1, "lines");
    lua_pushcclosure(L, l_lines, 1);
    lua_setfield(L, -2, "lines");
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "input" : "output";
        lua_getfield(L, -1, name);
        lua_pushstring(L, i == 0 ? "r" : "w");
        lua_pushcclosure(L, l_default, 2);
        lua_setfield(L, -2, name);
    }
    lua_pop(L, 1);
}

void mp_apply_trust(lua_State *L, bool is_full, const char *root)
{
    if (is_full)
        count_files(L, root);
    else
        hide_weak_mode(L);
}
