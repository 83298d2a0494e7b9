/* queue.h: bytes that wait to be written, in order. They are copied in and never move: libh2o writes them from where
 * they are. A zeroed queue is empty and holds no memory. */
#ifndef MP_NET_QUEUE_H
#define MP_NET_QUEUE_H

#include "h2o_abi.h"
#include "net.h"

typedef struct mp_chunk mp_chunk;

typedef struct {
    mp_chunk *head, *tail;
    size_t offset; /* of the head chunk: taken already */
    size_t bytes;  /* in the queue */
} mp_queue;

void mp_queue_put(mp_queue *queue, mp_str bytes);
/* Fills at most `most` of `pieces` with at most `most_bytes` from the front; gives their number, and in `bytes` their
 * sum. */
size_t mp_queue_peek(const mp_queue *queue, h2o_iovec_t *pieces, size_t most, size_t most_bytes, size_t *bytes);
/* Frees `bytes` at the front. */
void mp_queue_drop(mp_queue *queue, size_t bytes);

#endif
