/* gates.h: gates of the process, by name: each lets so many through at once, the others wait in the order in which they came,
 * whichever loops they are on.
 *
 *   pass   what one has who is through, or waits; it is always given back */
#ifndef MP_SCRIPT_GATES_H
#define MP_SCRIPT_GATES_H

#include "script/script.h"

typedef struct mp_pass mp_pass;

/* A pass; NULL when too many wait. Where `*waits`, `granted` runs on `loop` once it is through, unless it is given back before.
 * `most` holds for the gate from now on. */
mp_pass *mp_gate_enter(mp_gates *gates, mp_str name, int64_t most, mp_loop *loop, void (*granted)(void *ctx), void *ctx,
                       bool *waits);
/* Gives it back, whether it is through or waits. On the thread of its loop, or when that has ended. */
void mp_pass_leave(mp_pass *pass);

#endif
