/* shared.h: what all workers go by, as the configuration says it. */
#ifndef MP_GATEWAY_SHARED_H
#define MP_GATEWAY_SHARED_H

#include "worker.h"

/* Ends with one that is not set. */
void mp_seal_keys_of(mp_seal_key keys[MP_SEAL_KEYS + 1], const mp_config *config);
/* With a store and hearers of its own, which the caller frees. */
mp_vm_config mp_vm_config_of(const mp_config *config, const mp_seal_key *seal_keys);
/* All but `vm`. */
void mp_shared_set(mp_shared *shared, const mp_config *config);

#endif
