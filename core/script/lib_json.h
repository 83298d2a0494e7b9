/* lib_json.h: JSON to Lua values and back: what `require "moonpool.json"` gives, and the same for C.
 *
 * Objects become tables, arrays tables with the metatable array_mt, null a light userdata (json.null). Integers that fit
 * 64 bits stay integers; larger ones and those with fraction or exponent become floats (infinite beyond 1e308).
 * Out: raw access only, so that no script runs meanwhile; names in byte order, or as a metatable's __order has them first. */
#ifndef MP_SCRIPT_LIB_JSON_H
#define MP_SCRIPT_LIB_JSON_H

#include "json/json.h"
#include <lua.h>

#define MP_LUA_ENCODE_MOST ((size_t)32 << 20) /* bytes that one value may encode to */

/* Pushes the value of `text`, which a scan has found good. 0; or MP_JSON_REPEATED, pushing nothing, when an object in it
 * has a key twice.  [-0, +0|1, throws memory] */
int mp_lua_decode(lua_State *L, mp_str text);
/* The same for any text: 0, MP_JSON_BROKEN or MP_JSON_REPEATED. `fault` may be NULL; of a
 * repeated key it has one of the places.  [-0, +0|1, throws memory] */
int mp_lua_decode_checked(lua_State *L, mp_str text, mp_json_fault *fault);
/* Appends the value at `index`, or throws a text that says what cannot be encoded and where: "cannot encode a function at
 * .a.b[2]". `out` stays the caller's, who frees it on either way out, so calls this inside a lua_pcall.  [-0, +0, throws] */
void mp_lua_encode(lua_State *L, int index, mp_buf *out);
/* The same for what may be long: gives its length, and appends nothing when that is over `most`. Counts no further than
 * MP_LUA_ENCODE_MOST.  [-0, +0, throws] */
size_t mp_lua_encode_most(lua_State *L, int index, mp_buf *out, size_t most);

/* json.null, json.array_mt and json.object_mt as C pushes them. The metatables are shared by all scripts of a VM, so they
 * are empty and take no fields.  [-0, +1, throws memory] */
void mp_lua_push_null(lua_State *L);
void mp_lua_push_array_mt(lua_State *L);
void mp_lua_push_object_mt(lua_State *L);
#define MP_LUA_RAW "moonpool.json.raw"  /* metatable name of json.raw's userdata: its block is the bytes */
#define MP_LUA_SECRET "moonpool.secret" /* a userdata whose bytes are a text, with a NUL behind it: encodes as "***" */
extern const char mp_lua_empty_array;   /* json.empty_array is the light userdata of its address */

/* luaopen of "moonpool.json". */
int mp_lib_json(lua_State *L);

#endif
