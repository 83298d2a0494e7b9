/* lib_seal.c: what clients carry for us and must neither read nor change: cursors, the state of a request. AES-256-GCM by
 * OpenSSL; `about` is authenticated with it, so that what was sealed for one purpose opens for no other.
 *
 *   base64url( key id, 4 bytes · nonce, 12 · text · tag, 16 ) */
#include "base/base.h"
#include "script/lib.h"
#include <lauxlib.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#define KEY_ID 4
#define NONCE 12
#define TAG 16
#define OVERHEAD (KEY_ID + NONCE + TAG)
#define MOST ((size_t)1 << 20)

/* Runs one direction over `len` bytes; `tag` is written or checked. */
static bool run_cipher(bool seals, const mp_seal_key *key, const unsigned char *nonce, mp_str about,
                       const unsigned char *in, size_t len, unsigned char *out, unsigned char *tag)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int written = 0, rest = 0;
    bool fine = ctx != NULL && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce, seals) == 1 &&
                EVP_CipherUpdate(ctx, NULL, &written, (const unsigned char *)about.ptr, (int)about.len) == 1 &&
                (seals || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1) &&
                EVP_CipherUpdate(ctx, out, &written, in, (int)len) == 1 &&
                EVP_CipherFinal_ex(ctx, out + written, &rest) == 1 &&
                (!seals || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG, tag) == 1);
    EVP_CIPHER_CTX_free(ctx);
    return fine;
}

/* seal(text, about): text for a client to carry.  [-0, +1, throws] */
static int l_seal(lua_State *L)
{
    const mp_seal_key *keys = lua_touserdata(L, lua_upvalueindex(1));
    mp_str text, about;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    luaL_argcheck(L, text.len <= MOST && about.len <= MOST, 1, "too long to seal");
    unsigned char *raw = lua_newuserdatauv(L, text.len + OVERHEAD, 0);
    unsigned char *nonce = raw + KEY_ID, *body = nonce + NONCE;
    memcpy(raw, keys[0].id, KEY_ID);
    if (RAND_bytes(nonce, NONCE) != 1 ||
        !run_cipher(true, &keys[0], nonce, about, (const unsigned char *)text.ptr, text.len, body, body + text.len))
        return luaL_error(L, "cannot seal");
    luaL_Buffer buffer;
    char *out = luaL_buffinitsize(L, &buffer, (text.len + OVERHEAD) * 4 / 3 + 4);
    luaL_pushresultsize(&buffer, mp_base64url_encode(out, (mp_str){(const char *)raw, text.len + OVERHEAD}));
    return 1;
}

/* unseal(sealed, about): the text; nil for whatever `seal` did not write with a key of ours for this purpose.
 *  [-0, +1, throws] */
static int l_unseal(lua_State *L)
{
    const mp_seal_key *keys = lua_touserdata(L, lua_upvalueindex(1));
    mp_str sealed, about;
    sealed.ptr = luaL_checklstring(L, 1, &sealed.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    lua_settop(L, 2);
    lua_pushnil(L);
    if (sealed.len > MOST * 2 || about.len > MOST)
        return 1;
    unsigned char *raw = lua_newuserdatauv(L, sealed.len + 1, 0);
    ptrdiff_t len = mp_base64url_decode(raw, sealed);
    lua_pushvalue(L, 3);
    if (len < OVERHEAD)
        return 1;
    unsigned char *nonce = raw + KEY_ID, *body = nonce + NONCE;
    size_t text_len = (size_t)len - OVERHEAD;
    for (const mp_seal_key *key = keys; key->is_set; key++) {
        if (memcmp(key->id, raw, KEY_ID) != 0)
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
    static const luaL_Reg functions[] = {{"seal", l_seal}, {"unseal", l_unseal}, {NULL, NULL}};
    size_t count = 0;
    while (keys[count].is_set)
        count++;
    mp_seal_key *own = lua_newuserdatauv(L, (count + 1) * sizeof *own, 0);
    memcpy(own, keys, (count + 1) * sizeof *own);
    luaL_setfuncs(L, functions, 1);
}

void mp_seal_key_make(mp_seal_key *key, mp_str secret)
{
    unsigned char bytes[32];
    unsigned int len = sizeof bytes;
    static const char purpose[] = "moonpool seal 1";
    *key = (mp_seal_key){.is_set = true};
    if (secret.len == 0) {
        if (RAND_bytes(key->bytes, sizeof key->bytes) != 1)
            abort(); /* a key that could be guessed is worse than none */
    } else {
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
        EVP_DigestUpdate(ctx, purpose, sizeof purpose);
        EVP_DigestUpdate(ctx, secret.ptr, secret.len);
        EVP_DigestFinal_ex(ctx, key->bytes, &len);
        EVP_MD_CTX_free(ctx);
    }
    EVP_Digest(key->bytes, sizeof key->bytes, bytes, &len, EVP_sha256(), NULL);
    memcpy(key->id, bytes, sizeof key->id);
}
