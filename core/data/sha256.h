/* sha256.h: the hash by which secrets, principals and kept generations are known. */
#ifndef MP_DATA_SHA256_H
#define MP_DATA_SHA256_H

#include "base/base.h"

#define MP_SHA256_BYTES 32

void mp_sha256(mp_str bytes, unsigned char hash[MP_SHA256_BYTES]);

/* The hash of a secret, by which the secret is recognized. */
typedef struct {
    unsigned char bytes[MP_SHA256_BYTES];
} mp_secret_hash;
mp_secret_hash mp_secret_hash_of(mp_str secret);
/* Takes a time that does not depend on where the two differ. */
bool mp_secret_hash_is(const mp_secret_hash *a, const mp_secret_hash *b);

#endif
