/* op.h: what a task waits for: exactly one thing, which can be called off. A binding that waits embeds an mp_op:
 *
 *   check the arguments, mp_op_new, arm, `return mp_op_park(L, op)`; whoever ends the wait calls mp_op_done.
 *
 * An op is a userdata on the stack of the coroutine that waits: it lives until the wait is over, however it ends. */
#ifndef MP_SCRIPT_OP_H
#define MP_SCRIPT_OP_H

#include "net/net.h"
#include <lua.h>

typedef struct mp_op mp_op;
struct mp_op {
    struct mp_task *task;      /* who waits; NULL once the wait is over */
    void (*cancel)(mp_op *op); /* undoes the arming; called at most once, never after mp_op_done */
};

/* A zeroed op of `size` bytes, not armed, on top of the stack. Raises "may not wait here" where a task may not wait:
 * while scripts load, in closers of a call that is off, below functions of C that cannot be left.  [-0, +1, throws] */
void *mp_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op));
/* Ends a binding: the task sleeps until mp_op_done, then the binding returns nothing. Between mp_op_new and here
 * nothing may throw once the op is armed.  [-0, +0, parks] */
int mp_op_park(lua_State *L, mp_op *op);
/* The same, for a binding that gives something: `then` runs in the coroutine after mp_op_done. The op stays on the
 * stack until then.  [-0, +?, parks] */
int mp_op_park_then(lua_State *L, mp_op *op, lua_KFunction then, lua_KContext context);
/* The wait is over: the task is resumed at the bottom of the turn. Runs no Lua, so any callback of the loop may call
 * it. */
void mp_op_done(mp_op *op);
mp_loop *mp_op_loop(const mp_op *op);
/* Calls the wait off; nothing resumes the task any more. Harmless when it is over. */
void mp_op_cancel(mp_op *op);

/* What a task opened and must not outlast it: embedded in a userdata, whose finalizer lets go. */
typedef struct mp_hold {
    mp_link link;
    void (*release)(struct mp_hold *hold);
} mp_hold;

/* `release` runs when the work of the running task ends, however it ends; at most once, and runs no Lua. */
void mp_hold_put(lua_State *L, mp_hold *hold, void (*release)(mp_hold *hold));
/* `release` is not called any more. Harmless twice. */
void mp_hold_drop(mp_hold *hold);

/* An op that has something of its own: a job, a program, a turn. It is let go when the binding says so, when the task ends
 * without coming back for it, or when Lua collects it. */
typedef struct {
    mp_op super;
    mp_hold hold;
} mp_owning_op;

/* As mp_op_new; `size` is of what embeds it. `release` may be called more than once.  [-0, +1, throws] */
void *mp_owning_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op), void (*release)(mp_hold *hold));
/* Before the first of them.  [-0, +0, throws] */
void mp_ops_open(lua_State *L);

#endif
