/* lib_keys.c: keys as userdata, and what is done with them. What comes from outside is never an error: nil, why. */
#include "script/lib_keys.h"
#include "script/fields.h"
#include "script/keys.h"
#include <arpa/inet.h>
#include <lauxlib.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdlib.h>

#define KEY "moonpool.key"

static mp_key *check_key(lua_State *L)
{
    return luaL_checkudata(L, 1, KEY);
}

/* [-0, +1, throws] */
static mp_key *push_key(lua_State *L)
{
    mp_key *key = lua_newuserdatauv(L, sizeof *key, 0);
    *key = (mp_key){0};
    luaL_setmetatable(L, KEY);
    return key;
}

/* [-0, +2, throws] */
static int fail(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

/* [-0, +1, throws] */
static int push_buf(lua_State *L, mp_buf *buf)
{
    lua_pushlstring(L, buf->ptr, buf->len);
    OPENSSL_cleanse(buf->ptr, buf->len);
    mp_buf_clear(buf);
    return 1;
}

/* -- keys ------------------------------------------------------------------------------------------------------ */

/* rsa(modulus, exponent), as bytes: a key; or nil, why.  [-0, +1|2, throws] */
static int l_rsa(lua_State *L)
{
    mp_str modulus = mp_check_str(L, 1), exponent = mp_check_str(L, 2);
    const char *why = mp_key_from_rsa(push_key(L), modulus, exponent);
    return why == NULL ? 1 : fail(L, why);
}

/* ec(curve, x, y): a key; or nil, why.  [-0, +1|2, throws] */
static int l_ec(lua_State *L)
{
    mp_str curve = mp_check_str(L, 1), x = mp_check_str(L, 2), y = mp_check_str(L, 3);
    const char *why = mp_key_from_ec(push_key(L), curve, x, y);
    return why == NULL ? 1 : fail(L, why);
}

/* ed25519(x): a key; or nil, why.  [-0, +1|2, throws] */
static int l_ed25519(lua_State *L)
{
    mp_str x = mp_check_str(L, 1);
    const char *why = mp_key_from_ed25519(push_key(L), x);
    return why == NULL ? 1 : fail(L, why);
}

/* public(pem): a key; or nil, why.  [-0, +1|2, throws] */
static int l_public(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    const char *why = mp_key_from_pem(push_key(L), text, false);
    return why == NULL ? 1 : fail(L, why);
}

/* private(pem): a key that signs; or nil, why.  [-0, +1|2, throws] */
static int l_private(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    const char *why = mp_key_from_pem(push_key(L), text, true);
    return why == NULL ? 1 : fail(L, why);
}

/* generate(algorithm): a private key; or nil, why.  [-0, +1|2, throws] */
static int l_generate(lua_State *L)
{
    mp_str algorithm = mp_check_str(L, 1);
    const char *why = mp_key_generate(push_key(L), algorithm);
    return why == NULL ? 1 : fail(L, why);
}

static int l_gc(lua_State *L)
{
    mp_key_clear(check_key(L));
    return 0;
}

/* key:kind()  [-0, +1, throws] */
static int l_kind(lua_State *L)
{
    lua_pushstring(L, check_key(L)->kind);
    return 1;
}

/* key:algorithm(): what it is used with when nobody says another.  [-0, +1, throws] */
static int l_algorithm(lua_State *L)
{
    const mp_key *key = check_key(L);
    lua_pushstring(L, key->pkey == NULL ? NULL : mp_key_algorithm(key));
    return 1;
}

/* key:suits(algorithm)  [-0, +1, throws] */
static int l_suits(lua_State *L)
{
    lua_pushboolean(L, mp_key_suits(check_key(L), mp_check_str(L, 2)));
    return 1;
}

/* key:verify(algorithm, data, signature)  [-0, +1, throws] */
static int l_verify(lua_State *L)
{
    lua_pushboolean(L, mp_key_verify(check_key(L), mp_check_str(L, 2), mp_check_str(L, 3), mp_check_str(L, 4)));
    return 1;
}

/* key:sign(algorithm, data): the signature; or nil, why.  [-0, +1|2, throws] */
static int l_sign(lua_State *L)
{
    mp_buf out = {0};
    const char *why = mp_key_sign(check_key(L), mp_check_str(L, 2), mp_check_str(L, 3), &out);
    return why == NULL ? push_buf(L, &out) : fail(L, why);
}

/* key:pem([private]): PEM; or nil, why.  [-0, +1|2, throws] */
static int l_pem(lua_State *L)
{
    mp_buf out = {0};
    const mp_key *key = check_key(L);
    bool wants_private = lua_toboolean(L, 2);
    if (key->pkey == NULL || (wants_private && !key->is_private) || !mp_key_put_pem(key, wants_private, &out))
        return fail(L, "the key has no such form");
    return push_buf(L, &out);
}

/* -- tokens ---------------------------------------------------------------------------------------------------- */

/* split(token): header, payload, signature, what is signed; or nil, why.  [-0, +2|4, throws] */
static int l_split(lua_State *L)
{
    mp_str token = mp_check_str(L, 1);
    mp_token parts;
    const char *why = mp_token_split(&parts, token, lua_newuserdatauv(L, token.len + 1, 0));
    if (why != NULL)
        return fail(L, why);
    lua_pushlstring(L, parts.header.ptr, parts.header.len);
    lua_pushlstring(L, parts.payload.ptr, parts.payload.len);
    lua_pushlstring(L, parts.signature.ptr, parts.signature.len);
    lua_pushlstring(L, parts.input.ptr, parts.input.len);
    return 4;
}

/* base64url(bytes)  [-0, +1, throws] */
static int l_base64url(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, MP_BASE64URL_ROOM(bytes.len) + 1);
    luaL_pushresultsize(&buffer, mp_base64url_encode(to, bytes));
    return 1;
}

/* unbase64url(text): the bytes; nil for what base64url never gives.  [-0, +1, throws] */
static int l_unbase64url(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    unsigned char *room = lua_newuserdatauv(L, text.len + 1, 0);
    ptrdiff_t len = mp_base64url_decode(room, text);
    if (len < 0)
        lua_pushnil(L);
    else
        lua_pushlstring(L, (const char *)room, (size_t)len);
    return 1;
}

/* sha256(bytes): the hash, as bytes.  [-0, +1, throws] */
static int l_sha256(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (EVP_Digest(bytes.ptr, bytes.len, hash, &size, EVP_sha256(), NULL) != 1)
        return luaL_error(L, "this digest is switched off in OpenSSL");
    lua_pushlstring(L, (const char *)hash, size);
    return 1;
}

/* random(n): n bytes that nobody can guess.  [-0, +1, throws] */
static int l_random(lua_State *L)
{
    unsigned char bytes[64];
    lua_Integer n = luaL_checkinteger(L, 1);
    luaL_argcheck(L, n >= 0 && n <= (lua_Integer)sizeof bytes, 1, "at most 64 bytes");
    if (RAND_bytes(bytes, (int)n) != 1)
        return luaL_error(L, "no random bytes");
    lua_pushlstring(L, (const char *)bytes, (size_t)n);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return 1;
}

/* equal(a, b): in a time that does not tell where they differ.  [-0, +1, throws] */
static int l_equal(lua_State *L)
{
    mp_str a = mp_check_str(L, 1), b = mp_check_str(L, 2);
    lua_pushboolean(L, a.len == b.len && CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0);
    return 1;
}

/* -- networks -------------------------------------------------------------------------------------------------- */

/* The 16 bytes of an address; of IPv4 as IPv6 has it. Gives how many bits stand before it, or -1. */
static int read_address(const char *text, unsigned char *to)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(to, mapped, sizeof mapped);
    if (inet_pton(AF_INET, text, to + sizeof mapped) == 1)
        return 96;
    return inet_pton(AF_INET6, text, to) == 1 ? 0 : -1;
}

/* network(text), such as "10.0.0.0/8", "::1": 16 bytes and the bits of them that count; or nil.  [-0, +1|2, throws] */
static int l_network(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    char address[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    const char *slash = strchr(text.ptr, '/');
    size_t len = slash == NULL ? strlen(text.ptr) : (size_t)(slash - text.ptr);
    lua_pushnil(L);
    if (strlen(text.ptr) != text.len || len >= sizeof address)
        return 1;
    memcpy(address, text.ptr, len);
    address[len] = '\0';
    int before = read_address(address, bytes), bits = before < 0 ? 0 : 128 - before;
    if (before < 0)
        return 1;
    if (slash != NULL) {
        size_t digits = strspn(slash + 1, "0123456789");
        int wanted = digits == 0 || digits > 3 || slash[1 + digits] != '\0' ? -1 : atoi(slash + 1);
        if (wanted < 0 || wanted > bits)
            return 1;
        bits = wanted;
    }
    lua_pushlstring(L, (const char *)bytes, sizeof bytes);
    lua_pushinteger(L, before + bits);
    return 2;
}

/* is_within(address, bytes, bits), of what `network` gave.  [-0, +1, throws] */
static int l_is_within(lua_State *L)
{
    unsigned char bytes[16];
    const char *address = luaL_checkstring(L, 1);
    mp_str network = mp_check_str(L, 2);
    lua_Integer bits = luaL_checkinteger(L, 3);
    luaL_argcheck(L, network.len == sizeof bytes && bits >= 0 && bits <= 128, 2, "no network");
    bool is = read_address(address, bytes) >= 0 && memcmp(bytes, network.ptr, (size_t)bits / 8) == 0;
    if (is && bits % 8 != 0)
        is = (((unsigned char)network.ptr[bits / 8] ^ bytes[bits / 8]) >> (8 - bits % 8)) == 0;
    lua_pushboolean(L, is);
    return 1;
}

int mp_lib_keys(lua_State *L)
{
    static const luaL_Reg methods[] = {{"kind", l_kind},     {"algorithm", l_algorithm}, {"suits", l_suits},
                                       {"verify", l_verify}, {"sign", l_sign},           {"pem", l_pem},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {{"rsa", l_rsa},
                                         {"ec", l_ec},
                                         {"ed25519", l_ed25519},
                                         {"public", l_public},
                                         {"private", l_private},
                                         {"generate", l_generate},
                                         {"split", l_split},
                                         {"base64url", l_base64url},
                                         {"unbase64url", l_unbase64url},
                                         {"sha256", l_sha256},
                                         {"random", l_random},
                                         {"equal", l_equal},
                                         {"network", l_network},
                                         {"is_within", l_is_within},
                                         {NULL, NULL}};
    luaL_newmetatable(L, KEY);
    lua_pushcfunction(L, l_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
