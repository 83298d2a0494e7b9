/* queue.c: a list of chunks. The first bytes in an empty queue get a chunk of their size; further bytes are packed
 * into larger chunks. */
#include "queue.h"

#define PACKED 4096

struct mp_chunk {
    mp_chunk *MP_NULLABLE next;
    size_t len, cap;
    char bytes[];
};

void mp_queue_put(mp_queue *queue, mp_str bytes)
{
    queue->bytes += bytes.len;
    mp_chunk *tail = queue->tail;
    if (tail != NULL && tail->len < tail->cap) {
        size_t part = bytes.len < tail->cap - tail->len ? bytes.len : tail->cap - tail->len;
        memcpy(tail->bytes + tail->len, bytes.ptr, part);
        tail->len += part;
        bytes = mp_str_from(bytes, part);
    }
    if (bytes.len == 0)
        return;
    size_t cap = tail == NULL || bytes.len > PACKED ? bytes.len : PACKED - sizeof(mp_chunk);
    if (cap < bytes.len)
        cap = bytes.len;
    mp_chunk *chunk = mp_resize(NULL, sizeof *chunk + cap);
    *chunk = (mp_chunk){.len = bytes.len, .cap = cap};
    memcpy(chunk->bytes, bytes.ptr, bytes.len);
    *(tail == NULL ? &queue->head : &tail->next) = chunk;
    queue->tail = chunk;
}

size_t mp_queue_peek(const mp_queue *queue, h2o_iovec_t *pieces, size_t most, size_t most_bytes, size_t *bytes)
{
    size_t count = 0, offset = queue->offset;
    *bytes = 0;
    for (mp_chunk *chunk = queue->head; chunk != NULL && count < most && *bytes < most_bytes; chunk = chunk->next) {
        size_t len = chunk->len - offset;
        if (len > most_bytes - *bytes)
            len = most_bytes - *bytes;
        if (len > 0) /* an empty piece after a full one would need a write of its own */
            pieces[count++] = h2o_iovec_init(chunk->bytes + offset, len);
        *bytes += len;
        offset = 0;
    }
    return count;
}

void mp_queue_drop(mp_queue *queue, size_t bytes)
{
    queue->bytes -= bytes;
    for (mp_chunk *chunk; bytes > 0 && (chunk = queue->head) != NULL;) {
        size_t len = chunk->len - queue->offset;
        if (bytes < len) {
            queue->offset += bytes;
            return;
        }
        bytes -= len;
        queue->offset = 0;
        queue->head = chunk->next;
        if (queue->head == NULL)
            queue->tail = NULL;
        free(chunk);
    }
}
