/* store_take.c: how a process follows another one, and takes its store over. */
#include "data/store_wire.h"

int mp_store_follow(mp_store *store, const char *path, mp_err *err)
{
    if (!mp_store_link_try(store->link, path)) {
        mp_err_set(err, "store: the process at %s does not answer", path);
        return mp_err_hint(err, "it must serve its store, and be of this user");
    }
    mp_store_disown(store);
    return 0;
}

void mp_store_turn(mp_store *store, const char *path)
{
    char now[MP_STORE_PATH];
    mp_store_link_path(store->link, now);
    if (!mp_store_is_own(store) && strcmp(now, path) != 0)
        mp_store_link_turn(store->link, path);
}

static void apply_change(mp_store *store, const mp_store_change *change, mp_str key, mp_str text)
{
    entry *e;
    if (!change->is_gone)
        mp_store_put_back(store, key, text, change->until);
    else if ((e = mp_store_find_after(store, key, false)) != NULL && mp_str_eq(e->key, key))
        mp_store_forget(store, e);
}

bool mp_store_apply(mp_store *store, mp_str piece)
{
    mp_store_change change;
    MP_LOCKED(&store->lock);
    while (piece.len >= sizeof change) {
        memcpy(&change, piece.ptr, sizeof change);
        piece = mp_str_from(piece, sizeof change);
        if (change.key_len > piece.len || change.len > piece.len - change.key_len)
            break;
        mp_str key = {piece.ptr, change.key_len}, text = {piece.ptr + change.key_len, change.len};
        apply_change(store, &change, key, text);
        piece = mp_str_from(piece, change.key_len + change.len);
    }
    return piece.len == 0;
}

void mp_store_own(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    atomic_store_explicit(&store->first, store->heap_count == 0 ? UINT64_MAX : store->heap[0]->until,
                          memory_order_relaxed);
    atomic_store(&store->is_own, true);
    pthread_mutex_unlock(&store->lock);
    mp_store_link_drop(store->link);
    if (store->file != NULL)
        mp_store_file_adopt(store->file);
}

void mp_store_disown(mp_store *store)
{
    mp_store_rest rest;
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->is_own, false);
    mp_store_detach(store, &rest);
    pthread_mutex_unlock(&store->lock);
    mp_store_discard(&rest);
}
