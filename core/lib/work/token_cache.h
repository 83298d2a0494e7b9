/* token_cache.h: the bearer tokens of requests, and a cache of the last 256 tokens for each VM. */
#ifndef MP_LIB_WORK_TOKEN_CACHE_H
#define MP_LIB_WORK_TOKEN_CACHE_H

#include "lib/state.h"
#include <lua.h>

/* Finds the bearer token of a request. A token is accepted in exactly one Authorization header only. Its syntax
 * is not checked. */
typedef enum { MP_NO_TOKEN, MP_BAD_TOKEN, MP_A_TOKEN } mp_token_kind;
mp_token_kind mp_find_bearer(const mp_stream *stream, mp_str *token);

/* Pushes the token as a Lua string, from the cache if it is there; nil if the text is not a bearer token by its syntax.
 * [-0, +1, throws] */
void mp_token_push(lua_State *L, mp_str text);
/* Caches that the token authenticates as the principal reference at `index` until `until` (ms of the loop's clock).
 * Does nothing if the token is not in the cache.  [-0, +0, throws] */
void mp_token_set_principal(lua_State *L, mp_str text, int index, uint64_t until);
/* The principal reference that is cached for the token, as a registry reference. LUA_NOREF (lauxlib.h) if there is none
 * or it expired before `now` (ms of the loop's clock). */
int mp_token_principal(mp_vm *vm, mp_str text, uint64_t now);

/* Adds the function token_id to the host table on top of the stack.  [-0, +0, throws] */
void mp_lib_tokens(lua_State *L);

#endif
