/* token_cache.c: finds the bearer token of a request, and caches the last tokens with the principals that they
 * authenticate as. */
#include "lib/work/token_cache.h"
#include <lauxlib.h>
#include <sys/random.h>

/* Syntax of a bearer token (RFC 6750 2.1, RFC 9110 11.2): letters, digits, -._~+/ and then any number of '='. */
static bool is_token(mp_str text)
{
    static const bool fine[256] = {
        ['A' ... 'Z'] = true, ['a' ... 'z'] = true, ['-' ... '9'] = true, ['_'] = true, ['~'] = true, ['+'] = true};
    size_t i = 0;
    while (i < text.len && fine[(unsigned char)text.ptr[i]])
        i++;
    size_t letters = i;
    while (i < text.len && text.ptr[i] == '=')
        i++;
    return letters > 0 && i == text.len;
}

mp_token_kind mp_find_bearer(const mp_stream *stream, mp_str *token)
{
    int count;
    mp_str rest = mp_stream_known_header(stream, MP_HEADER_AUTHORIZATION, &count);
    mp_str scheme = mp_str_cut(&rest, ' ');
    if (count == 0 || !mp_str_is_nocase(mp_str_trim(scheme), "bearer"))
        return MP_NO_TOKEN;
    *token = mp_str_trim(rest);
    return count == 1 ? MP_A_TOKEN : MP_BAD_TOKEN;
}

/* Clients send the same token with each request. The cache keeps the token's Lua string and its digest, so neither is
 * made again. */
#define TOKEN_SLOTS 256
#define MAX_CACHED_TOKEN_BYTES 2048

typedef struct {
    uint64_t hash;
    mp_str text;            /* the bytes of the Lua string */
    int ref, id, principal; /* registry references: of the string, of its digest, of the principal reference; LUA_NOREF:
                               none yet */
    uint64_t until_ms;      /* when `principal` expires, by the loop's clock */
} token_slot;

struct mp_token_cache {
    uint64_t seed;
    token_slot *MP_NULLABLE last; /* the slot of the token that was used last */
    token_slot slots[TOKEN_SLOTS];
};

static uint64_t hash_of(uint64_t seed, mp_str text)
{
    uint64_t hash = seed ^ text.len, word;
    const char *at = text.ptr;
    for (size_t left = text.len; left > 0; at += sizeof word) {
        size_t size = left < sizeof word ? left : sizeof word;
        word = 0;
        memcpy(&word, at, size);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
        left -= size;
    }
    return hash;
}

static void evict_token(lua_State *L, token_slot *slot)
{
    luaL_unref(L, LUA_REGISTRYINDEX, slot->ref);
    luaL_unref(L, LUA_REGISTRYINDEX, slot->id);
    luaL_unref(L, LUA_REGISTRYINDEX, slot->principal);
    slot->text = MP_STR_NONE;
    slot->ref = slot->id = slot->principal = LUA_NOREF;
}

/* The slot of this token; NULL if the token is not in the cache. */
static token_slot *MP_NULLABLE find_slot(struct mp_token_cache *tokens, mp_str text, uint64_t *hash)
{
    if (tokens->last != NULL && mp_str_eq(tokens->last->text, text))
        return tokens->last;
    *hash = hash_of(tokens->seed, text);
    token_slot *slot = &tokens->slots[*hash % TOKEN_SLOTS];
    return slot->hash == *hash && mp_str_eq(slot->text, text) ? slot : NULL;
}

void mp_token_push(lua_State *L, mp_str text)
{
    struct mp_token_cache *tokens = mp_lib_of(L)->tokens;
    uint64_t hash;
    token_slot *slot = text.len > MAX_CACHED_TOKEN_BYTES ? NULL : find_slot(tokens, text, &hash);
    if (slot != NULL) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, slot->ref);
    } else if (!is_token(text)) {
        lua_pushnil(L);
        return;
    } else {
        lua_pushlstring(L, text.ptr, text.len);
        if (text.len > MAX_CACHED_TOKEN_BYTES)
            return;
        slot = &tokens->slots[hash % TOKEN_SLOTS];
        evict_token(L, slot);
        lua_pushvalue(L, -1);
        slot->ref = luaL_ref(L, LUA_REGISTRYINDEX);
        slot->text.ptr = lua_tolstring(L, -1, &slot->text.len);
        slot->hash = hash;
    }
    tokens->last = slot;
}

int mp_token_principal(mp_vm *vm, mp_str text, uint64_t now)
{
    uint64_t hash;
    token_slot *slot = text.len > MAX_CACHED_TOKEN_BYTES ? NULL : find_slot(mp_lib_of_vm(vm)->tokens, text, &hash);
    return slot == NULL || slot->until_ms <= now ? LUA_NOREF : slot->principal;
}

void mp_token_set_principal(lua_State *L, mp_str text, int index, uint64_t until)
{
    uint64_t hash;
    token_slot *slot = text.len > MAX_CACHED_TOKEN_BYTES ? NULL : find_slot(mp_lib_of(L)->tokens, text, &hash);
    if (slot == NULL)
        return;
    luaL_unref(L, LUA_REGISTRYINDEX, slot->principal);
    slot->principal = LUA_NOREF;
    lua_pushvalue(L, index);
    slot->principal = luaL_ref(L, LUA_REGISTRYINDEX);
    slot->until_ms = until;
}

/* token_id(text): the SHA-256 of the text, from the cache if the text is the bearer token that was used last.  [-0, +1,
 * throws] */
static int l_token_id(lua_State *L)
{
    const char *text = luaL_checkstring(L, 1);
    token_slot *slot = mp_lib_of(L)->tokens->last;
    bool is_it = slot != NULL && slot->text.ptr == text;
    if (is_it && slot->id != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, slot->id);
        return 1;
    }
    unsigned char digest[MP_SHA256_BYTES];
    mp_sha256((mp_str){text, lua_rawlen(L, 1)}, digest);
    lua_pushlstring(L, (const char *)digest, sizeof digest);
    if (is_it) {
        lua_pushvalue(L, -1);
        slot->id = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    return 1;
}

/* Creates the VM's token cache, which the registry holds.  [-0, +0, throws] */
static void create_cache(lua_State *L)
{
    struct mp_token_cache *tokens = lua_newuserdatauv(L, sizeof *tokens, 0);
    memset(tokens, 0, sizeof *tokens);
    for (size_t i = 0; i < TOKEN_SLOTS; i++)
        tokens->slots[i].ref = tokens->slots[i].id = tokens->slots[i].principal = LUA_NOREF;
    if (getrandom(&tokens->seed, sizeof tokens->seed, 0) != sizeof tokens->seed)
        luaL_error(L, "the kernel gave no random bytes");
    mp_lib_of(L)->tokens = tokens;
    lua_rawsetp(L, LUA_REGISTRYINDEX, tokens);
}

void mp_lib_tokens(lua_State *L)
{
    lua_pushcfunction(L, l_token_id);
    mp_set_member(L, -2, "auth.token_id");
    create_cache(L);
}
