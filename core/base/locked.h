/* locked.h: a mutex that is held from a statement to the end of its scope. MP_LOCKED(&store->lock) locks it, and each
 * way out of the scope unlocks it; once in a function, since a second one would have the same name. A function that has
 * to do something after the unlocking (free what the lock guarded, call back) locks and unlocks by hand. */
#ifndef MP_BASE_LOCKED_H
#define MP_BASE_LOCKED_H

#include "nullable.h"
#include <pthread.h>

static inline void mp_unlock_mutex(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}

#define MP_LOCKED(mutex)                                                                                               \
    MP_UNUSED __attribute__((cleanup(mp_unlock_mutex))) pthread_mutex_t *locked_mutex_ = (mutex);                      \
    pthread_mutex_lock(locked_mutex_)

#endif
