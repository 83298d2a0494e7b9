/* record.c: the record of one upstream: found by name, counted, freed with its last reference. */
#include "upstream/state.h"

MP_COUNTER(upstream_outages, "upstream_outages", "", "",
           "times that an upstream was found down, or refused the credential")

mp_upstream *mp_upstream_ref(mp_upstream *upstream)
{
    atomic_fetch_add_explicit(&upstream->refs, 1, memory_order_relaxed);
    return upstream;
}

mp_upstream_host *MP_NULLABLE mp_upstreams_live_host(mp_upstreams *table)
{
    mp_upstream_host *found = NULL;
    MP_LOCKED(&table->lock);
    for (mp_link *link = mp_link_first(&table->hosts); link != &table->hosts && found == NULL; link = link->next) {
        mp_upstream_host *host = mp_container(link, mp_upstream_host, in_table);
        if (!atomic_load(&host->is_over))
            found = host;
    }
    return found;
}

mp_upstream *MP_NULLABLE mp_upstreams_find(mp_upstreams *table, mp_str name)
{
    MP_LOCKED(&table->lock);
    mp_node *node = mp_map_find(&table->by_name, name);
    return node == NULL ? NULL : mp_upstream_ref(mp_container(node, mp_upstream, node));
}

mp_upstream *mp_upstream_new(mp_upstreams *table, mp_upstream_part *part, const mp_upstream_transport *transport)
{
    mp_upstream *upstream = mp_new(sizeof *upstream);
    atomic_init(&upstream->refs, 1);
    upstream->table = table;
    upstream->transport = transport;
    upstream->part = part;
    upstream->name = mp_dup(mp_str_of(part->it.name));
    upstream->node.key = mp_str_of(upstream->name);
    upstream->series = mp_upstream_series_of(upstream->node.key);
    pthread_mutex_init(&upstream->lock, NULL);
    mp_map_init(&upstream->keys);
    mp_map_init(&upstream->classes);
    return upstream;
}

static void free_key(mp_node *node, void *ctx)
{
    mp_map_drop(ctx, node);
    free(mp_container(node, mp_channel_key, node));
}

static void free_class(mp_node *node, void *ctx)
{
    mp_catalogue_class *class = mp_container(node, mp_catalogue_class, node);
    mp_map_drop(ctx, node);
    mp_catalogue_unref(class->catalogue);
    free(class);
}

void mp_upstream_unref(mp_upstream *MP_NULLABLE upstream)
{
    if (upstream == NULL || atomic_fetch_sub_explicit(&upstream->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_map_each(&upstream->keys, free_key, &upstream->keys);
    mp_map_each(&upstream->classes, free_class, &upstream->classes);
    mp_map_clear(&upstream->keys);
    mp_map_clear(&upstream->classes);
    mp_upstream_part_unref(upstream->part);
    pthread_mutex_destroy(&upstream->lock);
    free(upstream->name);
    free(upstream->definitions);
    free(upstream);
}

void mp_upstream_note_failure(mp_upstream *upstream, const mp_upstream_failure *failure)
{
    upstream->total_errors++;
    snprintf(upstream->error, sizeof upstream->error, "%s",
             failure->why[0] == '\0' ? mp_failure_name(failure->reason) : failure->why);
    upstream->error_at = (int64_t)time(NULL);
    if (!failure->is_known && mp_upstream_failure_is_outage(failure))
        mp_circuit_failure(&upstream->circuit, mp_monotonic_ms(), &upstream->part->it);
}

bool mp_channel_key_is_of_caller(const mp_channel_key *key)
{
    return memchr(key->node.key.ptr, MP_CALLER_CLASS, key->node.key.len) != NULL;
}

mp_upstream_state mp_upstream_state_of(const mp_upstream *upstream)
{
    if (upstream->circuit.is_open)
        return MP_UPSTREAM_DOWN;
    if (upstream->is_unauthorized)
        return MP_UPSTREAM_BARRED;
    if (upstream->cannot_open || (upstream->total_opened == 0 && upstream->error[0] != '\0'))
        return MP_UPSTREAM_DOWN;
    return upstream->total_opened == 0 ? MP_UPSTREAM_UNUSED : MP_UPSTREAM_UP;
}

void mp_upstream_note_state(mp_upstream *upstream)
{
    mp_upstream_state before = upstream->noted_state, now = mp_upstream_state_of(upstream);
    bool was_bad = before == MP_UPSTREAM_DOWN || before == MP_UPSTREAM_BARRED;
    upstream->noted_state = now;
    if (now == before || upstream->is_retired)
        return;
    upstream->noted_at = (int64_t)time(NULL);
    if (now == MP_UPSTREAM_DOWN || now == MP_UPSTREAM_BARRED) {
        mp_stat_add(&mp_stat_upstream_outages, 1);
        mp_log(MP_WARN, now == MP_UPSTREAM_DOWN ? "upstream down" : "upstream refuses the credential",
               mp_log_str("upstream", mp_str_of(upstream->name)), mp_log_str("why", mp_str_of(upstream->error)));
    } else if (was_bad)
        mp_log(MP_INFO, "upstream up", mp_log_str("upstream", mp_str_of(upstream->name)));
}

void mp_upstream_note_answer(mp_upstream *upstream, const mp_channel_key *MP_NULLABLE key)
{
    if (key == NULL || mp_channel_key_is_of_caller(key))
        return;
    upstream->is_unauthorized = upstream->cannot_open = false;
    mp_upstream_note_state(upstream);
}

void mp_upstream_note(mp_upstream *upstream, const char *why)
{
    MP_LOCKED(&upstream->lock);
    snprintf(upstream->error, sizeof upstream->error, "%s", why);
    upstream->error_at = (int64_t)time(NULL);
}
