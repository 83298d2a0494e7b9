/* bindings.h: the Lua libraries that are written in C. A comment ends with a function's effect on the Lua stack:
 * [-values popped, +values pushed, throws|parks]. */
#ifndef MP_LIB_BINDINGS_H
#define MP_LIB_BINDINGS_H

#include "lib/state.h"
#include <lua.h>

/* A library in C for Lua: the functions that one file adds to moonpool.host. MP_LIBRARY(name) { … } at the end of the
 * file adds the functions to the table on top of the stack, given `L` and `config`, the mp_lib_config  [-0, +0,
 * throws]. The linker gathers the libraries of the whole program, and each VM gets all of them, in no certain order
 * (host.c). */
typedef struct {
    const char *name;
    void (*add)(lua_State *L, const mp_lib_config *config);
    bool is_global;
} mp_library;

#define MP_LIBRARY(name) MP_LIBRARY_DECLARE(name, false)
/* Declares a library that scripts have as the global `name`: the value that library(granted, path) of
 * lua/moonpool/lib/<name>.lua returns for the script at `path`, loaded for the first script that uses it. */
#define MP_SCRIPT_LIBRARY(name) MP_LIBRARY_DECLARE(name, true)

#define MP_LIBRARY_DECLARE(name, is_global)                                                                            \
    static void add_this_library(lua_State *L, const mp_lib_config *config);                                           \
    static const mp_library this_library = {#name, add_this_library, is_global};                                       \
    static const mp_library *const this_library_row __attribute__((used, section("mp_libraries"))) = &this_library;    \
    static void add_this_library(lua_State *L, __attribute__((unused)) const mp_lib_config *config)

/* Each of these adds its functions to the host table on top of the stack.  [-0, +0, throws] */
void mp_lib_digest(lua_State *L);
void mp_lib_traits(lua_State *L);
void mp_lib_catalogue(lua_State *L, mp_upstreams *upstreams);
/* Observations of upstreams are waiting: sends the bus message "observed" to this VM alone. `ctx`: the mp_vm. */
void mp_lib_on_observed(void *ctx);
/* Pushes a secret with this text.  [-0, +1, throws] */
void mp_push_secret(lua_State *L, mp_str text);
/* The address policy that the field `reach` of the table at `index` names: "public", "loopback", "private", or an
 * address.  [-0, +0, throws] */
mp_address_policy mp_reach_field(lua_State *L, int index);
/* Closes the VM's connections to Redis servers, on the thread of its loop. No task is left. */
void mp_lib_close_redis(mp_lib *lib);
void mp_lib_close_postgres(mp_lib *lib); /* the same for PostgreSQL servers */
/* Looks from now on whether a turn of the cluster's records is due (nodes.c), if there is a cluster; or no more. */
void mp_lib_watch_nodes(mp_lib *lib, mp_loop *loop);
void mp_lib_ignore_nodes(mp_lib *lib);
/* Pushes the table that `require "moonpool.host"` returns.  [-0, +1, throws] */
void mp_host_push(lua_State *L, mp_source *source, const mp_lib_config *config);
/* script.edit_distance(a, b): mp_edit_distance of two words.  [-0, +1, throws] */
int mp_lib_edit_distance(lua_State *L);
/* digest.scrypt of commands, which works on this thread.  [-0, +1, throws] */
int mp_lib_scrypt_at_once(lua_State *L);

#define MP_CALL "call"

/* The content of the userdata `call`. Valid while the task's serial number is `serial`. */
typedef struct {
    mp_lib_task *task;
    uint64_t serial;
    bool is_resumed; /* its handler runs a second time, as the body of a task */
} mp_call_handle;

/* Pushes the `call` that handlers see; `params` is the index of the decoded parameters, or 0: they are decoded when
 * they are first read.  [-0, +1, throws] */
void mp_call_push(lua_State *L, mp_lib_task *task, int params);
/* Pushes an unbound call handle with the fields of the call at index 1. Unusable until mp_call_bind().  [-0, +1,
 * throws] */
void mp_call_push_like(lua_State *L);
/* Pushes an unbound call handle that inherits nothing. Unusable until mp_call_bind().  [-0, +1, throws] */
void mp_call_push_new(lua_State *L);
/* Binds the call handle at `index` to `task`.  [-0, +0] */
void mp_call_bind(lua_State *L, int index, mp_lib_task *task);
/* The body of a call's coroutine.  [-1, +0, throws, parks] */
int mp_run_call(lua_State *L);
/* What mp_run_call does for a call without a plan. The task is at index 1, alone.  [-0, +0, throws, parks] */
int mp_run_call_in_lua(lua_State *L, mp_lib_task *task, const mp_call *call);
/* Answers with dispatch's two results, at the indexes 2 and 3. A continuation; its context is the task.  [-0, +0,
 * throws, parks] */
int mp_call_done(lua_State *L, int status, lua_KContext context);
/* The body of a notification's coroutine.  [-1, +0, throws, parks] */
int mp_run_note(lua_State *L);
/* Authenticates the request from the token cache, without running an auth script. False if its bearer token is not
 * cached. */
bool mp_authn_is_known(mp_vm *vm, mp_authn *entry);
/* The body of a background task's coroutine.  [-1, +0, throws, parks] */
int mp_run_job(lua_State *L);
/* The body of a scheduled job's coroutine.  [-1, +0, throws, parks] */
int mp_run_scheduled(lua_State *L);
/* The body of the coroutine that runs auth scripts for a request.  [-1, +0, throws, parks] */
int mp_run_entry(lua_State *L);
/* `count` files of auth scripts were never read by this VM. */
void mp_lib_count_unread(mp_lib *lib, int64_t count);
/* Pushes the Lua table of a principal that a script of this VM created; nil for any other principal.  [-0, +1] */
void mp_principal_push(lua_State *L, const mp_principal *principal);
/* Separates the principals that this VM created from the VM, so that another thread may free it. Principals that C code
 * still refers to stay valid. */
void mp_principals_detach(mp_lib *lib);
/* The body of the coroutine of a member task of a parallel() group (parallel.c). [-1, +0, throws, parks] */
int mp_run_member(lua_State *L);
/* Appends the JSON of the value at `index` to state->out, which an error in encoding leaves unchanged.  [-0, +0,
 * throws] */
void mp_encode_out(lua_State *L, mp_state *state, int index);
/* Raises an error, and cuts state->out back to `start`, if the bytes after `start` are over limits.call.output.  [-0,
 * +0, throws] */
void mp_check_size(lua_State *L, mp_state *state, size_t start);
/* The error of functions that need the loop or the network while the VM is attached to none. */
#define MP_NOT_SERVING "the gateway is not serving yet: scripts are loading"
/* The task of the call at index 1. Raises an error if the call has ended.  [-0, +0, throws] */
mp_lib_task *mp_check_call(lua_State *L);

#endif
