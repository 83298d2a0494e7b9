/* store_open.c: the begin and the end of a store. */
#include "data/store_wire.h"
#include <sys/random.h>

mp_store *mp_store_new(int64_t entries, size_t bytes)
{
    mp_store *store = mp_new(sizeof *store);
    pthread_mutex_init(&store->lock, NULL);
    mp_store_limit(store, entries, bytes);
    atomic_init(&store->first, UINT64_MAX);
    if (getrandom(&store->chance, sizeof store->chance, GRND_NONBLOCK) < 0)
        store->chance = mp_store_now();
    store->chance |= 1;
    atomic_init(&store->is_own, true);
    store->link = mp_store_link_new();
    store->outbox = mp_store_outbox_new(store);
    store->elsewhere = &mp_store_over_link;
    atomic_init(&store->near, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return store;
}

mp_store *mp_store_near(mp_store *store)
{
    mp_store *near = atomic_load_explicit(&store->near, memory_order_acquire);
    if (near != NULL)
        return near;
    MP_LOCKED(&store->lock);
    if (store->near == NULL)
        store->near = mp_store_new(store->most_entries, store->most_bytes);
    return store->near;
}

void mp_store_free(mp_store *MP_NULLABLE store)
{
    if (store == NULL)
        return;
    mp_store_outbox_free(store->outbox);
    mp_store_free(store->near);
    mp_store_move_end(store);
    mp_store_server_free(store->server);
    if (store->file != NULL)
        mp_store_file_close(store->file);
    mp_store_rest rest;
    mp_store_detach(store, &rest);
    mp_store_discard(&rest);
    mp_store_link_free(store->link);
    pthread_cond_destroy(&store->news);
    pthread_mutex_destroy(&store->lock);
    free(store);
}
