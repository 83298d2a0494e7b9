/* jwk.c: keys from and to numbers, points, PEM and certificates. */
#include "data/jwk.h"
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#define MIN_RSA_BITS 2048
#define MAX_RSA_BITS 8192
#define MAX_EXPONENT_BYTES 8 /* maximum bytes of the exponent of an RSA key */
#define MAX_PEM_BYTES ((size_t)1 << 20)

typedef struct {
    const char *kind, *group; /* name of the curve in a JWK, and in OpenSSL */
    size_t bytes;             /* bytes of one coordinate */
    const char *algorithm;
} curve;

static const curve curves[] = {
    {"P-256", "prime256v1", 32, "ES256"}, {"P-384", "secp384r1", 48, "ES384"}, {"P-521", "secp521r1", 66, "ES512"}};

/* Clears OpenSSL's error queue after a failure that was returned: TLS on this thread would report it. */
static const char *MP_NULLABLE without_openssl_error(const char *MP_NULLABLE why)
{
    ERR_clear_error();
    return why;
}

void mp_jwk_clear(mp_jwk *key)
{
    EVP_PKEY_free(key->pkey);
    *key = (mp_jwk){0};
}

/* Sets the kind of a key that OpenSSL has read. Refuses weak and unsupported keys. */
static const char *MP_NULLABLE settle_size(mp_jwk *key)
{
    static const char other[] = "the key's type is not supported: use RSA, EC P-256, P-384, P-521 or Ed25519";
    char group[32];
    size_t len;
    if (EVP_PKEY_is_a(key->pkey, "RSA")) {
        int bits = EVP_PKEY_get_bits(key->pkey);
        if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS) {
            mp_jwk_clear(key);
            return without_openssl_error("an RSA key has 2048 to 8192 bits");
        }
        key->kind = "RSA";
    } else if (EVP_PKEY_is_a(key->pkey, "ED25519")) {
        key->kind = "Ed25519";
    } else if (EVP_PKEY_is_a(key->pkey, "EC") && EVP_PKEY_get_group_name(key->pkey, group, sizeof group, &len) == 1) {
        for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
            if (strcmp(group, curves[i].group) == 0)
                key->kind = curves[i].kind;
    }
    if (key->kind == NULL)
        mp_jwk_clear(key);
    return without_openssl_error(key->kind == NULL ? other : NULL);
}

static EVP_PKEY *MP_NULLABLE from_params(const char *type, OSSL_PARAM_BLD *build)
{
    EVP_PKEY *pkey = NULL;
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (params == NULL || ctx == NULL || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1)
        pkey = NULL;
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return pkey;
}

const char *MP_NULLABLE mp_jwk_from_rsa(mp_jwk *key, mp_str modulus, mp_str exponent)
{
    *key = (mp_jwk){0};
    if (modulus.len < MIN_RSA_BITS / 8 || modulus.len > MAX_RSA_BITS / 8 || modulus.ptr[0] == '\0')
        return "an RSA key has 2048 to 8192 bits";
    if (exponent.len == 0 || exponent.len > MAX_EXPONENT_BYTES || (exponent.ptr[exponent.len - 1] & 1) == 0 ||
        (exponent.len == 1 && exponent.ptr[0] == 1))
        return "the RSA key's exponent is invalid";
    BIGNUM *n = BN_bin2bn((const unsigned char *)modulus.ptr, (int)modulus.len, NULL);
    BIGNUM *e = BN_bin2bn((const unsigned char *)exponent.ptr, (int)exponent.len, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (build != NULL && n != NULL && e != NULL && BN_is_odd(n) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1)
        key->pkey = from_params("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(e);
    return key->pkey == NULL ? without_openssl_error("the numbers 'n' and 'e' do not form an RSA key")
                             : settle_size(key);
}

const char *MP_NULLABLE mp_jwk_from_ec(mp_jwk *key, mp_str name, mp_str x, mp_str y)
{
    const curve *found = NULL;
    unsigned char point[1 + 2 * 66];
    *key = (mp_jwk){0};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (mp_str_is(name, curves[i].kind))
            found = &curves[i];
    if (found == NULL)
        return "the key's curve is not supported: only P-256, P-384 and P-521 are";
    if (x.len != found->bytes || y.len != found->bytes)
        return "the EC key's coordinates have the wrong length for its curve";
    point[0] = POINT_CONVERSION_UNCOMPRESSED;
    memcpy(point + 1, x.ptr, x.len);
    memcpy(point + 1 + x.len, y.ptr, y.len);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (build != NULL && OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, found->group, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * found->bytes) == 1)
        key->pkey = from_params("EC", build);
    OSSL_PARAM_BLD_free(build);
    return key->pkey == NULL ? without_openssl_error("the EC key's point is not on its curve") : settle_size(key);
}

const char *MP_NULLABLE mp_jwk_from_ed25519(mp_jwk *key, mp_str x)
{
    *key = (mp_jwk){0};
    if (x.len != 32)
        return "an Ed25519 key has 32 bytes";
    key->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)x.ptr, x.len);
    return key->pkey == NULL ? without_openssl_error("the key's bytes are not an Ed25519 key") : settle_size(key);
}

/* Refuses keys with a password: a server has no user to ask for it. */
static int no_password(MP_UNUSED char *to, MP_UNUSED int size, MP_UNUSED int writes, MP_UNUSED void *ctx)
{
    return -1;
}

const char *MP_NULLABLE mp_jwk_from_pem(mp_jwk *key, mp_str text, bool is_private)
{
    *key = (mp_jwk){.is_private = is_private};
    if (text.len > MAX_PEM_BYTES)
        return "the PEM is too long";
    BIO *bio = BIO_new_mem_buf(text.ptr, (int)text.len);
    if (bio == NULL)
        return without_openssl_error("out of memory");
    char *name = NULL, *head = NULL;
    unsigned char *bytes = NULL;
    long len = 0;
    bool found = PEM_read_bio(bio, &name, &head, &bytes, &len) == 1;
    bool names_private = found && strstr(name, "PRIVATE KEY") != NULL;
    bool is_certificate = found && (strcmp(name, "CERTIFICATE") == 0 || strcmp(name, "X509 CERTIFICATE") == 0);
    OPENSSL_free(name);
    OPENSSL_free(head);
    OPENSSL_clear_free(bytes, found ? (size_t)len : 0);
    (void)BIO_reset(bio);
    if (names_private && is_private) {
        key->pkey = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
    } else if (is_certificate && !is_private) {
        X509 *certificate = PEM_read_bio_X509(bio, NULL, no_password, NULL);
        key->pkey = certificate == NULL ? NULL : X509_get_pubkey(certificate);
        X509_free(certificate);
    } else if (found && !names_private && !is_private) {
        key->pkey = PEM_read_bio_PUBKEY(bio, NULL, no_password, NULL);
    }
    BIO_free(bio);
    if (key->pkey != NULL)
        return settle_size(key);
    mp_jwk_clear(key);
    if (!found)
        return without_openssl_error("the text is not PEM: it has no line such as -----BEGIN PUBLIC KEY-----");
    if (names_private && !is_private)
        return without_openssl_error(
            "the text is a private key, but a public key is needed: only the issuer needs the private key");
    if (is_private)
        return without_openssl_error(names_private ? "the private key cannot be read: it is damaged, or has a password"
                                                   : "the text is not a private key");
    return without_openssl_error(is_certificate ? "this certificate cannot be read" : "this public key cannot be read");
}

const char *MP_NULLABLE mp_jwk_generate(mp_jwk *key, mp_str algorithm)
{
    *key = (mp_jwk){.is_private = true};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (mp_str_is(algorithm, curves[i].algorithm))
            key->pkey = EVP_PKEY_Q_keygen(NULL, NULL, "EC", curves[i].group);
    if (mp_str_is(algorithm, "EdDSA") || mp_str_is(algorithm, "Ed25519"))
        key->pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    else if (mp_str_starts(algorithm, MP_STR("RS")) || mp_str_starts(algorithm, MP_STR("PS")))
        key->pkey = EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)MIN_RSA_BITS);
    if (key->pkey == NULL)
        return without_openssl_error("no such algorithm");
    const char *why = settle_size(key);
    if (why == NULL && !mp_jwk_suits(key, algorithm)) {
        mp_jwk_clear(key);
        why = "no such algorithm";
    }
    return why;
}

const char *mp_jwk_algorithm(const mp_jwk *key)
{
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (strcmp(key->kind, curves[i].kind) == 0)
            return curves[i].algorithm;
    return strcmp(key->kind, "RSA") == 0 ? "RS256" : "EdDSA";
}

bool mp_jwk_put_pem(const mp_jwk *key, bool is_private, mp_buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    bool fine = bio != NULL && (is_private ? PEM_write_bio_PKCS8PrivateKey(bio, key->pkey, NULL, NULL, 0, NULL, NULL)
                                           : PEM_write_bio_PUBKEY(bio, key->pkey)) == 1;
    char *text;
    long len = fine ? BIO_get_mem_data(bio, &text) : 0;
    if (len > 0)
        mp_buf_put(out, (mp_str){text, (size_t)len});
    BIO_free(bio);
    without_openssl_error(NULL);
    return len > 0;
}
