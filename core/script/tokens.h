/* tokens.h: bearer tokens as requests bring them. Those that came lately are remembered by a VM, 256 of them. */
#ifndef MP_SCRIPT_TOKENS_H
#define MP_SCRIPT_TOKENS_H

#include "script/vm.h"
#include <lua.h>

/* What the request brings as a bearer token: in Authorization alone, once. Its form is not looked at. */
typedef enum { MP_NO_TOKEN, MP_BAD_TOKEN, MP_A_TOKEN } mp_token_kind;
mp_token_kind mp_find_bearer(const mp_stream *stream, mp_str *token);

/* The token as text, the same string for one that came lately; nil for what has not its form.  [-0, +1, throws] */
void mp_token_push(lua_State *L, mp_str text);
/* It admits the seat at `index`, until then by the loop's clock. Quiet for one that is not remembered.  [-0, +0, throws] */
void mp_token_set_seat(lua_State *L, mp_str text, int index, uint64_t until);
/* The seat that it admits now, as a reference of the registry; LUA_NOREF (of lauxlib.h): none is known. */
int mp_token_seat(mp_vm *vm, mp_str text, uint64_t now);

/* Adds token_id to the host table on top of the stack.  [-0, +0, throws] */
void mp_lib_tokens(lua_State *L);

#endif
