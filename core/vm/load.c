/* load.c: compiles the text of a script, and runs a function of a script within a time limit, outside of any task. */
#define _GNU_SOURCE
#include "vm/index_depth.h"
#include "vm/preempt.h"
#include "vm/schedule.h"
#include "vm/running_line.h"
#include <lauxlib.h>

#define PIECE 256 /* bytes of a script that are compiled between two readings of the clock */
#define GUARD_US 2000000
/* goto and break of one text: where a block ends, Lua's compiler moves all that wait for a label once for each of them,
 * without a look at the clock: 32,767 take 0.5 s, these 30 ms */
#define MAX_JUMPS 8192

/* -- load ------------------------------------------------------------------------------------------------------ */

/* True if `text` is UTF-8. Otherwise `*line` and `*byte` are the line and the value of the first byte that is not. */
static bool is_utf8(mp_str text, int *line, int *byte)
{
    *line = 1;
    const char *end = text.ptr + text.len;
    for (const char *at = text.ptr; at < end;) {
        unsigned length = mp_utf8_length(at, end);
        *byte = (unsigned char)*at;
        if (length == 0)
            return false;
        *line += *at == '\n';
        at += length;
    }
    return true;
}

/* A text that is being compiled. For each name, Lua's compiler searches the names of all enclosing functions, so a
 * malicious text would take seconds. The compiler gets the text in pieces, and the clock is read before each. */
typedef struct {
    mp_str rest;
    const char *name;
    uint64_t end_us; /* us of the thread's processor time */
} compiled;

static const char *read_piece(lua_State *L, void *data, size_t *size)
{
    compiled *c = data;
    if (mp_clock_us(CLOCK_THREAD_CPUTIME_ID) > c->end_us) {
        lua_pushliteral(L, "compiling the file takes too long");
        lua_error(L);
    }
    const char *piece = c->rest.ptr;
    *size = c->rest.len < PIECE ? c->rest.len : PIECE;
    c->rest = mp_str_from(c->rest, *size);
    return piece;
}

static int compile_chunk(lua_State *L)
{
    compiled *c = lua_touserdata(L, 1);
    if (lua_load(L, read_piece, c, c->name, "t") != LUA_OK)
        return lua_error(L);
    return 1;
}

/* True if the text has more than MAX_JUMPS words goto and break, wherever they stand. */
static bool has_many_jumps(mp_str text)
{
    static const mp_str words[] = {{"goto", 4}, {"break", 5}};
    size_t count = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = text.ptr, *end = text.ptr + text.len;
        while (count <= MAX_JUMPS && (at = memmem(at, (size_t)(end - at), words[i].ptr, words[i].len)) != NULL) {
            at += words[i].len;
            count++;
        }
    }
    return count > MAX_JUMPS;
}

/* script.load(text, chunkname, env, ms): a function; or nil, why, and perhaps a hint. Compiling may take `ms` of
 * processor time, 2 s by default. Compiled chunks are refused, because Lua does not check them.  [-0, +1|3, throws] */
static int l_load(lua_State *L)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    const char *name = luaL_checkstring(L, 2);
    const char *path = name[0] == '@' ? name + 1 : name;
    int line, byte;
    if (text.len > 0 && text.ptr[0] == LUA_SIGNATURE[0]) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s:1: the file is compiled Lua, not source text", path);
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
    int chain = mp_chain_find(text);
    if (chain > 0) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s:%d: more than %d field accesses in one expression", path, chain, MP_MAX_CHAIN);
        lua_pushliteral(L, "put a part of the expression into a local variable");
        return 3;
    }
    if (has_many_jumps(text)) {
        lua_pushnil(L);
        lua_pushfstring(L, "%s: the words goto and break stand there more than %d times", path, MAX_JUMPS);
        lua_pushliteral(L, "split the file");
        return 3;
    }
    uint64_t most_us = (uint64_t)luaL_optinteger(L, 4, GUARD_US / 1000) * 1000;
    compiled c = {text, name, mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + most_us};
    lua_settop(L, 3);
    lua_pushcfunction(L,
                      compile_chunk); /* protected: the message handler around this would change the parser's error */
    lua_pushlightuserdata(L, &c);
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
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

#define BRIEF_US 50000
#define HANDLER_US 50000

/* The message handler of guard_search(). The script has failed, perhaps because its time was over, so its handler has a
 * time limit of its own. The handler may run a script's `__tostring`. Upvalue: the handler.  [-1, +1, throws] */
static int end_guard(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    vm->clock.guard_until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + HANDLER_US;
    lua_sethook(L, NULL, 0, 0);
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* Calls the function at index 1 with the handler at index 2, until `until` (us of the thread's processor time) or
 * the end of an enclosing guard. If the function fails, an enclosing guard does not end before `report`, so that
 * lua/moonpool can say which script was too slow. [-0, +n, throws] */
static int guard_search(lua_State *L, uint64_t until, uint64_t report)
{
    mp_vm *vm = mp_vm_of(L);
    uint64_t outer = vm->clock.guard_until;
    if (vm->state.is_loading && mp_loading_is_stopped())
        return luaL_error(L, "the gateway was asked to stop while the scripts were loading");
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, end_guard, 1);
    lua_pushvalue(L, 1);
    lua_replace(L, 2);
    lua_replace(L, 1); /* the stack is: handler, f, … */
    vm->clock.guard_until = outer == 0 || until < outer ? until : outer;
    lua_State *before = mp_preempt_enter(L); /* the error handler of a bus message runs outside of any task */
    int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 1);
    mp_preempt_leave(before);
    vm->clock.guard_until = status != LUA_OK && outer != 0 && outer < report ? report : outer;
    lua_sethook(L, NULL, 0, 0);
    lua_pushboolean(L, status == LUA_OK);
    lua_replace(L, 1);
    return lua_gettop(L);
}

/* script.guarded(f, handler, …): xpcall for a script that is loading, within the time for loading that is left. [-0,
 * +n, throws] */
static int l_guarded(lua_State *L)
{
    const mp_vm *vm = mp_vm_of(L);
    if (vm->state.is_loading)
        return guard_search(L, vm->loading.until, vm->loading.until + HANDLER_US);
    return guard_search(L, mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + vm->loading.us, 0);
}

/* script.is_late(): true if the time for loading is over; and that time in seconds. [-0, +2] */
static int l_is_late(lua_State *L)
{
    const mp_vm *vm = mp_vm_of(L);
    lua_pushboolean(L, vm->state.is_loading && mp_clock_us(CLOCK_THREAD_CPUTIME_ID) >= vm->loading.until);
    lua_pushnumber(L, (double)vm->loading.us / 1e6);
    return 2;
}

/* script.briefly(f, handler, …): xpcall within 50 ms of processor time, for functions that delay all other tasks.  [-0,
 * +n, throws] */
static int l_briefly(lua_State *L)
{
    return guard_search(L, mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + BRIEF_US, 0);
}

void mp_lib_load(lua_State *L)
{
    static const luaL_Reg functions[] = {{"script.load", l_load},
                                         {"script.guarded", l_guarded},
                                         {"script.briefly", l_briefly},
                                         {"script.is_late", l_is_late},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
