/* seal.c: the functions by which scripts of the gateway's own seal what clients store and send back: cursors,
 * requestState. */
#include "lib/bindings.h"
#include <lauxlib.h>

#define MAX_SEALED_BYTES ((size_t)1 << 20)
#define MAX_PURPOSE_BYTES 1000 /* a name of ours, an issuer, a hash */

/* Where argument `index` names a purpose, derives the keys of the purpose to `own`; else they are those of seal_keys.
 * [-0, +0, throws] */
static const mp_seal_key *keys_for(lua_State *L, int index, mp_seal_key own[MP_SEAL_KEYS + 1])
{
    const mp_seal_key *keys = lua_touserdata(L, lua_upvalueindex(1));
    if (lua_isnoneornil(L, index))
        return keys;
    mp_str purpose = mp_check_str(L, index);
    luaL_argcheck(L, purpose.len <= MAX_PURPOSE_BYTES, index, "the purpose is longer than 1,000 bytes");
    size_t count = 0;
    for (; count < MP_SEAL_KEYS && keys[count].is_set; count++)
        if (!mp_seal_key_derive(&own[count], &keys[count], purpose))
            luaL_error(L, "no key can be derived");
    own[count].is_set = false;
    return own;
}

/* seal.make(text, about, is_repeatable[, purpose]): the encrypted text, as base64url; the same for the same text and
 * `about` if it is repeatable. With `purpose`, by keys that are derived for it.
 *  [-0, +1, throws] */
static int l_seal(lua_State *L)
{
    mp_seal_key own[MP_SEAL_KEYS + 1];
    const mp_seal_key *keys = keys_for(L, 4, own);
    mp_str text, about;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    luaL_argcheck(L, text.len <= MAX_SEALED_BYTES && about.len <= MAX_SEALED_BYTES, 1,
                  "more than 1 MiB cannot be sealed");
    unsigned char *raw = lua_newuserdatauv(L, text.len + MP_SEAL_OVERHEAD, 0);
    if (!mp_seal(&keys[0], about, text, lua_toboolean(L, 3), raw))
        return luaL_error(L, "encryption failed: no random bytes, or no memory");
    luaL_Buffer buffer;
    char *out = luaL_buffinitsize(L, &buffer, (text.len + MP_SEAL_OVERHEAD) * 4 / 3 + 4);
    luaL_pushresultsize(&buffer, mp_base64url_encode(out, (mp_str){(const char *)raw, text.len + MP_SEAL_OVERHEAD}));
    return 1;
}

/* seal.open(sealed, about[, purpose]): the decrypted text; nil if it was not sealed with one of the keys for the
 * purpose `about`.
 *  [-0, +1, throws] */
static int l_unseal(lua_State *L)
{
    mp_seal_key own[MP_SEAL_KEYS + 1];
    const mp_seal_key *keys = keys_for(L, 3, own);
    mp_str sealed, about;
    sealed.ptr = luaL_checklstring(L, 1, &sealed.len);
    about.ptr = luaL_checklstring(L, 2, &about.len);
    lua_settop(L, 2);
    lua_pushnil(L);
    if (sealed.len > MAX_SEALED_BYTES * 2 || about.len > MAX_SEALED_BYTES)
        return 1;
    unsigned char *raw = lua_newuserdatauv(L, sealed.len + 1, 0);
    ptrdiff_t len = mp_base64url_decode(raw, sealed);
    unsigned char *text = lua_newuserdatauv(L, sealed.len + 1, 0);
    ptrdiff_t text_len = len < 0 ? -1 : mp_unseal(keys, about, (mp_str){(const char *)raw, (size_t)len}, text);
    if (text_len < 0)
        lua_pushnil(L);
    else
        lua_pushlstring(L, (const char *)text, (size_t)text_len);
    return 1;
}

MP_LIBRARY(seal)
{
    static const luaL_Reg functions[] = {{"seal.make", l_seal}, {"seal.open", l_unseal}, {NULL, NULL}};
    const mp_seal_key *keys = config->seal_keys;
    size_t count = 0;
    while (keys[count].is_set)
        count++;
    mp_seal_key *own = lua_newuserdatauv(L, (count + 1) * sizeof *own, 0);
    memcpy(own, keys, (count + 1) * sizeof *own);
    mp_set_members(L, functions, 1);
}
