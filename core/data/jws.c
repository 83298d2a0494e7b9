/* jws.c: the algorithms of JWS, each with the one kind of key that it goes with, and the form of a token. */
#include "data/jwk.h"
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/rsa.h>

MP_COUNTER(verifications, "jwt_verifications", "", "", "token signatures verified")

#define MAX_COORDINATE_BYTES 66

typedef enum { PKCS1, PSS, ECDSA, ED25519 } scheme;

typedef struct {
    const char *name, *kind, *digest;
    scheme scheme;
    size_t coordinate; /* bytes of one coordinate of ECDSA */
} algorithm;

static const algorithm algorithms[] = {{"RS256", "RSA", "SHA256", PKCS1, 0},    {"RS384", "RSA", "SHA384", PKCS1, 0},
                                       {"RS512", "RSA", "SHA512", PKCS1, 0},    {"PS256", "RSA", "SHA256", PSS, 0},
                                       {"PS384", "RSA", "SHA384", PSS, 0},      {"PS512", "RSA", "SHA512", PSS, 0},
                                       {"ES256", "P-256", "SHA256", ECDSA, 32}, {"ES384", "P-384", "SHA384", ECDSA, 48},
                                       {"ES512", "P-521", "SHA512", ECDSA, 66}, {"EdDSA", "Ed25519", NULL, ED25519, 0},
                                       {"Ed25519", "Ed25519", NULL, ED25519, 0}};

/* The row of an algorithm. NULL if the key cannot be used with it. */
static const algorithm *MP_NULLABLE find_algorithm(const mp_jwk *key, mp_str name)
{
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        if (mp_str_is(name, algorithms[i].name))
            return key->pkey != NULL && strcmp(key->kind, algorithms[i].kind) == 0 ? &algorithms[i] : NULL;
    return NULL;
}

bool mp_jwk_suits(const mp_jwk *key, mp_str name)
{
    return find_algorithm(key, name) != NULL;
}

static bool begin_digest(EVP_MD_CTX *MP_NULLABLE ctx, const mp_jwk *key, const algorithm *a, bool signs)
{
    EVP_PKEY_CTX *inner = NULL;
    if (ctx == NULL || (signs ? EVP_DigestSignInit_ex(ctx, &inner, a->digest, NULL, NULL, key->pkey, NULL)
                              : EVP_DigestVerifyInit_ex(ctx, &inner, a->digest, NULL, NULL, key->pkey, NULL)) != 1)
        return false;
    if (a->scheme == PKCS1)
        return EVP_PKEY_CTX_set_rsa_padding(inner, RSA_PKCS1_PADDING) == 1;
    return a->scheme != PSS || (EVP_PKEY_CTX_set_rsa_padding(inner, RSA_PKCS1_PSS_PADDING) == 1 &&
                                EVP_PKEY_CTX_set_rsa_pss_saltlen(inner, RSA_PSS_SALTLEN_DIGEST) == 1);
}

/* Converts two numbers of `size` bytes each to DER at `*der`, which the caller frees. Returns the length of the DER,
 * or -1. */
static int to_der(mp_str raw, size_t size, unsigned char **der)
{
    const unsigned char *bytes = (const unsigned char *)raw.ptr;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(bytes, (int)size, NULL), *s = BN_bin2bn(bytes + size, (int)size, NULL);
    int len = -1;
    if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1)
        len = i2d_ECDSA_SIG(pair, der);
    else {
        BN_free(r);
        BN_free(s);
    }
    ECDSA_SIG_free(pair);
    return len;
}

/* The length of a signature in bytes. */
static size_t length(const mp_jwk *key, const algorithm *a)
{
    if (a->scheme == ECDSA)
        return 2 * a->coordinate;
    return a->scheme == ED25519 ? 64 : (size_t)EVP_PKEY_get_size(key->pkey);
}

bool mp_jwk_verify(const mp_jwk *key, mp_str name, mp_str data, mp_str signature)
{
    const algorithm *a = find_algorithm(key, name);
    if (a == NULL || signature.len != length(key, a))
        return false;
    mp_stat_add(&mp_stat_verifications, 1);
    const unsigned char *form = (const unsigned char *)signature.ptr;
    unsigned char *der = NULL;
    size_t len = signature.len;
    if (a->scheme == ECDSA) {
        int size = to_der(signature, a->coordinate, &der);
        if (size <= 0) {
            ERR_clear_error();
            return false;
        }
        form = der;
        len = (size_t)size;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool fine = begin_digest(ctx, key, a, false) &&
                EVP_DigestVerify(ctx, form, len, (const unsigned char *)data.ptr, data.len) == 1;
    EVP_MD_CTX_free(ctx);
    OPENSSL_free(der);
    ERR_clear_error(); /* TLS on this thread would report an old failure in OpenSSL's error queue */
    return fine;
}

/* Converts DER to two numbers of `size` bytes each, appended to `out`. */
static bool put_raw(mp_buf *out, const unsigned char *der, size_t len, size_t size)
{
    unsigned char raw[2 * MAX_COORDINATE_BYTES];
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &der, (long)len);
    bool fine = pair != NULL && BN_bn2binpad(ECDSA_SIG_get0_r(pair), raw, (int)size) >= 0 &&
                BN_bn2binpad(ECDSA_SIG_get0_s(pair), raw + size, (int)size) >= 0;
    ECDSA_SIG_free(pair);
    if (fine)
        mp_buf_put(out, (mp_str){(const char *)raw, 2 * size});
    return fine;
}

const char *MP_NULLABLE mp_jwk_sign(const mp_jwk *key, mp_str name, mp_str data, mp_buf *out)
{
    const algorithm *a = find_algorithm(key, name);
    if (a == NULL)
        return "the key does not fit this algorithm";
    if (!key->is_private)
        return "a public key cannot sign: use the private key";
    unsigned char bytes[2048];
    size_t len = sizeof bytes;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool fine = begin_digest(ctx, key, a, true) &&
                EVP_DigestSign(ctx, bytes, &len, (const unsigned char *)data.ptr, data.len) == 1;
    EVP_MD_CTX_free(ctx);
    if (fine && a->scheme == ECDSA)
        fine = put_raw(out, bytes, len, a->coordinate);
    else if (fine)
        mp_buf_put(out, (mp_str){(const char *)bytes, len});
    ERR_clear_error();
    return fine ? NULL : "OpenSSL failed to sign";
}

/* -- the form of a token --------------------------------------------------------------------------------------- */

static const char *MP_NULLABLE take_part(mp_str *to, mp_str part, unsigned char **room)
{
    ptrdiff_t len = mp_base64url_decode(*room, part);
    if (part.len == 0 || len < 0)
        return part.len == 0 ? "a part of the token is empty" : "a part of the token is not base64url";
    *to = (mp_str){(const char *)*room, (size_t)len};
    *room += len;
    return NULL;
}

const char *MP_NULLABLE mp_token_split(mp_token *to, mp_str token, unsigned char *room)
{
    mp_str rest = token, parts[3];
    for (int i = 0; i < 2; i++) {
        const char *dot = rest.len == 0 ? NULL : memchr(rest.ptr, '.', rest.len);
        if (dot == NULL)
            return "the token has fewer than three parts";
        parts[i] = (mp_str){rest.ptr, (size_t)(dot - rest.ptr)};
        rest = mp_str_from(rest, parts[i].len + 1);
    }
    parts[2] = rest;
    if (rest.len > 0 && memchr(rest.ptr, '.', rest.len) != NULL)
        return "the token has more than three parts";
    to->input = (mp_str){token.ptr, parts[0].len + 1 + parts[1].len};
    const char *why = take_part(&to->header, parts[0], &room);
    if (why == NULL)
        why = take_part(&to->payload, parts[1], &room);
    return why == NULL ? take_part(&to->signature, parts[2], &room) : why;
}
