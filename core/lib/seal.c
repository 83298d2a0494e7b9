/* seal.c: encrypts data that a client stores and sends back, and that it must neither read nor change: cursors, requestState. AES-256-GCM
 * by OpenSSL. `about` names the purpose and is authenticated data: a text that was sealed for one purpose cannot be unsealed for another.
 *
 *   base64url( key id, 4 bytes · nonce, 12 · text · tag, 16 ) */
#include "telemetry/telemetry.h"
#include "lib/bindings.h"
#include <lauxlib.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/random.h>

#define KEY_ID_BYTES 4
#define NONCE_BYTES 12
#define TAG_BYTES 16
#define OVERHEAD_BYTES (KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES)
#define MAX_SEALED_BYTES ((size_t)1 << 20)

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

/* A nonce that follows from the key, the purpose and the text: the same text is sealed to the same bytes, and two texts get the same
 * nonce as rarely as two random ones. */
static bool derive_nonce(unsigned char *nonce, const mp_seal_key *key, mp_str about, mp_str text)
{
    static const char purpose[] = "moonpool nonce 1";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int len = sizeof digest;
    uint64_t about_len = about.len;
    mp_buf message = {0};
    mp_buf_put(&message, (mp_str){purpose, sizeof purpose});
    mp_buf_put(&message, (mp_str){(const char *)&about_len, sizeof about_len});
    mp_buf_put(&message, about);
    mp_buf_put(&message, text);
    bool is_done = HMAC(EVP_sha256(), key->bytes, sizeof key->bytes, (const unsigned char *)message.ptr, message.len,
                        digest, &len) != NULL;
    mp_buf_clear(&message);
    if (is_done)
        memcpy(nonce, digest, NONCE_BYTES);
    return is_done;
}

/* seal.make(text, about, is_repeatable): the encrypted text, as base64url; the same for the same text and purpose if it is repeatable.
 *  [-0, +1, throws] */
static int l_seal(lua_State *L)
{
    const mp_seal_key *keys = lua_touserdata(L, lua_upvalueindex(1));
    mp_str text, about;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    luaL_argcheck(L, text.len <= MAX_SEALED_BYTES && about.len <= MAX_SEALED_BYTES, 1,
                  "more than 1 MiB cannot be sealed");
    unsigned char *raw = lua_newuserdatauv(L, text.len + OVERHEAD_BYTES, 0);
    unsigned char *nonce = raw + KEY_ID_BYTES, *body = nonce + NONCE_BYTES;
    memcpy(raw, keys[0].id, KEY_ID_BYTES);
    bool has_nonce =
        lua_toboolean(L, 3) ? derive_nonce(nonce, &keys[0], about, text) : RAND_bytes(nonce, NONCE_BYTES) == 1;
    if (!has_nonce ||
        !run_cipher(true, &keys[0], nonce, about, (const unsigned char *)text.ptr, text.len, body, body + text.len))
        return luaL_error(L, "encryption failed: no random bytes, or no memory");
    luaL_Buffer buffer;
    char *out = luaL_buffinitsize(L, &buffer, (text.len + OVERHEAD_BYTES) * 4 / 3 + 4);
    luaL_pushresultsize(&buffer, mp_base64url_encode(out, (mp_str){(const char *)raw, text.len + OVERHEAD_BYTES}));
    return 1;
}

/* seal.open(sealed, about): the decrypted text; nil if it was not sealed with one of the keys for the purpose `about`.
 *  [-0, +1, throws] */
static int l_unseal(lua_State *L)
{
    const mp_seal_key *keys = lua_touserdata(L, lua_upvalueindex(1));
    mp_str sealed, about;
    sealed.ptr = luaL_checklstring(L, 1, &sealed.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    lua_settop(L, 2);
    lua_pushnil(L);
    if (sealed.len > MAX_SEALED_BYTES * 2 || about.len > MAX_SEALED_BYTES)
        return 1;
    unsigned char *raw = lua_newuserdatauv(L, sealed.len + 1, 0);
    ptrdiff_t len = mp_base64url_decode(raw, sealed);
    lua_pushvalue(L, 3);
    if (len < OVERHEAD_BYTES)
        return 1;
    unsigned char *nonce = raw + KEY_ID_BYTES, *body = nonce + NONCE_BYTES;
    size_t text_len = (size_t)len - OVERHEAD_BYTES;
    for (const mp_seal_key *key = keys; key->is_set; key++) {
        if (memcmp(key->id, raw, KEY_ID_BYTES) != 0)
            continue;
        unsigned char *text = lua_newuserdatauv(L, text_len + 1, 0);
        if (run_cipher(false, key, nonce, about, body, text_len, text, body + text_len))
            lua_pushlstring(L, (const char *)text, text_len);
        else
            lua_pushnil(L);
        return 1;
    }
    return 1;
}

void mp_lib_seal(lua_State *L, const mp_seal_key *keys)
{
    static const luaL_Reg functions[] = {{"seal.make", l_seal}, {"seal.open", l_unseal}, {NULL, NULL}};
    size_t count = 0;
    while (keys[count].is_set)
        count++;
    mp_seal_key *own = lua_newuserdatauv(L, (count + 1) * sizeof *own, 0);
    memcpy(own, keys, (count + 1) * sizeof *own);
    mp_set_members(L, functions, 1);
}

/* A key of this process alone, from the kernel: a start does not need OpenSSL. */
static void make_random(mp_seal_key *key)
{
    if (getrandom(key->bytes, sizeof key->bytes, 0) != (ssize_t)sizeof key->bytes ||
        getrandom(key->id, sizeof key->id, 0) != (ssize_t)sizeof key->id)
        abort(); /* without random bytes the key could be guessed */
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
