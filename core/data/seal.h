/* seal.h: encrypts what others store and send back, and must neither read nor change: cursors, requestState, and what a
 * process of the gateway tells another one about a request. AES-256-GCM by OpenSSL. `about` names the purpose and is
 * authenticated data: what was sealed for one purpose cannot be unsealed for another.
 *   key id, 4 bytes · nonce, 12 · text · tag, 16 */
#ifndef MP_DATA_SEAL_H
#define MP_DATA_SEAL_H

#include "data/sha256.h"

typedef struct {
    bool is_set;
    unsigned char id[4], bytes[32];
} mp_seal_key;

#define MP_SEAL_KEYS 8
#define MP_SEAL_OVERHEAD 32 /* bytes that a sealed text has more */

/* Derives the key from the operator's secret. An empty secret gives a random key, which no other process has. */
void mp_seal_key_make(mp_seal_key *key, mp_str secret);
/* A hash of the key for one purpose, from which neither the key nor its hash for another purpose follows. */
void mp_seal_key_hash(const mp_seal_key *key, mp_str purpose, unsigned char hash[MP_SHA256_BYTES]);
/* Derives a key for one purpose (HKDF, RFC 5869): neither the key nor that of another purpose follows from it. False:
 * OpenSSL failed. */
bool mp_seal_key_derive(mp_seal_key *derived, const mp_seal_key *key, mp_str purpose);
/* Writes text.len + MP_SEAL_OVERHEAD bytes to `sealed`: the same each time if `is_repeatable`. False: OpenSSL failed.
 */
bool mp_seal(const mp_seal_key *key, mp_str about, mp_str text, bool is_repeatable, unsigned char *sealed);
/* Writes the text to `text`, which has room for sealed.len bytes, and returns its length; -1 if none of the keys has
 * sealed it for this purpose. `keys` ends with a key that is not set. */
ptrdiff_t mp_unseal(const mp_seal_key *keys, mp_str about, mp_str sealed, unsigned char *text);

#endif
