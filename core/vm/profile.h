/* profile.h: the side of the profiler that runs while a thread works: what preempt.c and the libraries' files of this
 * module call. vm.h has what begins, ends and reads a profile. */
#ifndef MP_VM_PROFILE_H
#define MP_VM_PROFILE_H

#include "vm/schedule.h"

/* Takes the sample that is due, in a count hook. The time that this takes counts for no task and no limit.  [-0, +0] */
void mp_profile_take(lua_State *L);
/* Samples of this thread that are due: marked, but not taken. */
extern __thread volatile unsigned mp_profile_due;

#endif
