/* jwk.c: cryptographic keys as userdata, and the functions on them. Invalid keys, tokens and signatures are no Lua
 * errors: the functions return nil, why. */
#include "lib/modules/jwk.h"
#include "lib/fields.h"
#include "vm/engine.h"
#include "data/data.h"
#include <arpa/inet.h>
#include <lauxlib.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#define KEY "moonpool.key"

static mp_jwk *check_key(lua_State *L)
{
    return luaL_checkudata(L, 1, KEY);
}

/* Pushes an empty key.  [-0, +1, throws] */
static mp_jwk *push_key(lua_State *L)
{
    mp_jwk *key = lua_newuserdatauv(L, sizeof *key, 0);
    *key = (mp_jwk){0};
    luaL_setmetatable(L, KEY);
    return key;
}

/* Pushes the buffer's bytes, erases them from the buffer and frees it.  [-0, +1, throws] */
static int push_buf(lua_State *L, mp_buf *buf)
{
    lua_pushlstring(L, buf->ptr, buf->len);
    OPENSSL_cleanse(buf->ptr, buf->len);
    mp_buf_clear(buf);
    return 1;
}

/* The key on top of the stack; or if there is a reason why it is none, nil, why.  [-0, +0|2, throws] */
static int key_result(lua_State *L, const char *MP_NULLABLE why)
{
    return why == NULL ? 1 : mp_push_failure(L, why);
}

/* -- keys ------------------------------------------------------------------------------------------------------ */

/* rsa(modulus, exponent), as bytes: a key; or nil, why.  [-0, +1|2, throws] */
static int l_rsa(lua_State *L)
{
    mp_str modulus = mp_check_str(L, 1), exponent = mp_check_str(L, 2);
    return key_result(L, mp_jwk_from_rsa(push_key(L), modulus, exponent));
}

/* ec(curve, x, y): a key; or nil, why.  [-0, +1|2, throws] */
static int l_ec(lua_State *L)
{
    mp_str curve = mp_check_str(L, 1), x = mp_check_str(L, 2), y = mp_check_str(L, 3);
    return key_result(L, mp_jwk_from_ec(push_key(L), curve, x, y));
}

/* ed25519(x): a key; or nil, why.  [-0, +1|2, throws] */
static int l_ed25519(lua_State *L)
{
    mp_str x = mp_check_str(L, 1);
    return key_result(L, mp_jwk_from_ed25519(push_key(L), x));
}

/* public(pem): a key; or nil, why.  [-0, +1|2, throws] */
static int l_public(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    return key_result(L, mp_jwk_from_pem(push_key(L), text, false));
}

/* private(pem): a key that signs; or nil, why.  [-0, +1|2, throws] */
static int l_private(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    return key_result(L, mp_jwk_from_pem(push_key(L), text, true));
}

/* generate(algorithm): a private key; or nil, why.  [-0, +1|2, throws] */
static int l_generate(lua_State *L)
{
    mp_str algorithm = mp_check_str(L, 1);
    return key_result(L, mp_jwk_generate(push_key(L), algorithm));
}

static int l_gc(lua_State *L)
{
    mp_jwk_clear(check_key(L));
    return 0;
}

/* key:kind(): the type of the key.  [-0, +1, throws] */
static int l_kind(lua_State *L)
{
    lua_pushstring(L, check_key(L)->kind);
    return 1;
}

/* key:algorithm(): the key's default signature algorithm.  [-0, +1, throws] */
static int l_algorithm(lua_State *L)
{
    const mp_jwk *key = check_key(L);
    lua_pushstring(L, key->pkey == NULL ? NULL : mp_jwk_algorithm(key));
    return 1;
}

/* key:suits(algorithm): true if the key can be used with the algorithm.  [-0, +1, throws] */
static int l_suits(lua_State *L)
{
    lua_pushboolean(L, mp_jwk_suits(check_key(L), mp_check_str(L, 2)));
    return 1;
}

/* key:verify(algorithm, data, signature): true if the signature is valid.  [-0, +1, throws] */
static int l_verify(lua_State *L)
{
    lua_pushboolean(L, mp_jwk_verify(check_key(L), mp_check_str(L, 2), mp_check_str(L, 3), mp_check_str(L, 4)));
    return 1;
}

/* key:sign(algorithm, data): the signature; or nil, why.  [-0, +1|2, throws] */
static int l_sign(lua_State *L)
{
    mp_buf out = {0};
    const char *why = mp_jwk_sign(check_key(L), mp_check_str(L, 2), mp_check_str(L, 3), &out);
    return why == NULL ? push_buf(L, &out) : mp_push_failure(L, why);
}

/* key:pem([private]): PEM; or nil, why.  [-0, +1|2, throws] */
static int l_pem(lua_State *L)
{
    mp_buf out = {0};
    const mp_jwk *key = check_key(L);
    bool wants_private = lua_toboolean(L, 2);
    if (key->pkey == NULL || (wants_private && !key->is_private) || !mp_jwk_put_pem(key, wants_private, &out))
        return mp_push_failure(L, "the key cannot be written as PEM, or has no private part");
    return push_buf(L, &out);
}

/* -- tokens ---------------------------------------------------------------------------------------------------- */

/* split(token): the parts of a JSON Web Token: header, payload, signature, signed bytes; or nil, why.  [-0, +2|4,
 * throws] */
static int l_split(lua_State *L)
{
    mp_str token = mp_check_str(L, 1);
    mp_token parts;
    const char *why = mp_token_split(&parts, token, lua_newuserdatauv(L, token.len + 1, 0));
    if (why != NULL)
        return mp_push_failure(L, why);
    lua_pushlstring(L, parts.header.ptr, parts.header.len);
    lua_pushlstring(L, parts.payload.ptr, parts.payload.len);
    lua_pushlstring(L, parts.signature.ptr, parts.signature.len);
    lua_pushlstring(L, parts.input.ptr, parts.input.len);
    return 4;
}

/* base64url(bytes): the text, without padding.  [-0, +1, throws] */
static int l_base64url(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, MP_BASE64URL_ROOM(bytes.len) + 1);
    luaL_pushresultsize(&buffer, mp_base64url_encode(to, bytes));
    return 1;
}

/* unbase64url(text): the bytes; nil if the text is not canonical base64url.  [-0, +1, throws] */
static int l_unbase64url(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    unsigned char *bytes = lua_newuserdatauv(L, text.len + 1, 0);
    ptrdiff_t len = mp_base64url_decode(bytes, text);
    if (len < 0)
        lua_pushnil(L);
    else
        lua_pushlstring(L, (const char *)bytes, (size_t)len);
    return 1;
}

/* sha256(bytes): the hash, as bytes.  [-0, +1, throws] */
static int l_sha256(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    unsigned char hash[MP_SHA256_BYTES];
    mp_sha256(bytes, hash);
    lua_pushlstring(L, (const char *)hash, sizeof hash);
    return 1;
}

/* random(n): n random bytes of OpenSSL's generator for secrets.  [-0, +1, throws] */
static int l_random(lua_State *L)
{
    unsigned char bytes[64];
    lua_Integer n = luaL_checkinteger(L, 1);
    luaL_argcheck(L, n >= 0 && n <= (lua_Integer)sizeof bytes, 1, "at most 64 bytes");
    if (RAND_bytes(bytes, (int)n) != 1)
        return luaL_error(L, "OpenSSL gave no random bytes");
    lua_pushlstring(L, (const char *)bytes, (size_t)n);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return 1;
}

/* equal(a, b): true if the texts are equal. The time does not depend on where they differ.  [-0, +1, throws] */
static int l_equal(lua_State *L)
{
    mp_str a = mp_check_str(L, 1), b = mp_check_str(L, 2);
    lua_pushboolean(L, a.len == b.len && CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0);
    return 1;
}

/* -- networks -------------------------------------------------------------------------------------------------- */

/* Writes the 16 bytes of an IP address; IPv4 as an IPv4-mapped IPv6 address. Returns the length of the mapping's prefix
 * in bits (96 or 0), or -1 if the text is not an address. */
static int read_address(const char *text, unsigned char *to)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    memcpy(to, mapped, sizeof mapped);
    if (inet_pton(AF_INET, text, to + sizeof mapped) == 1)
        return 96;
    return inet_pton(AF_INET6, text, to) == 1 ? 0 : -1;
}

/* network(text): 16 bytes and the prefix length in bits of a network such as "10.0.0.0/8" or "::1"; nil if the text is
 * no network.  [-0, +1|2, throws] */
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

/* is_within(address, bytes, bits): true if the address is in the network, given as network() returns it.  [-0, +1,
 * throws] */
static int l_is_within(lua_State *L)
{
    unsigned char bytes[16];
    const char *address = luaL_checkstring(L, 1);
    mp_str network = mp_check_str(L, 2);
    lua_Integer bits = luaL_checkinteger(L, 3);
    luaL_argcheck(L, network.len == sizeof bytes && bits >= 0 && bits <= 128, 2, "not a network");
    bool is = read_address(address, bytes) >= 0 && memcmp(bytes, network.ptr, (size_t)bits / 8) == 0;
    if (is && bits % 8 != 0)
        is = (((unsigned char)network.ptr[bits / 8] ^ bytes[bits / 8]) >> (8 - bits % 8)) == 0;
    lua_pushboolean(L, is);
    return 1;
}

int mp_lib_jwk(lua_State *L)
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
    mp_push_metatable(L, KEY, l_gc);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
