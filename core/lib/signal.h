/* signal.h: sets a signal of task.event() from callbacks of the loop, so that one task can wait for several sources at
 * once. */
#ifndef MP_LIB_SIGNAL_H
#define MP_LIB_SIGNAL_H

#include <lua.h>

/* The signal at `index`. Valid as long as Lua refers to it: a userdata that keeps the pointer has the signal as a user
 * value.  [-0, +0, throws] */
void *mp_check_signal(lua_State *L, int index);
/* Sets the signal and wakes the tasks that wait for it. Runs no Lua. On the thread of its VM. */
void mp_signal_set(void *signal);

#endif
