/* hear.h: what the VMs of a process tell each other. */
#ifndef MP_SCRIPT_HEAR_H
#define MP_SCRIPT_HEAR_H

#include "script/vm.h"

/* The VM lives on a loop now, and hears; until it leaves. */
void mp_hearers_join(mp_hearers *hearers, mp_vm *vm);
void mp_hearers_leave(mp_hearers *hearers, mp_vm *vm);
/* Runs moonpool.heard(topic, text) for what has arrived, or some of it. True when it did something. */
bool mp_vm_hear(mp_vm *vm);
/* Drops what has arrived. */
void mp_vm_unhear(mp_vm *vm);

#endif
