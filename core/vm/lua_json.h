/* lua_json.h: JSON to Lua values and back, for C; and the module "moonpool.json".
 *
 * Objects become tables, arrays tables with the metatable array_mt, null a light userdata (json.null). Integers that fit
 * 64 bits stay integers; larger ones and those with fraction or exponent become floats (infinite beyond 1e308).
 * Encoding uses raw access only, so no script runs meanwhile. Names are in byte order; those in a metatable's list __order come first. */
#ifndef MP_VM_LUA_JSON_H
#define MP_VM_LUA_JSON_H

#include "json/json.h"
#include <lua.h>
#include <stdbool.h>

#define MP_LUA_ENCODE_MOST ((size_t)32 << 20) /* bytes that one value may encode to */

/* Pushes the value of `text`, which a scan has found good. 0; or MP_JSON_REPEATED, pushing nothing, when an object in it
 * has a key twice.  [-0, +0|1, throws memory] */
int mp_lua_decode(lua_State *L, mp_str text);
/* Decodes as mp_lua_decode, in the coroutine of a task: yields where other tasks are to run, so `text` must last as long as the task
 * waits. Ends with done(L, ctx, repeated), whose result it gives: what a function of Lua returns. `repeated` is where in the text a
 * key is that its object has twice, and then nothing is pushed; else NULL.  [-0, +0|1, throws, yields] */
typedef int (*mp_lua_decoded)(lua_State *L, void *ctx, const char *repeated);
int mp_lua_decode_in_turns(lua_State *L, mp_str text, mp_lua_decoded done, void *ctx);
/* Decodes a text that was not scanned: 0, MP_JSON_BROKEN or MP_JSON_REPEATED. `fault` may be NULL; for a repeated key it has one of the
 * two positions.  [-0, +0|1, throws memory] */
int mp_lua_decode_checked(lua_State *L, mp_str text, mp_json_fault *fault);
/* Appends the value at `index`, or throws a text that says what cannot be encoded and where: "cannot encode a function at
 * .a.b[2]". `out` stays the caller's, who frees it on either way out, so calls this inside a lua_pcall.  [-0, +0, throws] */
void mp_lua_encode(lua_State *L, int index, mp_buf *out);
/* Appends the value at `index` if it has at most `most` bytes of JSON, else nothing. Gives the length, counted up to
 * MP_LUA_ENCODE_MOST.  [-0, +0, throws] */
size_t mp_lua_encode_most(lua_State *L, int index, mp_buf *out, size_t most);

/* Encodes as mp_lua_encode_most, in the coroutine of a task: yields where other tasks are to run. Ends with done(L, ctx, text, size),
 * whose result it gives: `text` lasts until `done` returns; where `size` is above `most` it is empty. `most` 0: throws beyond
 * MP_LUA_ENCODE_MOST. The time counts for limits.call.cpu, and what is kept across yields for limits.call.memory. Other tasks
 * may change the value's tables between turns: then it is encoded partly as it was and partly as it is.  [-0, +0, throws, yields] */
typedef int (*mp_lua_encoded)(lua_State *L, void *ctx, mp_str text, size_t size);
int mp_lua_encode_in_turns(lua_State *L, int index, size_t most, mp_lua_encoded done, void *ctx);
/* True if the running code may yield. */
bool mp_lua_can_encode_in_turns(lua_State *L);

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
struct mp_vm;
/* Changes the module's table, on top of the stack, for a VM with tasks: its `encode` yields, and it gets `encoded`.  [-0, +0, throws] */
void mp_lib_json_of_vm(lua_State *L, struct mp_vm *vm);

#endif
