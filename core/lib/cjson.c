/* cjson.c: lua-cjson for scripts, with bounds. The functions of lua-cjson have no bound on time or memory, recurse as
 * deeply as a script sets, and end the process when memory is exhausted. So scripts use wrappers in C, which measure
 * the value or text immediately before lua-cjson runs: no code runs in between that could change it. */
#include "lib/bindings.h"
#include <lauxlib.h>
#include <lualib.h>
#include <limits.h>
#include <math.h>

#define MAX_DEPTH 1000 /* the default of lua-cjson */
/* limit of the values in one call; a value that occurs twice counts twice */
#define MAX_VALUES 100000
#define MAX_TEXT_BYTES ((size_t)4 << 20) /* bytes of JSON that encode writes or decode reads */
/* time to count values: a table that was emptied is slow to traverse although it has few values */
#define MAX_COUNT_US 20000
/* size up to which lua-cjson's buffer is reused by the next call */
#define MAX_REUSED_BUFFER_BYTES ((size_t)64 << 10)
#define NUMBER_BYTES 32

enum { MODULE = 1, FACADE };

/* -- measuring a value ------------------------------------------------------------------------------------------ */

typedef struct {
    lua_State *L;
    size_t values, bytes;
    int depth;
    uint64_t
        began_us; /* CLOCK_MONOTONIC, which is cheap to read; processor time is read only after MAX_COUNT_US of it */
    uint64_t began_cpu_us;
    double sparse_ratio, sparse_safe;
} weight;

/* Raises an error if the part of the value that was measured is over a bound.  [-0, +0, throws] */
static void check_weight(const weight *w)
{
    if (w->values > MAX_VALUES)
        luaL_error(w->L, "cjson.encode: more than %d values: use json.encode instead", MAX_VALUES);
    if (w->bytes > MAX_TEXT_BYTES)
        luaL_error(w->L, "cjson.encode: more than %d bytes of JSON: use json.encode instead", (int)MAX_TEXT_BYTES);
    if (mp_clock_us(CLOCK_MONOTONIC) - w->began_us > MAX_COUNT_US &&
        mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - w->began_cpu_us > MAX_COUNT_US)
        luaL_error(w->L, "cjson.encode: counting the values takes too long (was a large table emptied?)");
}

/* The most bytes of JSON that lua-cjson writes for the text. */
static size_t escaped_size(mp_str text)
{
    size_t size = text.len + 2;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.ptr[i];
        size += byte < 32 || byte == 127 ? 5 : byte == '"' || byte == '\\' || byte == '/';
    }
    return size;
}

static void weigh_text(weight *w, int index)
{
    mp_str text;
    text.ptr = lua_tolstring(w->L, index, &text.len);
    w->bytes += text.len > MAX_TEXT_BYTES ? text.len : escaped_size(text);
    if (w->bytes > MAX_TEXT_BYTES)
        check_weight(w);
}

static void weigh_value(weight *w, int index);

/* Counts the gaps of a list: lua-cjson writes them as null up to the largest index, unless the list is too sparse. */
static void weigh_gaps(weight *w, double items, double largest)
{
    bool is_sparse =
        w->sparse_ratio > 0 && largest > items * w->sparse_ratio && largest > w->sparse_safe && largest <= INT_MAX;
    if (is_sparse || largest <= items)
        return;
    w->values += largest < MAX_VALUES ? (size_t)largest : MAX_VALUES + 1;
    w->bytes += largest < MAX_VALUES ? 5 * (size_t)largest : 0;
    check_weight(w);
}

static void weigh_table(weight *w, int index)
{
    lua_State *L = w->L;
    if (w->depth >= MAX_DEPTH)
        return; /* lua-cjson raises an error at this depth */
    luaL_checkstack(L, LUA_MINSTACK, "cjson");
    check_weight(w);
    w->depth++;
    double items = 0, largest = 0;
    bool is_list = true;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        double key = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
        is_list = is_list && key >= 1 && floor(key) == key;
        items++;
        largest = key > largest ? key : largest;
        if (lua_type(L, -2) == LUA_TSTRING)
            weigh_text(w, -2);
        else
            w->bytes += NUMBER_BYTES;
        weigh_value(w, lua_gettop(L));
    }
    if (is_list)
        weigh_gaps(w, items, largest);
    w->depth--;
}

static void weigh_value(weight *w, int index)
{
    if (++w->values > MAX_VALUES)
        check_weight(w);
    int type = lua_type(w->L, index);
    if (type == LUA_TSTRING)
        weigh_text(w, index);
    else if (type == LUA_TTABLE)
        weigh_table(w, index);
    else
        w->bytes += NUMBER_BYTES;
}

/* Reads lua-cjson's settings for lists with gaps. `getter`: stack index of its function encode_sparse_array.  [-0, +0,
 * throws] */
static void read_sparse(weight *w, int getter)
{
    lua_State *L = w->L;
    lua_pushvalue(L, getter);
    lua_call(L, 0, 3);
    w->sparse_ratio = lua_tonumber(L, -2);
    w->sparse_safe = lua_tonumber(L, -1);
    lua_pop(L, 3);
}

/* -- running lua-cjson -------------------------------------------------------------------------------------------- */

/* Calls the lua-cjson function at `function` with the argument at 1. lua-cjson leaks C memory if Lua raises an error in
 * it, so the memory limit is lifted during the call, and checked for the task afterwards.  [-0, +1, throws nothing] */
static int run_unlimited(lua_State *L, int function)
{
    lua_pushvalue(L, function);
    lua_pushvalue(L, 1);
    return mp_vm_pcall_unlimited(L, 1, 1);
}

/* Returns the result of a protected call to the script. An error on top of the stack is returned as nil, why
 * (cjson.safe), or raised with the line of the caller.  [-1, +1|2, throws] */
static int end_call(lua_State *L, int status, bool is_safe)
{
    if (status == LUA_OK)
        return 1;
    if (is_safe) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (status == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

enum { REAL = 1, SAFE, KEEP, SPARSE }; /* the stack indexes of upvalues */

/* (value, encode_sparse_array) -> an upper bound of the value's JSON in bytes  [-0, +1, throws] */
static int check_size(lua_State *L)
{
    weight w = {.L = L, .began_us = mp_clock_us(CLOCK_MONOTONIC), .began_cpu_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID)};
    read_sparse(&w, 2);
    weigh_value(&w, 1);
    check_weight(&w);
    lua_pushinteger(L, (lua_Integer)w.bytes);
    return 1;
}

/* Frees the buffer of the last encode: turning encode_keep_buffer off and on makes lua-cjson start again with a small
 * buffer. */
static void drop_buffer(lua_State *L)
{
    for (int keeps = 0; keeps <= 1; keeps++) {
        lua_pushvalue(L, lua_upvalueindex(KEEP));
        lua_pushboolean(L, keeps);
        lua_call(L, 1, 0);
    }
}

/* encode(value): JSON; or an error, which cjson.safe returns as nil, why.  [-0, +1|2, throws] */
static int l_encode(lua_State *L)
{
    bool is_safe = lua_toboolean(L, lua_upvalueindex(SAFE));
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    lua_pushcfunction(L, check_size);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, lua_upvalueindex(SPARSE));
    int status = lua_pcall(L, 2, 1, 0);
    if (status != LUA_OK)
        return end_call(L, status, is_safe);
    size_t bytes = (size_t)lua_tointeger(L, -1);
    status = run_unlimited(L, lua_upvalueindex(REAL));
    if (bytes > MAX_REUSED_BUFFER_BYTES)
        drop_buffer(L);
    return end_call(L, status, is_safe);
}

/* An upper bound of the values in a JSON text: the commas and opening brackets outside of strings. */
static size_t count_values(mp_str text)
{
    size_t count = 1;
    bool is_string = false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '"')
            is_string = !is_string;
        else if (is_string && c == '\\')
            i++;
        else if (!is_string)
            count += c == ',' || c == '[' || c == '{';
    }
    return count;
}

/* decode(text): the value; or an error, which cjson.safe returns as nil, why.  [-0, +1|2, throws] */
static int l_decode(lua_State *L)
{
    bool is_safe = lua_toboolean(L, lua_upvalueindex(SAFE));
    luaL_argcheck(L, lua_gettop(L) == 1, 1, "expected 1 argument");
    mp_str text;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    int status = LUA_ERRRUN;
    if (text.len > MAX_TEXT_BYTES)
        lua_pushfstring(L, "cjson.decode: more than %d bytes: use json.decode instead", (int)MAX_TEXT_BYTES);
    else if (count_values(text) > MAX_VALUES)
        lua_pushfstring(L, "cjson.decode: more than %d values: use json.decode instead", MAX_VALUES);
    else
        status = run_unlimited(L, lua_upvalueindex(REAL));
    return end_call(L, status, is_safe);
}

/* -- settings ------------------------------------------------------------------------------------------------------ */

/* encode_max_depth([n]), decode_max_depth([n]): sets and returns the maximum depth. Upvalues: lua-cjson's function, its
 * name.  [-0, +1, throws] */
static int l_max_depth(lua_State *L)
{
    if (!lua_isnoneornil(L, 1) && luaL_checkinteger(L, 1) > MAX_DEPTH)
        return luaL_error(L, "cjson.%s: the depth is at most %d", lua_tostring(L, lua_upvalueindex(2)), MAX_DEPTH);
    int count = lua_gettop(L);
    lua_pushvalue(L, lua_upvalueindex(REAL));
    lua_insert(L, 1);
    lua_call(L, count, 1);
    return 1;
}

/* encode_keep_buffer([keeps]): stores and returns the setting. It has no effect: a small buffer is always reused, a
 * large one always freed.
 * [-0, +1, throws] */
static int l_keep_buffer(lua_State *L)
{
    if (!lua_isnoneornil(L, 1)) {
        luaL_checktype(L, 1, LUA_TBOOLEAN);
        lua_pushvalue(L, 1);
        lua_replace(L, lua_upvalueindex(1));
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

/* -- the module ---------------------------------------------------------------------------------------------------- */

static int l_new(lua_State *L);

/* Adds the wrapper `bounded` of lua-cjson's function `name`.  [-0, +0, throws] */
static void add_coder(lua_State *L, const char *name, lua_CFunction bounded, bool is_safe)
{
    lua_getfield(L, MODULE, name);
    lua_pushboolean(L, is_safe);
    lua_getfield(L, MODULE, "encode_keep_buffer");
    lua_getfield(L, MODULE, "encode_sparse_array");
    lua_pushcclosure(L, bounded, 4);
    lua_setfield(L, FACADE, name);
}

static void add_max_depth(lua_State *L, const char *name)
{
    lua_getfield(L, MODULE, name);
    lua_pushstring(L, name);
    lua_pushcclosure(L, l_max_depth, 2);
    lua_setfield(L, FACADE, name);
}

/* Replaces the lua-cjson module on top of the stack by a table of wrappers for one script.  [-1, +1, throws] */
static void push_facade(lua_State *L, bool is_safe)
{
    static const char *const harmless[] = {"encode_sparse_array",
                                           "encode_number_precision",
                                           "encode_invalid_numbers",
                                           "decode_invalid_numbers",
                                           "encode_empty_table_as_object",
                                           "_NAME",
                                           "_VERSION",
                                           "null"};
    lua_insert(L, 1);
    lua_settop(L, 1);
    lua_newtable(L);
    for (size_t i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        lua_getfield(L, MODULE, harmless[i]);
        lua_setfield(L, FACADE, harmless[i]);
    }
    add_coder(L, "encode", l_encode, is_safe);
    add_coder(L, "decode", l_decode, is_safe);
    add_max_depth(L, "encode_max_depth");
    add_max_depth(L, "decode_max_depth");
    lua_pushboolean(L, 1);
    lua_pushcclosure(L, l_keep_buffer, 1);
    lua_setfield(L, FACADE, "encode_keep_buffer");
    lua_getfield(L, MODULE, "new");
    lua_pushboolean(L, is_safe);
    lua_pushcclosure(L, l_new, 2);
    lua_setfield(L, FACADE, "new");
}

/* new(): a module table with settings of its own. Upvalues: lua-cjson's `new`; true for cjson.safe.  [-0, +1,
 * throws] */
static int l_new(lua_State *L)
{
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_call(L, 0, 1);
    push_facade(L, lua_toboolean(L, lua_upvalueindex(2)));
    return 1;
}

enum { SEARCHPATH = 1, LOADLIB, PLACES, LOADED }; /* the stack indexes of upvalues */

/* Loads the shared library of lua-cjson. Its module table; or nil, why.  [-0, +1|2, throws] */
static int load_module(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(SEARCHPATH));
    lua_pushliteral(L, "cjson");
    lua_pushvalue(L, lua_upvalueindex(PLACES));
    lua_call(L, 2, 1);
    if (lua_isnil(L, -1)) {
        lua_pushliteral(L, "lua-cjson is not installed (Debian: apt install lua-cjson)");
        return 2;
    }
    lua_pushvalue(L, lua_upvalueindex(LOADLIB));
    lua_insert(L, -2);
    lua_pushliteral(L, "luaopen_cjson");
    lua_call(L, 2, 2);
    if (lua_isnil(L, -2))
        return 2;
    lua_pop(L, 1);
    lua_pushliteral(L, "cjson");
    lua_call(L, 1, 1);
    lua_copy(L, -1, lua_upvalueindex(LOADED));
    return 1;
}

/* cjson(is_safe): a module table of lua-cjson with bounds and with settings of its own; or nil, why.  [-0, +1|2,
 * throws] */
static int l_cjson(lua_State *L)
{
    bool is_safe = lua_toboolean(L, 1);
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(LOADED));
    if (lua_isnil(L, 1)) {
        lua_settop(L, 0);
        int results = load_module(L);
        if (results == 2)
            return 2;
    }
    lua_getfield(L, -1, "new");
    lua_call(L, 0, 1);
    push_facade(L, is_safe);
    return 1;
}

/* Pushes the absolute templates of package.cpath, so that no library in the working directory is loaded.
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

MP_LIBRARY(cjson)
{
    lua_getglobal(L, LUA_LOADLIBNAME);
    int package = lua_gettop(L);
    lua_getfield(L, package, "searchpath");
    lua_getfield(L, package, "loadlib");
    push_places(L, package);
    lua_pushnil(L);
    lua_pushcclosure(L, l_cjson, 4);
    lua_remove(L, package);
    mp_set_member(L, -2, "cjson.new");
}
