/* handles.h: declarations that the files of host.upstream share. */
#ifndef MP_LIB_UPSTREAM_HANDLES_H
#define MP_LIB_UPSTREAM_HANDLES_H

#include "lib/bindings.h"
#include "lib/spans.h"
#include <lauxlib.h>

#define MP_MAX_UPSTREAM_TIME_S 86400.0

/* The worker's connections to upstreams. Raises an error while scripts load.  [-0, +0, throws] */
mp_upstream_host *mp_upstreams_of(lua_State *L);
/* Pushes nil and the table of a failure.  [-0, +2, throws] */
int mp_upstream_push_failure(lua_State *L, const mp_upstream_failure *failure);
int mp_upstream_push_reason(lua_State *L, mp_failure_reason reason, const char *why);
/* Sends the message at index 2 with the options at index 3: pushes the exchange; or nil and a failure.  [-0, +1|2,
 * throws] */
int mp_upstream_push_exchange(lua_State *L, mp_channel *channel);
/* Sends a message: pushes the exchange. False: `failure` says why, and nothing is pushed.  [-0, +0|1, throws] */
bool mp_upstream_begin_exchange(lua_State *L, mp_channel *channel, mp_exchange_options *options,
                                mp_upstream_failure *failure);
/* The exchange on top of the stack ends the span at its own end.  [-0, +0] */
void mp_upstream_set_span(lua_State *L, const mp_open_span *span);
/* Waits until the exchange at `index` has an event or has failed, then runs `then` in the coroutine, with `index` as
 * its context.  [-0, +?, throws, parks] */
int mp_upstream_wait(lua_State *L, int index, lua_KFunction then);
/* The next event of the exchange at `index`, which is not taken; NULL: there is none, or it has failed.  [-0, +0] */
const mp_exchange_event *MP_NULLABLE mp_upstream_peek(lua_State *L, int index);
/* Takes the next event of the exchange at `index`, and drops it.  [-0, +0] */
void mp_upstream_skip(lua_State *L, int index);
/* The task needs the exchange at `index` no more.  [-0, +0] */
void mp_upstream_release_exchange(lua_State *L, int index);
/* The key of the channel of the exchange at `index`; empty if the exchange was closed.  [-0, +0] */
mp_str mp_upstream_channel_key(lua_State *L, int index);
/* Pushes the channel of the exchange at `index`, and writes the exchange's id. False, pushing nothing, if the exchange
 * was closed.
 *  [-0, +0|1, throws] */
bool mp_upstream_push_channel_of(lua_State *L, int index, int64_t *id);
/* Makes the metatable of a kind of userdata.  [-0, +0, throws] */
void mp_upstream_add_handle(lua_State *L, const char *kind, lua_CFunction gc, lua_CFunction close,
                            const luaL_Reg *methods);
/* The channel of the handle at index 1.  [-0, +0, throws] */
mp_channel *mp_upstream_check_channel(lua_State *L);
/* Pushes a handle of the channel, which the running task holds.  [-0, +1, throws] */
void mp_upstream_push_channel(lua_State *L, mp_channel *channel);
/* lua_CFunctions of listen_stream.c: the methods listen, unlisten and hold of channels. */
int mp_upstream_listen(lua_State *L);
int mp_upstream_unlisten(lua_State *L);
int mp_upstream_hold(lua_State *L);
/* Adds upstream.observed to the host table on top of the stack.  [-0, +0, throws] */
void mp_lib_observer(lua_State *L);
/* Makes the metatable of exchanges, and adds the functions of pending exchanges to the host table on top of the stack.
 * [-0, +0, throws] */
void mp_upstream_add_exchange(lua_State *L);

#endif
