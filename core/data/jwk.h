/* jwk.h: keys that sign and verify, by OpenSSL. Reads JWK (RFC 7517, RFC 8037), PEM and certificates, and chooses the
 * algorithm of JWS for each kind of key (RFC 7518, RFC 8037, RFC 9864). */
#ifndef MP_DATA_JWK_H
#define MP_DATA_JWK_H

#include "telemetry/telemetry.h"
#include <openssl/evp.h>

typedef struct {
    EVP_PKEY *MP_NULLABLE pkey;
    const char *kind; /* "RSA", "P-256", "P-384", "P-521", "Ed25519" */
    bool is_private;
} mp_jwk;

/* Makes a public key from big-endian numbers, or from the bytes of a point. Returns NULL; or the reason that they
 * are not a key, and `key` is empty. */
const char *MP_NULLABLE mp_jwk_from_rsa(mp_jwk *key, mp_str modulus, mp_str exponent);
const char *MP_NULLABLE mp_jwk_from_ec(mp_jwk *key, mp_str curve, mp_str x, mp_str y);
const char *MP_NULLABLE mp_jwk_from_ed25519(mp_jwk *key, mp_str x);
/* Reads the PEM of a public key or a certificate; with `is_private`, of a private key without a password. Returns
 * NULL, or the reason that it failed. */
const char *MP_NULLABLE mp_jwk_from_pem(mp_jwk *key, mp_str text, bool is_private);
/* Generates a private key for `algorithm`. Returns NULL, or the reason that it failed. */
const char *MP_NULLABLE mp_jwk_generate(mp_jwk *key, mp_str algorithm);
void mp_jwk_clear(mp_jwk *key);

/* True if the key can be used with the algorithm. */
bool mp_jwk_suits(const mp_jwk *key, mp_str algorithm);
/* The default algorithm of the key. */
const char *mp_jwk_algorithm(const mp_jwk *key);
/* True if `signature`, in the form of JWS, is a valid signature of `data`. */
bool mp_jwk_verify(const mp_jwk *key, mp_str algorithm, mp_str data, mp_str signature);
/* Appends the signature of `data` to `out`. Returns NULL, or the reason that it failed. */
const char *MP_NULLABLE mp_jwk_sign(const mp_jwk *key, mp_str algorithm, mp_str data, mp_buf *out);
/* Appends PEM: PKCS #8 of a private key when `is_private`, else SubjectPublicKeyInfo. */
bool mp_jwk_put_pem(const mp_jwk *key, bool is_private, mp_buf *out);

/* The parts of a compact JWS: exactly three, of Base64 for URLs without padding. */
typedef struct {
    mp_str header, payload, signature; /* decoded parts; their bytes are in `room` */
    mp_str input;                      /* the part of the token that is signed */
} mp_token;

/* Splits and decodes a token. `room` has at least as many bytes as the token. Returns NULL, or the reason that the
 * text is not a token. */
const char *MP_NULLABLE mp_token_split(mp_token *to, mp_str token, unsigned char *room);

#endif
