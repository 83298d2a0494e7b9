/* tokens.c: bearer tokens: where a request has one, and what is remembered of those that came lately. */
#include "script/tokens.h"
#include <lauxlib.h>
#include <openssl/sha.h>
#include <sys/random.h>

/* RFC 6750 2.1, RFC 9110 11.2: letters, digits, -._~+/ and then any number of '='. */
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
    mp_str rest = mp_stream_header(stream, "authorization", &count);
    mp_str scheme = mp_str_cut(&rest, ' ');
    if (count == 0 || !mp_str_is_nocase(mp_str_trim(scheme), "bearer"))
        return MP_NO_TOKEN;
    *token = mp_str_trim(rest);
    return count == 1 ? MP_A_TOKEN : MP_BAD_TOKEN;
}

/* Tokens come again and again: the Lua string of one that came lately is given again, and its digest. */
#define TOKEN_SLOTS 256
#define LONGEST_KEPT 2048

typedef struct {
    uint64_t hash;
    mp_str text; /* the Lua string's own */
    int ref, id,
        seat;       /* in the registry, or LUA_NOREF: the string, its digest once that was asked for, whom it admits */
    uint64_t until; /* `seat` counts till then, by the loop's clock */
} token_slot;

struct mp_tokens {
    uint64_t seed;
    token_slot *last; /* given last */
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

static void forget_token(lua_State *L, token_slot *slot)
{
    luaL_unref(L, LUA_REGISTRYINDEX, slot->ref);
    luaL_unref(L, LUA_REGISTRYINDEX, slot->id);
    luaL_unref(L, LUA_REGISTRYINDEX, slot->seat);
    slot->text = MP_STR_NONE;
    slot->ref = slot->id = slot->seat = LUA_NOREF;
}

/* The slot of this text; NULL when it has none. */
static token_slot *find_slot(struct mp_tokens *tokens, mp_str text, uint64_t *hash)
{
    if (tokens->last != NULL && mp_str_eq(tokens->last->text, text))
        return tokens->last;
    *hash = hash_of(tokens->seed, text);
    token_slot *slot = &tokens->slots[*hash % TOKEN_SLOTS];
    return slot->hash == *hash && mp_str_eq(slot->text, text) ? slot : NULL;
}

void mp_token_push(lua_State *L, mp_str text)
{
    struct mp_tokens *tokens = mp_vm_of(L)->tokens;
    uint64_t hash;
    token_slot *slot = text.len > LONGEST_KEPT ? NULL : find_slot(tokens, text, &hash);
    if (slot != NULL) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, slot->ref);
    } else if (!is_token(text)) {
        lua_pushnil(L);
        return;
    } else {
        lua_pushlstring(L, text.ptr, text.len);
        if (text.len > LONGEST_KEPT)
            return;
        slot = &tokens->slots[hash % TOKEN_SLOTS];
        forget_token(L, slot);
        lua_pushvalue(L, -1);
        slot->ref = luaL_ref(L, LUA_REGISTRYINDEX);
        slot->text.ptr = lua_tolstring(L, -1, &slot->text.len);
        slot->hash = hash;
    }
    tokens->last = slot;
}

int mp_token_seat(mp_vm *vm, mp_str text, uint64_t now)
{
    uint64_t hash;
    token_slot *slot = text.len > LONGEST_KEPT ? NULL : find_slot(vm->tokens, text, &hash);
    return slot == NULL || slot->until <= now ? LUA_NOREF : slot->seat;
}

void mp_token_set_seat(lua_State *L, mp_str text, int index, uint64_t until)
{
    uint64_t hash;
    token_slot *slot = text.len > LONGEST_KEPT ? NULL : find_slot(mp_vm_of(L)->tokens, text, &hash);
    if (slot == NULL)
        return;
    luaL_unref(L, LUA_REGISTRYINDEX, slot->seat);
    slot->seat = LUA_NOREF;
    lua_pushvalue(L, index);
    slot->seat = luaL_ref(L, LUA_REGISTRYINDEX);
    slot->until = until;
}

/* token_id(text): its SHA-256, which costs nothing for a bearer token that comes again.  [-0, +1, throws] */
static int l_token_id(lua_State *L)
{
    const char *text = luaL_checkstring(L, 1);
    token_slot *slot = mp_vm_of(L)->tokens->last;
    bool is_it = slot != NULL && slot->text.ptr == text;
    if (is_it && slot->id != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, slot->id);
        return 1;
    }
    unsigned char digest[32];
    SHA256((const unsigned char *)text, lua_rawlen(L, 1), digest);
    lua_pushlstring(L, (const char *)digest, sizeof digest);
    if (is_it) {
        lua_pushvalue(L, -1);
        slot->id = luaL_ref(L, LUA_REGISTRYINDEX);
    }
    return 1;
}

/* [-0, +0, throws] */
static void add_tokens(lua_State *L)
{
    struct mp_tokens *tokens = lua_newuserdatauv(L, sizeof *tokens, 0);
    memset(tokens, 0, sizeof *tokens);
    for (size_t i = 0; i < TOKEN_SLOTS; i++)
        tokens->slots[i].ref = tokens->slots[i].id = tokens->slots[i].seat = LUA_NOREF;
    if (getrandom(&tokens->seed, sizeof tokens->seed, 0) != sizeof tokens->seed)
        luaL_error(L, "no random bytes");
    mp_vm_of(L)->tokens = tokens;
    lua_rawsetp(L, LUA_REGISTRYINDEX, tokens);
}

void mp_lib_tokens(lua_State *L)
{
    lua_pushcfunction(L, l_token_id);
    lua_setfield(L, -2, "token_id");
    add_tokens(L);
}
