/* lua_json.h: JSON to Lua values and back, for C; and the module "moonpool.json". Objects become tables, arrays
 * become tables with the metatable array_mt, null becomes a light userdata (json.null). Integers that fit 64 bits
 * stay integers; larger ones and numbers with fraction or exponent become floats (infinite beyond 1e308);
 * byte-preserving tables keep their digits all the same. Encoding uses raw access only, so no script runs meanwhile.
 * Members are sorted by the bytes of their names, but those of byte-preserving tables have the order of their text;
 * names in a metatable's list
 * __order come first. */
#ifndef MP_VM_LUA_JSON_H
#define MP_VM_LUA_JSON_H

#include "json/json.h"
#include <lua.h>

#define MP_MAX_ENCODED_BYTES ((size_t)32 << 20) /* limit of the bytes that one value may encode to */

/* The kind of tables that a decoder makes. A byte-preserving table is an ordinary table for Lua. It is encoded by the
 * bytes that it was decoded from, except for values that were changed: the order of members, the digits of numbers,
 * escapes and white space are kept (line ends become spaces). New members are last. So 25 digits or 1e400, for which
 * Lua has no number, are written as they were read, if their table is passed on, alone or in another table. */
typedef enum {
    MP_LUA_PLAIN,     /* ordinary tables */
    MP_LUA_STRICT,    /* ordinary tables; mp_lua_decode_with() gives MP_JSON_STOPPED if a number would lose digits */
    MP_LUA_EXACT,     /* byte-preserving tables if the text has a number that would lose digits, else ordinary ones */
    MP_LUA_PRESERVING /* byte-preserving tables, which hold a copy of the text */
} mp_lua_table_kind;

/* Pushes the value of `text`, which a scan has accepted. Returns 0; or MP_JSON_REPEATED, pushing nothing, if an
 * object in it has a key twice. [-0, +0|1, throws memory] */
int mp_lua_decode(lua_State *L, mp_str text);
int mp_lua_decode_with(lua_State *L, mp_str text, mp_lua_table_kind kind);
/* Decodes like mp_lua_decode, in the coroutine of a task: yields when other tasks have to run, so `text` must last
 * as long as the task waits. Ends with done(L, ctx, repeated), and returns the result of `done` to Lua. `repeated`
 * is NULL; or, if an object has a key twice, the position of that key in the text, and then no value is pushed. [-0,
 * +0|1, throws, yields] */
typedef int (*mp_lua_decoded)(lua_State *L, void *ctx, const char *MP_NULLABLE repeated);
int mp_lua_decode_in_turns(lua_State *L, mp_str text, mp_lua_table_kind kind, mp_lua_decoded done, void *ctx);
/* Decodes a text that was not scanned: returns 0, MP_JSON_BROKEN or MP_JSON_REPEATED. `fault` may be NULL; for a
 * repeated key it gets one of the two positions. [-0, +0|1, throws memory] */
int mp_lua_decode_checked(lua_State *L, mp_str text, mp_lua_table_kind kind, mp_json_fault *MP_NULLABLE fault);
/* Appends the value at `index`, or throws a text that says what cannot be encoded and where: "cannot encode a
 * function at .a.b[2]". `out` still belongs to the caller, who must free it after an error, too: call this inside a
 * lua_pcall. [-0, +0, throws] */
void mp_lua_encode(lua_State *L, int index, mp_buf *out);

/* Encodes like mp_lua_encode, in the coroutine of a task: yields when other tasks have to run. Ends with
 * done(L, ctx, text, size), and returns the result of `done` to Lua. `text` lasts until `done` returns; it is empty
 * if `size` is above `most`. `most` 0: throws beyond MP_MAX_ENCODED_BYTES. The time counts for limits.call.cpu, and
 * memory that is kept across yields for limits.call.memory. If other tasks change the value's tables between turns,
 * the text has parts of the old and of the new value. [-0, +0, throws, yields] */
typedef int (*mp_lua_encoded)(lua_State *L, void *ctx, mp_str text, size_t size);
int mp_lua_encode_in_turns(lua_State *L, int index, size_t most, mp_lua_encoded done, void *MP_NULLABLE ctx);

/* Pushes json.null. [-0, +1, throws memory] */
void mp_lua_push_null(lua_State *L);
/* a userdata whose memory block is a text with a NUL at its end: encodes as "***" */
#define MP_LUA_SECRET "moonpool.secret"

/* The luaopen function of "moonpool.json". */
int mp_lib_json(lua_State *L);

#endif
