/* keys.h: keys that sign and verify, by OpenSSL: what a JWK (RFC 7517, RFC 8037), PEM and a certificate hold, and the
 * algorithms of JWS that go with each kind (RFC 7518, RFC 8037, RFC 9864). */
#ifndef MP_SCRIPT_KEYS_H
#define MP_SCRIPT_KEYS_H

#include "base/base.h"
#include <openssl/evp.h>

typedef struct {
    EVP_PKEY *pkey;
    const char *kind; /* "RSA", "P-256", "P-384", "P-521", "Ed25519" */
    bool is_private;
} mp_key;

/* Raw big-endian numbers, or the bytes of a point. NULL when the key is one, else why it is none; `key` is then empty. */
const char *mp_key_from_rsa(mp_key *key, mp_str modulus, mp_str exponent);
const char *mp_key_from_ec(mp_key *key, mp_str curve, mp_str x, mp_str y);
const char *mp_key_from_ed25519(mp_key *key, mp_str x);
/* A public key or a certificate; with `is_private` a private key without a password. */
const char *mp_key_from_pem(mp_key *key, mp_str text, bool is_private);
/* A new private key for `algorithm`. */
const char *mp_key_generate(mp_key *key, mp_str algorithm);
void mp_key_clear(mp_key *key);

/* Whether the key goes with the algorithm. */
bool mp_key_suits(const mp_key *key, mp_str algorithm);
/* The algorithm that the key is used with when nobody says another. */
const char *mp_key_algorithm(const mp_key *key);
/* Whether `signature`, in the form that JWS has it, is one of `data`. */
bool mp_key_verify(const mp_key *key, mp_str algorithm, mp_str data, mp_str signature);
/* Appends the signature to `out`; NULL, or why not. */
const char *mp_key_sign(const mp_key *key, mp_str algorithm, mp_str data, mp_buf *out);
/* Appends PEM: PKCS #8 of a private key when `is_private`, else SubjectPublicKeyInfo. */
bool mp_key_put_pem(const mp_key *key, bool is_private, mp_buf *out);

/* The parts of a compact JWS: exactly three, of Base64 for URLs without padding. */
typedef struct {
    mp_str header, payload, signature; /* decoded, in `room` */
    mp_str input;                      /* what is signed, in the token */
} mp_token;

/* `room` takes as many bytes as the token has. NULL, or what is wrong with it. */
const char *mp_token_split(mp_token *to, mp_str token, unsigned char *room);

#endif
