#include "runtime_config.h"
#include "open_relay.h"
#include <moonpool/version.h>
#include <sys/resource.h>

#define MAX_WAITING MP_LIMIT(call_waiting, 256) /* calls that wait for a tool with `concurrency` */

void mp_process_state_open(mp_process_state *process_state, const mp_config *config)
{
    process_state->store = mp_store_new(config->store_entries, config->store_bytes);
    process_state->bus = mp_bus_new();
    process_state->semaphores = mp_semaphores_new(MAX_WAITING);
    process_state->upstreams = mp_upstreams_new();
    mp_process_state_use_upstreams(process_state, config);
    if (process_state->handed_seal_key != NULL)
        process_state->seal_key = *process_state->handed_seal_key;
    else
        mp_seal_key_make(&process_state->seal_key, MP_STR(""));
}

void mp_process_state_use_upstreams(const mp_process_state *process_state, const mp_config *config)
{
    size_t count = 0;
    while (config->upstreams != NULL && config->upstreams[count] != NULL)
        count++;
    const mp_upstream_config **list = mp_new((count + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = &config->upstreams[i]->core;
    mp_upstreams_configure(process_state->upstreams, list, count, &config->upstream_limits, config->scripts_drain);
    free(list);
}

void mp_process_state_close(mp_process_state *process_state)
{
    mp_upstreams_free(process_state->upstreams);
    mp_semaphores_free(process_state->semaphores);
    mp_store_free(process_state->store);
    mp_bus_free(process_state->bus);
}

static void make_seal_keys(mp_runtime_config *settings, const mp_process_state *process_state)
{
    size_t count = 0;
    for (char **secret = settings->config->seal_keys; secret != NULL && *secret != NULL && count < MP_SEAL_KEYS;
         secret++)
        mp_seal_key_make(&settings->seal_keys[count++], mp_str_of(*secret));
    if (count == 0)
        settings->seal_keys[0] = process_state->seal_key;
}

/* Descriptors that no client's connection takes, and no connection to another server or program: for each worker its
 * loop and its sockets; beside them the admin listener with its 16 connections and its files of /proc, the store with
 * its database, the log, the audit, records, and folders that are watched. */
#define OWN_DESCRIPTORS 128
#define WORKER_DESCRIPTORS 16

static int64_t own_descriptors(const mp_config *config)
{
    return OWN_DESCRIPTORS + (int64_t)config->workers * WORKER_DESCRIPTORS;
}

/* The descriptors that the gateway may have: the limit is raised to what the system allows before it serves. INT64_MAX:
 * as many as it likes. */
static int64_t all_descriptors(void)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max >= INT64_MAX ? INT64_MAX : (int64_t)files.rlim_max;
}

/* limits.connections, or as many as leave the own descriptors free: but a quarter of all at least, since a gateway that
 * accepts nothing is of no use. */
static int64_t most_connections(const mp_config *config)
{
    int64_t all = all_descriptors(), own = own_descriptors(config);
    int64_t most = all - own > all / 4 ? all - own : all / 4 + 1;
    return most < config->http.connections ? most : config->http.connections;
}

/* What the own descriptors and connections leave for connections to other servers and programs; but a 16th of all at
 * least. */
static int64_t most_outgoing(const mp_config *config)
{
    int64_t all = all_descriptors(), rest = all - own_descriptors(config) - most_connections(config);
    return rest > all / 16 ? rest : all / 16;
}

void mp_runtime_config_warn(const mp_runtime_config *settings)
{
    mp_scoped_buf hint = {0};
    int64_t wanted = settings->config->http.connections, most = settings->http.connections;
    if (most == wanted)
        return;
    mp_buf_printf(&hint,
                  "raise the limit of open files to %lld (LimitNOFILE= of systemd, ulimit -n), or lower "
                  "limits.connections to %lld",
                  (long long)(wanted + own_descriptors(settings->config)), (long long)most);
    mp_log(MP_WARN, "few descriptors", mp_log_int("limit", all_descriptors()), mp_log_int("connections", wanted),
           mp_log_int("accepted", most), mp_log_str("hint", mp_buf_str(&hint)));
}

static void make_proxies(mp_runtime_config *settings)
{
    const mp_config *config = settings->config;
    while (config->listen[settings->listen_count] != NULL)
        settings->listen_count++;
    settings->proxies = mp_new((settings->listen_count + 1) * sizeof *settings->proxies);
    for (size_t i = 0; i < settings->listen_count; i++)
        settings->proxies[i] = mp_proxies_new(mp_config_proxies_of(config, i));
}

mp_runtime_config *mp_runtime_config_new(mp_config *config, const mp_process_state *process_state)
{
    mp_runtime_config *settings = mp_new(sizeof *settings);
    settings->config = config;
    atomic_init(&settings->refs, 1);
    make_seal_keys(settings, process_state);
    make_proxies(settings);
    settings->http = config->http;
    settings->http.connections = most_connections(config);
    settings->outgoing = most_outgoing(config);
    settings->client = config->client;
    settings->client.idle_ms = (uint64_t)MP_LIMIT(http_idle_ms, 15000); /* as long as servers keep them, mostly */
    settings->client.requests = MP_LIMIT(http_requests, 256);           /* requests of one worker in flight */
    /* connections to one host; further requests wait for one */
    settings->client.per_host = MP_LIMIT(http_per_host, 32);
    settings->client.lookups = MP_LIMIT(http_lookups, 256); /* each has a thread until the name server answers */
    settings->client.held =
        (size_t)MP_LIMIT(http_held, 128 << 20); /* bytes that scripts have not read yet, of one worker */

    mp_rpc_config *rpc = &settings->rpc;
    *rpc = config->rpc;
    /* each listening call has a connection, or a stream of one */
    rpc->max_listeners = MP_LIMIT(listeners, config->http.connections);
    rpc->mcp = config->endpoint_mcp;
    rpc->sse = config->endpoint_sse;
    rpc->messages = config->endpoint_messages;
    rpc->answers = config->http.answers;
    rpc->request_ms = config->http.request_ms;
    rpc->heartbeat_ms = config->http.heartbeat_ms;
    rpc->stream_queue = config->http.stream_queue;
    rpc->bodies = config->http.bodies;
    rpc->prefix = config->endpoint_prefix == NULL ? "" : config->endpoint_prefix;
    rpc->hosts = (const char *const *)config->hosts;
    rpc->origins = (const char *const *)config->origins;
    rpc->public_url = config->public_url;
    if (config->upstreams != NULL && config->upstreams[0] != NULL)
        rpc->instance = mp_upstreams_instance(process_state->upstreams);
    rpc->is_child =
        strcmp(mp_upstreams_hops(process_state->upstreams), mp_upstreams_instance(process_state->upstreams)) != 0;
    for (size_t i = 0; config->upstreams != NULL && config->upstreams[i] != NULL; i++)
        rpc->keeps_tokens = rpc->keeps_tokens || config->upstreams[i]->exchange.client != NULL;
    if (config->cluster_tls.certificate != NULL) {
        rpc->nodes_name = config->cluster_tls_name;
        rpc->nodes_ca = config->cluster_tls.client_ca;
    }
    rpc->streams_expire = config->expired_streams == MP_EXPIRED_END;
    if (process_state->is_replay) /* a slow machine ends no replay: lua/moonpool/replay/player.lua compares the times */
        rpc->call_ms = 24 * 3600 * 1000;

    mp_lib_config *lib = &settings->lib;
    *lib = config->lib;
    lib->server_version = MOONPOOL_VERSION;
    lib->public_url = config->public_url;
    lib->prefix = config->endpoint_prefix;
    lib->mcp = config->endpoint_mcp;
    lib->sse = config->endpoint_sse;
    lib->call_ms = config->rpc.call_ms;
    lib->stream_queue = config->http.stream_queue;
    lib->vm.cleanups = config->rpc.max_calls;
    lib->config_name = config->name;
    lib->config_text = config->text;
    lib->allow = &config->allow;
    lib->grants = config->grants;
    lib->folder = config->folder;
    lib->upstream_entries = (const mp_upstream_entry *const *)config->upstreams;
    lib->upstream_limits = config->upstream_limits;
    lib->upstream_lock = config->lock;
    lib->upstream_lock_path = config->upstream_lock;
    if (config->audit != NULL)
        lib->audit = mp_config_key_at("log.audit_arguments")->choices[config->audit_arguments];
    lib->propagate = (const char *const *)config->traces.propagate;
    lib->has_specs = process_state->has_specs;
    lib->is_replay = process_state->is_replay;
    lib->is_apart = process_state->is_apart;
    lib->trust_full = config->scripts_trust == MP_TRUST_FULL && !lib->is_replay; /* a replay has no io */
    lib->is_confined = config->scripts_trust == MP_TRUST_FULL && lib->is_replay;
    lib->is_auth_disabled = config->auth_mode == MP_AUTH_NONE;
    lib->is_exposed = mp_open_relay_is_exposed(config, process_state->passed);
    lib->store = process_state->store;
    lib->bus = process_state->bus;
    lib->semaphores = process_state->semaphores;
    lib->upstream_table = process_state->upstreams;
    lib->seal_keys = settings->seal_keys;
    return settings;
}

mp_runtime_config *mp_runtime_config_ref(mp_runtime_config *settings)
{
    atomic_fetch_add(&settings->refs, 1);
    return settings;
}

void mp_runtime_config_unref(mp_runtime_config *MP_NULLABLE settings)
{
    if (settings == NULL || atomic_fetch_sub(&settings->refs, 1) > 1)
        return;
    for (size_t i = 0; i < settings->listen_count; i++)
        mp_proxies_free(settings->proxies[i]);
    free(settings->proxies);
    mp_config_free(settings->config);
    free(settings);
}
