/* semaphore.h: counting semaphores of the process, by name. Each has a number of places; if all are taken, a request
 * for a place waits in the order of arrival, on any loop.
 *
 *   pass   a held place, or a request that waits for a place. Its owner must give it back
 *
 * While a gateway is several processes, they share semaphores by their store (store.h): a semaphore that is full in
 * another process is looked at again every 20 ms, without an order of arrival between processes. While the store does
 * not answer, nobody enters. A process that ends without a word, or stands still, gives its places back after 5 s. */
#ifndef MP_DATA_SEMAPHORE_H
#define MP_DATA_SEMAPHORE_H

#include "data/store.h"
#include "net/net.h"

typedef struct mp_semaphores mp_semaphores;
typedef struct mp_pass mp_pass;

/* `most_waiting`: how many passes may wait at each semaphore. */
mp_semaphores *mp_semaphores_new(int64_t most_waiting);
void mp_semaphores_free(mp_semaphores *semaphores);

/* From now on the shared semaphores count their places together with the other processes that use the store. `number`:
 * the number of this process. A thread reports repeatedly which places this process holds. Call it before another
 * process shares the semaphores, too. */
int mp_semaphores_share(mp_semaphores *semaphores, mp_store *store, uint16_t number, mp_err *err);

/* Makes a pass; NULL if `most_waiting` wait here already, or as many as at any semaphore. If `*waits` is set, `granted`
 * runs on `loop` when the pass gets its place, unless it is given back before. `most` is the number of places from now
 * on. `is_shared`: they are those of all processes of the gateway. */
mp_pass *MP_NULLABLE mp_semaphore_enter(mp_semaphores *semaphores, mp_str name, int64_t most, bool is_shared,
                                        int64_t most_waiting, mp_loop *loop, void (*granted)(void *ctx), void *ctx,
                                        bool *waits);
/* Gives a pass back, whether it holds a place or waits: on the thread of its loop, or after that loop has ended. */
void mp_pass_leave(mp_pass *pass);

#endif
