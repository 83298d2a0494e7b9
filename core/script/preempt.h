/* preempt.h: a script that does not stop takes turns, and then ends.
 *
 * A thread says when Lua runs on it, and in which coroutine. A timer of the thread goes off when the turn of what ran then would
 * be over: its signal finds the same stretch of Lua, and sets a hook; the hook runs at Lua's next instruction and decides. So
 * code that behaves pays for a look at the clock, and a thread that works for a signal every four milliseconds. */
#ifndef MP_SCRIPT_PREEMPT_H
#define MP_SCRIPT_PREEMPT_H

#include <lua.h>

#ifndef MP_PREEMPT
#define MP_PREEMPT 1 /* 0 only to measure what this costs */
#endif

/* Lua runs in `L` from now on, on this thread; gives what ran before, for mp_preempt_leave. Nests. */
lua_State *mp_preempt_enter(lua_State *L);
void mp_preempt_leave(lua_State *before);
/* What runs on this thread goes on after a turn: it has one millisecond from now. Without this it has as much, or four where
 * nothing went on for the last ten seconds. Between enter and leave. */
void mp_preempt_slice(void);
/* From now on `L` is looked at every `instructions`: by mp_task_hook. */
void mp_preempt_arm(lua_State *L, int instructions);
/* The same for what runs on this thread, if anything does. */
void mp_preempt_arm_running(void);

#endif
