/* message.h: a message from one thread to the loop of another; part of the public header loop.h. */
#ifndef MP_LOOP_MESSAGE_H
#define MP_LOOP_MESSAGE_H

#include "base/base.h"

struct mp_loop;

/* A message to a loop. Its owner frees it in `deliver`, which runs at the bottom of a turn. Messages between two
 * threads keep their order. A message to a loop that has ended is delivered with `loop == NULL`, on the posting
 * thread or on the thread that returns from mp_loop_run. */
typedef struct mp_message {
    struct mp_message *MP_NULLABLE next;
    void (*deliver)(struct mp_message *message, struct mp_loop *MP_NULLABLE loop);
} mp_message;

#endif
