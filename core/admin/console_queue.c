#include "console_queue.h"

typedef struct inbox_message {
    struct inbox_message *MP_NULLABLE next;
    uint64_t mark;
    size_t len;
    char json[];
} inbox_message;

struct mp_console_queue {
    mp_console_queue_settings settings;
    mp_message arrived;
    atomic_int refs;
    pthread_mutex_t lock; /* guards the members below */
    inbox_message *MP_NULLABLE first, *MP_NULLABLE *last;
    size_t bytes; /* of waiting messages, with what each needs beside its text */
    uint64_t dropped;
    bool has_lost; /* an answer was dropped, and the reader does not know it yet */
    bool is_posted, is_closed;
};

mp_console_queue *mp_console_queue_ref(mp_console_queue *inbox)
{
    atomic_fetch_add(&inbox->refs, 1);
    return inbox;
}

static void free_messages(inbox_message *MP_NULLABLE list)
{
    for (inbox_message *one; (one = list) != NULL;) {
        list = one->next;
        free(one);
    }
}

void mp_console_queue_unref(mp_console_queue *inbox)
{
    if (atomic_fetch_sub(&inbox->refs, 1) != 1)
        return;
    free_messages(inbox->first);
    pthread_mutex_destroy(&inbox->lock);
    inbox->settings.freed(inbox->settings.ctx);
    free(inbox);
}

/* -- on the threads of workers ------------------------------------------------------------------------------------- */

/* True if there is room for `bytes` more. The caller has the lock. */
static bool has_room(const mp_console_queue *inbox, size_t bytes, bool is_answer)
{
    size_t most = inbox->settings.most_bytes;
    return inbox->bytes + bytes <= (is_answer ? 2 * most : most);
}

static void on_sent(void *ctx, uint64_t mark, mp_str json)
{
    mp_console_queue *inbox = ctx;
    bool is_answer = mark != 0;
    inbox_message *one = mp_new(sizeof *one + json.len);
    *one = (inbox_message){.mark = mark, .len = json.len};
    memcpy(one->json, json.ptr, json.len);
    pthread_mutex_lock(&inbox->lock);
    bool is_closed = inbox->is_closed;
    bool is_dropped = !is_closed && !has_room(inbox, sizeof *one + json.len, is_answer);
    if (!is_closed && !is_dropped) {
        *inbox->last = one;
        inbox->last = &one->next;
        inbox->bytes += sizeof *one + json.len;
        one = NULL;
    }
    inbox->dropped += is_dropped;
    inbox->has_lost = inbox->has_lost || (is_dropped && is_answer);
    /* posted under the lock: the admin thread's loop may be gone once the inbox is closed */
    if (!is_closed && !inbox->is_posted) {
        inbox->is_posted = true;
        mp_loop_post(inbox->settings.home, &mp_console_queue_ref(inbox)->arrived);
    }
    pthread_mutex_unlock(&inbox->lock);
    free(one);
    mp_stat_add(inbox->settings.dropped, is_dropped);
}

static void on_console_freed(void *ctx)
{
    mp_console_queue_unref(ctx);
}

/* -- on the admin thread ------------------------------------------------------------------------------------------- */

/* `is_closed` is written by this thread alone, which needs no lock to read it. */
static void on_arrived(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_console_queue *inbox = mp_container(message, mp_console_queue, arrived);
    const mp_console_queue_settings *reader = &inbox->settings;
    inbox_message *list = NULL;
    bool has_lost = false;
    if (loop != NULL) { /* else the thread that posts it has the lock */
        mp_loop_measure(loop, MP_MEASURE_ADMIN);
        pthread_mutex_lock(&inbox->lock);
        list = inbox->first;
        has_lost = inbox->has_lost;
        inbox->first = NULL;
        inbox->last = &inbox->first;
        inbox->bytes = 0;
        inbox->has_lost = inbox->is_posted = false;
        pthread_mutex_unlock(&inbox->lock);
    }
    for (inbox_message *one; !inbox->is_closed && (one = list) != NULL;) {
        list = one->next;
        reader->take(reader->ctx, one->mark, (mp_str){one->json, one->len});
        free(one);
    }
    free_messages(list);
    if (has_lost && !inbox->is_closed)
        reader->overflow(reader->ctx);
    mp_console_queue_unref(inbox);
}

mp_console_queue *mp_console_queue_new(const mp_console_queue_settings *settings)
{
    mp_console_queue *inbox = mp_new(sizeof *inbox);
    inbox->settings = *settings;
    inbox->arrived = (mp_message){.deliver = on_arrived};
    inbox->last = &inbox->first;
    atomic_init(&inbox->refs, 1);
    pthread_mutex_init(&inbox->lock, NULL);
    return inbox;
}

mp_console *mp_console_queue_open(mp_console_queue *inbox, mp_session_table *table, unsigned worker,
                                  mp_console_settings *settings)
{
    static const mp_console_hooks hooks = {on_sent, on_console_freed};
    settings->hooks = &hooks;
    settings->ctx = mp_console_queue_ref(inbox);
    return mp_console_open(table, worker, settings);
}

void mp_console_queue_close(mp_console_queue *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->is_closed = true;
    pthread_mutex_unlock(&inbox->lock);
    mp_console_queue_unref(inbox);
}

uint64_t mp_console_queue_dropped(mp_console_queue *inbox)
{
    MP_LOCKED(&inbox->lock);
    return inbox->dropped;
}
