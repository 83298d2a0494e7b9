/* profile.h: the side of the profiler that runs while a thread works: what preempt.c and the libraries' files of this module call. vm.h has
 * what begins, ends and reads a profile. */
#ifndef MP_VM_PROFILE_H
#define MP_VM_PROFILE_H

#include "vm/state.h"

/* The sampling timer has fired. In a signal handler: `running` is the coroutine in which Lua runs on this thread, or NULL. */
void mp_profile_tick(lua_State *running);
/* Takes the sample that is due, in a count hook. The time that this takes counts for no task and no limit.  [-0, +0] */
void mp_profile_take(lua_State *L);
/* The allocator of a VM while its thread samples memory; it puts mp_vm_allocate back when that is over. */
void *mp_profile_allocate(void *ctx, void *old, size_t old_size, size_t size);
/* Samples of this thread that are due: marked, but not taken. */
extern __thread volatile unsigned mp_profile_due;

#endif
