/* store_move.c: how a store goes from one process to another. The thread of the giving process copies all entries, in
 * pieces and in the order of their keys, while the store is used; the journal has the keys that changed meanwhile,
 * whose states follow. When few are left, they go under the lock, and when the other process has them, the commit is
 * sent before the lock is given back. From then on operations go there. The commit is one small frame into an empty
 * socket: it is either with the other process, or the connection was broken before it. If the last pieces are not
 * confirmed within some milliseconds, the lock is given back, and the thread tries again. */
#include "data/store_wire.h"
#include "os/os.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOLD_US 10000                        /* us for which operations wait at most during a hand-over */
#define STEP_US 10000000                     /* us for the answer to one piece */
#define TRIES_US 30000000                    /* us from the end of the copy to the commit */
#define MAX_JOURNAL_BYTES ((size_t)64 << 20) /* bytes of the keys that changed and were not sent yet */
#define LARGE_AFTER 100                      /* tries, after which the last piece may be larger */
#define LARGE_PIECE ((size_t)4 << 20)

struct mp_store_move {
    mp_store *store;
    char path[MP_STORE_PATH];
    void (*done)(void *ctx, const mp_err *MP_NULLABLE err);
    void *ctx;
    pthread_t thread;
    atomic_int fd; /* -1: not connected */
    atomic_bool is_ending;
    mp_buf journal; /* guarded by the store's lock */
    mp_buf piece;
    mp_buf in;
};

/* -- pieces -------------------------------------------------------------------------------------------------------- */

static void put_change(mp_buf *out, const mp_store_change *change, mp_str key, mp_str text)
{
    mp_buf_put(out, (mp_str){(const char *)change, sizeof *change});
    mp_buf_put(out, key);
    mp_buf_put(out, text);
}

static void put_entry(mp_buf *out, const entry *e)
{
    put_change(out, &(mp_store_change){.until = e->until, .key_len = e->key.len, .len = e->len}, e->key,
               (mp_str){e->text, e->len});
}

/* Copies the entries after `*after` to the piece, and sets `*after` to the last one. False: there was none. */
static bool copy_some(mp_store_move *move, mp_buf *after)
{
    mp_store *store = move->store;
    mp_str from = mp_buf_str(after);
    const entry *last = NULL;
    move->piece.len = 0;
    MP_LOCKED(&store->lock);
    for (const entry *e = mp_store_find_after(store, from, from.ptr != NULL);
         e != NULL && move->piece.len < MP_STORE_PIECE; e = e->next[0]) {
        put_entry(&move->piece, e);
        last = e;
    }
    after->len = 0;
    if (last != NULL) {
        mp_buf_room(after, 1); /* ptr is not NULL for an empty key either */
        mp_buf_put(after, last->key);
    }
    return last != NULL;
}

/* Copies the state of the keys in the journal to the piece, at most about `most` bytes, and removes them from it. The
 * caller holds the lock. */
static void copy_changed(mp_store_move *move, size_t most)
{
    size_t at = 0;
    uint32_t len;
    mp_buf *journal = &move->journal;
    for (move->piece.len = 0; at < journal->len && move->piece.len < most; at += sizeof len + len) {
        memcpy(&len, journal->ptr + at, sizeof len);
        mp_str key = {journal->ptr + at + sizeof len, len};
        entry *e = mp_store_find_after(move->store, key, false);
        if (e != NULL && mp_str_eq(e->key, key)) {
            e->moved = 0;
            put_entry(&move->piece, e);
        } else {
            put_change(&move->piece, &(mp_store_change){.is_gone = true, .key_len = len}, key, MP_STR_NONE);
        }
    }
    if (at > 0 && at < journal->len)
        memmove(journal->ptr, journal->ptr + at, journal->len - at);
    journal->len -= at;
}

/* -- the other process --------------------------------------------------------------------------------------------- */

static int fail_move(mp_err *err, const char *why)
{
    mp_err_set(err, "store: not handed over: %s", why);
    return mp_err_hint(err, "this process serves it on");
}

static const char gone[] = "the other process has ended", slow[] = "the other process does not answer";

/* Waits for an answer. 1: it has arrived. 0: the time is over. -1: the connection is broken, or the answer is a
 * refusal. */
static int await_answer(mp_store_move *move, uint64_t until)
{
    int got = mp_wire_read(move->fd, &move->in, until);
    if (got != 1)
        return got;
    mp_store_frame frame = mp_wire_frame(&move->in);
    move->in.len = 0;
    return frame.kind == MP_WIRE_DONE ? 1 : -1;
}

/* Sends the piece, from byte `*sent` of the frame on. */
static int send_piece(mp_store_move *move, uint64_t until, size_t *sent)
{
    const mp_store_frame frame = {.kind = MP_WIRE_PIECE, .text_len = move->piece.len};
    return mp_wire_send(move->fd, &frame, (mp_str[3]){MP_STR_NONE, mp_buf_str(&move->piece), MP_STR_NONE}, until, sent);
}

/* Sends the piece, and waits until the other process has it. */
static int move_piece(mp_store_move *move, mp_err *err)
{
    size_t sent = 0;
    uint64_t until = mp_monotonic_us() + STEP_US;
    int result = send_piece(move, until, &sent);
    if (result == 1)
        result = await_answer(move, until);
    return result == 1 ? 0 : fail_move(err, result == 0 ? slow : gone);
}

static int begin_move(mp_store_move *move, mp_err *err)
{
    size_t sent = 0;
    mp_store *store = move->store;
    move->fd = mp_wire_connect(move->path);
    if (move->fd < 0)
        return fail_move(err, strerror(errno));
    if (move->is_ending)
        return fail_move(err, "this process is about to end");
    pthread_mutex_lock(&store->lock);
    uint64_t most = store->most_bytes > store->bytes ? store->most_bytes : store->bytes;
    pthread_mutex_unlock(&store->lock);
    const mp_store_frame frame = {.kind = MP_WIRE_MOVE, .number = most * 2 + LARGE_PIECE * 2};
    int result = mp_wire_send(move->fd, &frame, (mp_str[3]){MP_STR_NONE, MP_STR_NONE, MP_STR_NONE}, 0, &sent);
    if (result == 1)
        result = await_answer(move, mp_monotonic_us() + STEP_US);
    return result == 1 ? 0 : fail_move(err, result == 0 ? slow : "the other process does not take the store");
}

/* -- the last piece ------------------------------------------------------------------------------------------------ */

static bool commit_move(mp_store_move *move)
{
    size_t sent = 0;
    const mp_store_frame frame = {.kind = MP_WIRE_COMMIT};
    return mp_wire_send(move->fd, &frame, (mp_str[3]){MP_STR_NONE, MP_STR_NONE, MP_STR_NONE}, 0, &sent) == 1;
}

typedef enum { MOVED, AGAIN, FAILED } last_result;

/* Waits, without the lock, for the confirmation that the other process did not give in time. */
static last_result finish_late(mp_store_move *move, bool is_sent, size_t sent, mp_err *err)
{
    uint64_t until = mp_monotonic_us() + STEP_US;
    int result = is_sent ? 1 : send_piece(move, until, &sent);
    if (result == 1)
        result = await_answer(move, until);
    return result == 1 ? AGAIN : (fail_move(err, result == 0 ? slow : gone), FAILED);
}

/* Tries to send the remaining changes while operations wait. AGAIN: operations continue, since the changes were too
 * large or took too long. */
static last_result try_last(mp_store_move *move, size_t most, mp_store_rest *rest, mp_err *err)
{
    mp_store *store = move->store;
    size_t sent = 0;
    int is_sent = 1, result = 1;
    pthread_mutex_lock(&store->lock);
    uint64_t until = mp_monotonic_us() + HOLD_US;
    bool is_full = store->is_moved_full;
    copy_changed(move, most);
    bool is_last = move->journal.len == 0 && !is_full;
    if (is_last && move->piece.len > 0) {
        is_sent = send_piece(move, until, &sent);
        result = is_sent == 1 ? await_answer(move, until) : is_sent;
    }
    bool is_over = is_last && result == 1 && commit_move(move);
    if (is_over) {
        mp_store_link_turn(store->link, move->path);
        atomic_store(&store->is_own, false);
        store->moved = NULL;
        mp_store_detach(store, rest);
    }
    pthread_mutex_unlock(&store->lock);
    if (is_over)
        return MOVED;
    if (is_full || (is_last && result == 1) || result < 0)
        return fail_move(err, is_full ? "it changes faster than it can be copied" : gone), FAILED;
    return is_last ? finish_late(move, is_sent == 1, sent, err) : move_piece(move, err) == 0 ? AGAIN : FAILED;
}

static int move_all(mp_store_move *move, mp_store_rest *rest, mp_err *err)
{
    mp_scoped_buf after = {0};
    int failed = 0;
    while (failed == 0 && copy_some(move, &after))
        failed = move_piece(move, err);
    uint64_t until = mp_monotonic_us() + TRIES_US;
    last_result result = failed == 0 ? AGAIN : FAILED;
    for (int i = 0; result == AGAIN; i++) {
        if (mp_monotonic_us() > until)
            return fail_move(err, "the other process is too slow");
        result = try_last(move, i < LARGE_AFTER ? MP_STORE_PIECE : LARGE_PIECE, rest, err);
    }
    return result == MOVED ? 0 : -1;
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static void start_journal(mp_store_move *move)
{
    mp_store *store = move->store;
    MP_LOCKED(&store->lock);
    store->moved = &move->journal;
    store->most_moved = MAX_JOURNAL_BYTES;
    store->is_moved_full = false;
    store->moves++; /* makes the marks void that an earlier hand-over left in entries */
}

static void stop_journal(mp_store_move *move)
{
    MP_LOCKED(&move->store->lock);
    move->store->moved = NULL;
    mp_buf_clear(&move->journal);
}

/* Closes the parts of a store that only its owner has. */
static void leave_store(mp_store *store, mp_store_rest *rest)
{
    pthread_mutex_lock(&store->lock);
    mp_store_server *server = store->server;
    pthread_mutex_unlock(&store->lock);
    if (server != NULL)
        mp_store_server_tell(server);
    if (store->file != NULL)
        mp_store_file_close(store->file);
    store->file = NULL;
    mp_store_discard(rest);
}

static void *MP_NULLABLE run_move(void *arg)
{
    mp_err err;
    mp_store_move *move = arg;
    mp_store_rest rest;
    mp_crash_thread("store move", 0);
    int failed = begin_move(move, &err);
    if (failed == 0) {
        start_journal(move);
        failed = move_all(move, &rest, &err);
        stop_journal(move);
    }
    if (failed == 0)
        leave_store(move->store, &rest);
    if (move->fd >= 0)
        shutdown(move->fd, SHUT_RDWR); /* mp_store_move_end closes it */
    move->done(move->ctx, failed == 0 ? NULL : &err);
    return NULL;
}

static void free_move(mp_store_move *move)
{
    if (move->fd >= 0)
        close(move->fd);
    mp_buf_clear(&move->journal);
    mp_buf_clear(&move->piece);
    mp_buf_clear(&move->in);
    free(move);
}

void mp_store_move_end(mp_store *store)
{
    mp_store_move *move = store->move;
    store->move = NULL;
    if (move == NULL)
        return;
    atomic_store(&move->is_ending, true);
    if (move->fd >= 0)
        shutdown(move->fd, SHUT_RDWR);
    pthread_join(move->thread, NULL);
    free_move(move);
}

static int start_thread(mp_store_move *move, mp_err *err)
{
    int code = mp_thread_start(&move->thread, run_move, move);
    return code == 0 ? 0 : fail_move(err, strerror(code));
}

void mp_store_hand_over(mp_store *store, const char *path, void (*done)(void *ctx, const mp_err *MP_NULLABLE err),
                        void *ctx)
{
    mp_err err;
    mp_store_move_end(store); /* ends an earlier hand-over that failed */
    mp_store_move *move = mp_new(sizeof *move);
    move->store = store;
    move->done = done;
    move->ctx = ctx;
    move->fd = -1;
    snprintf(move->path, sizeof move->path, "%s", path);
    if (start_thread(move, &err) == 0) {
        store->move = move;
        return;
    }
    free_move(move);
    done(ctx, &err);
}
