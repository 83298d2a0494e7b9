/* end_errors.c: tells the errors that end a task or a coroutine from the errors of scripts. */
#include "vm/closing.h"

bool mp_is_ending_error(lua_State *L, int index)
{
    const mp_vm *vm = mp_vm_of(L);
    const void *value = lua_touserdata(L, index);
    return value != NULL && (value == vm->closing.cancelled_error || value == vm->closing.closed_error);
}
