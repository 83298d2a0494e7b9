/* op.c: parking a task on an op, and making it ready again. */
#include "vm/op.h"
#include "vm/closing.h"
#include <lauxlib.h>

MP_GAUGE(ops, "ops", "", "", "operations that coroutines wait for")

#define OWNING "moonpool.owning"

/* Lines of lua/moonpool are skipped: they would not help the author of a script. */
void mp_push_place(lua_State *L)
{
    const mp_source *source = mp_vm_of(L)->source;
    lua_Debug at;
    for (int level = 1; lua_getstack(L, level, &at) != 0; level++) {
        lua_getinfo(L, "Sl", &at);
        if (at.source[0] == '@' && mp_source_has(source, at.source + 1)) {
            lua_pushfstring(L, "%s:%d: ", at.source + 1, at.currentline);
            return;
        }
    }
    luaL_where(L, 1);
}

static _Noreturn void refuse_wait(lua_State *L)
{
    mp_push_place(L);
    lua_pushliteral(L, "may not wait here");
    lua_concat(L, 2);
    lua_error(L);
    __builtin_unreachable();
}

bool mp_op_may_wait(lua_State *L)
{
    const mp_vm *vm = mp_vm_of(L);
    const mp_task *task = vm->state.running;
    return task != NULL && !task->cancelled && vm->state.loop != NULL && vm->state.may_wait && lua_isyieldable(L);
}

void *mp_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op))
{
    mp_vm *vm = mp_vm_of(L);
    mp_task *task = vm->state.running;
    mp_loop *loop = vm->state.loop;
    if (task == NULL || loop == NULL || !vm->state.may_wait || !lua_isyieldable(L))
        refuse_wait(L);
    mp_closing_before_wait(L, task);
    mp_op *op = lua_newuserdatauv(L, size, 0);
    memset(op, 0, size);
    op->task = task;
    op->loop = loop;
    op->cancel = cancel;
    return op;
}

static int wait_over(MP_UNUSED lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    return 0;
}

int mp_op_park(lua_State *L, mp_op *op)
{
    return mp_op_park_then(L, op, wait_over, 0);
}

/* The context is the op, which is still on the stack. */
static int go_on(lua_State *L, int status, lua_KContext context)
{
    mp_op *op = (mp_op *)context;
    mp_closing_after_wait(L);
    return op->then(L, status, op->context);
}

int mp_op_park_then(lua_State *L, mp_op *op, lua_KFunction then, lua_KContext context)
{
    mp_task *task = op->task;
    if (task == NULL)
        return then(L, LUA_OK, context);
    mp_own(task)->op = op;
    if (task->cancel_at > 0 && --task->cancel_at == 0)
        task->cancelled = true; /* the error is raised after the coroutine has yielded */
    op->then = then;
    op->context = context;
    mp_stat_add(&mp_stat_ops, 1);
    return lua_yieldk(L, 0, (lua_KContext)op, go_on);
}

/* The task that has waited; NULL if the wait was over before, or had not begun. */
static mp_task *MP_NULLABLE end_wait(mp_op *op)
{
    mp_task *task = op->task;
    op->task = NULL;
    if (task == NULL || mp_own(task)->op != op)
        return NULL;
    mp_own(task)->op = NULL;
    mp_stat_add(&mp_stat_ops, -1);
    return task;
}

void mp_op_done(mp_op *op)
{
    mp_task *task = end_wait(op);
    if (task == NULL || mp_own(task)->state == MP_TASK_UNWINDING)
        return;
    mp_own(task)->state = MP_TASK_READY;
    mp_link_put(&task->vm->schedule.ready, &mp_own(task)->link);
}

void mp_op_cancel(mp_op *op)
{
    if (op->task == NULL)
        return;
    op->cancel(op);
    end_wait(op);
}

void mp_resource_put(lua_State *L, mp_resource *resource, void (*release)(mp_resource *resource))
{
    resource->release = release;
    mp_link_init(&resource->link);
    mp_task *task = mp_vm_of(L)->state.running;
    if (task != NULL)
        mp_link_put(&mp_own(task)->resources, &resource->link);
}

void mp_resource_drop(mp_resource *resource)
{
    mp_link_drop(&resource->link);
}

static int collect_op(lua_State *L)
{
    mp_owning_op *op = lua_touserdata(L, 1);
    mp_resource_drop(&op->resource);
    op->resource.release(&op->resource);
    return 0;
}

void *mp_owning_op_new(lua_State *L, size_t size, void (*cancel)(mp_op *op), void (*release)(mp_resource *resource))
{
    mp_owning_op *op = mp_op_new(L, size, cancel);
    mp_resource_put(L, &op->resource, release);
    luaL_setmetatable(L, OWNING); /* the metatable is in the registry already: this allocates nothing */
    return op;
}

void mp_ops_open(lua_State *L)
{
    luaL_newmetatable(L, OWNING);
    lua_pushcfunction(L, collect_op);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

void mp_resources_release(mp_task *task)
{
    mp_link *link;
    while ((link = mp_link_take(&mp_own(task)->resources)) != NULL) {
        mp_resource *resource = mp_container(link, mp_resource, link);
        resource->release(resource);
    }
}
