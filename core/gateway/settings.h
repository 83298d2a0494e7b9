/* settings.h: a configuration as the rooms below take it. Made whole, never changed: another takes its place. */
#ifndef MP_GATEWAY_SETTINGS_H
#define MP_GATEWAY_SETTINGS_H

#include "config.h"
#include "script/script.h"

/* What no configuration takes away, as long as the process lives. */
typedef struct {
    mp_store *store;
    mp_hearers *hearers;
    mp_gates *gates;
    mp_seal_key seal_key; /* where the configuration has none */
    bool has_specs;
} mp_commons;

void mp_commons_open(mp_commons *commons, const mp_config *config);
void mp_commons_close(mp_commons *commons);

typedef struct {
    mp_config *config;
    mp_rpc_config rpc;
    mp_http_limits http;
    mp_client_limits client;
    mp_vm_config vm;
    mp_seal_key seal_keys[MP_SEAL_KEYS + 1]; /* ends with one that is not set */
} mp_settings;

/* Takes `config` over. */
mp_settings *mp_settings_new(mp_config *config, const mp_commons *commons);
void mp_settings_free(mp_settings *settings);

#endif
