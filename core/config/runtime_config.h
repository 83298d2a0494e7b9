/* runtime_config.h: the structures that the lower modules take. The table of keys has filled most of their members; the
 * rest are values that two modules take, or that are no keys. Immutable: a reload makes another one. Counted, because a
 * worker that does not turn keeps the one that it uses. */
#ifndef MP_CONFIG_RUNTIME_CONFIG_H
#define MP_CONFIG_RUNTIME_CONFIG_H

#include "config.h"
#include "lib/lib.h"
#include "passed.h"
#include <stdatomic.h>

/* State that no configuration changes and that lives as long as the process. */
typedef struct {
    mp_store *store;
    mp_bus *bus;
    mp_semaphores *semaphores;
    mp_upstreams *upstreams;
    mp_seal_key seal_key;                     /* used if the configuration has no seal_keys */
    mp_seal_key *MP_NULLABLE handed_seal_key; /* of the process before this one, at an upgrade; owned */
    bool has_specs, is_replay, is_apart;
    const mp_passed *MP_NULLABLE passed; /* listening sockets of other processes; NULL: it listens on none */
} mp_process_state;

void mp_process_state_open(mp_process_state *process_state, const mp_config *config);
/* The upstreams of this configuration are called from now on. */
void mp_process_state_use_upstreams(const mp_process_state *process_state, const mp_config *config);
void mp_process_state_close(mp_process_state *process_state);

typedef struct {
    mp_config *config;
    mp_rpc_config rpc;
    mp_http_limits http;
    mp_client_limits client;
    mp_lib_config lib;
    mp_seal_key seal_keys[MP_SEAL_KEYS + 1]; /* ends with an unset key */
    mp_proxies *MP_NULLABLE *proxies; /* parallel to config->listen; an address without trusted proxies has NULL */
    size_t listen_count;
    int64_t outgoing; /* for mp_outgoing_limit */
    atomic_int refs;
} mp_runtime_config;

mp_runtime_config *mp_runtime_config_new(mp_config *config, const mp_process_state *process_state); /* takes `config` */
/* Logs a warning if the process may open too few files for limits.connections: `http` has fewer then, so that some are
 * left for all that is no client. */
void mp_runtime_config_warn(const mp_runtime_config *settings);
/* Any thread. */
mp_runtime_config *mp_runtime_config_ref(mp_runtime_config *settings);
void mp_runtime_config_unref(mp_runtime_config *MP_NULLABLE settings);

#endif
