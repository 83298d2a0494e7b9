/* park_table.c: the handles that a client's retry brings: each names a parked exchange, or bytes that a script's call
 * keeps. */
#include "upstream/pending/park.h"
#include <sys/random.h>

MP_GAUGE(upstream_parked, "upstream_parked", "", "",
         "exchanges with upstreams and journals of handlers that wait for a client's retry")
MP_COUNTER(upstream_parks, "upstream_parks", "", "", "handles that were given out for a client's retry")
MP_COUNTER(upstream_park_expired, "upstream_park_expired", "", "",
           "parked exchanges and journals that no retry has taken up within five minutes")
MP_COUNTER(refused_upstream_parked, "refused", "reason", "upstream_parked",
           "questions of upstreams while 256 calls wait for their clients, or 16 for one principal")

/* entries that wait for a retry: each holds a channel of an upstream, or up to MP_UPSTREAM_JOURNAL bytes */
#define MAX_PARKED MP_LIMIT(upstream_parked, 256)
/* exchanges and bytes of one principal: one client cannot use up the places of all */
#define MAX_PARKED_PER_PRINCIPAL MP_LIMIT(upstream_parked_per_principal, 16)

/* A principal, and how many of its entries count. */
typedef struct {
    mp_node node; /* its key is the principal */
    int64_t count;
} owner;

struct mp_park_entry {
    mp_node node; /* its key is the handle */
    char handle[MP_PARK_HANDLE];
    owner *MP_NULLABLE owner; /* NULL: the entry is not counted for a principal any more */
    mp_str principal;         /* owned */
    uint64_t expires_at;
    mp_link link;              /* in `failed` of the table, or in a list of entries that end */
    mp_park *MP_NULLABLE park; /* a counted reference; NULL: bytes */
    char *MP_NULLABLE bytes;
    size_t len;
};

struct mp_parks {
    pthread_mutex_t lock; /* guards the members below, and the member `entry` of parks. Taken alone */
    mp_map by_handle;     /* of mp_park_entry */
    mp_map owners;        /* of owner */
    mp_link failed;       /* of mp_park_entry whose exchange has failed, oldest first */
    int64_t counted, failed_count;
};

mp_parks *mp_parks_new(void)
{
    mp_parks *parks = mp_new(sizeof *parks);
    pthread_mutex_init(&parks->lock, NULL);
    mp_map_init(&parks->by_handle);
    mp_map_init(&parks->owners);
    return parks;
}

/* The entry does not count for the limits any more. Under the lock. */
static void discount_entry(mp_parks *parks, mp_park_entry *entry)
{
    owner *it = entry->owner;
    if (it == NULL)
        return;
    entry->owner = NULL;
    parks->counted--;
    mp_stat_add(&mp_stat_upstream_parked, -1);
    const mp_park *park = entry->park;
    if (park != NULL)
        atomic_fetch_sub(&park->exchange->super.channel->upstream->parked, 1);
    if (--it->count > 0)
        return;
    mp_map_drop(&parks->owners, &it->node);
    free(it);
}

/* Takes an entry out of the table. Under the lock. */
static void remove_entry(mp_parks *parks, mp_park_entry *entry)
{
    if (!mp_link_is_alone(&entry->link))
        parks->failed_count--;
    mp_link_drop(&entry->link);
    discount_entry(parks, entry);
    mp_map_drop(&parks->by_handle, &entry->node);
    mp_park *park = entry->park;
    if (park != NULL)
        park->entry = NULL;
}

/* Frees an entry that is in no table. The caller does not hold the lock. */
static void free_entry(mp_park_entry *entry)
{
    mp_park_unref(entry->park);
    free((char *)(uintptr_t)entry->principal.ptr);
    free(entry->bytes);
    free(entry);
}

/* Ends the park, or frees the bytes, of an entry whose time is over and which is in no table. The caller does not hold
 * the lock. */
static void expire_entry(mp_park_entry *entry)
{
    mp_park *park = entry->park;
    if (park != NULL)
        mp_park_post_end(park, MP_PARK_EXPIRED);
    free_entry(entry);
}

mp_park_entry *MP_NULLABLE mp_parks_reserve(mp_upstreams *table, const mp_park_options *options,
                                            mp_upstream_failure *failure)
{
    mp_parks *parks = table->parks;
    unsigned char bits[(MP_PARK_HANDLE - 1) / 2];
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        abort(); /* a handle that others can guess would give them another principal's question */
    uint64_t ms = options->ms > 0 && options->ms < MP_UPSTREAM_PARK_MS ? options->ms : MP_UPSTREAM_PARK_MS;
    mp_park_entry *entry = mp_new(sizeof *entry);
    *mp_hex_put(entry->handle, bits, sizeof bits) = '\0';
    entry->node.key = (mp_str){entry->handle, MP_PARK_HANDLE - 1};
    entry->principal = (mp_str){mp_dup(options->principal), options->principal.len};
    entry->expires_at = mp_monotonic_ms() + ms;
    bool is_new, has_room = !atomic_load(&table->has_ended_parks);
    pthread_mutex_lock(&parks->lock);
    owner *it = mp_map_need(&parks->owners, options->principal, sizeof *it, &is_new);
    has_room = has_room && parks->counted < MAX_PARKED && it->count < MAX_PARKED_PER_PRINCIPAL;
    if (has_room) {
        parks->counted++;
        it->count++;
        entry->owner = it;
    } else if (is_new) {
        mp_map_drop(&parks->owners, &it->node);
        free(it);
    }
    pthread_mutex_unlock(&parks->lock);
    if (has_room) {
        mp_stat_add(&mp_stat_upstream_parked, 1);
        mp_stat_add(&mp_stat_upstream_parks, 1);
        return entry;
    }
    free_entry(entry);
    mp_stat_add(&mp_stat_refused_upstream_parked, 1);
    *failure = mp_upstream_failure_of(MP_FAILURE_BUSY, true, "too many calls wait for the answers of clients");
    return NULL;
}

void mp_parks_publish(mp_upstreams *table, mp_park_entry *entry, mp_park *MP_NULLABLE park, char *MP_NULLABLE bytes,
                      size_t len, char handle[MP_PARK_HANDLE])
{
    mp_parks *parks = table->parks;
    entry->park = park;
    entry->bytes = bytes;
    entry->len = len;
    memcpy(handle, entry->handle, MP_PARK_HANDLE);
    if (park != NULL) {
        mp_park_ref(park);
        atomic_fetch_add(&park->exchange->super.channel->upstream->parked, 1);
    }
    pthread_mutex_lock(&parks->lock);
    bool is_late = atomic_load(&table->has_ended_parks);
    if (is_late) {
        discount_entry(parks, entry);
    } else {
        if (park != NULL)
            park->entry = entry;
        mp_map_put(&parks->by_handle, &entry->node);
    }
    pthread_mutex_unlock(&parks->lock);
    if (is_late)
        expire_entry(entry);
}

/* Takes the entry of a handle out of the table; NULL: there is none for this principal. */
static mp_park_entry *MP_NULLABLE claim_entry(mp_upstreams *table, mp_str handle, mp_str principal, bool has_bytes)
{
    mp_parks *parks = table->parks;
    MP_LOCKED(&parks->lock);
    mp_node *node = mp_map_find(&parks->by_handle, handle);
    mp_park_entry *entry = node == NULL ? NULL : mp_container(node, mp_park_entry, node);
    if (entry != NULL && ((entry->park == NULL) != has_bytes || !mp_str_eq(entry->principal, principal)))
        entry = NULL;
    if (entry != NULL)
        remove_entry(parks, entry);
    return entry;
}

mp_park *MP_NULLABLE mp_parks_take(mp_upstreams *table, mp_str handle, mp_str principal)
{
    mp_park_entry *entry = claim_entry(table, handle, principal, false);
    if (entry == NULL)
        return NULL;
    mp_park *park = entry->park;
    entry->park = NULL;
    free_entry(entry);
    return park;
}

char *MP_NULLABLE mp_journal_take(mp_upstreams *table, mp_str handle, mp_str principal, size_t *len)
{
    mp_park_entry *entry = claim_entry(table, handle, principal, true);
    if (entry == NULL)
        return NULL;
    char *bytes = entry->bytes;
    *len = entry->len;
    entry->bytes = NULL;
    free_entry(entry);
    return bytes;
}

bool mp_journal_keep(mp_upstreams *table, mp_str bytes, const mp_park_options *options, char handle[MP_PARK_HANDLE],
                     mp_upstream_failure *failure)
{
    if (bytes.len > (size_t)MP_UPSTREAM_JOURNAL) {
        *failure = mp_upstream_failure_of(MP_FAILURE_TOO_LARGE, true,
                                          "the results of a call's upstreams are larger than 1 MiB");
        return false;
    }
    mp_park_entry *entry = mp_parks_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    mp_parks_publish(table, entry, NULL, mp_dup(bytes), bytes.len, handle);
    return true;
}

void mp_park_abandon(mp_upstreams *table, mp_str handle)
{
    mp_parks *parks = table->parks;
    pthread_mutex_lock(&parks->lock);
    mp_node *node = mp_map_find(&parks->by_handle, handle);
    mp_park_entry *entry = node == NULL ? NULL : mp_container(node, mp_park_entry, node);
    if (entry != NULL)
        remove_entry(parks, entry);
    pthread_mutex_unlock(&parks->lock);
    if (entry != NULL)
        expire_entry(entry);
}

void mp_parks_note_failed(mp_park *park)
{
    mp_parks *parks = park->table->parks;
    mp_park_entry *oldest = NULL;
    pthread_mutex_lock(&parks->lock);
    mp_park_entry *entry = park->entry;
    if (entry != NULL && entry->owner != NULL) {
        discount_entry(parks, entry);
        mp_link_put(&parks->failed, &entry->link);
        if (++parks->failed_count > MAX_PARKED) {
            oldest = mp_container(parks->failed.next, mp_park_entry, link);
            remove_entry(parks, oldest);
        }
    }
    pthread_mutex_unlock(&parks->lock);
    if (oldest != NULL)
        expire_entry(oldest);
}

void mp_parks_forget(mp_park *park)
{
    mp_parks *parks = park->table->parks;
    pthread_mutex_lock(&parks->lock);
    mp_park_entry *entry = park->entry;
    if (entry != NULL)
        remove_entry(parks, entry);
    pthread_mutex_unlock(&parks->lock);
    if (entry != NULL)
        free_entry(entry);
}

typedef struct {
    mp_parks *parks;
    uint64_t now;                            /* ends entries that expire until this time; UINT64_MAX: all */
    mp_link ended;                           /* of mp_park_entry */
    const mp_upstream *MP_NULLABLE upstream; /* NULL: any */
    mp_park **parks_of;                      /* counted references to the parks of `upstream` */
    size_t count;
} search;

/* Moves an entry that has expired from the table to `ended`. Under the lock. */
static void end_if_due(mp_node *node, void *ctx)
{
    search *it = ctx;
    mp_park_entry *entry = mp_container(node, mp_park_entry, node);
    if (it->now < entry->expires_at)
        return;
    remove_entry(it->parks, entry);
    mp_link_put(&it->ended, &entry->link);
}

/* Adds the park of an entry to `parks_of` if it belongs to the wanted upstream. The caller holds the table's lock. */
static void stop_if_of_upstream(mp_node *node, void *ctx)
{
    search *it = ctx;
    mp_park *park = mp_container(node, mp_park_entry, node)->park;
    if (park == NULL || park->exchange->super.channel->upstream != it->upstream)
        return;
    it->parks_of = mp_resize(it->parks_of, (it->count + 1) * sizeof *it->parks_of);
    it->parks_of[it->count++] = mp_park_ref(park);
}

static void end_due(mp_upstreams *table, uint64_t now, bool is_expiry)
{
    mp_parks *parks = table->parks;
    search it = {.parks = parks, .now = now};
    pthread_mutex_lock(&parks->lock);
    mp_map_each(&parks->by_handle, end_if_due, &it);
    pthread_mutex_unlock(&parks->lock);
    MP_EACH_TAKEN(mp_park_entry, entry, &it.ended, link) {
        if (is_expiry)
            mp_stat_add(&mp_stat_upstream_park_expired, 1);
        expire_entry(entry);
    }
}

void mp_parks_sweep(mp_upstreams *table, uint64_t now)
{
    end_due(table, now, true);
}

void mp_parks_end(mp_upstreams *table, const mp_upstream *MP_NULLABLE upstream)
{
    mp_parks *parks = table->parks;
    search it = {.parks = parks, .upstream = upstream};
    if (upstream == NULL) {
        atomic_store(&table->has_ended_parks, true);
        end_due(table, UINT64_MAX, false);
        return;
    }
    pthread_mutex_lock(&parks->lock);
    mp_map_each(&parks->by_handle, stop_if_of_upstream, &it);
    pthread_mutex_unlock(&parks->lock);
    for (size_t i = 0; i < it.count; i++) {
        mp_park_post_end(it.parks_of[i], MP_PARK_STOPPED);
        mp_park_unref(it.parks_of[i]);
    }
    free(it.parks_of);
}

static void free_any(mp_node *node, void *ctx)
{
    mp_parks *parks = ctx;
    mp_park_entry *entry = mp_container(node, mp_park_entry, node);
    remove_entry(parks, entry);
    free_entry(entry);
}

void mp_parks_free(mp_parks *parks)
{
    mp_map_each(&parks->by_handle, free_any, parks);
    mp_map_clear(&parks->by_handle);
    mp_map_clear(&parks->owners);
    pthread_mutex_destroy(&parks->lock);
    free(parks);
}
