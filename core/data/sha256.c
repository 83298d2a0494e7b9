/* sha256.c: SHA-256 by the functions of libcrypto that need nothing but their context. SHA256() starts OpenSSL: its
 * configuration, its providers and its texts, 2 MB that a gateway without TLS has no other use for. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "sha256.h"
#include <openssl/crypto.h>
#include <openssl/sha.h>

void mp_sha256(mp_str bytes, unsigned char hash[MP_SHA256_BYTES])
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes.ptr, bytes.len);
    SHA256_Final(hash, &context);
    explicit_bzero(&context, sizeof context); /* it has the last bytes of a secret */
}

mp_secret_hash mp_secret_hash_of(mp_str secret)
{
    mp_secret_hash hash;
    mp_sha256(secret, hash.bytes);
    return hash;
}

bool mp_secret_hash_is(const mp_secret_hash *a, const mp_secret_hash *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
