/* closing.h: how a task ends before its function does. The task is resumed with an error that its script cannot catch,
 * so its
 * `<close>` handlers run as they do after any other error: in the coroutine, where they may wait. */
#ifndef MP_VM_CLOSING_H
#define MP_VM_CLOSING_H

#include "vm/schedule.h"

/* The values of mp_task.closing. */
enum {
    MP_OPEN,    /* the task's function runs */
    MP_CLOSING, /* the error was raised: handlers run, within MP_CLEANUP_MS */
    MP_FORCED   /* the handlers used up their limits: each further one gets an error at its first instruction */
};

/* Makes the two errors: the one that ends a cancelled task, and the one by which coroutine.close ends a coroutine. [-0,
 * +0, throws] */
void mp_closing_open(lua_State *L);
bool mp_is_ending_error(lua_State *L, int index);
/* Raises the error of coroutine.close in the coroutine that runs.  [-0, +0, throws] */
_Noreturn void mp_raise_closed(lua_State *L);
/* Raises the error of a cancelled task: its handlers run from here on.  [-0, +0, throws] */
_Noreturn void mp_raise_cancelled(lua_State *L, mp_task *task);

/* Called when a wait is over: raises the error of a cancelled task, or of a handler that may not wait any more, if
 * it is due. [-0, +0, throws] */
void mp_closing_after_wait(lua_State *L);
/* Called before a wait: raises the error of a cancelled task, or of a handler that may not wait any more, if it is
 * due. [-0, +0, throws] */
void mp_closing_before_wait(lua_State *L, mp_task *task);
/* Called by the count hook if `raise` or `closing` of the running task is set. It may yield, so the hook must return at
 * once.  [-0, +0, throws] */
void mp_closing_hook(lua_State *L, mp_task *task);

/* Called by a C function that runs for a long time, if `closing` of the running task is set. The function must yield
 * when this returns. [-0, +0, throws] */
void mp_closing_look(lua_State *L, mp_task *task);
/* Charges a stretch of `<close>` handlers to the task. The VM held `before` bytes when the stretch began. */
void mp_closing_charge(mp_task *task, size_t before);
/* The task yielded in a `<close>` handler: starts the timer of MP_CLEANUP_MS. */
void mp_closing_left(mp_task *task);
/* The task has ended: stops the timer, and no longer counts the task as closing. */
void mp_closing_done(mp_task *task);
/* Ends a cancelled task that does not run: resumes it with the error, or frees it if it has not started. */
void mp_task_unwind(mp_task *task);

#endif
