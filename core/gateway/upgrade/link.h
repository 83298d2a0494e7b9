/* link.h: messages, with descriptors, between two processes of one gateway, over a socket pair that only these two
 * have. A socket keeps the borders of messages. No function waits: messages that the other end does not take yet are
 * queued. Main thread only. */
#ifndef MP_GATEWAY_LINK_H
#define MP_GATEWAY_LINK_H

#include "base/base.h"

#define MP_LINK_BYTES 32768 /* bytes of a message: far below what a socket may queue */
#define MP_LINK_FDS 64      /* descriptors of a message */
/* Number of messages that may wait for the other end. A process that does not take them is suspended or stuck. */
#define MP_LINK_QUEUE 1024
#define MP_LINK_OFFERS 256 /* waiting messages above which none that may be lost is added: 8 MiB at most */

typedef struct mp_process_link mp_process_link;

typedef struct {
    unsigned char kind; /* not 0 */
    mp_str body;        /* valid until the next call of mp_process_link_take */
    int fds[MP_LINK_FDS];
    int count;
} mp_link_message;

/* Makes the two ends of a link, which close on exec; -1 with errno. */
int mp_process_link_pair(int ends[2]);
/* Takes ownership of `fd`, one end of a link. */
mp_process_link *mp_process_link_new(int fd);
/* Closes this end of the link. The process at the other end can still read the messages that were sent, and then reads
 * the end. NULL is allowed. */
void mp_process_link_free(mp_process_link *MP_NULLABLE link);
/* Sends a message, at once or when the other end takes it. Takes ownership of the descriptors, of which there are at
 * most MP_LINK_FDS; `body` has at most MP_LINK_BYTES - 1 bytes. */
void mp_process_link_send(mp_process_link *link, unsigned char kind, mp_str body, const int *fds, int count);
/* Like mp_process_link_send, for a message that may be lost: false if MP_LINK_OFFERS messages wait. The next such
 * message that fits is sent after `instead`, which reports the loss to the other end. */
bool mp_process_link_offer(mp_process_link *link, unsigned char kind, mp_str body, mp_str instead);
/* Sends queued messages. True if none is left. */
bool mp_process_link_flush(mp_process_link *link);
/* Takes the oldest message that has arrived; the caller owns its descriptors. 0: there is none yet. -1: the other end
 * is closed, or does not keep to this format. */
int mp_process_link_take(mp_process_link *link, mp_link_message *message);
/* After mp_process_link_take has given -1: true if the other end is closed, as by the end of its process. */
bool mp_process_link_is_closed(const mp_process_link *link);
/* Waits until a message has arrived and takes it, until the monotonic time `until_ms`. As mp_process_link_take; 0: it
 * is too late. */
int mp_process_link_await(mp_process_link *link, mp_link_message *message, uint64_t until_ms);
/* The descriptor for poll, and the events to wait for. */
int mp_process_link_fd(const mp_process_link *link);
short mp_process_link_events(const mp_process_link *link);

#endif
