/* sessions.c: the sessions of the process, in shards by id, and the numbers that are limited in the gateway. A shard's
 * lock is held only for a look-up. This file is long because all of it works on mp_session_table. */
#include "state.h"
#include "rpc/observe/tap.h"

MP_GAUGE(sessions_sse, "sessions", "transport", "sse", "open HTTP+SSE sessions")
MP_GAUGE(sessions_http, "sessions", "transport", "http", "open Streamable HTTP sessions")
MP_COUNTER(calls, "calls", "", "", "JSON-RPC requests received")
MP_ACCOUNT(requests_in_flight, "requests_in_flight", "", "", "JSON-RPC requests in flight")
MP_ACCOUNT(call_bytes, "call_bytes", "", "", "bytes of requests of more than 1 KiB that calls in flight keep")
MP_ACCOUNT(listeners, "listeners", "", "", "open subscriptions/listen calls")
MP_ACCOUNT(jobs, "jobs", "", "", "running background tasks")
MP_ACCOUNT(auth_pending, "auth_pending", "", "", "requests whose authentication is pending")
MP_COUNTER(sessions_opened, "sessions_opened", "", "", "sessions opened")
MP_COUNTER(closed_idle, "sessions_closed", "reason", "idle", "not used for sessions.idle")
MP_COUNTER(closed_uninitialized, "sessions_closed", "reason", "uninitialized",
           "no initialize, or nothing from a client that may have left without its answer, in 30 s")
MP_COUNTER(closed_shutdown, "sessions_closed", "reason", "shutdown", "the gateway stopped")
MP_REFUSED(refused_calls, "calls", MP_LIMIT_REACHED,
           "calls over limits.calls_in_flight, or whose requests together are over limits.bodies")
MP_REFUSED(refused_sessions, "sessions", MP_LIMIT_REACHED, "sessions over sessions.max or sessions.per_principal")
MP_REFUSED(refused_listeners, "listeners", MP_LIMIT_REACHED, "subscriptions/listen calls over limits.connections")
MP_REFUSED(refused_jobs, "jobs", MP_LIMIT_REACHED, "background tasks over 1,024")
MP_REFUSED(refused_auth_pending, "auth_pending", MP_LIMIT_REACHED,
           "requests above 1,024 whose authentication is pending, or took longer than 10 s")

MP_HISTOGRAM(session_duration, "mcp_server_session_duration_seconds", mp_bounds_session, 64,
             "time from the start of a session to its end; error_type: why it ended", "mcp_protocol_version",
             "network_transport", "error_type")

/* time for a client to initialize, or to name its new session: as long as for a request */
#define INITIALIZE_WITHIN_MS ((uint64_t)MP_LIMIT(initialize_within_ms, 30000))
#define MAX_AUTHN MP_LIMIT(auth_waiting, 1024) /* requests whose authentication is pending */
#define UNCOUNTED_BYTES 1024
#define LEAST_SHARED 16 /* if a limit is lower, one client may have all places */
#define SHARDS MP_SESSION_PAGES
#define DECOYS 256   /* decoy sessions, which no id finds */
#define KEPT_BYTES 8 /* of the bytes of their requests the last eighth is for clients that hold few */
#define KEPT 64      /* of calls, sessions, pending authentications the last 64th is for clients that hold few */

struct mp_session_table {
    const mp_rpc_config *_Atomic config;
    mp_processes *processes;
    const mp_session_hooks *hooks;
    mp_pace rooms[MP_CAPACITIES];
    mp_topics *topics;
    mp_event_log *MP_NULLABLE event_log;
    void (*MP_NULLABLE on_session_end)(void *ctx, mp_str session_id); /* NULL: none; set before the first rpc */
    void *on_session_end_ctx;
    struct {
        pthread_mutex_t lock;
        mp_map sessions;
    } shards[SHARDS];
    /* If an id is unknown, the client's id is compared with one of these decoys: that takes as long as with the
     * session of another principal. */
    mp_session *decoys;
    atomic_uint rpc_count;
    mp_owners *owners;
    mp_kept *MP_NULLABLE kept;    /* NULL: sessions end with the process */
    mp_owners *shares[MP_QUOTAS]; /* the shares of clients in each quota */
    mp_holdings calls, authns;    /* calls and authentications of this process, by share number */
    mp_holdings bytes;            /* bytes of the requests that its calls keep, by share number */
    pthread_mutex_t rpcs_lock;    /* guards `rpcs` while workers join */
    mp_rpc *rpcs[MP_RPC_MAX];
};

void mp_session_table_set_kept(mp_session_table *table, mp_kept *kept)
{
    table->kept = kept;
}

mp_session_table *mp_sessions_new(const mp_rpc_config *config, mp_processes *processes, const mp_session_hooks *hooks,
                                  mp_topics *topics, mp_event_log *MP_NULLABLE event_log)
{
    mp_session_table *table = mp_new(sizeof *table);
    atomic_init(&table->config, config);
    table->processes = processes;
    table->hooks = hooks;
    table->topics = topics;
    table->event_log = event_log;
    for (int i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&table->shards[i].lock, NULL);
        mp_map_init(&table->shards[i].sessions);
    }
    pthread_mutex_init(&table->rpcs_lock, NULL);
    for (mp_capacity room = 0; room < MP_CAPACITIES; room++)
        mp_pace_init(&table->rooms[room]);
    table->owners = mp_owners_new(mp_processes_number(processes));
    for (mp_quota quota = 0; quota < MP_QUOTAS; quota++)
        table->shares[quota] = mp_owners_new(mp_processes_number(processes));
    table->decoys = mp_new(DECOYS * sizeof *table->decoys);
    for (int i = 0; i < DECOYS; i++)
        atomic_init(&table->decoys[i].refs, 1);
    return table;
}

void mp_session_table_on_session_end(mp_session_table *table, void (*ended)(void *ctx, mp_str session_id), void *ctx)
{
    table->on_session_end = ended;
    table->on_session_end_ctx = ctx;
}

static bool is_session_open(mp_session *session)
{
    MP_LOCKED(&session->lock);
    return !session->closed;
}

static void note_change(mp_node *node, MP_UNUSED void *unused)
{
    mp_session_keep(mp_container(node, mp_session, node));
}

void mp_sessions_configure(mp_session_table *table, const mp_rpc_config *config)
{
    atomic_store(&table->config, config);
    bool is_other = table->kept != NULL && atomic_exchange(&table->kept->idle_ms, config->idle_ms) != config->idle_ms;
    for (unsigned i = 0; i < SHARDS && is_other; i++) { /* records expire after that time */
        MP_LOCKED(&table->shards[i].lock);
        mp_map_each(&table->shards[i].sessions, note_change, NULL);
    }
}

void mp_session_table_forget_kept(mp_session_table *table)
{
    if (table->kept != NULL)
        atomic_store(&table->kept->ends_all, true);
}

static void close_at_end(mp_node *node, MP_UNUSED void *unused)
{
    mp_session *session = mp_container(node, mp_session, node);
    session->reader = NULL;
    session->rpcs = 0;
    if (mp_session_is_to_be_kept(session, mp_monotonic_ms()))
        mp_session_write(session);
    mp_session_close(session, &mp_stat_closed_shutdown);
}

void mp_sessions_free(mp_session_table *table)
{
    for (int i = 0; i < SHARDS; i++) {
        mp_map all = table->shards[i].sessions;
        mp_map_each(&all, close_at_end, NULL);
        mp_map_clear(&table->shards[i].sessions);
        pthread_mutex_destroy(&table->shards[i].lock);
    }
    mp_kept_free(table->kept);
    mp_owners_free(table->owners);
    for (mp_quota quota = 0; quota < MP_QUOTAS; quota++)
        mp_owners_free(table->shares[quota]);
    free(table->decoys);
    for (mp_capacity room = 0; room < MP_CAPACITIES; room++)
        pthread_mutex_destroy(&table->rooms[room].lock);
    pthread_mutex_destroy(&table->rpcs_lock);
    free(table);
}

unsigned mp_session_table_rpcs(mp_session_table *table)
{
    return atomic_load(&table->rpc_count);
}

static void take_session(mp_node *node, void *ctx)
{
    mp_session_list *all = ctx;
    if (all->count == all->room) {
        all->room = all->room == 0 ? 64 : 2 * all->room;
        all->list = mp_resize(all->list, all->room * sizeof(mp_session *));
    }
    all->list[all->count++] = mp_session_ref(mp_container(node, mp_session, node));
}

void mp_session_table_take_shard(mp_session_table *table, unsigned shard, mp_session_list *all)
{
    MP_LOCKED(&table->shards[shard].lock);
    mp_map_each(&table->shards[shard].sessions, take_session, all);
}

unsigned mp_session_table_join(mp_session_table *table, mp_rpc *rpc)
{
    MP_LOCKED(&table->rpcs_lock);
    unsigned index = atomic_load(&table->rpc_count);
    table->rpcs[index] = rpc;
    atomic_store(&table->rpc_count, index + 1);
    return index;
}

mp_rpc *mp_session_table_rpc(mp_session_table *table, unsigned index)
{
    return table->rpcs[index];
}

mp_processes *mp_session_table_processes(const mp_session_table *table)
{
    return table->processes;
}

const mp_session_hooks *mp_session_table_hooks(const mp_session_table *table)
{
    return table->hooks;
}

const mp_rpc_config *mp_session_table_config(mp_session_table *table)
{
    return atomic_load(&table->config);
}

mp_topics *mp_session_table_topics(mp_session_table *table)
{
    return table->topics;
}

mp_event_log *MP_NULLABLE mp_session_table_event_log(mp_session_table *table)
{
    return table->event_log;
}

static mp_account *const quotas[] = {&mp_account_listeners, &mp_account_jobs, &mp_account_auth_pending};
static const mp_place places_of[] = {MP_PLACE_LISTENERS, MP_PLACE_TASKS, MP_PLACE_AUTHN};

static const mp_stat *const refusals[] = {&mp_stat_refused_listeners, &mp_stat_refused_jobs,
                                          &mp_stat_refused_auth_pending};

static int64_t limit_of(mp_session_table *table, mp_quota quota)
{
    return quota == MP_QUOTA_SUBSCRIBER ? atomic_load(&table->config)->max_listeners : MP_MAX_TASKS;
}

static bool take_quota(mp_session_table *table, mp_quota quota, int64_t most)
{
    bool is_taken = mp_places_take(mp_processes_places(table->processes), places_of[quota], most);
    mp_account_add(quotas[quota], is_taken);
    mp_stat_add(refusals[quota], !is_taken);
    return is_taken;
}

static void give_quota(mp_session_table *table, mp_quota quota)
{
    mp_account_give(quotas[quota], 1);
    mp_places_give(mp_processes_places(table->processes), places_of[quota]);
}

/* Counts one more thing of the client of this share in the holdings, which have `all`. True if the client may have it.
 */
static bool add_holding(mp_session_table *table, mp_holdings *holdings, unsigned share, const mp_account *all,
                        mp_place place, int64_t most)
{
    int64_t free_places = most - mp_places_used(mp_processes_places(table->processes), place);
    return mp_holdings_add(holdings, share, 1, mp_account_used(all), free_places, most / KEPT);
}

bool mp_session_table_take_authn(mp_session_table *table, unsigned share)
{
    int64_t most = MAX_AUTHN;
    bool may = add_holding(table, &table->authns, share, &mp_account_auth_pending, MP_PLACE_AUTHN, most);
    bool is_taken = take_quota(table, MP_QUOTA_AUTHN, may ? most : 0);
    if (!is_taken)
        mp_holdings_change(&table->authns, share, -1);
    return is_taken;
}

void mp_session_table_give_authn(mp_session_table *table, unsigned share)
{
    mp_holdings_change(&table->authns, share, -1);
    give_quota(table, MP_QUOTA_AUTHN);
    mp_pace_count(&table->rooms[MP_CAPACITY_AUTHN], 1);
}

/* Bytes of a message that are counted: calls for smaller ones are kept in memory that is used again. */
static int64_t counted_bytes(size_t size)
{
    return size <= UNCOUNTED_BYTES ? 0 : (int64_t)size;
}

static void give_bytes(mp_session_table *table, unsigned share, int64_t bytes)
{
    mp_holdings_give(&table->bytes, &mp_account_call_bytes, share, bytes);
}

/* False if there is no room for the bytes, or the client would leave too little to others. */
static bool take_bytes(mp_session_table *table, unsigned share, int64_t bytes, int64_t most)
{
    return bytes == 0 || mp_holdings_take(&table->bytes, &mp_account_call_bytes, share, bytes, most, most / KEPT_BYTES);
}

static bool take_place_of_call(mp_rpc *rpc, int64_t max_calls)
{
    mp_session_table *table = rpc->table;
    int64_t most = rpc->is_hidden ? INT64_MAX : max_calls;
    if (add_holding(table, &table->calls, rpc->share, &mp_account_requests_in_flight, MP_PLACE_CALLS, most) &&
        mp_places_take(mp_processes_places(table->processes), MP_PLACE_CALLS, most))
        return true;
    mp_holdings_change(&table->calls, rpc->share, -1);
    return false;
}

bool mp_session_table_take_call(mp_rpc *rpc)
{
    const mp_rpc_config *config = atomic_load(&rpc->table->config);
    int64_t bytes = counted_bytes(rpc->envelope.size);
    bool is_taken = take_bytes(rpc->table, rpc->share, bytes, (int64_t)config->bodies);
    if (is_taken && !take_place_of_call(rpc, config->max_calls)) {
        give_bytes(rpc->table, rpc->share, bytes);
        is_taken = false;
    }
    mp_account_add(&mp_account_requests_in_flight, is_taken);
    mp_stat_add(&mp_stat_refused_calls, !is_taken);
    return is_taken;
}

void mp_session_table_give_call(mp_session_table *table, unsigned share, size_t size)
{
    mp_holdings_change(&table->calls, share, -1);
    int64_t bytes = counted_bytes(size);
    if (bytes > 0)
        give_bytes(table, share, bytes);
    mp_places_give(mp_processes_places(table->processes), MP_PLACE_CALLS);
    mp_account_give(&mp_account_requests_in_flight, 1);
}

/* The name by which a client is counted. */
static mp_str owner_name(const mp_principal *principal, mp_str address, char room[MP_COUNTED_TEXT])
{
    return principal == mp_nobody ? mp_address_counted(address, room) : mp_principal_key(principal);
}

mp_owner *MP_NULLABLE mp_quota_take_for(mp_session_table *table, mp_quota quota, const mp_principal *principal,
                                        mp_str address)
{
    char room[MP_COUNTED_TEXT];
    int64_t limit = limit_of(table, quota);
    int64_t free = limit - mp_places_used(mp_processes_places(table->processes), places_of[quota]);
    mp_owner *owner = mp_owners_count(table->shares[quota], owner_name(principal, address, room),
                                      limit < LEAST_SHARED ? limit : free);
    if (owner == NULL)
        mp_stat_add(refusals[quota], 1);
    if (owner == NULL || take_quota(table, quota, limit))
        return owner;
    mp_owners_uncount(table->shares[quota], owner);
    return NULL;
}

void mp_quota_give_for(mp_session_table *table, mp_quota quota, mp_owner *owner)
{
    mp_owners_uncount(table->shares[quota], owner);
    give_quota(table, quota);
}

bool mp_session_table_has_calls(void)
{
    return mp_account_used(&mp_account_requests_in_flight) > 0;
}

unsigned mp_session_table_room_s(mp_session_table *table, mp_capacity room)
{
    mp_pace *pace = &table->rooms[room];
    if (room == MP_CAPACITY_CALLS || room == MP_CAPACITY_MEMORY) /* the calls that have ended */
        mp_pace_set(pace, (uint64_t)(mp_stat_read(&mp_stat_calls) - mp_stat_read(&mp_stat_requests_in_flight)));
    return mp_pace_refuse(pace, mp_monotonic_us(), 0, 1);
}

/* The shard of a session id: its first hex digit. */
static unsigned shard_of(mp_str id)
{
    char c = id.ptr[0];
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10) % SHARDS;
}

void mp_session_table_say_owners(mp_session_table *table, mp_owners_said which)
{
    mp_owners_say(table->owners, which, mp_processes_number(table->processes));
}

void mp_session_table_put_owners(mp_session_table *table, mp_buf *out, size_t room)
{
    mp_owners_put(table->owners, out, room);
}

void mp_session_table_take_owners(mp_session_table *table, mp_str body)
{
    mp_owners_take(table->owners, body);
}

void mp_session_table_forget_owners(mp_session_table *table, uint16_t number)
{
    mp_owners_forget(table->owners, number);
}

mp_owner *MP_NULLABLE mp_session_count(mp_session_table *table, mp_str name, bool is_new)
{
    const mp_rpc_config *config = atomic_load(&table->config);
    mp_places *places = mp_processes_places(table->processes);
    int64_t used = mp_places_used(places, MP_PLACE_SESSIONS), most = config->max_sessions;
    mp_owner *owner = mp_owners_count(table->owners, name, config->max_sessions_per_principal);
    if (owner != NULL && (!is_new || mp_owners_may_have(table->owners, owner, used, most - used, most / KEPT)) &&
        mp_places_take(places, MP_PLACE_SESSIONS, most))
        return owner;
    if (owner != NULL)
        mp_owners_uncount(table->owners, owner);
    mp_stat_add(&mp_stat_refused_sessions, is_new);
    return NULL;
}

void mp_session_uncount(mp_session_table *table, mp_owner *owner)
{
    mp_owners_uncount(table->owners, owner);
    mp_places_give(mp_processes_places(table->processes), MP_PLACE_SESSIONS);
}

static char *copy_text(mp_str text)
{
    char *copy = mp_slab_new(text.len + 1);
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return copy;
}

static void tap_session(mp_session *session, const char *event, const mp_principal *MP_NULLABLE principal,
                        const char *why)
{
    if (!session->transport->is_pipe)
        mp_tap_put(&(mp_tap_event){.event = event,
                                   .session = session->node.key,
                                   .principal = principal == NULL ? MP_STR_NONE : mp_principal_id(principal),
                                   .transport = mp_str_of(session->transport->name),
                                   .address = mp_str_of(session->peer),
                                   .why = mp_str_of(why)});
}

mp_session *mp_session_add(mp_session_table *table, const mp_session_facts *facts)
{
    mp_session *session = mp_slab_new(sizeof *session);
    if (facts->id.len == MP_ID)
        memcpy(session->id, facts->id.ptr, MP_ID);
    else
        mp_id_make(table->processes, MP_STR_NONE, session->id);
    session->node.key = (mp_str){session->id, MP_ID};
    session->transport = facts->transport;
    session->is_sse = facts->transport->has_one_stream;
    session->peer = copy_text(facts->peer);
    if (facts->user.ptr != NULL)
        session->user = copy_text(facts->user);
    memcpy(session->principal, facts->principal, sizeof session->principal);
    session->table = table;
    session->on_free = table->hooks->on_free;
    session->owner = facts->owner;
    session->opened_at = facts->opened_at;
    atomic_init(&session->refs, 2); /* one reference of the table, one of the caller */
    atomic_init(&session->log_level, -1);
    atomic_init(&session->used_at, facts->used_at);
    pthread_mutex_init(&session->lock, NULL);
    session->event_log = session->is_sse ? NULL : table->event_log;
    mp_kept_take_in(session, session->is_sse ? NULL : table->kept, facts->digits, mp_owner_name(facts->owner));

    unsigned shard = shard_of(session->node.key);
    pthread_mutex_lock(&table->shards[shard].lock);
    mp_map_put(&table->shards[shard].sessions, &session->node);
    pthread_mutex_unlock(&table->shards[shard].lock);
    mp_stat_add(session->is_sse ? &mp_stat_sessions_sse : &mp_stat_sessions_http, 1);
    return session;
}

mp_session *MP_NULLABLE mp_session_new(mp_rpc *rpc, const mp_transport *transport, const mp_principal *principal,
                                       mp_str peer)
{
    char room[MP_COUNTED_TEXT];
    mp_owner *counted = mp_session_count(rpc->table, owner_name(principal, peer, room), true);
    if (counted == NULL)
        return NULL;
    uint64_t now = mp_loop_now(rpc->loop);
    mp_session *session = mp_session_add(
        rpc->table, &(mp_session_facts){.owner = counted,
                                        .transport = transport,
                                        .principal = principal->key,
                                        .user = principal == mp_nobody ? MP_STR_NONE : mp_principal_id(principal),
                                        .peer = peer,
                                        .opened_at = now,
                                        .used_at = now});
    mp_stat_add(&mp_stat_sessions_opened, 1);
    if (mp_tap_is_on())
        tap_session(session, "session opened", principal, "");
    return session;
}

mp_session *mp_session_ref(mp_session *session)
{
    atomic_fetch_add_explicit(&session->refs, 1, memory_order_relaxed);
    return session;
}

void mp_session_unref(mp_session *session)
{
    if (atomic_fetch_sub_explicit(&session->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (session->on_free != NULL)
        session->on_free(session);
    pthread_mutex_destroy(&session->lock);
    mp_client_info_free(atomic_load(&session->client_info));
    mp_slab_free(session->peer, strlen(session->peer) + 1);
    if (session->user != NULL)
        mp_slab_free(session->user, strlen(session->user) + 1);
    mp_slab_free(session, sizeof *session);
}

/* The decoy of an id. An id always has the same decoy, so that the decoy is as likely as a session to be in a cache
 * of the processor. */
static mp_session *decoy_of(mp_session_table *table, mp_str id)
{
    unsigned number = 0;
    for (int i = 1; i <= 2; i++)
        number = number * 16 + (unsigned)(id.ptr[i] <= '9' ? id.ptr[i] - '0' : id.ptr[i] - 'a' + 10);
    return &table->decoys[number % DECOYS];
}

/* Audits an id that finds no session of this principal. Both lines have one length: clients can measure how long this
 * takes. */
static void audit_unknown(mp_rpc *rpc, mp_stream *stream, mp_str id, bool is_known)
{
    mp_audit_request(stream, &(mp_decision){.event = is_known ? "foreign session" : "unknown session",
                                            .status = 404,
                                            .principal = rpc->principal,
                                            .session = id});
}

mp_session *MP_NULLABLE mp_session_find(mp_rpc *rpc, mp_stream *stream, mp_str id)
{
    if (!mp_id_is(id)) {
        audit_unknown(rpc, stream, id, false);
        return NULL;
    }
    mp_session_table *table = rpc->table;
    unsigned shard = shard_of(id);
    pthread_mutex_lock(&table->shards[shard].lock);
    mp_node *node = mp_map_find(&table->shards[shard].sessions, id);
    mp_session *session = mp_session_ref(node == NULL ? decoy_of(table, id) : mp_container(node, mp_session, node));
    pthread_mutex_unlock(&table->shards[shard].lock);
    bool is_own = mp_principal_key_is(rpc->principal, session->principal);
    rpc->names_foreign_session = !is_own && node != NULL;
    if (!is_own || node == NULL) {
        mp_session_unref(session);
        audit_unknown(rpc, stream, id, node != NULL);
        return NULL;
    }
    atomic_store_explicit(&session->used_at, mp_loop_now(rpc->loop), memory_order_relaxed);
    atomic_store_explicit(&session->is_named, true, memory_order_relaxed);
    if (atomic_load_explicit(&session->is_revived, memory_order_relaxed))
        mp_session_note_revived(session);
    return session;
}

void mp_session_doubt(mp_session *session)
{
    atomic_store_explicit(&session->used_at, mp_monotonic_ms(), memory_order_relaxed);
    atomic_store(&session->is_doubted, true);
}

bool mp_session_is_named(mp_session *session)
{
    return atomic_load(&session->is_named);
}

mp_session *MP_NULLABLE mp_session_of_id(mp_session_table *table, mp_str id)
{
    if (!mp_id_is(id))
        return NULL;
    unsigned shard = shard_of(id);
    MP_LOCKED(&table->shards[shard].lock);
    mp_node *node = mp_map_find(&table->shards[shard].sessions, id);
    return node == NULL ? NULL : mp_session_ref(mp_container(node, mp_session, node));
}

bool mp_session_is_known(mp_rpc *rpc, mp_str id)
{
    mp_session *session = mp_session_of_id(rpc->table, id);
    if (session == NULL)
        return false;
    bool is_open = is_session_open(session);
    mp_session_unref(session);
    return is_open;
}

typedef struct {
    mp_rpc *rpc;
    mp_session *session; /* counted reference */
} closing_message;

static void deliver_closing(void *content, mp_loop *MP_NULLABLE loop)
{
    const closing_message *message = content;
    if (loop != NULL)
        message->session->table->hooks->end_here(message->rpc, message->session);
    mp_session_unref(message->session);
}

static void observe_end(const mp_session *session, const mp_stat *reason)
{
    const mp_era *era = mp_session_era(session);
    const mp_str values[] = {mp_str_of(era == NULL ? "" : era->date),
                             mp_str_of(session->transport->is_pipe ? "pipe" : "tcp"), mp_str_of(reason->value)};
    uint64_t now = mp_monotonic_ms();
    uint64_t ms = now > session->opened_at ? now - session->opened_at : 0;
    if (mp_series_is_on())
        mp_series_observe(mp_series_of(&mp_family_session_duration, values), &mp_bounds_session, (double)ms * 1000);
}

bool mp_session_close(mp_session *session, const mp_stat *reason)
{
    mp_session_table *table = session->table;
    pthread_mutex_lock(&session->lock);
    bool first = !session->closed;
    session->closed = true;
    uint64_t rpcs = session->rpcs;
    table->hooks->on_closing(session);
    pthread_mutex_unlock(&session->lock);
    if (!first)
        return false;
    table->hooks->on_closed(session);
    if (table->on_session_end != NULL)
        table->on_session_end(table->on_session_end_ctx, session->node.key);

    unsigned shard = shard_of(session->node.key);
    pthread_mutex_lock(&table->shards[shard].lock);
    mp_map_drop(&table->shards[shard].sessions, &session->node);
    pthread_mutex_unlock(&table->shards[shard].lock);
    mp_stat_add(reason, 1); /* first: nobody sees a session that is neither open nor closed */
    mp_stat_add(session->is_sse ? &mp_stat_sessions_sse : &mp_stat_sessions_http, -1);
    if (mp_tap_is_on())
        tap_session(session, "session ended", NULL, reason->value);
    observe_end(session, reason);
    mp_pace_count(&table->rooms[MP_CAPACITY_SESSIONS], 1);
    mp_session_uncount(table, session->owner);
    mp_session_forget(session, reason != &mp_stat_closed_shutdown);

    for (unsigned i = 0; i < MP_RPC_MAX; i++)
        if (rpcs & (UINT64_C(1) << i)) {
            const closing_message message = {table->rpcs[i], mp_session_ref(session)};
            mp_loop_send(table->rpcs[i]->loop, deliver_closing, &message, sizeof message, MP_STR_NONE);
        }
    mp_session_unref(session); /* the reference of the table */
    return true;
}

#define MOST_SWEPT 256 /* sessions of a shard in one sweep; what has not expired takes a half at most */
typedef struct {
    mp_rpc *rpc;
    mp_session *list[MOST_SWEPT];
    const mp_stat *MP_NULLABLE reasons[MOST_SWEPT]; /* NULL: the session has not expired: its record is written */
    size_t count;
} sweep;

/* Adds an expired session to a list that the caller closes once the shard is unlocked. Sessions with a reader or a
 * call in flight are not idle (S-18). */
static void collect_if_expired(mp_node *node, void *arg)
{
    sweep *found = arg;
    mp_session *session = mp_container(node, mp_session, node);
    const mp_rpc_config *config = found->rpc->config;
    uint64_t now = mp_loop_now(found->rpc->loop);
    if (found->count == MOST_SWEPT)
        return;
    const mp_stat *reason = NULL;
    uint64_t used_at = atomic_load_explicit(&session->used_at, memory_order_relaxed);
    if (session->is_sse) {
        if (atomic_load(&session->client_info) == NULL && now >= session->opened_at + INITIALIZE_WITHIN_MS)
            reason = &mp_stat_closed_uninitialized;
    } else if (atomic_load(&session->is_doubted) && !mp_session_is_named(session) &&
               now >= used_at + INITIALIZE_WITHIN_MS) {
        reason = &mp_stat_closed_uninitialized;
    } else if ((int64_t)(now - used_at - config->idle_ms) >= 0 && !mp_session_is_in_use(session)) {
        reason = &mp_stat_closed_idle;
    }
    if (reason != NULL || (found->count < MOST_SWEPT / 2 && mp_session_is_to_be_kept(session, now))) {
        found->reasons[found->count] = reason;
        found->list[found->count++] = mp_session_ref(session);
    }
}

void mp_session_table_sweep(mp_rpc *rpc)
{
    mp_ended_sweep();
    mp_session_table *table = rpc->table;
    sweep found;
    for (unsigned i = rpc->index; i < SHARDS; i += atomic_load(&table->rpc_count)) {
        found.rpc = rpc;
        found.count = 0;
        pthread_mutex_lock(&table->shards[i].lock);
        mp_map_each(&table->shards[i].sessions, collect_if_expired, &found);
        pthread_mutex_unlock(&table->shards[i].lock);
        for (size_t k = 0; k < found.count; k++) {
            const mp_stat *reason = found.reasons[k];
            if (reason == NULL)
                mp_session_write(found.list[k]);
            else
                mp_session_close(found.list[k], reason);
            mp_session_unref(found.list[k]);
        }
    }
}
