/* store_outbox.c: changes of sessions and their events while another process owns the store. Workers make them under
 * locks, and may not wait for the owner: so the changes go into a queue, and one job of the pool at a time sends them
 * in their order, each again until the owner answers. A key is in the queue once: a later change replaces one that was
 * not sent, in its place; only the end of a session moves to the end of the queue, behind the session's events. */
#include "data/store_wire.h"
#include "os/os.h"

MP_ACCOUNT(store_outgoing_bytes, "store_outgoing_bytes", "", "",
           "bytes of changes of sessions and events that the process which owns the store has not taken yet")
MP_REFUSED(refused_store_outgoing, "store_outgoing", MP_LIMIT_REACHED,
           "changes of sessions and events over 64 MiB that the process which owns the store has not taken")

/* Of the queue: as much as the events of all sessions have (MP_REPLAY_TOTAL). Ends of sessions are queued beyond it:
 * they must not be lost, and there is one for each session at most. */
#define MOST_BYTES ((int64_t)MP_LIMIT(store_outgoing, 64 << 20))
#define TURN_MS 200  /* of one job: the pool has other work */
#define AGAIN_MS 100 /* from an operation that was not answered to the next job */
#define POLL_NS 1000000L
#define LAST_MS 2000 /* for which the end of the process waits for an owner that does not answer */

typedef struct {
    mp_node node; /* in `by_key`, unless it is being sent */
    mp_link link;
    size_t size;            /* bytes that are counted */
    uint64_t until;         /* when the value expires: ms of CLOCK_MONOTONIC, or MP_STORE_FOREVER */
    char *MP_NULLABLE text; /* NULL: the key is deleted */
    size_t len;
} change;

struct mp_store_outbox {
    mp_store *store;
    pthread_mutex_t lock; /* guards the members up to the empty line */
    mp_map by_key;
    mp_link queue; /* oldest first */
    bool is_busy;  /* a job waits for a thread, or runs */
    uint64_t again_at;

    atomic_size_t count; /* of changes, with the one that is being sent */
    mp_job job;
};

mp_store_outbox *mp_store_outbox_new(mp_store *store)
{
    mp_store_outbox *outbox = mp_new(sizeof *outbox);
    outbox->store = store;
    pthread_mutex_init(&outbox->lock, NULL);
    mp_map_init(&outbox->by_key);
    return outbox;
}

static void free_change(mp_store_outbox *outbox, change *it)
{
    mp_account_give(&mp_account_store_outgoing_bytes, (int64_t)it->size);
    free(it->text);
    free(it);
    atomic_fetch_sub(&outbox->count, 1);
}

static bool has_changes(const mp_store_outbox *outbox)
{
    return atomic_load(&((mp_store_outbox *)(uintptr_t)outbox)->count) > 0;
}

/* -- what is to be sent -------------------------------------------------------------------------------------------- */

static bool is_of_session(mp_str key)
{
    return mp_room_prefix(key)->room == MP_ROOM_SESSIONS;
}

/* Counts `more` bytes. False, which is counted: there is no room. `is_end`: of a session, which always has room. */
static bool take_room(bool is_end, int64_t more)
{
    if (is_end || more <= 0)
        mp_account_add(&mp_account_store_outgoing_bytes, more);
    else if (!mp_account_take(&mp_account_store_outgoing_bytes, more, MOST_BYTES)) {
        mp_stat_add(&mp_stat_refused_store_outgoing, 1);
        return false;
    }
    return true;
}

static mp_store_result put_change(mp_store_outbox *outbox, mp_str key, mp_str text, uint64_t life_ms)
{
    bool is_new, is_end = text.ptr == NULL && is_of_session(key);
    size_t size = sizeof(change) + key.len + text.len;
    MP_LOCKED(&outbox->lock);
    const mp_node *node = mp_map_find(&outbox->by_key, key);
    size_t before = node == NULL ? 0 : mp_container(node, const change, node)->size;
    if (!take_room(is_end, (int64_t)size - (int64_t)before))
        return MP_STORE_FULL;
    change *it = mp_map_need(&outbox->by_key, key, sizeof *it, &is_new);
    if (is_new)
        atomic_fetch_add(&outbox->count, 1);
    if (is_new || is_end) {
        mp_link_drop(&it->link);
        mp_link_put(&outbox->queue, &it->link);
    }
    free(it->text);
    it->text = text.ptr == NULL ? NULL : mp_dup(text);
    it->len = text.len;
    it->size = size;
    it->until = mp_store_until(mp_store_now(), life_ms);
    return MP_STORE_DONE;
}

mp_store_result mp_store_post(mp_store *store, mp_str key, mp_str text, uint64_t life_ms)
{
    mp_buf no_text = {0};
    int64_t no_number;
    const mp_store_operation it = {
        .kind = text.ptr == NULL ? MP_STORE_DELETE : MP_STORE_SET, .key = key, .text = text, .number = life_ms};
    mp_store_result result =
        has_changes(store->outbox) ? MP_STORE_AWAY : mp_store_run(store, &it, &no_text, &no_number);
    return result == MP_STORE_AWAY ? put_change(store->outbox, key, text, life_ms) : result;
}

void mp_store_on_refused(mp_store *store, mp_store_refused *MP_NULLABLE refused, void *MP_NULLABLE ctx)
{
    store->on_refused = refused;
    store->refused_ctx = ctx;
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

static change *MP_NULLABLE take_change(mp_store_outbox *outbox)
{
    MP_LOCKED(&outbox->lock);
    mp_link *link = mp_link_take(&outbox->queue);
    if (link == NULL)
        return NULL;
    change *it = mp_container(link, change, link);
    mp_map_drop(&outbox->by_key, &it->node);
    return it;
}

/* The owner did not answer: puts the change back as the first one, unless the queue has a later one of its key. */
static void give_back(mp_store_outbox *outbox, change *it)
{
    pthread_mutex_lock(&outbox->lock);
    bool is_over = mp_map_find(&outbox->by_key, it->node.key) != NULL;
    if (!is_over) {
        mp_map_put(&outbox->by_key, &it->node);
        mp_link_put(mp_link_first(&outbox->queue), &it->link);
    }
    outbox->again_at = mp_store_now() + AGAIN_MS;
    pthread_mutex_unlock(&outbox->lock);
    if (is_over)
        free_change(outbox, it);
}

static bool has_change(mp_store_outbox *outbox, mp_str key)
{
    MP_LOCKED(&outbox->lock);
    return mp_map_find(&outbox->by_key, key) != NULL;
}

/* Reports that the owner has no place for a session's record. It may have one for a later record in the queue. */
static void tell_refused(mp_store_outbox *outbox, mp_str key)
{
    mp_store *store = outbox->store;
    mp_scoped_buf text = {0};
    int64_t no_number = 0;
    const mp_store_operation get = {.kind = MP_STORE_GET, .key = key};
    mp_store_refused *tell = store->on_refused;
    if (tell == NULL)
        return;
    bool is_there = mp_store_do(store, &get, &text, &no_number) != MP_STORE_NONE;
    tell(store->refused_ctx, key, is_there || has_change(outbox, key));
}

static bool send_change(mp_store_outbox *outbox, change *it)
{
    mp_buf no_text = {0};
    int64_t no_number = 0;
    uint64_t now = mp_store_now();
    mp_store_operation operation = {.kind = it->text == NULL ? MP_STORE_DELETE : MP_STORE_SET, .key = it->node.key};
    if (it->text != NULL) {
        operation.text = (mp_str){it->text, it->len};
        operation.number = it->until == MP_STORE_FOREVER ? it->until : it->until > now ? it->until - now : 1;
    }
    mp_store_result result = mp_store_do(outbox->store, &operation, &no_text, &no_number);
    bool is_answered = result != MP_STORE_AWAY && result != MP_STORE_UNKNOWN;
    if (result == MP_STORE_FULL && is_of_session(it->node.key))
        tell_refused(outbox, it->node.key);
    if (is_answered)
        free_change(outbox, it);
    else
        give_back(outbox, it);
    return is_answered;
}

/* No job begins for AGAIN_MS. */
static void rest(mp_store_outbox *outbox)
{
    MP_LOCKED(&outbox->lock);
    outbox->again_at = mp_store_now() + AGAIN_MS;
}

/* Sends the changes that are queued now, and ends the waits for them once the owner's file has them. False: the owner
 * did not answer, its file does not have them yet, or the time is over. */
static bool send_some(mp_store_outbox *outbox, uint64_t until)
{
    bool follows = !mp_store_is_own(outbox->store), is_sent = true;
    bool asks = follows && mp_store_take_waiters(outbox->store);
    change *it;
    for (size_t left = atomic_load(&outbox->count); is_sent && left > 0 && (it = take_change(outbox)) != NULL; left--)
        is_sent = send_change(outbox, it) && (left == 1 || mp_store_now() < until);
    if (is_sent && asks && !mp_store_await_saved(outbox->store)) {
        is_sent = false;
        rest(outbox);
    }
    if (is_sent && follows)
        mp_store_tell_written(outbox->store);
    return is_sent;
}

/* True if the file was late before: then the owner is asked once, without a wait. */
static bool is_late(mp_store *store)
{
    MP_LOCKED(&store->lock);
    return store->is_late;
}

bool mp_store_await_saved(mp_store *store)
{
    mp_buf no_text = {0};
    int64_t number = 0;
    mp_store_operation it = {.kind = MP_STORE_SAVED};
    uint64_t until = mp_store_now() + (is_late(store) ? 0 : MP_STORE_LATE_MS);
    mp_store_result result;
    while ((result = mp_store_do(store, &it, &no_text, &number)) != MP_STORE_DONE && mp_store_now() < until) {
        it.number = (uint64_t)number;
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
    return result == MP_STORE_DONE;
}

static void on_work(mp_job *job)
{
    send_some(mp_container(job, mp_store_outbox, job), mp_store_now() + TURN_MS);
}

static void on_done(mp_job *job, MP_UNUSED mp_loop *MP_NULLABLE loop)
{
    mp_store_outbox *outbox = mp_container(job, mp_store_outbox, job);
    MP_LOCKED(&outbox->lock);
    outbox->is_busy = false;
}

/* True if the caller is to begin a job. */
static bool claim_job(mp_store_outbox *outbox)
{
    MP_LOCKED(&outbox->lock);
    bool may = !outbox->is_busy && mp_store_now() >= outbox->again_at;
    outbox->is_busy = outbox->is_busy || may;
    return may;
}

void mp_store_send_outgoing(mp_store *store, mp_loop *loop)
{
    mp_store_outbox *outbox = store->outbox;
    bool has_work = has_changes(outbox) || (!mp_store_is_own(store) && atomic_load(&store->waiting) > 0);
    if (!has_work || !claim_job(outbox))
        return;
    outbox->job.work = on_work;
    outbox->job.done = on_done;
    if (mp_pool_run(loop, &outbox->job) == 0)
        return;
    MP_LOCKED(&outbox->lock);
    outbox->is_busy = false;
    outbox->again_at = mp_store_now() + AGAIN_MS;
}

/* -- the end of the process: no job runs any more ------------------------------------------------------------------ */

static void send_last(mp_store_outbox *outbox)
{
    uint64_t until = mp_store_now() + LAST_MS;
    while (has_changes(outbox) && mp_store_now() < until)
        if (!send_some(outbox, until))
            nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    size_t lost = atomic_load(&outbox->count);
    if (lost > 0)
        mp_log(MP_ERROR, "store not saved at shutdown", mp_log_int("lost", (int64_t)lost));
}

void mp_store_outbox_free(mp_store_outbox *outbox)
{
    send_last(outbox);
    MP_EACH_TAKEN(change, it, &outbox->queue, link)
        free_change(outbox, it);
    mp_map_clear(&outbox->by_key);
    pthread_mutex_destroy(&outbox->lock);
    free(outbox);
}
