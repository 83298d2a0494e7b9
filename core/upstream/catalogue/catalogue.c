/* catalogue.c: catalogues: the lists of upstreams as bytes. Equal ones are kept once. */
#include "upstream/state.h"

/* Catalogues of one upstream that belong to single callers: enough for the callers of an hour. */
#define MAX_CALLER_LISTS MP_LIMIT(upstream_caller_lists, 256)

MP_GAUGE(upstream_catalogue_bytes, "upstream_catalogue_bytes", "", "", "bytes of all lists that upstreams have given")

MP_COUNTER(upstream_lists_evicted, "evicted", "kind", "caller_lists",
           "lists of callers that gave way to others, 256 for each upstream")

struct mp_catalogue {
    mp_node node; /* in table->catalogues; its key is `hash` */
    atomic_int refs;
    mp_upstreams *table;
    unsigned char hash[MP_CATALOGUE_HASH];
    size_t len;
    char bytes[];
};

void mp_catalogue_unref(mp_catalogue *MP_NULLABLE catalogue)
{
    if (catalogue == NULL)
        return;
    mp_upstreams *table = catalogue->table;
    pthread_mutex_lock(&table->catalogue_lock);
    bool is_last = atomic_fetch_sub(&catalogue->refs, 1) == 1;
    if (is_last)
        mp_map_drop(&table->catalogues, &catalogue->node);
    pthread_mutex_unlock(&table->catalogue_lock);
    if (!is_last)
        return;
    mp_stat_add(&mp_stat_upstream_catalogue_bytes, -(int64_t)catalogue->len);
    free(catalogue);
}

mp_str mp_catalogue_bytes(const mp_catalogue *catalogue)
{
    return (mp_str){catalogue->bytes, catalogue->len};
}

mp_str mp_catalogue_hash(const mp_catalogue *catalogue)
{
    return (mp_str){(const char *)catalogue->hash, MP_CATALOGUE_HASH};
}

/* A counted reference to the catalogue with these bytes. */
static mp_catalogue *intern_bytes(mp_upstreams *table, mp_str bytes, const unsigned char hash[MP_CATALOGUE_HASH])
{
    mp_str key = {(const char *)hash, MP_CATALOGUE_HASH};
    mp_catalogue *fresh = mp_new(sizeof *fresh + bytes.len), *catalogue = fresh;
    atomic_init(&fresh->refs, 1);
    fresh->table = table;
    memcpy(fresh->hash, hash, MP_CATALOGUE_HASH);
    fresh->node.key = (mp_str){(const char *)fresh->hash, MP_CATALOGUE_HASH};
    fresh->len = bytes.len;
    if (bytes.len > 0)
        memcpy(fresh->bytes, bytes.ptr, bytes.len);
    pthread_mutex_lock(&table->catalogue_lock);
    mp_node *node = mp_map_find(&table->catalogues, key);
    if (node != NULL) {
        catalogue = mp_container(node, mp_catalogue, node);
        atomic_fetch_add(&catalogue->refs, 1);
    } else {
        mp_map_put(&table->catalogues, &fresh->node);
        mp_stat_add(&mp_stat_upstream_catalogue_bytes, (int64_t)bytes.len);
    }
    pthread_mutex_unlock(&table->catalogue_lock);
    if (catalogue != fresh)
        free(fresh);
    return catalogue;
}

/* The class of this name, which is made if there is none. Under the upstream's lock. */
static mp_catalogue_class *need_class(mp_upstream *upstream, mp_str name)
{
    bool is_new;
    return mp_map_need(&upstream->classes, name, sizeof(mp_catalogue_class), &is_new);
}

/* True for the class of one caller's lists (lua/moonpool/federation/caller_lists.lua). There can be any number of
 * callers. */
static bool is_of_caller(mp_str class_name)
{
    return class_name.len > 0 && class_name.ptr[0] == MP_CALLER_CLASS;
}

typedef struct {
    const mp_catalogue_class *spared;
    mp_catalogue_class *MP_NULLABLE oldest;
    int64_t count;
} census;

static void count_class(mp_node *node, void *ctx)
{
    census *it = ctx;
    mp_catalogue_class *class = mp_container(node, mp_catalogue_class, node);
    if (!is_of_caller(node->key) || class->catalogue == NULL)
        return;
    it->count++;
    if (class != it->spared && !class->is_claimed && (it->oldest == NULL || class->used < it->oldest->used))
        it->oldest = class;
}

/* Removes the class of the caller that was seen longest ago if there are too many. Returns its catalogue, which the
 * caller of this function unrefs once it has released the upstream's lock; NULL: none was removed. Under the upstream's
 * lock. */
static mp_catalogue *MP_NULLABLE evict_catalogue(mp_upstream *upstream, const mp_catalogue_class *spared)
{
    census it = {.spared = spared};
    mp_map_each(&upstream->classes, count_class, &it);
    if (it.count <= MAX_CALLER_LISTS || it.oldest == NULL)
        return NULL;
    mp_catalogue *catalogue = it.oldest->catalogue;
    mp_map_drop(&upstream->classes, &it.oldest->node);
    free(it.oldest);
    mp_stat_add(&mp_stat_upstream_lists_evicted, 1);
    return catalogue;
}

mp_publish_result mp_catalogue_publish(mp_upstreams *table, mp_upstream *MP_NULLABLE claimed, mp_str name,
                                       mp_str class_name, mp_str bytes, const unsigned char hash[MP_CATALOGUE_HASH])
{
    mp_upstream *upstream = claimed != NULL ? mp_upstream_ref(claimed) : mp_upstreams_find(table, name);
    if (upstream == NULL)
        return MP_PUBLISH_UNKNOWN;
    bool fits = bytes.len <= (size_t)MP_UPSTREAM_LIST_BYTES;
    mp_publish_result result = MP_PUBLISH_TOO_LARGE;
    if (fits) {
        mp_catalogue *catalogue = intern_bytes(table, bytes, hash);
        pthread_mutex_lock(&upstream->lock);
        mp_catalogue_class *class = need_class(upstream, class_name);
        mp_catalogue *before = class->catalogue;
        class->catalogue = catalogue;
        class->is_stale = false;
        class->used = ++upstream->class_uses;
        if (before != catalogue)
            atomic_fetch_add(&table->publications,
                             1); /* under the lock: a thread that reads the new number finds the new catalogue */
        mp_catalogue *evicted = is_of_caller(class_name) ? evict_catalogue(upstream, class) : NULL;
        bool is_retired = upstream->is_retired;
        pthread_mutex_unlock(&upstream->lock);
        mp_catalogue_unref(evicted);
        result = before == catalogue || is_retired ? MP_PUBLISH_EQUAL : MP_PUBLISH_NEW;
        mp_catalogue_unref(before);
    }
    mp_upstream_unref(upstream);
    return result;
}

int64_t mp_catalogue_publications(const mp_upstreams *table)
{
    return atomic_load(&table->publications);
}

typedef struct {
    mp_upstream *to;
} carried;

static void take_class(mp_node *node, void *ctx)
{
    carried *it = ctx;
    mp_catalogue_class *class = mp_container(node, mp_catalogue_class, node);
    if (class->catalogue == NULL)
        return;
    bool is_new;
    mp_catalogue_class *copy = mp_map_need(&it->to->classes, node->key, sizeof *copy, &is_new);
    copy->catalogue = class->catalogue;
    copy->is_stale = true;
    atomic_fetch_add(&class->catalogue->refs, 1);
}

void mp_catalogues_carry(mp_upstream *from, mp_upstream *to)
{
    carried it = {.to = to};
    MP_LOCKED(&from->lock);
    mp_map_each(&from->classes, take_class, &it); /* no other thread knows `to` yet */
}

mp_catalogue *MP_NULLABLE mp_catalogue_find(mp_upstreams *table, mp_str name, mp_str class_name, bool *is_stale)
{
    mp_upstream *upstream = mp_upstreams_find(table, name);
    *is_stale = false;
    if (upstream == NULL)
        return NULL;
    pthread_mutex_lock(&upstream->lock);
    mp_node *node = mp_map_find(&upstream->classes, class_name);
    mp_catalogue_class *class = node == NULL ? NULL : mp_container(node, mp_catalogue_class, node);
    mp_catalogue *catalogue = class == NULL ? NULL : class->catalogue;
    *is_stale = catalogue != NULL && class->is_stale;
    if (catalogue != NULL) {
        atomic_fetch_add(&catalogue->refs, 1);
        class->used = ++upstream->class_uses;
    }
    pthread_mutex_unlock(&upstream->lock);
    mp_upstream_unref(upstream);
    return catalogue;
}

typedef struct {
    void (*found)(mp_str class_name, mp_str hash, void *ctx);
    void *ctx;
} visit;

static void visit_class(mp_node *node, void *ctx)
{
    const visit *it = ctx;
    const mp_catalogue_class *class = mp_container(node, mp_catalogue_class, node);
    if (class->catalogue != NULL && is_of_caller(node->key))
        it->found(node->key, mp_catalogue_hash(class->catalogue), it->ctx);
}

void mp_catalogue_each_caller(mp_upstreams *table, mp_str name, void (*found)(mp_str, mp_str, void *), void *ctx)
{
    mp_upstream *upstream = mp_upstreams_find(table, name);
    if (upstream == NULL)
        return;
    pthread_mutex_lock(&upstream->lock);
    mp_map_each(&upstream->classes, visit_class, &(visit){found, ctx});
    pthread_mutex_unlock(&upstream->lock);
    mp_upstream_unref(upstream);
}

mp_upstream *MP_NULLABLE mp_catalogue_claim(mp_upstreams *table, mp_str name, mp_str class_name)
{
    mp_upstream *upstream = mp_upstreams_find(table, name);
    if (upstream == NULL)
        return NULL;
    pthread_mutex_lock(&upstream->lock);
    mp_catalogue_class *class = need_class(upstream, class_name);
    bool is_free = !class->is_claimed;
    class->is_claimed = true;
    pthread_mutex_unlock(&upstream->lock);
    if (is_free)
        return upstream;
    mp_upstream_unref(upstream);
    return NULL;
}

void mp_catalogue_release(mp_upstream *claimed, mp_str class_name)
{
    pthread_mutex_lock(&claimed->lock);
    mp_node *node = mp_map_find(&claimed->classes, class_name);
    mp_catalogue_class *class = node == NULL ? NULL : mp_container(node, mp_catalogue_class, node);
    if (class != NULL)
        class->is_claimed = false;
    if (class != NULL && class->catalogue == NULL && is_of_caller(class_name)) {
        mp_map_drop(&claimed->classes, node);
        free(class);
    }
    pthread_mutex_unlock(&claimed->lock);
    mp_upstream_unref(claimed);
}
