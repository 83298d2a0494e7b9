/* digest.c: hash functions and HMAC by OpenSSL. */
#include "lib/bindings.h"
#include <lauxlib.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static const EVP_MD *check_kind(lua_State *L, int index)
{
    const EVP_MD *kind = EVP_get_digestbyname(luaL_checkstring(L, index));
    luaL_argcheck(L, kind != NULL, index, "the name is not a hash function of OpenSSL");
    return kind;
}

/* digest.sum(kind, bytes): the hash, as bytes. `kind`: OpenSSL's name of the hash function.  [-0, +1, throws] */
static int l_digest(lua_State *L)
{
    const EVP_MD *kind = check_kind(L, 1);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (EVP_Digest(bytes, len, hash, &size, kind, NULL) != 1)
        return luaL_error(L, "this hash function is disabled in OpenSSL");
    lua_pushlstring(L, (const char *)hash, size);
    return 1;
}

/* digest.hmac(kind, key, bytes): the message authentication code, as bytes (RFC 2104).  [-0, +1, throws] */
static int l_hmac(lua_State *L)
{
    const EVP_MD *kind = check_kind(L, 1);
    size_t key_len, len;
    const char *key = luaL_checklstring(L, 2, &key_len), *bytes = luaL_checklstring(L, 3, &len);
    unsigned char code[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (HMAC(kind, key, (int)key_len, (const unsigned char *)bytes, len, code, &size) == NULL)
        return luaL_error(L, "this hash function is disabled in OpenSSL");
    lua_pushlstring(L, (const char *)code, size);
    return 1;
}

void mp_lib_digest(lua_State *L)
{
    static const luaL_Reg functions[] = {{"digest.sum", l_digest}, {"digest.hmac", l_hmac}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}

MP_LIBRARY(digest)
{
    mp_lib_digest(L);
}
