#include "runtime_config.h"
#include <stdlib.h>

void mp_commons_open(mp_commons *commons, const mp_config *config)
{
    commons->store = mp_store_new(config->store_entries, config->store_bytes);
    commons->hearers = mp_bus_new();
    commons->gates = mp_semaphores_new(config->call_waiting);
    mp_seal_key_make(&commons->seal_key, MP_STR(""));
}

void mp_commons_close(mp_commons *commons)
{
    mp_store_free(commons->store);
    mp_bus_free(commons->hearers);
    mp_semaphores_free(commons->gates);
}

static void make_seal_keys(mp_runtime_config *settings, const mp_commons *commons)
{
    size_t count = 0;
    for (char **secret = settings->config->seal_keys; secret != NULL && *secret != NULL && count < MP_SEAL_KEYS;
         secret++)
        mp_seal_key_make(&settings->seal_keys[count++], mp_str_of(*secret));
    if (count == 0)
        settings->seal_keys[0] = commons->seal_key;
}

mp_runtime_config *mp_runtime_config_new(mp_config *config, const mp_commons *commons)
{
    mp_runtime_config *settings = mp_new(sizeof *settings);
    settings->config = config;
    make_seal_keys(settings, commons);
    settings->vm = (mp_lib_config){
        .store = commons->store,
        .hearers = commons->hearers,
        .gates = commons->gates,
        .seal_keys = settings->seal_keys,
        .server_name = config->server_name,
        .server_version = MOONPOOL_VERSION,
        .instructions = config->server_instructions,
        .public_url = config->public_url,
        .prefix = config->endpoint_prefix,
        .mcp = config->endpoint_mcp,
        .sse = config->endpoint_sse,
        .memory = config->lua_memory,
        .task_ms = config->tasks_ttl,
        .call_ms = config->call_time,
        .call_memory = config->call_memory,
        .call_output = config->call_output,
        .call_cpu_ms = config->call_cpu,
        .cleanup_ms = config->call_cleanup,
        .cleanups = config->calls_in_flight,
        .load_ms = config->load,
        .http_time_ms = config->http_time,
        .http_body = config->http_body,
        .config_name = config->name,
        .allow = &config->allow,
        .grants = config->grants,
        .folder = config->folder,
        .fs_file = config->fs_file,
        .fs_held = config->fs_held,
        .exec_output = config->exec_output,
        .exec_processes = config->exec_processes,
        .exec_time_ms = config->exec_time,
        .exec_grace_ms = config->exec_grace,
        .listed = config->listed,
        .sqlite_databases = config->sqlite_databases,
        .sqlite_queue = config->sqlite_queue,
        .sqlite_rows = config->sqlite_rows,
        .sqlite_bytes = config->sqlite_bytes,
        .sqlite_memory = config->sqlite_memory,
        .sqlite_heap = config->sqlite_heap,
        .sqlite_held = config->sqlite_held,
        .sqlite_busy_ms = config->sqlite_busy,
        .audit =
            config->audit == NULL ? NULL : mp_config_key_at("log.audit_arguments")->choices[config->audit_arguments],
        .has_specs = commons->has_specs,
        .trust_full = config->scripts_trust == MP_TRUST_FULL,
        .is_auth_disabled = config->auth_mode == MP_AUTH_NONE,
    };
    settings->rpc = (mp_rpc_config){
        .mcp = config->endpoint_mcp,
        .sse = config->endpoint_sse,
        .messages = config->endpoint_messages,
        .prefix = config->endpoint_prefix == NULL ? "" : config->endpoint_prefix,
        .hosts = (const char *const *)config->hosts,
        .origins = (const char *const *)config->origins,
        .public_url = config->public_url,
        .entry_ms = config->auth_time,
        .max_entries = config->auth_waiting,
        .streams_expire = config->expired_streams == MP_EXPIRED_END,
        .idle_ms = config->session_idle,
        .initialize_within_ms = config->session_initialize_within,
        .max_sessions = config->sessions_max,
        .max_sessions_per_principal = config->sessions_per_principal,
        .replay_events = config->replay_events,
        .replay_bytes = config->replay_bytes,
        .replay_total = config->replay_total,
        .max_calls = config->calls_in_flight,
        .max_values = (size_t)config->values,
        .call_ms = config->call_time,
        .max_subscriptions = config->subscriptions,
        .max_listeners = config->listeners,
        .max_jobs = config->tasks_max,
    };
    settings->http = (mp_http_limits){
        .body = config->body,
        .bodies = config->bodies,
        .headers = config->headers,
        .handshake_ms = config->handshake,
        .request_ms = config->request_time,
        .heartbeat_ms = config->heartbeat,
        .stream_queue = config->stream_queue,
        .answers = config->answers,
        .stall_ms = config->stall,
        .connections = config->connections,
    };
    settings->client = (mp_client_limits){
        .requests = config->http_requests,
        .lookups = config->http_lookups,
        .per_host = config->http_per_host,
        .held = config->http_held,
        .idle_ms = config->http_idle,
        .ca = config->http_ca,
    };
    return settings;
}

void mp_runtime_config_free(mp_runtime_config *settings)
{
    if (settings == NULL)
        return;
    mp_config_free(settings->config);
    free(settings);
}
