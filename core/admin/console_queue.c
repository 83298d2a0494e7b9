#include "console_queue.h"

typedef struct console_message {
    struct console_message *MP_NULLABLE next;
    uint64_t mark;
    size_t len;
    char json[];
} console_message;

struct mp_console_queue {
    mp_console_queue_settings settings;
    mp_message arrived;
    atomic_int refs;
    pthread_mutex_t lock; /* guards the members below */
    console_message *MP_NULLABLE first, *MP_NULLABLE *last;
    size_t bytes; /* bytes of the waiting messages, with the memory that each needs beside its text */
    uint64_t dropped;
    bool has_lost; /* an answer was dropped, and the reader does not know it yet */
    bool is_posted, is_closed;
};

mp_console_queue *mp_console_queue_ref(mp_console_queue *queue)
{
    atomic_fetch_add(&queue->refs, 1);
    return queue;
}

static void free_messages(console_message *MP_NULLABLE list)
{
    for (console_message *one; (one = list) != NULL;) {
        list = one->next;
        free(one);
    }
}

void mp_console_queue_unref(mp_console_queue *queue)
{
    if (atomic_fetch_sub(&queue->refs, 1) != 1)
        return;
    free_messages(queue->first);
    pthread_mutex_destroy(&queue->lock);
    queue->settings.freed(queue->settings.ctx);
    free(queue);
}

/* -- on the threads of workers ------------------------------------------------------------------------------------- */

/* True if there is room for `bytes` more. The caller has the lock. */
static bool has_room(const mp_console_queue *queue, size_t bytes, bool is_answer)
{
    size_t most = queue->settings.most_bytes;
    return queue->bytes + bytes <= (is_answer ? 2 * most : most);
}

static void on_sent(void *ctx, uint64_t mark, mp_str json)
{
    mp_console_queue *queue = ctx;
    bool is_answer = mark != 0;
    console_message *one = mp_new(sizeof *one + json.len);
    *one = (console_message){.mark = mark, .len = json.len};
    memcpy(one->json, json.ptr, json.len);
    pthread_mutex_lock(&queue->lock);
    bool is_closed = queue->is_closed;
    bool is_dropped = !is_closed && !has_room(queue, sizeof *one + json.len, is_answer);
    if (!is_closed && !is_dropped) {
        *queue->last = one;
        queue->last = &one->next;
        queue->bytes += sizeof *one + json.len;
        one = NULL;
    }
    queue->dropped += is_dropped;
    queue->has_lost = queue->has_lost || (is_dropped && is_answer);
    /* posted under the lock: the admin thread's loop may be gone once the queue is closed */
    if (!is_closed && !queue->is_posted) {
        queue->is_posted = true;
        mp_loop_post(queue->settings.loop, &mp_console_queue_ref(queue)->arrived);
    }
    pthread_mutex_unlock(&queue->lock);
    free(one);
    mp_stat_add(queue->settings.dropped, is_dropped);
}

static void on_console_freed(void *ctx)
{
    mp_console_queue_unref(ctx);
}

/* -- on the admin thread ------------------------------------------------------------------------------------------- */

/* `is_closed` is written by this thread alone, which needs no lock to read it. */
static void on_arrived(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_console_queue *queue = mp_container(message, mp_console_queue, arrived);
    const mp_console_queue_settings *reader = &queue->settings;
    console_message *list = NULL;
    bool has_lost = false;
    if (loop != NULL) { /* loop == NULL: the loop has ended, and the thread that posted holds the lock */
        mp_loop_measure(loop, MP_MEASURE_ADMIN);
        pthread_mutex_lock(&queue->lock);
        list = queue->first;
        has_lost = queue->has_lost;
        queue->first = NULL;
        queue->last = &queue->first;
        queue->bytes = 0;
        queue->has_lost = queue->is_posted = false;
        pthread_mutex_unlock(&queue->lock);
    }
    for (console_message *one; !queue->is_closed && (one = list) != NULL;) {
        list = one->next;
        reader->take(reader->ctx, one->mark, (mp_str){one->json, one->len});
        free(one);
    }
    free_messages(list);
    if (has_lost && !queue->is_closed)
        reader->overflow(reader->ctx);
    mp_console_queue_unref(queue);
}

mp_console_queue *mp_console_queue_new(const mp_console_queue_settings *settings)
{
    mp_console_queue *queue = mp_new(sizeof *queue);
    queue->settings = *settings;
    queue->arrived = (mp_message){.deliver = on_arrived};
    queue->last = &queue->first;
    atomic_init(&queue->refs, 1);
    pthread_mutex_init(&queue->lock, NULL);
    return queue;
}

mp_console *mp_console_queue_open(mp_console_queue *queue, mp_session_table *table, unsigned worker,
                                  mp_console_settings *settings)
{
    static const mp_console_hooks hooks = {on_sent, on_console_freed};
    settings->hooks = &hooks;
    settings->ctx = mp_console_queue_ref(queue);
    return mp_console_open(table, worker, settings);
}

void mp_console_queue_close(mp_console_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_closed = true;
    pthread_mutex_unlock(&queue->lock);
    mp_console_queue_unref(queue);
}

uint64_t mp_console_queue_dropped(mp_console_queue *queue)
{
    MP_LOCKED(&queue->lock);
    return queue->dropped;
}
