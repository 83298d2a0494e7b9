/* h2o_next.h: libh2o's definition of a function that the executable defines in its place. */
#ifndef MP_NET_H2O_NEXT_H
#define MP_NET_H2O_NEXT_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

/* The address of the next definition of `name` after that of the executable. It is looked up once and kept in `*known`, which is NULL at
 * first; several threads may look it up at the same time. Cast the result to the function's type. */
static inline void *mp_h2o_next(_Atomic(void *) *known, const char *name)
{
    void *found = atomic_load_explicit(known, memory_order_relaxed);
    if (__builtin_expect(found == NULL, 0)) {
        found = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(known, found, memory_order_relaxed);
    }
    return found;
}

#endif
