/* seal.c: encrypts and decrypts texts for other processes and for clients. */
#include "data/seal.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <sys/random.h>

#define KEY_ID_BYTES 4
#define NONCE_BYTES 12
#define TAG_BYTES 16

_Static_assert(KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES == MP_SEAL_OVERHEAD, "of which a sealed text consists");

/* Encrypts (`seals`) or decrypts `len` bytes. Writes `tag` when it encrypts, checks it when it decrypts. */
static bool run_cipher(bool seals, const mp_seal_key *key, const unsigned char *nonce, mp_str about,
                       const unsigned char *in, size_t len, unsigned char *out, unsigned char *tag)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int written = 0, rest = 0;
    bool is_done = ctx != NULL && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce, seals) == 1 &&
                   EVP_CipherUpdate(ctx, NULL, &written, (const unsigned char *)about.ptr, (int)about.len) == 1 &&
                   (seals || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, tag) == 1) &&
                   EVP_CipherUpdate(ctx, out, &written, in, (int)len) == 1 &&
                   EVP_CipherFinal_ex(ctx, out + written, &rest) == 1 &&
                   (!seals || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, tag) == 1);
    EVP_CIPHER_CTX_free(ctx);
    return is_done;
}

/* A nonce that follows from the key, the purpose and the text: the same text is sealed to the same bytes, and two texts
 * get the same nonce as rarely as two random ones. */
static bool derive_nonce(unsigned char *nonce, const mp_seal_key *key, mp_str about, mp_str text)
{
    static const char purpose[] = "moonpool nonce 1";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = sizeof digest;
    uint64_t about_len = about.len;
    mp_scoped_buf message = {0};
    mp_buf_put(&message, (mp_str){purpose, sizeof purpose});
    mp_buf_put(&message, (mp_str){(const char *)&about_len, sizeof about_len});
    mp_buf_put(&message, about);
    mp_buf_put(&message, text);
    bool is_done = HMAC(EVP_sha256(), key->bytes, sizeof key->bytes, (const unsigned char *)message.ptr, message.len,
                        digest, &len) != NULL;
    if (is_done)
        memcpy(nonce, digest, NONCE_BYTES);
    return is_done;
}

bool mp_seal(const mp_seal_key *key, mp_str about, mp_str text, bool is_repeatable, unsigned char *sealed)
{
    unsigned char *nonce = sealed + KEY_ID_BYTES, *body = nonce + NONCE_BYTES;
    memcpy(sealed, key->id, KEY_ID_BYTES);
    bool has_nonce = is_repeatable ? derive_nonce(nonce, key, about, text) : RAND_bytes(nonce, NONCE_BYTES) == 1;
    return has_nonce &&
           run_cipher(true, key, nonce, about, (const unsigned char *)text.ptr, text.len, body, body + text.len);
}

ptrdiff_t mp_unseal(const mp_seal_key *keys, mp_str about, mp_str sealed, unsigned char *text)
{
    if (sealed.len < MP_SEAL_OVERHEAD)
        return -1;
    const unsigned char *nonce = (const unsigned char *)sealed.ptr + KEY_ID_BYTES, *body = nonce + NONCE_BYTES;
    size_t len = sealed.len - MP_SEAL_OVERHEAD;
    unsigned char tag[TAG_BYTES];
    memcpy(tag, body + len, TAG_BYTES);
    for (const mp_seal_key *key = keys; key->is_set; key++)
        if (memcmp(key->id, sealed.ptr, KEY_ID_BYTES) == 0)
            return run_cipher(false, key, nonce, about, body, len, text, tag) ? (ptrdiff_t)len : -1;
    return -1;
}

/* A key of this process alone, from the kernel: a start does not need OpenSSL. */
static void make_random(mp_seal_key *key)
{
    if (getrandom(key->bytes, sizeof key->bytes, 0) != (ssize_t)sizeof key->bytes ||
        getrandom(key->id, sizeof key->id, 0) != (ssize_t)sizeof key->id)
        abort(); /* without random bytes the key could be guessed */
}

void mp_seal_key_hash(const mp_seal_key *key, mp_str purpose, unsigned char hash[MP_SHA256_BYTES])
{
    mp_scoped_buf text = {0};
    mp_buf_put(&text, purpose);
    mp_buf_put(&text, (mp_str){(const char *)key->bytes, sizeof key->bytes});
    mp_sha256(mp_buf_str(&text), hash);
    explicit_bzero(text.ptr, text.len);
}

bool mp_seal_key_derive(mp_seal_key *derived, const mp_seal_key *key, mp_str purpose)
{
    unsigned char bytes[sizeof derived->id + sizeof derived->bytes];
    size_t len = sizeof bytes;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);
    bool is_done = ctx != NULL && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_CTX_set_hkdf_md(ctx, EVP_sha256()) == 1 &&
                   EVP_PKEY_CTX_set1_hkdf_key(ctx, key->bytes, sizeof key->bytes) == 1 &&
                   EVP_PKEY_CTX_add1_hkdf_info(ctx, (const unsigned char *)purpose.ptr, (int)purpose.len) == 1 &&
                   EVP_PKEY_derive(ctx, bytes, &len) == 1;
    EVP_PKEY_CTX_free(ctx);
    *derived = (mp_seal_key){.is_set = is_done};
    if (is_done) {
        memcpy(derived->id, bytes, sizeof derived->id);
        memcpy(derived->bytes, bytes + sizeof derived->id, sizeof derived->bytes);
    }
    explicit_bzero(bytes, sizeof bytes);
    return is_done;
}

void mp_seal_key_make(mp_seal_key *key, mp_str secret)
{
    unsigned char bytes[32];
    unsigned int len = sizeof bytes;
    static const char purpose[] = "moonpool seal 1";
    *key = (mp_seal_key){.is_set = true};
    if (secret.len == 0) {
        make_random(key);
        return;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    EVP_DigestUpdate(ctx, purpose, sizeof purpose);
    EVP_DigestUpdate(ctx, secret.ptr, secret.len);
    EVP_DigestFinal_ex(ctx, key->bytes, &len);
    EVP_MD_CTX_free(ctx);
    EVP_Digest(key->bytes, sizeof key->bytes, bytes, &len, EVP_sha256(), NULL);
    memcpy(key->id, bytes, sizeof key->id);
}
