/* upstreams.c: the upstreams of the process: reloads of the configuration, the sweep, reports for people, and the hosts
 * of the workers. */
#include "upstream/pending/pending.h"
#include "upstream/transport/listen_stream.h"
#include <sys/random.h>

#define SWEEP_MS 250
/* time between two checks of a host whether the table's sweep is due: its clock is shared by all workers */
#define SWEEP_LOOK_US 25000

static const mp_upstream_transport *transport_of(const mp_upstream_config *config)
{
    if (config->kind == MP_UPSTREAM_COMMAND)
        return &mp_upstream_stdio;
    return config->revision == MP_REVISION_SSE ? &mp_upstream_sse : &mp_upstream_http;
}

mp_upstreams *mp_upstreams_new(void)
{
    mp_upstreams *table = mp_new(sizeof *table);
    unsigned char bits[16] = {0};
    pthread_mutex_init(&table->lock, NULL);
    pthread_mutex_init(&table->catalogue_lock, NULL);
    pthread_mutex_init(&table->cap_lock, NULL);
    mp_map_init(&table->by_name);
    mp_map_init(&table->owners);
    mp_map_init(&table->catalogues);
    table->limits = mp_upstream_default_limits;
    table->pending = mp_pending_table_new();
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        abort(); /* two gateways with the same instance would refuse each other's calls */
    *mp_hex_put(table->instance, bits, sizeof bits) = '\0';
    mp_upstreams_read_hops(table);
    return table;
}

mp_upstreams *mp_upstream_host_table(const mp_upstream_host *host)
{
    return host->table;
}

const char *mp_upstreams_instance(const mp_upstreams *table)
{
    return table->instance;
}

/* -- records ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_upstream **list; /* counted references */
    size_t count;
} records;

static void add_record(records *to, mp_upstream *upstream)
{
    to->list = mp_resize(to->list, (to->count + 1) * sizeof *to->list);
    to->list[to->count++] = mp_upstream_ref(upstream);
}

static records all_records(mp_upstreams *table)
{
    records found = {0};
    MP_LOCKED(&table->lock);
    MP_EACH(mp_upstream, upstream, &table->all, in_all)
        add_record(&found, upstream);
    return found;
}

static void forget_records(records *found)
{
    for (size_t i = 0; i < found->count; i++)
        mp_upstream_unref(found->list[i]);
    free(found->list);
}

static void retire_upstream(mp_upstream *upstream, uint64_t drain_ms)
{
    pthread_mutex_lock(&upstream->lock);
    upstream->is_retired = true;
    upstream->drained_at = mp_monotonic_ms() + drain_ms;
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_sweep(upstream, mp_monotonic_ms());
}

static void keep_part(mp_upstream *upstream, mp_upstream_part *part)
{
    pthread_mutex_lock(&upstream->lock);
    mp_upstream_part *before = upstream->part;
    upstream->part = part;
    mp_exchanges_grant(upstream);
    pthread_mutex_unlock(&upstream->lock);
    mp_upstream_part_unref(before);
}

static bool is_listed(const char *name, const mp_upstream_config *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i]->name, name) == 0)
            return true;
    return false;
}

typedef struct {
    mp_upstreams *table;
    const mp_upstream_config *const *list;
    size_t count;
    records gone;
} comparison;

/* Moves an upstream that the new configuration lacks from by_name to `gone`. Under the table's lock. */
static void drop_unlisted(mp_node *node, void *ctx)
{
    comparison *it = ctx;
    mp_upstream *upstream = mp_container(node, mp_upstream, node);
    if (is_listed(upstream->name, it->list, it->count))
        return;
    mp_map_drop(&it->table->by_name, node);
    add_record(&it->gone, upstream);
}

void mp_upstreams_configure(mp_upstreams *table, const mp_upstream_config *const *list, size_t count,
                            const mp_upstream_limits *limits, uint64_t drain_ms)
{
    comparison it = {.table = table, .list = list, .count = count};
    pthread_mutex_lock(&table->lock);
    table->limits = *limits;
    mp_map_each(&table->by_name, drop_unlisted, &it);
    for (size_t i = 0; i < count; i++) {
        mp_upstream_part *part = mp_upstream_part_new(list[i], limits);
        mp_node *node = mp_map_find(&table->by_name, mp_str_of(list[i]->name));
        mp_upstream *before = node == NULL ? NULL : mp_container(node, mp_upstream, node);
        if (before != NULL && mp_upstream_part_connects_like(before->part, list[i])) {
            keep_part(before, part);
            continue;
        }
        if (before != NULL) {
            mp_map_drop(&table->by_name, node);
            add_record(&it.gone, before);
        }
        mp_upstream *upstream = mp_upstream_new(table, part, transport_of(list[i]));
        if (before != NULL)
            mp_catalogues_carry(before, upstream);
        mp_map_put(&table->by_name, &upstream->node);
        mp_link_put(&table->all, &upstream->in_all);
    }
    pthread_mutex_unlock(&table->lock);
    for (size_t i = 0; i < it.gone.count; i++)
        retire_upstream(it.gone.list[i], drain_ms);
    forget_records(&it.gone);
}

void mp_upstreams_end_session(mp_upstreams *table, mp_str session_id)
{
    if (atomic_load(&table->owned) == 0)
        return;
    mp_channel **list = NULL;
    size_t count = 0;
    pthread_mutex_lock(&table->lock);
    mp_node *node = mp_map_find(&table->owners, session_id);
    if (node != NULL) {
        const mp_link *head = &mp_container(node, mp_channel_owner, node)->channels;
        MP_EACH(mp_channel, channel, head, in_owner) {
            list = mp_resize(list, (count + 1) * sizeof *list);
            list[count++] = mp_channel_ref(channel);
        }
    }
    pthread_mutex_unlock(&table->lock);
    for (size_t i = 0; i < count; i++) {
        mp_channel_end(list[i]);
        mp_channel_unref(list[i]);
    }
    free(list);
}

/* -- the sweep ----------------------------------------------------------------------------------------------------- */

/* A retired upstream without channels and exchanges leaves the table. */
static void drop_retired(mp_upstreams *table, mp_upstream *upstream, uint64_t now)
{
    pthread_mutex_lock(&upstream->lock);
    bool is_late = upstream->is_retired && now >= upstream->drained_at;
    bool is_done = upstream->is_retired && upstream->channels == 0 && mp_link_is_alone(&upstream->running) &&
                   mp_link_is_alone(&upstream->waiting);
    pthread_mutex_unlock(&upstream->lock);
    if (is_late && !is_done) {
        /* before the exchanges stop, so that pending ones still send their last messages */
        mp_pending_table_end(table, upstream);
        mp_exchanges_stop(upstream, MP_FAILURE_STOPPED, "a reload replaced the upstream");
    }
    if (!is_done)
        return;
    pthread_mutex_lock(&table->lock);
    bool is_in_table = !mp_link_is_alone(&upstream->in_all);
    mp_link_drop(&upstream->in_all);
    pthread_mutex_unlock(&table->lock);
    if (is_in_table)
        mp_upstream_unref(upstream);
}

static void sweep_if_due(mp_upstreams *table, uint64_t now)
{
    uint64_t before = atomic_load(&table->swept_at);
    if (now < before + SWEEP_MS || !atomic_compare_exchange_strong(&table->swept_at, &before, now))
        return;
    records found = all_records(table);
    for (size_t i = 0; i < found.count; i++) {
        mp_channels_sweep(found.list[i], now);
        drop_retired(table, found.list[i], now);
    }
    mp_upstreams_make_room(table, found.list, found.count);
    forget_records(&found);
    mp_pending_table_sweep(table, now);
}

/* -- facts --------------------------------------------------------------------------------------------------------- */

static uint64_t quantile(const mp_upstream *upstream, double part)
{
    uint64_t all = 0, sum = 0;
    double us = 1;
    for (unsigned i = 0; i < MP_TIME_STEPS; i++)
        all += upstream->times[i];
    for (unsigned i = 0; i < MP_TIME_STEPS && all > 0; i++) {
        sum += upstream->times[i];
        if ((double)sum >= part * (double)all)
            break;
        us *= 1.189207115;
    }
    return all == 0 ? 0 : (uint64_t)us;
}

typedef struct {
    const mp_upstream *upstream;
    uint64_t least_ms;
} next_try;

static void look_for_next_try(mp_node *node, void *ctx)
{
    next_try *found = ctx;
    const mp_channel_key *key = mp_container(node, mp_channel_key, node);
    uint64_t wait_ms = mp_channel_key_wait_ms(found->upstream, key);
    if (!mp_channel_key_is_of_caller(key) && wait_ms < found->least_ms)
        found->least_ms = wait_ms;
}

/* ms until a request to an upstream that is down is tried. Under its lock. */
static uint64_t next_try_ms(const mp_upstream *upstream)
{
    next_try found = {upstream, UINT64_MAX};
    uint64_t circuit_ms;
    mp_map_each(&((mp_upstream *)(uintptr_t)upstream)->keys, look_for_next_try, &found);
    if (found.least_ms != UINT64_MAX)
        return found.least_ms;
    (void)mp_circuit_ask(&upstream->circuit, mp_monotonic_ms(), upstream->part->it.open_ms, &circuit_ms);
    return circuit_ms;
}

static void count_class(mp_node *node, void *ctx)
{
    const mp_channel_key *key = mp_container(node, mp_channel_key, node);
    if (key->state == MP_KEY_OPEN && key->channel->class[0] != '\0')
        mp_upstream_report_class(ctx, key->channel->class);
}

/* The number of programs that were started after another one had ended by itself. */
static int64_t restarts_of(const mp_upstream *upstream)
{
    int64_t starts = (int64_t)upstream->total_starts, ends = (int64_t)upstream->end_count;
    return starts == 0 ? 0 : starts - 1 < ends ? starts - 1 : ends;
}

static void describe_upstream(mp_upstream *upstream, mp_upstream_report *to)
{
    uint64_t now = mp_monotonic_ms();
    pthread_mutex_lock(&upstream->lock);
    const mp_circuit *circuit = &upstream->circuit;
    *to = (mp_upstream_report){.kind = upstream->part->it.kind,
                               .transport = upstream->transport->name,
                               .channels = upstream->channels,
                               .opening = upstream->opening,
                               .running = upstream->calls,
                               .waiting = upstream->waiters,
                               .pending = atomic_load(&upstream->pending),
                               .calls = upstream->total_calls,
                               .errors = upstream->total_errors,
                               .lost = upstream->total_lost,
                               .dropped = upstream->total_dropped,
                               .refused = upstream->total_refused,
                               .opened = upstream->total_opened,
                               .p50_us = quantile(upstream, 0.5),
                               .p99_us = quantile(upstream, 0.99),
                               .error_at = upstream->error_at,
                               .state_since = upstream->noted_at,
                               .processes = upstream->processes,
                               .memory = upstream->memory,
                               .restarts = restarts_of(upstream)};
    to->state = mp_upstream_state_of(upstream);
    if (to->state == MP_UPSTREAM_DOWN || to->state == MP_UPSTREAM_BARRED)
        to->retry_ms = next_try_ms(upstream);
    to->circuit = !circuit->is_open ? "closed" : circuit->is_probed ? "probing" : "open";
    if (circuit->changed_at != 0)
        to->circuit_since = (int64_t)time(NULL) - (int64_t)((now - circuit->changed_at) / 1000);
    to->failures = circuit->in_row;
    mp_map_each(&upstream->keys, count_class, to);
    memcpy(to->pids, upstream->pids, sizeof to->pids);
    memcpy(to->revision, upstream->revision, sizeof to->revision);
    memcpy(to->error, upstream->error, sizeof to->error);
    to->definitions = mp_dup_text(upstream->definitions);
    pthread_mutex_unlock(&upstream->lock);
    to->name = mp_dup(mp_str_of(upstream->name));
}

mp_upstream_report *mp_upstreams_report(mp_upstreams *table, size_t *count)
{
    records found = all_records(table);
    mp_upstream_report *reports = mp_new((found.count + 1) * sizeof *reports);
    *count = 0;
    for (size_t i = 0; i < found.count; i++) {
        pthread_mutex_lock(&found.list[i]->lock);
        bool is_retired = found.list[i]->is_retired;
        pthread_mutex_unlock(&found.list[i]->lock);
        if (!is_retired)
            describe_upstream(found.list[i], &reports[(*count)++]);
    }
    forget_records(&found);
    return reports;
}

void mp_upstream_report_free(mp_upstream_report *reports, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((char *)(uintptr_t)reports[i].name);
        free((char *)(uintptr_t)reports[i].definitions);
    }
    free(reports);
}

#define MAX_DEFINITIONS ((size_t)64 << 10) /* bytes of the text of mp_upstreams_describe */

bool mp_upstreams_describe(mp_upstreams *table, mp_str name, mp_str definitions)
{
    mp_upstream *upstream = definitions.len <= MAX_DEFINITIONS ? mp_upstreams_find(table, name) : NULL;
    if (upstream == NULL)
        return false;
    char *text = mp_dup(definitions);
    pthread_mutex_lock(&upstream->lock);
    char *before = upstream->definitions;
    upstream->definitions = text;
    pthread_mutex_unlock(&upstream->lock);
    free(before);
    mp_upstream_unref(upstream);
    return true;
}

/* -- hosts --------------------------------------------------------------------------------------------------------- */

#define MAX_REQUESTS 8192
#define END_MS 2000

static const mp_upstream_transport *const transports[] = {&mp_upstream_http, &mp_upstream_sse, &mp_upstream_stdio};
#define TRANSPORTS (sizeof transports / sizeof *transports)

bool mp_channel_use(mp_channel *channel, mp_str transport)
{
    MP_LOCKED(&channel->upstream->lock);
    bool may = channel->key != NULL && channel->is_claimed && channel->running == 0 && channel->connection == NULL &&
               channel->part->it.kind == MP_UPSTREAM_URL;
    bool is_known = false;
    for (size_t i = 0; i < TRANSPORTS && may; i++)
        if (mp_str_is(transport, transports[i]->name) && strcmp(transports[i]->name, "stdio") != 0) {
            channel->transport = transports[i];
            is_known = true;
        }
    return is_known;
}

/* Upstreams have limits of their own (calls, waiting), so a full list of scripts' requests does not stop them. */
static mp_client_limits client_limits(const mp_client_limits *limits)
{
    mp_client_limits own = *limits;
    own.requests = MAX_REQUESTS;
    own.per_host = 0; /* no limit */
    return own;
}

mp_upstream_host *mp_upstream_host_new(mp_upstreams *table, mp_loop *loop, const mp_client_limits *limits)
{
    mp_upstream_host *host = mp_new(sizeof *host);
    mp_client_limits own = client_limits(limits);
    host->table = table;
    host->loop = loop;
    host->client = mp_client_new(loop, &own);
    host->stream_client = mp_client_new(loop, &own);
    host->most_held = limits->held;
    host->hand_on = mp_channel_hand_on;
    pthread_mutex_lock(&table->lock);
    mp_link_put(&table->hosts, &host->in_table);
    table->host_count++;
    pthread_mutex_unlock(&table->lock);
    return host;
}

void mp_upstream_host_configure(mp_upstream_host *host, const mp_client_limits *limits)
{
    mp_client_limits own = client_limits(limits);
    mp_client_configure(host->client, &own);
    mp_client_configure(host->stream_client, &own);
    host->most_held = limits->held;
}

/* True if a transport may have something to do: each turn asks this, also where no upstream is configured. */
static inline bool has_connections(const mp_upstream_host *host)
{
    return !mp_link_is_alone(&host->hot) || !mp_link_is_alone(&host->streams) || !mp_link_is_alone(&host->processes);
}

bool mp_upstream_turn(mp_upstream_host *host)
{
    uint64_t now_us = mp_loop_now_us(host->loop);
    bool did = false;
    for (size_t i = 0; i < TRANSPORTS && has_connections(host); i++)
        if (transports[i]->turn != NULL)
            did = transports[i]->turn(host) || did;
    did = (mp_listen_streams_has_work(host) && mp_listen_streams_turn(host)) || did;
    if (now_us >= host->sweep_us) {
        host->sweep_us = now_us + SWEEP_LOOK_US;
        sweep_if_due(host->table, now_us / 1000);
        mp_upstreams_serve_waiting(host->table);
    }
    return did;
}

void mp_upstream_send(mp_upstream_host *host)
{
    mp_client_begin(host->client);
}

bool mp_upstream_has_work(const mp_upstream_host *host)
{
    bool found = mp_listen_streams_has_work(host);
    for (size_t i = 0; i < TRANSPORTS && !found && has_connections(host); i++)
        found = transports[i]->has_work != NULL && transports[i]->has_work(host);
    return found;
}

static void wake_all(mp_upstreams *table)
{
    MP_LOCKED(&table->lock);
    MP_EACH(mp_upstream_host, host, &table->hosts, in_table)
        mp_loop_wake(host->loop);
}

/* Ends all pending exchanges of the process. pending_ends is one too high until the ends of all are posted, so that no
 * worker finds it 0 too early. */
static void post_ends(mp_upstreams *table)
{
    atomic_fetch_add(&table->pending_ends, 1);
    mp_pending_table_end(table, NULL);
    if (atomic_fetch_sub(&table->pending_ends, 1) == 1)
        wake_all(table);
}

/* Ends all pending exchanges of the process. True once the pending exchanges have sent their cancellations, the
 * upstreams have answered the messages that this worker sent, and no task on another worker uses an exchange of this
 * worker. */
static bool end_pending(mp_upstream_host *host, uint64_t now)
{
    if (host->pending_end_by == 0) {
        host->pending_end_by = now + END_MS;
        post_ends(host->table);
    }
    bool has_said_all = host->said == 0 || now + END_MS / 2 >= host->pending_end_by;
    bool has_ended_all = atomic_load(&host->table->pending_ends) == 0 || now >= host->pending_end_by;
    return has_said_all && has_ended_all && mp_link_is_alone(&host->pending);
}

bool mp_upstream_host_end(mp_upstream_host *host)
{
    uint64_t now = mp_monotonic_ms();
    if (host->end_by == 0 && !end_pending(host, now))
        return false;
    if (host->end_by == 0) {
        host->end_by = now + END_MS;
        mp_listen_streams_end(host);
        pthread_mutex_lock(&host->table->lock);
        bool is_last = ++host->table->ended_hosts == host->table->host_count;
        pthread_mutex_unlock(&host->table->lock);
        if (is_last)
            atomic_store(&host->table->is_ending, true);
        records found = all_records(host->table);
        for (size_t i = 0; i < found.count; i++)
            if (is_last)
                mp_channels_sweep(found.list[i], now);
            else
                mp_channels_end_worker(found.list[i], host);
        bool is_unused = found.count == 0;
        forget_records(&found);
        if (is_unused)
            return true;
        mp_loop_wake(host->loop); /* messages that the sweep has posted are delivered first */
        return false;
    }
    bool is_done = true;
    for (size_t i = 0; i < TRANSPORTS; i++)
        is_done = (transports[i]->end_host == NULL || transports[i]->end_host(host)) && is_done;
    return is_done || now >= host->end_by;
}

void mp_upstream_host_over(mp_upstream_host *host)
{
    host->is_over = true;
}

void mp_upstream_host_settle(mp_upstream_host *MP_NULLABLE host)
{
    if (host == NULL)
        return;
    host->is_over = true;
    mp_pending_table_leave(host);
    mp_exchanges_end(host);
}

void mp_upstream_host_free(mp_upstream_host *MP_NULLABLE host)
{
    if (host == NULL)
        return;
    host->is_over = true;
    for (size_t i = 0; i < TRANSPORTS; i++)
        if (transports[i]->free_host != NULL)
            transports[i]->free_host(host);
    pthread_mutex_lock(&host->table->lock);
    mp_link_drop(&host->in_table);
    pthread_mutex_unlock(&host->table->lock);
    mp_listen_streams_end(host);
    mp_observed_clear(host);
    mp_client_free(host->client);
    mp_client_free(host->stream_client);
    mp_buf_clear(&host->envelope.scratch);
    free(host);
}

/* -- the end of the process ---------------------------------------------------------------------------------------- */

static void end_key(mp_node *node, MP_UNUSED void *ctx)
{
    mp_channel *channel = mp_container(node, mp_channel_key, node)->channel;
    if (channel != NULL && mp_channel_detach(channel, true))
        mp_channel_unref(channel);
}

void mp_upstreams_free(mp_upstreams *MP_NULLABLE table)
{
    if (table == NULL)
        return;
    mp_pending_table_free(table->pending);
    records found = all_records(table);
    for (size_t i = 0; i < found.count; i++) {
        mp_map keys = found.list[i]->keys;
        mp_map_each(&keys, end_key, NULL);
        mp_link_drop(&found.list[i]->in_all);
        mp_upstream_unref(found.list[i]); /* the reference of the table */
    }
    forget_records(&found);
    mp_map_clear(&table->by_name);
    mp_map_clear(&table->owners);
    mp_map_clear(&table->catalogues);
    pthread_mutex_destroy(&table->lock);
    pthread_mutex_destroy(&table->catalogue_lock);
    pthread_mutex_destroy(&table->cap_lock);
    free(table->hops);
    free(table);
}
