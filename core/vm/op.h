/* op.h: an op is the one thing that a task waits for. Every op can be cancelled. A library function that waits embeds
 * an mp_op:
 *
 *   1. it checks its arguments, and calls mp_op_new;
 *   2. it arms the op: starts a timer, a request, a thread;
 *   3. it ends with `return mp_op_park(L, op)`;
 *   4. the callback of the timer, request or thread calls mp_op_done.
 *
 * An op is a userdata on the stack of the coroutine that waits. It lives until its wait is over, however that ends. */
#ifndef MP_VM_OP_H
#define MP_VM_OP_H

#include "net/net.h"
#include <lua.h>

typedef struct mp_op mp_op;
struct mp_op {
    struct mp_task *MP_NULLABLE task; /* the task that waits; NULL once the wait is over */
    mp_loop *loop;                    /* loop of the task */
    void (*cancel)(mp_op *op);        /* disarms the op; called at most once, and never after mp_op_done */
    lua_KFunction then;               /* runs in the coroutine once the wait is over */
    lua_KContext context;
    bool outlasts; /* `cancel` does not end the wait: the task stays parked until mp_op_done */
};

/* A zeroed op of `size` bytes, not armed, on top of the stack. Raises "may not wait here" where a task may not wait:
 * while scripts load, below functions of C that cannot yield, and after MP_CLEANUP_MS is over.  [-0, +1, throws] */
void *mp_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op));
/* True if a task runs that may wait here, and is not being cancelled: a function that can also do without waiting asks.
 */
bool mp_op_may_wait(lua_State *L);
/* Ends a library function: the task waits until mp_op_done, then the function returns nothing. Once the op is armed,
 * nothing may throw before this call.  [-0, +0, parks] */
int mp_op_park(lua_State *L, mp_op *op);
/* Ends a library function that returns values: `then` runs in the coroutine after mp_op_done, and returns them. The op
 * stays on the stack until `then` runs.  [-0, +?, parks] */
int mp_op_park_then(lua_State *L, mp_op *op, lua_KFunction then, lua_KContext context);
/* Ends the wait: the task is resumed at the bottom of the turn. Runs no Lua, so any callback of the loop may call it.
 * No effect when the wait is over. Before mp_op_park: that does not wait then. */
void mp_op_done(mp_op *op);

/* A resource that a task opened and that is released when the task ends. Embedded in a userdata whose finalizer
 * releases it, too. */
typedef struct mp_resource {
    mp_link link;
    void (*release)(struct mp_resource *resource);
} mp_resource;

/* `release` runs when the work of the running task ends, however it ends; at most once, and runs no Lua. Outside of
 * tasks: never, and the finalizer alone releases it. */
void mp_resource_put(lua_State *L, mp_resource *resource, void (*release)(mp_resource *resource));
/* Removes the resource from its task: `release` is not called any more. May be called again. */
void mp_resource_drop(mp_resource *resource);

/* An op that owns a resource: a job of the thread pool, a child process, a unit of a semaphore. The resource is
 * released when the function releases it, when the task ends, or when Lua collects the op. */
typedef struct {
    mp_op super;
    mp_resource resource;
} mp_owning_op;

/* Like mp_op_new; `size` is the size of the struct that begins with the mp_owning_op. `release` may be called more
 * than once. [-0, +1, throws] */
void *mp_owning_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op), void (*release)(mp_resource *resource));

#endif
