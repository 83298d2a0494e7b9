/* queue.h: bytes that wait to be written, in order. They are copied in and never move:
 * they are written from where they lie. A zeroed queue is empty and holds no memory. */
#ifndef MP_LOOP_QUEUE_H
#define MP_LOOP_QUEUE_H

#include "h2o_abi.h"
#include "loop.h"

typedef struct mp_chunk mp_chunk;

typedef struct {
    mp_chunk *MP_NULLABLE head, *MP_NULLABLE tail;
    size_t offset; /* bytes of the head chunk that were dropped already */
    size_t bytes;  /* bytes in the queue */
} mp_queue;

void mp_queue_put(mp_queue *queue, mp_str bytes);
/* Describes the first bytes of the queue in at most `most` pieces, at most `most_bytes` in total. Returns the number
 * of pieces; `bytes` receives their sum. */
size_t mp_queue_peek(const mp_queue *queue, h2o_iovec_t *pieces, size_t most, size_t most_bytes, size_t *bytes);
/* Frees the first `bytes` of the queue. */
void mp_queue_drop(mp_queue *queue, size_t bytes);

#endif
