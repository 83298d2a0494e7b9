/* schedule.h: work that a VM begins by itself, every so often, on one worker of the process. */
#ifndef MP_SCRIPT_SCHEDULE_H
#define MP_SCRIPT_SCHEDULE_H

#include "script/vm.h"

typedef struct mp_scheduled {
    struct mp_scheduled *next; /* in vm->schedule */
    mp_vm *vm;
    mp_timer timer;
    char *name;
    uint64_t every_ms, limit_ms;
} mp_scheduled;

/* The VM lives on a loop now. */
void mp_schedule_start(mp_vm *vm);
/* Nothing more begins. */
void mp_schedule_stop(mp_vm *vm);
void mp_schedule_free(mp_vm *vm);

#endif
