/* memory.c: the allocator of a Lua state. It counts bytes, refuses allocations over a limit, and reuses small
 * blocks. Blocks up to MP_SLAB_MAX bytes lie in the state's slabs, so that their pages can be returned to the system
 * a few at a time once the coroutines of many calls have ended. */
#include "vm/preempt.h"
#include "vm/schedule.h"

/* a task may exceed its memory limit by this part of limits.call.memory, until its garbage is collected */
#define OVERDRAFT 4

/* Freed blocks are kept for reuse by their size, in steps of so many bytes; those of more than MP_VM_CLASSES steps are
 * not. */
#define CLASS_STEP 16
/* one GC cycle may free as many bytes as are live, which is 1 MiB without any script */
#define MAX_SPARE_BYTES ((size_t)4 << 20)

static size_t class_of(size_t size)
{
    return (size + CLASS_STEP - 1) / CLASS_STEP;
}

static bool is_small(MP_UNUSED size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    return false; /* no reuse: the address sanitizer must see every block */
#else
    return size <= CLASS_STEP * MP_VM_CLASSES;
#endif
}

/* True for a block that is too large to be kept for reuse and small enough for a slab, as most stacks of coroutines
 * are. */
static bool is_medium(MP_UNUSED size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    return size <= MP_SLAB_MAX;
#endif
}

static void *MP_NULLABLE take_small(mp_vm *vm, size_t size)
{
    size_t class = class_of(size);
    mp_vm_spare *block = vm->memory.spares[class - 1];
    if (block == NULL)
        return mp_slabs_take(&vm->memory.slabs, size);
    vm->memory.spares[class - 1] = block->next;
    __builtin_prefetch(block->next, 1); /* garbage is old: its block has left the processor's caches */
    vm->memory.spare_bytes -= class * CLASS_STEP;
    return block;
}

static void give_small(mp_vm *vm, void *memory, size_t size)
{
    size_t class = class_of(size);
    if (vm->memory.spare_bytes >= MAX_SPARE_BYTES) {
        mp_slabs_give(&vm->memory.slabs, memory, size);
        return;
    }
    mp_vm_spare *block = memory;
    block->next = vm->memory.spares[class - 1];
    vm->memory.spares[class - 1] = block;
    vm->memory.spare_bytes += class * CLASS_STEP;
}

static void *MP_NULLABLE take_block(mp_vm *vm, size_t size)
{
    return is_small(size)    ? take_small(vm, size)
           : is_medium(size) ? mp_slabs_take(&vm->memory.slabs, size)
                             : malloc(size);
}

static void give_block(mp_vm *vm, void *block, size_t size)
{
    if (is_small(size))
        give_small(vm, block, size);
    else if (is_medium(size))
        mp_slabs_give(&vm->memory.slabs, block, size);
    else
        free(block);
}

void mp_vm_free_spares(mp_vm *vm)
{
    mp_vm_free_some_spares(vm, SIZE_MAX);
}

bool mp_vm_free_some_spares(mp_vm *vm, size_t most)
{
    for (size_t i = 0; i < MP_VM_CLASSES; i++)
        for (mp_vm_spare *block; (block = vm->memory.spares[i]) != NULL; most--) {
            if (most == 0)
                return true;
            vm->memory.spares[i] = block->next;
            vm->memory.spare_bytes -= (i + 1) * CLASS_STEP;
            mp_slabs_give(&vm->memory.slabs, block, (i + 1) * CLASS_STEP);
        }
    mp_slabs_return(&vm->memory.slabs);
    return false;
}

/* Changes the size of a block. NULL if there is no memory; the old block is then unchanged. */
static void *MP_NULLABLE resize_block(mp_vm *vm, void *MP_NULLABLE old, size_t old_size, size_t size)
{
    if (old == NULL)
        return take_block(vm, size);
    if (is_small(old_size) && is_small(size) && class_of(old_size) == class_of(size))
        return old;
    if (!is_medium(old_size) && !is_medium(size))
        return realloc(old, size);
    void *block = take_block(vm, size);
    if (block == NULL)
        return NULL;
    memcpy(block, old, old_size < size ? old_size : size);
    give_block(vm, old, old_size);
    return block;
}

/* When memory is refused, Lua collects all garbage at once, while every other task waits. So a task may exceed its
 * limit a little: it is preempted at its next instruction, and the garbage is collected in steps. */
static bool may_overdraw(mp_vm *vm, size_t more)
{
    if (vm->state.running == NULL || vm->memory.ceiling >= vm->memory.limit)
        return false;
    size_t room = vm->memory.limit - vm->memory.ceiling, overdraft = vm->state.call_memory / OVERDRAFT;
    size_t most = vm->memory.ceiling + (overdraft < room ? overdraft : room);
    if (vm->memory.bytes > most || more > most - vm->memory.bytes)
        return false;
    if (!vm->memory.is_full) {
        vm->memory.is_full = true;
        mp_preempt_arm_running();
    }
    return true;
}

/* Refuses an allocation. Lua then collects all garbage and tries once more; if that is refused as well, the task is
 * over its memory limit. */
static void *MP_NULLABLE refuse_block(mp_vm *vm, size_t size)
{
    if (vm->state.running != NULL && vm->memory.denied == size && MP_PREEMPT) {
        vm->memory.is_over = true;
        mp_preempt_arm_running();
    }
    vm->memory.denied = size;
    return NULL;
}

bool mp_vm_count(mp_vm *vm, size_t before, size_t now)
{
    if (now > before) {
        size_t more = now - before;
        if ((vm->memory.bytes > vm->memory.ceiling || more > vm->memory.ceiling - vm->memory.bytes) &&
            !may_overdraw(vm, more))
            return false;
    }
    vm->memory.bytes += now - before;
    return true;
}

void *MP_NULLABLE mp_vm_allocate(void *ctx, void *MP_NULLABLE old, size_t old_size, size_t size)
{
    mp_vm *vm = ctx;
    if (old == NULL)
        old_size = 0; /* without an old block, Lua passes the kind of the object here */
    if (size == 0) {
        if (old != NULL)
            give_block(vm, old, old_size);
        vm->memory.bytes -= old_size;
        return NULL;
    }
    if (size > old_size) {
        bool fits = vm->memory.bytes <= vm->memory.ceiling && size - old_size <= vm->memory.ceiling - vm->memory.bytes;
        if (!fits && !may_overdraw(vm, size - old_size))
            return refuse_block(vm, size);
        vm->memory.denied = 0; /* the garbage was enough: a later refusal of this size is a first one */
    }
    void *block = resize_block(vm, old, old_size, size);
    if (block == NULL)
        return size <= old_size ? old : NULL; /* Lua needs a block that shrinks: its compiler would fail otherwise */
    vm->memory.bytes += size - old_size;
    return block;
}

int mp_vm_pcall_unlimited(lua_State *L, int arguments, int results)
{
    mp_vm *vm = mp_vm_of(L);
    size_t ceiling = vm->memory.ceiling;
    vm->memory.ceiling = SIZE_MAX / 2;
    int status = lua_pcall(L, arguments, results, 0);
    vm->memory.ceiling = ceiling;
    if (vm->state.running != NULL && vm->memory.bytes > ceiling && !vm->memory.is_full) {
        vm->memory.is_full = true;
        mp_preempt_arm_running();
    }
    return status;
}
