/* preempt.h: a script that does not stop takes turns, and then ends.
 *
 * A thread says when Lua runs on it, and in which coroutine. A watchdog looks at all of them once in a while; a thread that
 * is still in the same stretch of Lua gets a signal, whose handler sets a hook; the hook runs at Lua's next instruction, on
 * the thread itself, and decides. So code that behaves pays for two stores and no hook.
 *
 * The watchdog comes when the system lets it run. So code that was found to compute for long, whose every stretch is to be
 * short, sets an alarm for each: the same signal, which needs no other thread. */
#ifndef MP_SCRIPT_PREEMPT_H
#define MP_SCRIPT_PREEMPT_H

#include <lua.h>
#include <stdint.h>

#ifndef MP_PREEMPT
#define MP_PREEMPT 1 /* 0 only to measure what this costs */
#endif

/* Lua runs in `L` from now on, on this thread; gives what ran before, for mp_preempt_leave. Nests. */
lua_State *mp_preempt_enter(lua_State *L);
void mp_preempt_leave(lua_State *before);
/* From now on `L` is looked at every `instructions`: by mp_task_hook. */
void mp_preempt_arm(lua_State *L, int instructions);
/* What runs on this thread in `us` is looked at then; 0: it is not. Between mp_preempt_enter and mp_preempt_leave. */
void mp_preempt_alarm(uint64_t us);
/* The same as mp_preempt_arm for what runs on this thread, if anything does. */
void mp_preempt_arm_running(void);

#endif
