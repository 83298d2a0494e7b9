/* pending_table.c: the handles that a client's retry brings: each names a pending exchange, or bytes that a script's
 * call keeps. */
#include "upstream/pending/pending.h"
#include <sys/random.h>

MP_GAUGE(upstream_pending, "upstream_pending", "", "",
         "exchanges with upstreams and journals of handlers that wait for a client's retry")
MP_COUNTER(upstream_pending_begun, "upstream_pending_begun", "", "", "handles that were given out for a client's retry")
MP_COUNTER(upstream_pending_expired, "upstream_pending_expired", "", "",
           "pending exchanges and journals that no retry has taken up within five minutes")
MP_REFUSED(refused_upstream_pending, "upstream_pending", MP_LIMIT_REACHED,
           "questions of upstreams while 256 calls wait for their clients, or 16 for one principal")

/* entries that wait for a retry: each holds a channel of an upstream, or up to MP_UPSTREAM_JOURNAL bytes */
#define MAX_PENDING MP_LIMIT(upstream_pending, 256)
#define LEAST_SHARED 16 /* if the limit is lower, one principal may have all places */
/* exchanges and bytes of one principal, which has no more than are free for the others either: neither one client nor
 * several can use up the places of all */
#define MAX_PENDING_PER_PRINCIPAL MP_LIMIT(upstream_pending_per_principal, 16)

/* A principal, and how many of its entries count. */
typedef struct {
    mp_node node; /* its key is the principal */
    int64_t count;
} owner;

struct mp_pending_entry {
    mp_node node; /* its key is the handle */
    char handle[MP_PENDING_HANDLE];
    owner *MP_NULLABLE owner; /* NULL: the entry is not counted for a principal any more */
    mp_str principal;         /* owned */
    uint64_t expires_at;
    mp_link link;                             /* in `failed` of the table, or in a list of entries that end */
    mp_pending_exchange *MP_NULLABLE pending; /* a counted reference; NULL: bytes */
    char *MP_NULLABLE bytes;
    size_t len;
};

struct mp_pending_table {
    pthread_mutex_t lock; /* guards the members below, and the member `entry` of pending exchanges. Taken alone */
    mp_map by_handle;     /* of mp_pending_entry */
    mp_map owners;        /* map of `owner` */
    mp_link failed;       /* of mp_pending_entry whose exchange has failed, oldest first */
    int64_t counted, failed_count;
};

mp_pending_table *mp_pending_table_new(void)
{
    mp_pending_table *all_pending = mp_new(sizeof *all_pending);
    pthread_mutex_init(&all_pending->lock, NULL);
    mp_map_init(&all_pending->by_handle);
    mp_map_init(&all_pending->owners);
    return all_pending;
}

/* The entry does not count for the limits any more. Under the lock. */
static void discount_entry(mp_pending_table *all_pending, mp_pending_entry *entry)
{
    owner *it = entry->owner;
    if (it == NULL)
        return;
    entry->owner = NULL;
    all_pending->counted--;
    mp_stat_add(&mp_stat_upstream_pending, -1);
    const mp_pending_exchange *pending = entry->pending;
    if (pending != NULL)
        atomic_fetch_sub(&pending->exchange->super.channel->upstream->pending, 1);
    if (--it->count > 0)
        return;
    mp_map_drop(&all_pending->owners, &it->node);
    free(it);
}

/* Takes an entry out of the table. Under the lock. */
static void remove_entry(mp_pending_table *all_pending, mp_pending_entry *entry)
{
    if (!mp_link_is_alone(&entry->link))
        all_pending->failed_count--;
    mp_link_drop(&entry->link);
    discount_entry(all_pending, entry);
    mp_map_drop(&all_pending->by_handle, &entry->node);
    mp_pending_exchange *pending = entry->pending;
    if (pending != NULL)
        pending->entry = NULL;
}

/* Frees an entry that is in no table. The caller does not hold the lock. */
static void free_entry(mp_pending_entry *entry)
{
    mp_pending_unref(entry->pending);
    free((char *)(uintptr_t)entry->principal.ptr);
    free(entry->bytes);
    free(entry);
}

/* Ends the pending exchange, or frees the bytes, of an entry whose time is over and which is in no table. The caller
 * does not hold the lock. */
static void expire_entry(mp_pending_entry *entry)
{
    mp_pending_exchange *pending = entry->pending;
    if (pending != NULL)
        mp_pending_post_end(pending, MP_PENDING_EXPIRED);
    free_entry(entry);
}

mp_pending_entry *MP_NULLABLE mp_pending_table_reserve(mp_upstreams *table, const mp_pending_options *options,
                                                       mp_upstream_failure *failure)
{
    mp_pending_table *all_pending = table->pending;
    unsigned char bits[(MP_PENDING_HANDLE - 1) / 2];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        abort(); /* a handle that others can guess would give them another principal's question */
    uint64_t ms = options->ms > 0 && options->ms < MP_UPSTREAM_PENDING_MS ? options->ms : MP_UPSTREAM_PENDING_MS;
    mp_pending_entry *entry = mp_new(sizeof *entry);
    *mp_hex_put(entry->handle, bits, sizeof bits) = '\0';
    entry->node.key = (mp_str){entry->handle, MP_PENDING_HANDLE - 1};
    entry->principal = (mp_str){mp_dup(options->principal), options->principal.len};
    entry->expires_at = mp_monotonic_ms() + ms;
    bool is_new, has_room = !atomic_load(&table->has_ended_pending);
    pthread_mutex_lock(&all_pending->lock);
    owner *it = mp_map_need(&all_pending->owners, options->principal, sizeof *it, &is_new);
    int64_t most = MAX_PENDING, mine = most < LEAST_SHARED ? most : most - all_pending->counted;
    mine = mine < MAX_PENDING_PER_PRINCIPAL ? mine : MAX_PENDING_PER_PRINCIPAL;
    has_room = has_room && all_pending->counted < most && it->count < mine;
    if (has_room) {
        all_pending->counted++;
        it->count++;
        entry->owner = it;
    } else if (is_new) {
        mp_map_drop(&all_pending->owners, &it->node);
        free(it);
    }
    pthread_mutex_unlock(&all_pending->lock);
    if (has_room) {
        mp_stat_add(&mp_stat_upstream_pending, 1);
        mp_stat_add(&mp_stat_upstream_pending_begun, 1);
        return entry;
    }
    free_entry(entry);
    mp_stat_add(&mp_stat_refused_upstream_pending, 1);
    *failure = mp_upstream_failure_of(MP_FAILURE_BUSY, true, "too many calls wait for the answers of clients");
    return NULL;
}

void mp_pending_table_publish(mp_upstreams *table, mp_pending_entry *entry, mp_pending_exchange *MP_NULLABLE pending,
                              char *MP_NULLABLE bytes, size_t len, char handle[MP_PENDING_HANDLE])
{
    mp_pending_table *all_pending = table->pending;
    entry->pending = pending;
    entry->bytes = bytes;
    entry->len = len;
    memcpy(handle, entry->handle, MP_PENDING_HANDLE);
    if (pending != NULL) {
        mp_pending_ref(pending);
        atomic_fetch_add(&pending->exchange->super.channel->upstream->pending, 1);
    }
    pthread_mutex_lock(&all_pending->lock);
    bool is_late = atomic_load(&table->has_ended_pending);
    if (is_late) {
        discount_entry(all_pending, entry);
    } else {
        if (pending != NULL)
            pending->entry = entry;
        mp_map_put(&all_pending->by_handle, &entry->node);
    }
    pthread_mutex_unlock(&all_pending->lock);
    if (is_late)
        expire_entry(entry);
}

/* Takes the entry of a handle out of the table; NULL: there is none for this principal. */
static mp_pending_entry *MP_NULLABLE claim_entry(mp_upstreams *table, mp_str handle, mp_str principal, bool has_bytes)
{
    mp_pending_table *all_pending = table->pending;
    MP_LOCKED(&all_pending->lock);
    mp_node *node = mp_map_find(&all_pending->by_handle, handle);
    mp_pending_entry *entry = node == NULL ? NULL : mp_container(node, mp_pending_entry, node);
    if (entry != NULL && ((entry->pending == NULL) != has_bytes || !mp_str_eq(entry->principal, principal)))
        entry = NULL;
    if (entry != NULL)
        remove_entry(all_pending, entry);
    return entry;
}

mp_pending_exchange *MP_NULLABLE mp_pending_table_take(mp_upstreams *table, mp_str handle, mp_str principal)
{
    mp_pending_entry *entry = claim_entry(table, handle, principal, false);
    if (entry == NULL)
        return NULL;
    mp_pending_exchange *pending = entry->pending;
    entry->pending = NULL;
    free_entry(entry);
    return pending;
}

char *MP_NULLABLE mp_journal_take(mp_upstreams *table, mp_str handle, mp_str principal, size_t *len)
{
    mp_pending_entry *entry = claim_entry(table, handle, principal, true);
    if (entry == NULL)
        return NULL;
    char *bytes = entry->bytes;
    *len = entry->len;
    entry->bytes = NULL;
    free_entry(entry);
    return bytes;
}

bool mp_journal_keep(mp_upstreams *table, mp_str bytes, const mp_pending_options *options,
                     char handle[MP_PENDING_HANDLE], mp_upstream_failure *failure)
{
    if (bytes.len > (size_t)MP_UPSTREAM_JOURNAL) {
        *failure = mp_upstream_failure_of(MP_FAILURE_TOO_LARGE, true,
                                          "the results of a call's upstreams are larger than 1 MiB");
        return false;
    }
    mp_pending_entry *entry = mp_pending_table_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    mp_pending_table_publish(table, entry, NULL, mp_dup(bytes), bytes.len, handle);
    return true;
}

void mp_pending_abandon(mp_upstreams *table, mp_str handle)
{
    mp_pending_table *all_pending = table->pending;
    pthread_mutex_lock(&all_pending->lock);
    mp_node *node = mp_map_find(&all_pending->by_handle, handle);
    mp_pending_entry *entry = node == NULL ? NULL : mp_container(node, mp_pending_entry, node);
    if (entry != NULL)
        remove_entry(all_pending, entry);
    pthread_mutex_unlock(&all_pending->lock);
    if (entry != NULL)
        expire_entry(entry);
}

void mp_pending_table_note_failed(mp_pending_exchange *pending)
{
    mp_pending_table *all_pending = pending->table->pending;
    mp_pending_entry *oldest = NULL;
    pthread_mutex_lock(&all_pending->lock);
    mp_pending_entry *entry = pending->entry;
    if (entry != NULL && entry->owner != NULL) {
        discount_entry(all_pending, entry);
        mp_link_put(&all_pending->failed, &entry->link);
        if (++all_pending->failed_count > MAX_PENDING) {
            oldest = mp_container(all_pending->failed.next, mp_pending_entry, link);
            remove_entry(all_pending, oldest);
        }
    }
    pthread_mutex_unlock(&all_pending->lock);
    if (oldest != NULL)
        expire_entry(oldest);
}

void mp_pending_table_forget(mp_pending_exchange *pending)
{
    mp_pending_table *all_pending = pending->table->pending;
    pthread_mutex_lock(&all_pending->lock);
    mp_pending_entry *entry = pending->entry;
    if (entry != NULL)
        remove_entry(all_pending, entry);
    pthread_mutex_unlock(&all_pending->lock);
    if (entry != NULL)
        free_entry(entry);
}

typedef struct {
    mp_pending_table *all_pending;
    uint64_t now;                            /* ends entries that expire until this time; UINT64_MAX: all */
    mp_link ended;                           /* of mp_pending_entry */
    const mp_upstream *MP_NULLABLE upstream; /* only entries of this upstream; NULL: of any */
    mp_pending_exchange **pending_of;        /* counted references to the pending exchanges of `upstream` */
    size_t count;
} search;

/* Moves an entry that has expired from the table to `ended`. Under the lock. */
static void end_if_due(mp_node *node, void *ctx)
{
    search *it = ctx;
    mp_pending_entry *entry = mp_container(node, mp_pending_entry, node);
    if (it->now < entry->expires_at)
        return;
    remove_entry(it->all_pending, entry);
    mp_link_put(&it->ended, &entry->link);
}

/* Adds the pending exchange of an entry to `pending_of` if it belongs to the wanted upstream. The caller holds the
 * table's lock. */
static void stop_if_of_upstream(mp_node *node, void *ctx)
{
    search *it = ctx;
    mp_pending_exchange *pending = mp_container(node, mp_pending_entry, node)->pending;
    if (pending == NULL || pending->exchange->super.channel->upstream != it->upstream)
        return;
    it->pending_of = mp_resize(it->pending_of, (it->count + 1) * sizeof *it->pending_of);
    it->pending_of[it->count++] = mp_pending_ref(pending);
}

static void end_due(mp_upstreams *table, uint64_t now, bool is_expiry)
{
    mp_pending_table *all_pending = table->pending;
    search it = {.all_pending = all_pending, .now = now};
    pthread_mutex_lock(&all_pending->lock);
    mp_map_each(&all_pending->by_handle, end_if_due, &it);
    pthread_mutex_unlock(&all_pending->lock);
    MP_EACH_TAKEN(mp_pending_entry, entry, &it.ended, link) {
        if (is_expiry)
            mp_stat_add(&mp_stat_upstream_pending_expired, 1);
        expire_entry(entry);
    }
}

void mp_pending_table_sweep(mp_upstreams *table, uint64_t now)
{
    end_due(table, now, true);
}

void mp_pending_table_end(mp_upstreams *table, const mp_upstream *MP_NULLABLE upstream)
{
    mp_pending_table *all_pending = table->pending;
    search it = {.all_pending = all_pending, .upstream = upstream};
    if (upstream == NULL) {
        atomic_store(&table->has_ended_pending, true);
        end_due(table, UINT64_MAX, false);
        return;
    }
    pthread_mutex_lock(&all_pending->lock);
    mp_map_each(&all_pending->by_handle, stop_if_of_upstream, &it);
    pthread_mutex_unlock(&all_pending->lock);
    for (size_t i = 0; i < it.count; i++) {
        mp_pending_post_end(it.pending_of[i], MP_PENDING_STOPPED);
        mp_pending_unref(it.pending_of[i]);
    }
    free(it.pending_of);
}

static void free_any(mp_node *node, void *ctx)
{
    mp_pending_table *all_pending = ctx;
    mp_pending_entry *entry = mp_container(node, mp_pending_entry, node);
    remove_entry(all_pending, entry);
    free_entry(entry);
}

void mp_pending_table_free(mp_pending_table *all_pending)
{
    mp_map_each(&all_pending->by_handle, free_any, all_pending);
    mp_map_clear(&all_pending->by_handle);
    mp_map_clear(&all_pending->owners);
    pthread_mutex_destroy(&all_pending->lock);
    free(all_pending);
}
