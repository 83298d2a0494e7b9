/* lib.h: the Lua libraries made of C. What each function pops, pushes and raises is said where it is defined:
 * [-popped, +pushed, throws|parks]. */
#ifndef MP_SCRIPT_LIB_H
#define MP_SCRIPT_LIB_H

#include "script/task.h"
#include "script/vm.h"
#include <lua.h>

/* Each of these adds its functions to the host table on top of the stack.  [-0, +0, throws] */
void mp_lib_time(lua_State *L);
void mp_lib_log(lua_State *L);
void mp_lib_call(lua_State *L);
void mp_lib_auth(lua_State *L);
void mp_lib_client(lua_State *L);
void mp_lib_seal(lua_State *L, const mp_seal_key *keys);
void mp_lib_digest(lua_State *L);
void mp_lib_store(lua_State *L, mp_store *store);
void mp_lib_signal(lua_State *L);
void mp_lib_gate(lua_State *L, mp_gates *gates);
/* How long what it begins may last: a call's work in the background; scheduled work that says nothing else. */
void mp_lib_jobs(lua_State *L, uint64_t longest_ms, uint64_t call_ms);
void mp_lib_parallel(lua_State *L);
void mp_lib_sqlite(lua_State *L, const mp_vm_config *config);
void mp_lib_topics(lua_State *L);
void mp_lib_hear(lua_State *L, mp_hearers *hearers);
void mp_lib_http(lua_State *L, const mp_vm_config *config);
void mp_lib_fs(lua_State *L, const mp_vm_config *config);
void mp_lib_exec(lua_State *L, const mp_vm_config *config);
void mp_lib_secret(lua_State *L);
/* Replaces what `coroutine` holds by functions that let a task wait inside a script's own coroutines.  [-0, +0,
 * throws] */
void mp_lib_coroutine(lua_State *L);

/* Pushes the table that `require "moonpool.host"` gives.  [-0, +1, throws] */
void mp_host_push(lua_State *L, const mp_source *source, const mp_vm_config *config);

/* Pushes the `call` that handlers see; `params` is the index of the decoded parameters.  [-0, +1, throws] */
void mp_call_push(lua_State *L, mp_task *task, int params);
/* Pushes one like the call at 1, which is of no use until mp_call_bind.  [-0, +1, throws] */
void mp_call_push_like(lua_State *L);
/* The same of one that is like no other.  [-0, +1, throws] */
void mp_call_push_new(lua_State *L);
void mp_call_bind(lua_State *L, int index, mp_task *task);
/* The body of a background task's coroutine.  [-1, +0, throws, parks] */
int mp_run_job(lua_State *L);
/* The same of one that is scheduled.  [-1, +0, throws, parks] */
int mp_run_scheduled(lua_State *L);
/* The same of one that finds out who asks.  [-1, +0, throws, parks] */
int mp_run_entry(lua_State *L);
/* Pushes the table of a principal of this VM; nil for one that Lua has not made.  [-0, +1] */
void mp_principal_push(lua_State *L, const mp_principal *principal);
/* Whom the VM has named, and who is still counted elsewhere, is the counter's alone: the VM may be freed on another thread. */
void mp_principals_forsake(mp_vm *vm);
/* The body of the coroutine of a task that runs beside others.  [-1, +0, throws, parks] */
int mp_run_member(lua_State *L);
/* Appends the JSON of the value at `index` to vm->out; when it raises, nothing is appended.  [-0, +0, throws] */
void mp_encode_out(lua_State *L, mp_vm *vm, int index);
/* What vm->out has from `start` on may be sent, or is taken back and an error.  [-0, +0, throws] */
void mp_check_size(lua_State *L, mp_vm *vm, size_t start);
/* The task of the call at 1; raises once that has ended.  [-0, +0, throws] */
mp_task *mp_check_call(lua_State *L);

#endif
