/* preempt.h: how a task that runs Lua for long is suspended so that other tasks run. A thread tells this module when
 * Lua runs on it, and in which coroutine. A timer of the thread sends a signal when the time slice is over. If the
 * same stretch of Lua still runs, the signal handler sets a count hook. The hook runs at Lua's next instruction, and
 * suspends or ends the task (mp_task_hook). So a short stretch costs one reading of the clock, and a busy thread
 * gets one signal every four milliseconds. */
#ifndef MP_VM_PREEMPT_H
#define MP_VM_PREEMPT_H

#include "base/base.h"
#include <lua.h>

#ifndef MP_PREEMPT
#define MP_PREEMPT 1 /* 0 turns preemption off, to measure what it costs */
#endif

/* A stretch of Lua begins in `L` on this thread. Returns the coroutine that ran before, for mp_preempt_leave. Calls may
 * be nested. */
lua_State *MP_NULLABLE mp_preempt_enter(lua_State *L);
/* mp_preempt_enter for a caller that has just read the clock: `at` is us of CLOCK_MONOTONIC. */
lua_State *MP_NULLABLE mp_preempt_enter_at(lua_State *L, uint64_t at);
void mp_preempt_leave(lua_State *MP_NULLABLE before);
/* A heavy task goes on: its time slice of one millisecond, or less than a third of that if `is_short`, begins now. A
 * stretch without this call has one millisecond, or four if no task was preempted in the last ten seconds. Between
 * mp_preempt_enter and mp_preempt_leave. */
void mp_preempt_slice(bool is_short);
/* Sets mp_task_hook as the count hook of `L`: it runs every `instructions`. */
void mp_preempt_arm(lua_State *L, int instructions);
/* Sets the count hook of the coroutine that runs on this thread, for its next instruction. No effect if no Lua runs. */
void mp_preempt_arm_running(void);
/* The coroutine in which Lua runs on this thread; NULL: none. */
lua_State *MP_NULLABLE mp_preempt_running(void);
/* From now on `run` is called on this thread, in a signal handler, while a function of C runs for more than some ms. */
void mp_preempt_on_long_call(void (*MP_NULLABLE run)(void));
/* Has a second timer of the thread call `tick` `hz` times in each second of its processor time, in a signal handler,
 * with the coroutine in which Lua runs, or NULL. 0: no more. False if there is no timer. */
bool mp_preempt_sample(unsigned hz, void (*tick)(lua_State *MP_NULLABLE running));

#endif
