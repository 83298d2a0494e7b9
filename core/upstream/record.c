/* record.c: the record of one upstream: found by name, counted, freed with its last reference. */
#include "upstream/state.h"

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
    if (!failure->is_echo && mp_upstream_failure_is_outage(failure))
        mp_circuit_failure(&upstream->circuit, mp_monotonic_ms(), &upstream->part->it);
}

void mp_upstream_note(mp_upstream *upstream, const char *why)
{
    MP_LOCKED(&upstream->lock);
    snprintf(upstream->error, sizeof upstream->error, "%s", why);
    upstream->error_at = (int64_t)time(NULL);
}
