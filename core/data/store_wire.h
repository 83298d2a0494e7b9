/* store_wire.h: what two processes of one gateway say about their store, over a Unix socket. Both are on one machine:
 * numbers are in its byte order, and times are those of its monotonic clock. An exchange is a frame and its payload
 * (key, text, old text), and one such frame as the answer.
 *
 *   operation  of a store, as a struct, for the process that owns the store
 *   mover      a connection over which a process hands its store over, in pieces: copies of struct mp_store_change with
 *              their keys and values */
#ifndef MP_DATA_STORE_WIRE_H
#define MP_DATA_STORE_WIRE_H

#include "data/store_entry.h"

#define MP_STORE_WIRE_VERSION 1
#define MP_STORE_PIECE ((size_t)256 << 10) /* of entries, copied under the store's lock */

enum {
    /* from a process that follows, or hands over */
    MP_WIRE_HELLO = 1, /* number: the version. The answer is one, too */
    MP_WIRE_ORDER,
    MP_WIRE_MOVE,   /* asks for the pieces of a store. number: the largest size of a piece in bytes */
    MP_WIRE_PIECE,  /* text: the piece. The answer is DONE when the entries are there */
    MP_WIRE_COMMIT, /* the pieces are complete: who gets this owns the store. There is no answer */
    /* from a process that owns the store, or receives one */
    MP_WIRE_DONE,    /* result, n, text: as the operation returned them */
    MP_WIRE_EXPIRED, /* the operation came after its deadline, and was not done */
    MP_WIRE_MOVED,   /* text: the path at which another process serves the store now. Also sent without a question. The
                        operation was not done */
    MP_WIRE_WAIT,    /* this process will soon own the store. The operation was not done */
    MP_WIRE_REFUSED, /* another version, or a store that is not to be handed over to this process */
};

typedef struct {
    uint32_t kind;
    uint32_t what; /* of an operation: its mp_store_kind; of an answer: its mp_store_result */
    uint64_t key_len, text_len, old_len;
    /* life_ms of set, incr, cas and lock, interval_us of take, the most keys of keys, the most places of place, the
     * change of saved */
    uint64_t number;
    /* the addend of incr, burst of take, only_new of set, fence of set_locked, is_certain of saved, for cas
     * MP_STORE_NO_OLD and MP_STORE_NO_TEXT; of an answer: the sum, the time to wait, the number of keys or of the
     * change, or the fence */
    int64_t n;
    uint64_t until_us;
} mp_store_frame;

/* For specs: scripts begin these operations by an mp_store_operation. */
mp_store_result mp_store_cas(mp_store *store, mp_str key, mp_str old, mp_str text, uint64_t life_ms);
/* Adds `n` to the value of the key, an integer; a key without a value counts as 0. `life_ms` applies to a new value
 * only. NO_NUMBER: the value is not an integer, or the sum is none of 64 bits. */
mp_store_result mp_store_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum);
/* Takes a token from a bucket that holds up to `burst` tokens and gets one more every `interval_us`. DONE: the token
 * was taken. THERE: the bucket is empty, and gets a token in `*wait_us`. FULL: a limit of the key's room is reached.
 * The value of the key is the time when the bucket is full again, in microseconds since 1970. */
mp_store_result mp_store_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us);
/* Lets the process that owns the store do the operation. */
extern const mp_store_elsewhere mp_store_over_link; /* store_link.c */
/* Begins the operation by a thread of the pool, for a store whose `run` waits. */
void mp_store_later_run_on_pool(mp_store_later *later);

/* -- links (store_link.c): the connection of a process to the one that owns the store ------------------------------ */

mp_store_link *mp_store_link_new(void);
void mp_store_link_free(mp_store_link *MP_NULLABLE link);
/* Connects to the store at another path from now on. */
void mp_store_link_turn(mp_store_link *link, const char *path);
void mp_store_link_path(mp_store_link *link, char path[MP_STORE_PATH]);
/* Turns the link to `path` if the process there answers within a second. False: nothing has changed. */
bool mp_store_link_try(mp_store_link *link, const char *path);
/* Closes the connection: this process owns the store now. Does not wait. */
void mp_store_link_drop(mp_store_link *link);

/* -- changes for which no thread waits (store_outbox.c) ------------------------------------------------------------ */

mp_store_outbox *mp_store_outbox_new(mp_store *store);
/* Sends what is queued, for two seconds at most, and frees the outbox. Call it when no thread of the pool runs. */
void mp_store_outbox_free(mp_store_outbox *outbox);

/* -- hand-overs (store_serve.c, store_move.c) ---------------------------------------------------------------------- */

/* Applies a piece to a store that this process does not own. False if it is not well formed. */
bool mp_store_apply(mp_store *store, mp_str piece);
/* The other process has committed: this one owns the store. */
void mp_store_own(mp_store *store);
/* This process does not own the store, and has no entries of it. */
void mp_store_disown(mp_store *store);
/* Ends a hand-over that runs, and frees its state. */
void mp_store_move_end(mp_store *store);

/* Entries and recorded changes that have left a store. mp_store_detach is called under the lock, mp_store_discard after
 * it. */
typedef struct {
    entry *MP_NULLABLE first;
    entry **MP_NULLABLE heaps[MP_ROOMS];
    mp_store_changes urgent, others;
    int64_t entries;
    size_t bytes;
} mp_store_rest;
void mp_store_detach(mp_store *store, mp_store_rest *rest);
void mp_store_discard(mp_store_rest *rest);

/* -- servers (store_serve.c) --------------------------------------------------------------------------------------- */

void mp_store_server_free(mp_store_server *MP_NULLABLE server);
/* The store was handed over: all who follow this process are told to follow the one at the link's path. */
void mp_store_server_tell(mp_store_server *server);

/* -- sockets ------------------------------------------------------------------------------------------------------- */

struct sockaddr_un;
/* -1: the path is too long. */
int mp_wire_address(const char *path, struct sockaddr_un *address);
/* A non-blocking socket that is connected with the process of this user at `path`; -1: see errno. */
int mp_wire_connect(const char *path);
/* True if the other end belongs to this user. */
bool mp_wire_is_own_user(int fd);
/* Sends a frame with the parts of its payload, from byte `*sent` on. 1: done. 0: the time is over, call it again with
 * the same `*sent`. -1: the connection is broken. */
int mp_wire_send(int fd, const mp_store_frame *frame, const mp_str parts[3], uint64_t until_us, size_t *sent);
/* Reads until `in` holds one frame with its payload. 1: done. 0: the time is over, call it again with the same `in`.
 * -1: the connection is broken. */
int mp_wire_read(int fd, mp_buf *in, uint64_t until_us);
/* The frame at the begin of the buffer. */
mp_store_frame mp_wire_frame(const mp_buf *in);
/* The length of the payload. UINT64_MAX if it is above `most`. */
uint64_t mp_wire_payload(const mp_store_frame *frame, uint64_t most);

#endif
