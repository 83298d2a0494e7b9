/* definition_scan.c: host.upstream: one pass over the JSON text of a definition of an upstream, which finds the traits
 * that decide which checks Lua has to make; words in a text; and the hash of a definition. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include <lauxlib.h>

#define PRIVATE 0xEE /* the first byte of U+E000 to U+EFFF */
#define PLAIN_DIGITS 15

typedef struct {
    bool has_high, has_private, has_unicode, has_escaped, has_reference, has_default, has_odd_numbers;
    lua_Integer opened;
} traits;

static bool ends_with(const char *text, size_t at, const char *word, size_t len)
{
    return at >= len && memcmp(text + at - len, word, len) == 0;
}

/* Notes the traits that the byte at `at` shows, which is no digit and no letter. */
static void see_trait(traits *it, mp_str text, size_t at)
{
    unsigned char c = (unsigned char)text.ptr[at];
    unsigned char next = at + 1 < text.len ? (unsigned char)text.ptr[at + 1] : 0;
    if (c >= 127) {
        it->has_high = true;
        it->has_private |= c == PRIVATE;
    } else if (c == '\\') {
        it->has_unicode |= next == 'u';
        it->has_escaped |= next == 'u' || next == 'b' || next == 'f';
    } else if (c == '{' || c == '[') {
        it->opened++;
    } else if (c == '"') {
        it->has_reference |= ends_with(text.ptr, at, "ref", 3) || ends_with(text.ptr, at, "Ref", 3);
        it->has_default |= ends_with(text.ptr, at, "\"default", 8);
    } else if (c == '-') {
        it->has_odd_numbers |= next == '0';
    }
}

static traits traits_of(mp_str text)
{
    traits it = {0};
    size_t digits = 0; /* digits directly before this byte */
    for (size_t at = 0; at < text.len; at++) {
        unsigned char c = (unsigned char)text.ptr[at];
        bool is_digit = c >= '0' && c <= '9';
        if (digits > 0 && !is_digit) {
            it.has_odd_numbers |= digits > PLAIN_DIGITS || c == '.' || c == 'e' || c == 'E';
            digits = 0;
        }
        if (is_digit)
            digits++;
        else if (!(c >= 'a' && c <= 'z') && c != ' ')
            see_trait(&it, text, at);
    }
    it.has_odd_numbers |= digits > PLAIN_DIGITS;
    return it;
}

static void put_flag(lua_State *L, const char *name, bool value)
{
    if (value)
        mp_field_bool(L, name, true);
}

/* upstream.traits(definition) -> a table with what the JSON text may have: true or absent.
 *   has_high         a byte that is no visible ASCII character, or DEL
 *   has_private      a character for private use
 *   has_unicode      \u: anything may be written in another spelling
 *   has_escaped      \u, \b or \f
 *   has_reference    a name that ends with "ref" or "Ref"
 *   has_default      a member `default`
 *   has_odd_numbers  a number that is no integer of up to 15 digits
 *   opened           how many arrays and objects it has at most  [-0, +1, throws] */
static int l_traits(lua_State *L)
{
    traits it = traits_of(mp_check_str(L, 1));
    lua_createtable(L, 0, 2);
    put_flag(L, "has_high", it.has_high);
    put_flag(L, "has_private", it.has_private);
    put_flag(L, "has_unicode", it.has_unicode);
    put_flag(L, "has_escaped", it.has_escaped);
    put_flag(L, "has_reference", it.has_reference);
    put_flag(L, "has_default", it.has_default);
    put_flag(L, "has_odd_numbers", it.has_odd_numbers);
    mp_field_integer(L, "opened", it.opened);
    return 1;
}

/* -- words --------------------------------------------------------------------------------------------------------- */

#define MAX_WORDS 64
#define MAX_WORDS_TEXT ((1 << 20) + 64) /* bytes of the text; a MiB takes some 5 ms */
#define NO_WORD 0xFF

/* Words by their first two bytes: chains through `next`. */
typedef struct {
    unsigned char first[256][256], next[MAX_WORDS];
    mp_str words[MAX_WORDS];
    uint64_t found;
} word_table;

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

static bool begins_with(mp_str text, mp_str word)
{
    if (text.len < word.len)
        return false;
    for (size_t i = 0; i < word.len; i++)
        if (lower(text.ptr[i]) != (unsigned char)word.ptr[i])
            return false;
    return true;
}

static void find_words(word_table *table, mp_str text)
{
    for (size_t at = 0; at + 1 < text.len; at++)
        for (unsigned char i = table->first[lower(text.ptr[at])][lower(text.ptr[at + 1])]; i != NO_WORD;
             i = table->next[i])
            if ((table->found & (uint64_t)1 << i) == 0 && begins_with(mp_str_from(text, at), table->words[i]))
                table->found |= (uint64_t)1 << i;
}

/* upstream.words(text, list) -> the words of the list that the text has in any case, in the order of the list. The
 * words are in lower case, of two bytes at least, and at most 64; the text has a MiB and 64 bytes at most.  [-0, +1,
 * throws] */
static int l_words(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    luaL_argcheck(L, text.len <= MAX_WORDS_TEXT, 1, "too long");
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    lua_Unsigned count = lua_rawlen(L, 2);
    luaL_argcheck(L, count <= MAX_WORDS, 2, "too many words");
    word_table *table = lua_newuserdatauv(L, sizeof *table, 0);
    memset(table->first, NO_WORD, sizeof table->first);
    table->found = 0;
    for (unsigned char i = (unsigned char)count; i-- > 0;) {
        lua_rawgeti(L, 2, i + 1);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING && lua_rawlen(L, -1) >= 2, 2, "a word has two bytes at least");
        mp_str word = mp_check_str(L, -1); /* the list keeps the text alive */
        unsigned char *first = &table->first[(unsigned char)word.ptr[0]][(unsigned char)word.ptr[1]];
        table->words[i] = word;
        table->next[i] = *first;
        *first = i;
        lua_pop(L, 1);
    }
    find_words(table, text);
    lua_newtable(L);
    for (lua_Unsigned i = 0; i < count; i++)
        if ((table->found & (uint64_t)1 << i) != 0) {
            lua_rawgeti(L, 2, (lua_Integer)i + 1);
            lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        }
    return 1;
}

/* -- hashes -------------------------------------------------------------------------------------------------------- */

/* upstream.hash(text) -> "sha256:" and the SHA-256 in hexadecimal digits  [-0, +1, throws] */
static int l_hash(lua_State *L)
{
    static const char prefix[] = "sha256:";
    mp_str text = mp_check_str(L, 1);
    unsigned char hash[MP_SHA256_BYTES];
    char shown[sizeof prefix + 2 * sizeof hash];
    mp_sha256(text, hash);
    memcpy(shown, prefix, sizeof prefix - 1);
    char *end = mp_hex_put(shown + sizeof prefix - 1, hash, sizeof hash);
    lua_pushlstring(L, shown, (size_t)(end - shown));
    return 1;
}

void mp_lib_traits(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"upstream.traits", l_traits}, {"upstream.words", l_words}, {"upstream.hash", l_hash}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
