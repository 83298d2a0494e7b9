/* message.h: what one thread sends to the loop of another, part of the door net.h. */
#ifndef MP_NET_MESSAGE_H
#define MP_NET_MESSAGE_H

struct mp_loop;

/* A message to a loop; its owner frees it in `deliver`, which runs at the bottom of a turn. Messages between two
 * threads keep their order. A loop that has ended delivers with `loop == NULL`, on the posting thread or as
 * mp_loop_run returns. */
typedef struct mp_message {
    struct mp_message *next;
    void (*deliver)(struct mp_message *message, struct mp_loop *loop);
} mp_message;

#endif
