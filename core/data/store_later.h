/* store_later.h: operations whose result may come later; part of the public header data.h. A store of this process
 * answers at once. One that is elsewhere, in another process, is asked while the task waits. */
#ifndef MP_DATA_STORE_LATER_H
#define MP_DATA_STORE_LATER_H

#include "data/store.h"
#include "loop/loop.h"

typedef enum {
    MP_STORE_SET,
    MP_STORE_GET,
    MP_STORE_REPLACE,
    MP_STORE_DELETE,
    MP_STORE_KEYS,
    MP_STORE_INCR,
    MP_STORE_TAKE,
    MP_STORE_PLACE, /* the process `text` holds n of the `number` places of `key`. THERE: others have them */
    MP_STORE_CAS,   /* unknown to processes of older releases, which refuse it: what REPLACE can say is sent as that */
    MP_STORE_LOCK,  /* takes the lock `key`. Its value and `n` of the answer are its fence, a number above that of each
                       earlier lock of the store; who holds it prolongs it and gives it back by cas. THERE: it is taken
                     */
    MP_STORE_SET_LOCKED, /* as SET, if the lock `old` has the fence `n`. THERE: it has not */
    MP_STORE_SAVED, /* asks if the file has change `number` of sessions and sign-ins; 0: all so far, number `n` of the
                       answer. DONE: it has, or (NONE with `n`) cannot be written in time. THERE: not yet */
    MP_STORE_KINDS
} mp_store_kind;

#define MP_STORE_NO_OLD 1
#define MP_STORE_NO_TEXT 2

typedef struct {
    mp_store_kind kind;
    mp_str key, text, old; /* of keys: the prefix, and the key after which to begin (has_after); `old` of set_locked:
                              the key of the lock */
    uint64_t number;
    int64_t n;
} mp_store_operation;

/* Sets the value of a key if it has the value `old`, or, with ptr NULL, none. `text` with ptr NULL: deletes the key.
 * With `life_ms` MP_STORE_SAME_LIFE the value expires when the old one would have. THERE: the key has another value, or
 * none. */
#define MP_STORE_SAME_LIFE 0
mp_store_operation mp_store_cas_operation(mp_str key, mp_str old, mp_str text, uint64_t life_ms);

typedef struct {
    mp_store_result result;
    int64_t n;
    mp_buf text; /* the receiver frees it */
} mp_store_answer;

typedef struct mp_store_later mp_store_later;

/* Does the operation. Of a store that is elsewhere this waits for at most some 50 ms. Sets `*n`, and appends to `out`.
 */
mp_store_result mp_store_do(mp_store *store, const mp_store_operation *operation, mp_buf *out, int64_t *n);
/* Does the operation if this process owns the store; else the result is AWAY. Does not wait. */
mp_store_result mp_store_run(mp_store *store, const mp_store_operation *operation, mp_buf *out, int64_t *n);
/* Begins the operation, whose texts are copied, on a store that is elsewhere: `done` runs once, on `loop`. */
mp_store_later *mp_store_begin(mp_store *store, mp_loop *loop, const mp_store_operation *operation,
                               void (*done)(void *ctx), void *ctx);
/* Frees what has ended, and returns its answer. */
mp_store_answer mp_store_later_take(mp_store_later *later);
/* The task waits no longer: what has not begun is never done. */
void mp_store_later_drop(mp_store_later *later);

#endif
