/* hidden_address.c: texts of values that Lua shows by their address. Addresses are hidden, because an attacker who can
 * write memory could learn from them where the heap and the libraries are, and because a later object may have the
 * address again: what a script keeps by the text of one would be found by that of another, also in another's call. */
#include "telemetry/telemetry.h"
#include "vm/hidden_address.h"
#include <lauxlib.h>
#include <sys/random.h>

/* hexadecimal digits of the hash: two of a million objects share a hash in one of 100,000 processes */
#define DIGITS 14

static uint64_t key[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
    if (getrandom(key, sizeof key, 0) != sizeof key)
        abort(); /* a key that could be guessed is worse than none */
}

static uint64_t rotate_bits(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix_rounds(uint64_t v[4], int rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[1] = rotate_bits(v[1], 13) ^ v[0];
        v[0] = rotate_bits(v[0], 32);
        v[2] += v[3];
        v[3] = rotate_bits(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate_bits(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate_bits(v[1], 17) ^ v[2];
        v[2] = rotate_bits(v[2], 32);
    }
}

/* Returns the SipHash-2-4 of eight bytes. */
static uint64_t hash_word(uint64_t word)
{
    const uint64_t words[] = {word, (uint64_t)8 << 56};
    uint64_t v[] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                    key[1] ^ 0x7465646279746573};
    for (int i = 0; i < 2; i++) {
        v[3] ^= words[i];
        mix_rounds(v, 2);
        v[0] ^= words[i];
    }
    v[2] ^= 0xff;
    mix_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static _Atomic uint64_t shown;     /* objects that got a number */
static const char numbers_key = 0; /* its address: registry key of the numbers of objects, a table with weak keys */

/* Returns the number of an object, which no later object has.  [-0, +0, throws] */
static uint64_t number_of(lua_State *L, int index)
{
    index = lua_absindex(L, index);
    luaL_checkstack(L, 3, NULL);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &numbers_key);
    lua_pushvalue(L, index);
    if (lua_rawget(L, -2) == LUA_TNIL) {
        lua_pop(L, 1);
        lua_pushvalue(L, index);
        lua_pushinteger(L, (lua_Integer)atomic_fetch_add_explicit(&shown, 1, memory_order_relaxed));
        lua_rawset(L, -3);
        lua_pushvalue(L, index);
        lua_rawget(L, -2);
    }
    uint64_t number = (uint64_t)lua_tointeger(L, -1);
    lua_pop(L, 2);
    return number;
}

/* True if luaL_tolstring would print the address of the value's object.  [-0, +0] */
static bool shows_address(lua_State *L, int index)
{
    int type = lua_type(L, index);
    if (type == LUA_TNONE || type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER || type == LUA_TSTRING)
        return false;
    if (luaL_getmetafield(L, index, "__tostring") == LUA_TNIL)
        return true;
    lua_pop(L, 1);
    return false;
}

const char *mp_push_shown(lua_State *L, int index, size_t *MP_NULLABLE len)
{
    if (!shows_address(L, index))
        return luaL_tolstring(L, index, len);
    pthread_once(&once, make_key);
    uint64_t number = hash_word(number_of(L, index));
    char digits[2 * sizeof number + 1];
    snprintf(digits, sizeof digits, "%016llx", (unsigned long long)number);
    digits[DIGITS] = '\0';
    index = lua_absindex(L, index);
    const char *kind = luaL_typename(L, index);
    int pushed = luaL_getmetafield(L, index, "__name");
    if (pushed == LUA_TSTRING)
        kind = lua_tostring(L, -1);
    lua_pushfstring(L, "%s: 0x%s", kind, digits);
    if (pushed != LUA_TNIL)
        lua_remove(L, -2);
    return lua_tolstring(L, -1, len);
}

/* tostring(value)  [-0, +1, throws] */
static int l_tostring(lua_State *L)
{
    luaL_checkany(L, 1);
    mp_push_shown(L, 1, NULL);
    return 1;
}

void mp_lib_shown(lua_State *L)
{
    lua_newtable(L);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "k");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &numbers_key);
    lua_pushcfunction(L, l_tostring);
    lua_setglobal(L, "tostring");
}
