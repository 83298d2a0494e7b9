/* bus.h: messages from each VM of the process to all of them. */
#ifndef MP_VM_BUS_H
#define MP_VM_BUS_H

#include "vm/schedule.h"

/* The VM receives messages from now on, until mp_bus_leave. */
void mp_bus_join(mp_bus *bus, mp_vm *vm);
void mp_bus_leave(mp_bus *bus, mp_vm *vm);
/* Calls vm->state.deliver(topic, text) for messages that have arrived, at most 256. */
void mp_vm_bus_turn(mp_vm *vm);
/* Drops the messages that have arrived and are not yet delivered. */
void mp_vm_drop_messages(mp_vm *vm);

#endif
