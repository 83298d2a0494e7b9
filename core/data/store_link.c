/* store_link.c: access to a store that another process owns: one connection to the owner, with one operation at a time.
 * While an answer is late, no operation is sent; each attempt first looks, without waiting, whether the late answer has
 * arrived. */
#define _GNU_SOURCE /* pthread_mutex_clocklock */
#include "data/store_wire.h"
#include <sys/socket.h>
#include <unistd.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

MP_COUNTER(store_away, "store_away", "", "", "operations of the store that another process owned and did not answer")
MP_COUNTER(store_unknown, "store_unknown", "", "", "of these, those that may have been done nevertheless")

#define WAIT_US 45000     /* us for which an operation waits: with the delays of the system at most 50 ms */
#define ANSWER_US 5000    /* us before that time is over from which on the owner no longer begins the operation */
#define PAUSE_US 1000     /* between two questions whether a process owns the store already */
#define FOLLOW_US 1000000 /* us for the first answer on a connection */
#define MAX_TURNS 16      /* connections that one operation may try */
#define KEPT_BYTES ((size_t)1 << 20)

/* `lock` is held while an operation waits for its answer; `path_lock` for a copy, and no other lock is taken then. */
struct mp_store_link {
    pthread_mutex_t lock, path_lock;
    char path[MP_STORE_PATH]; /* where the owner serves, as far as this process knows; guarded by `path_lock` */
    int fd;                   /* -1: not connected */
    bool awaits;              /* an answer must come before the next operation is sent */
    atomic_bool is_late;      /* the answer did not come in time */
    atomic_bool is_stale;     /* the connection is to be closed: the store is elsewhere, or this process owns it */
    mp_buf in;                /* a part of an answer */
};

mp_store_link *mp_store_link_new(void)
{
    mp_store_link *link = mp_new(sizeof *link);
    pthread_mutex_init(&link->lock, NULL);
    pthread_mutex_init(&link->path_lock, NULL);
    link->fd = -1;
    return link;
}

static void hang_up(mp_store_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->awaits = false;
    mp_buf_clear(&link->in);
}

void mp_store_link_free(mp_store_link *MP_NULLABLE link)
{
    if (link == NULL)
        return;
    hang_up(link);
    pthread_mutex_destroy(&link->lock);
    pthread_mutex_destroy(&link->path_lock);
    free(link);
}

static void set_path(mp_store_link *link, mp_str path)
{
    MP_LOCKED(&link->path_lock);
    snprintf(link->path, sizeof link->path, "%.*s", (int)path.len, path.ptr);
}

void mp_store_link_path(mp_store_link *link, char path[MP_STORE_PATH])
{
    MP_LOCKED(&link->path_lock);
    memcpy(path, link->path, MP_STORE_PATH);
}

/* Closes a connection that has become stale. Called under the lock: after it is taken, and before it is given back. */
static void close_stale(mp_store_link *link)
{
    if (!atomic_exchange(&link->is_stale, false))
        return;
    hang_up(link);
    atomic_store(&link->is_late, false);
}

static void let_go(mp_store_link *link)
{
    close_stale(link);
    pthread_mutex_unlock(&link->lock);
}

void mp_store_link_drop(mp_store_link *link)
{
    atomic_store(&link->is_stale, true);
    if (pthread_mutex_trylock(&link->lock) == 0)
        let_go(link);
}

void mp_store_link_turn(mp_store_link *link, const char *path)
{
    set_path(link, mp_str_of(path));
    mp_store_link_drop(link);
}

/* -- one operation ------------------------------------------------------------------------------------------------- */

typedef enum {
    ANSWERED,
    AWAY,
    UNKNOWN, /* the operation was sent, and there is no answer */
    OTHER,   /* the connection is another one now, or gone, and the operation was not done: it may be sent again */
    LATER,   /* the other process does not own the store yet, and has not done the operation */
} outcome;

static const mp_str nothing[3];

static bool connect_link(mp_store_link *link)
{
    size_t sent = 0;
    const mp_store_frame hello = {.kind = MP_WIRE_HELLO, .number = MP_STORE_WIRE_VERSION};
    char path[MP_STORE_PATH];
    mp_store_link_path(link, path);
    link->fd = mp_wire_connect(path);
    if (link->fd < 0)
        return false;
    link->awaits = mp_wire_send(link->fd, &hello, nothing, 0, &sent) == 1;
    if (!link->awaits)
        hang_up(link);
    return link->awaits;
}

/* Waits for the answer. ANSWERED: `*frame` is set, and its payload is behind it in link->in. AWAY: it is late. OTHER:
 * the connection is gone, or the store is somewhere else; `is_moved` tells which. */
static outcome read_answer(mp_store_link *link, uint64_t until, mp_store_frame *frame, bool *is_moved)
{
    int got = mp_wire_read(link->fd, &link->in, link->is_late ? 0 : until);
    *is_moved = false;
    if (got == 0) {
        link->is_late = true;
        return AWAY;
    }
    if (got < 0) {
        hang_up(link);
        return OTHER;
    }
    *frame = mp_wire_frame(&link->in);
    link->awaits = false;
    link->is_late = false;
    if (frame->kind != MP_WIRE_MOVED)
        return ANSWERED;
    *is_moved = true;
    set_path(link, (mp_str){link->in.ptr + sizeof *frame, (size_t)frame->text_len});
    hang_up(link);
    return OTHER;
}

static void drop_answer(mp_store_link *link)
{
    link->in.len = 0;
    if (link->in.cap > KEPT_BYTES)
        mp_buf_clear(&link->in);
}

/* Makes a connection over which an operation can be sent. */
static outcome prepare_link(mp_store_link *link, uint64_t until)
{
    mp_store_frame frame;
    bool is_moved;
    if (link->fd < 0 && !connect_link(link))
        return AWAY;
    if (!link->awaits)
        return ANSWERED;
    outcome result = read_answer(link, until, &frame, &is_moved);
    if (result == ANSWERED && frame.kind == MP_WIRE_REFUSED) {
        hang_up(link);
        return AWAY;
    }
    if (result == ANSWERED)
        drop_answer(link);
    return result;
}

/* Sends the whole operation. OTHER: it was not done, whatever was sent of it: a part of an operation is never done. */
static outcome send_operation(mp_store_link *link, const mp_store_operation *operation, uint64_t until)
{
    size_t sent = 0;
    mp_store_frame frame = {.kind = MP_WIRE_ORDER,
                            .what = operation->kind,
                            .key_len = operation->key.len,
                            .text_len = operation->text.len,
                            .old_len = operation->old.len,
                            .number = operation->number,
                            .n = operation->n,
                            .until_us = until - ANSWER_US};
    bool is_moved;
    int put =
        mp_wire_send(link->fd, &frame, (mp_str[3]){operation->key, operation->text, operation->old}, until, &sent);
    link->awaits = put == 1;
    if (put == 1)
        return ANSWERED;
    /* the owner may have sent where the store is now */
    if (put < 0 && read_answer(link, 0, &frame, &is_moved) == OTHER)
        return OTHER;
    hang_up(link);
    link->is_late = put == 0;
    return put == 0 ? AWAY : OTHER;
}

static outcome try_operation(mp_store_link *link, const mp_store_operation *operation, uint64_t until,
                             mp_store_frame *frame)
{
    bool is_moved;
    outcome result = prepare_link(link, until);
    if (result == ANSWERED)
        result = send_operation(link, operation, until);
    if (result != ANSWERED)
        return result;
    result = read_answer(link, until, frame, &is_moved);
    if (result == AWAY || (result == OTHER && !is_moved))
        return UNKNOWN;
    if (result != ANSWERED || frame->kind == MP_WIRE_DONE)
        return result;
    drop_answer(link);
    return frame->kind == MP_WIRE_WAIT ? LATER : AWAY;
}

static outcome ask_until(mp_store *store, const mp_store_operation *operation, uint64_t until, mp_store_frame *frame)
{
    outcome result = OTHER;
    for (int turns = 0; turns < MAX_TURNS && (result == OTHER || result == LATER); turns += result == OTHER) {
        uint64_t now = mp_monotonic_us();
        if (now + ANSWER_US >= until)
            return AWAY;
        result = try_operation(store->link, operation, until, frame);
        if (result == LATER && mp_store_is_own(store))
            return LATER;
        if (result == LATER)
            nanosleep(&(struct timespec){0, PAUSE_US * 1000L}, NULL);
    }
    return result;
}

/* Takes the lock, if that is possible before the time is over. While an answer is late, a thread does not wait for
 * another one that looks whether it has arrived. */
static bool take_turn(mp_store_link *link, uint64_t until)
{
    const struct timespec time = {(time_t)(until / 1000000), (long)(until % 1000000) * 1000};
    bool is_late = atomic_load(&link->is_late);
    bool is_taken = is_late ? pthread_mutex_trylock(&link->lock) == 0
                            : pthread_mutex_clocklock(&link->lock, CLOCK_MONOTONIC, &time) == 0;
#ifdef __SANITIZE_THREAD__ /* which does not know pthread_mutex_clocklock */
    if (is_taken && !is_late) {
        __tsan_mutex_pre_lock(&link->lock, 0);
        __tsan_mutex_post_lock(&link->lock, 0, 0);
    }
#endif
    if (is_taken)
        close_stale(link);
    return is_taken;
}

/* Carries out the operation on the store of this process, which has become its owner meanwhile. */
static mp_store_result run_here(mp_store *store, const mp_store_operation *operation, mp_buf *MP_NULLABLE out,
                                int64_t *MP_NULLABLE n)
{
    mp_buf nothing_out = {0};
    int64_t no_number;
    return mp_store_run(store, operation, out != NULL ? out : &nothing_out, n != NULL ? n : &no_number);
}

static mp_store_result not_answered(const mp_store_operation *operation, outcome it)
{
    bool reads =
        operation->kind == MP_STORE_GET || operation->kind == MP_STORE_KEYS || operation->kind == MP_STORE_SAVED;
    mp_stat_add(&mp_stat_store_away, 1);
    if (it != UNKNOWN || reads)
        return MP_STORE_AWAY;
    mp_stat_add(&mp_stat_store_unknown, 1);
    return MP_STORE_UNKNOWN;
}

static mp_store_result ask_owner(mp_store *store, const mp_store_operation *operation, mp_buf *MP_NULLABLE out,
                                 int64_t *MP_NULLABLE n)
{
    mp_store_link *link = store->link;
    mp_store_frame frame;
    mp_store_result result = MP_STORE_AWAY;
    uint64_t until = mp_monotonic_us() + WAIT_US;
    if (!take_turn(link, until))
        return not_answered(operation, AWAY);
    outcome it = mp_store_is_own(store) ? LATER : ask_until(store, operation, until, &frame);
    if (it == ANSWERED) {
        result = (mp_store_result)frame.what;
        if (n != NULL)
            *n = frame.n;
        if (out != NULL)
            mp_buf_put(out, (mp_str){link->in.ptr + sizeof frame, (size_t)frame.text_len});
        drop_answer(link);
    }
    let_go(link);
    if (it == LATER && mp_store_is_own(store))
        return run_here(store, operation, out, n);
    return it == ANSWERED ? result : not_answered(operation, it);
}

const mp_store_elsewhere mp_store_over_link = {ask_owner, mp_store_later_run_on_pool};

bool mp_store_link_try(mp_store_link *link, const char *path)
{
    char before[MP_STORE_PATH];
    MP_LOCKED(&link->lock);
    mp_store_link_path(link, before);
    set_path(link, mp_str_of(path));
    hang_up(link);
    atomic_store(&link->is_late, false);
    bool is_there = strlen(path) < MP_STORE_PATH && prepare_link(link, mp_monotonic_us() + FOLLOW_US) == ANSWERED;
    if (!is_there) {
        set_path(link, mp_str_of(before));
        hang_up(link);
    }
    return is_there;
}
