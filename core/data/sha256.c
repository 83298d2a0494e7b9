/* sha256.c: SHA-256 by the functions of libcrypto that need nothing but their context. SHA256() starts OpenSSL: its configuration, its providers and
 * its texts, 2 MB that a gateway without TLS has no other use for. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "sha256.h"
#include <openssl/sha.h>

void mp_sha256(mp_str bytes, unsigned char hash[MP_SHA256_BYTES])
{
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, bytes.ptr, bytes.len);
    SHA256_Final(hash, &context);
    explicit_bzero(&context, sizeof context); /* it has the last bytes of a secret */
}
