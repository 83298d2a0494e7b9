/* item.c: the items of a pattern: classes and sets as bits; errors of patterns; when a match yields. */
#include "vm/strings/match.h"
#include <lauxlib.h>

#define SHOWN 60 /* bytes of a pattern that an error shows */

/* -- classes ---------------------------------------------------------------------------------------------------- */

/* Character classes of the C locale: bytes from 128 on are in none. */
#define CLASS(low, high) {low, high, 0, 0}, {~(uint64_t)(low), ~(uint64_t)(high), ~(uint64_t)0, ~(uint64_t)0}
static const uint64_t classes[][4] = {
    CLASS(0, 0x07fffffe07fffffe),                  /* alpha */
    CLASS(0x00000000ffffffff, 0x8000000000000000), /* cntrl */
    CLASS(0x03ff000000000000, 0),                  /* digit */
    CLASS(0xfffffffe00000000, 0x7fffffffffffffff), /* graph */
    CLASS(0, 0x07fffffe00000000),                  /* lower */
    CLASS(0xfc00fffe00000000, 0x78000001f8000001), /* punct */
    CLASS(0x0000000100003e00, 0),                  /* space */
    CLASS(0, 0x0000000007fffffe),                  /* upper */
    CLASS(0x03ff000000000000, 0x07fffffe07fffffe), /* alnum */
    CLASS(0x03ff000000000000, 0x0000007e0000007e), /* xdigit */
    CLASS(1, 0),                                   /* zero */
};
#undef CLASS

static const unsigned char class_rows[128] = {
    ['a'] = 1,  ['A'] = 2,  ['c'] = 3,  ['C'] = 4,  ['d'] = 5,  ['D'] = 6,  ['g'] = 7,  ['G'] = 8,
    ['l'] = 9,  ['L'] = 10, ['p'] = 11, ['P'] = 12, ['s'] = 13, ['S'] = 14, ['u'] = 15, ['U'] = 16,
    ['w'] = 17, ['W'] = 18, ['x'] = 19, ['X'] = 20, ['z'] = 21, ['Z'] = 22,
};

/* The class of the letter after a '%'. NULL if the byte stands for itself. */
static inline const uint64_t *MP_NULLABLE class_of(unsigned char letter)
{
    unsigned row = letter < 128 ? class_rows[letter] : 0;
    return row == 0 ? NULL : classes[row - 1];
}

/* -- errors ------------------------------------------------------------------------------------- */

void mp_pattern_fail(mp_pattern *m, const char *text)
{
    mp_pattern_charge(m);
    luaL_error(m->L, "%s", text);
    __builtin_unreachable();
}

void mp_pattern_fail_long(mp_pattern *m)
{
    char shown[SHOWN + 4];
    const char *start = m->start - m->is_anchored;
    size_t len = (size_t)(m->end - start), count = 0;
    if (len > SHOWN)
        for (len = SHOWN; len > 0 && (start[len] & 0xC0) == 0x80;) /* the cut must not be inside a UTF-8 character */
            len--;
    for (; count < len; count++)
        shown[count] = mp_set_has(classes[2], (unsigned char)start[count]) ? '?' : start[count];
    memcpy(shown + count, start + len < m->end ? "..." : "", start + len < m->end ? 4 : 1);
    m->left = 0;
    mp_pattern_charge(m);
    luaL_error(
        m->L,
        "the pattern '%s' took too long on a text of %I bytes\n"
        "  hint: several of '*', '+' and '-' share the text between them in every possible way; say what may not be "
        "in between, as '[^,]*' for '.-', or tie the pattern with '^'",
        shown, (lua_Integer)(m->text_end - m->text));
    __builtin_unreachable();
}

/* -- turns --------------------------------------------------------------------------------------------------------- */

const char mp_pattern_paused[] = "";

bool mp_pattern_should_pause(mp_pattern *m)
{
    if (m->left < 0)
        mp_pattern_fail_long(m);
    mp_pattern_look_later(m);
    const mp_string_turns *turns = m->limits->turns;
    return turns->is_wanted != NULL && turns->is_wanted(m->L);
}

int mp_pattern_yield(mp_pattern *m, lua_KContext context, lua_KFunction back)
{
    mp_pattern_charge(m);
    m->limits->turns->prepare(m->L);
    return lua_yieldk(m->L, 0, context, back);
}

static void add_byte(uint64_t *bits, unsigned char byte)
{
    bits[byte >> 6] |= (uint64_t)1 << (byte & 63);
}

/* -- sets and items ----------------------------------------------------------------------------------------------- */

/* The position behind the set that opens at `at`. A ']' as the first byte is a member of the set, as in Lua. */
static const char *set_end(mp_pattern *m, const char *at)
{
    const char *p = at + 1;
    if (p < m->end && *p == '^')
        p++;
    for (bool is_first = true; p < m->end && (is_first || *p != ']'); is_first = false)
        p += *p == '%' && p + 1 < m->end ? 2 : 1;
    if (p >= m->end)
        mp_pattern_fail(m, "malformed pattern (missing ']')");
    return p + 1;
}

static void fill_set(mp_pattern_set *set)
{
    uint64_t bits[4] = {0};
    const char *last = set->end - 1, *p = set->at + 1;
    bool is_inverse = *p == '^';
    for (p += is_inverse; p < last; p++) {
        if (*p == '%') {
            p++;
            const uint64_t *class = class_of((unsigned char)*p);
            if (class == NULL)
                add_byte(bits, (unsigned char)*p);
            for (int i = 0; class != NULL && i < 4; i++)
                bits[i] |= class[i];
        } else if (p + 2 < last && p[1] == '-') {
            for (int byte = (unsigned char)p[0]; byte <= (unsigned char)p[2]; byte++)
                add_byte(bits, (unsigned char)byte);
            p += 2;
        } else {
            add_byte(bits, (unsigned char)*p);
        }
    }
    for (int i = 0; i < 4; i++)
        set->bits[i] = is_inverse ? ~bits[i] : bits[i];
}

const mp_pattern_set *mp_pattern_read_set(mp_pattern *m, const char *at)
{
    unsigned count = m->sets_made < MP_PATTERN_SETS ? m->sets_made : MP_PATTERN_SETS;
    for (unsigned i = 0; i < count; i++)
        if (m->sets[i].at == at)
            return &m->sets[i];
    const char *end = set_end(m, at);
    mp_pattern_spend(m, (size_t)(end - at));
    mp_pattern_set *set = &m->sets[m->sets_made++ % MP_PATTERN_SETS];
    set->at = at;
    set->end = end;
    fill_set(set);
    return set;
}

mp_item mp_item_read_long(mp_pattern *m, const char *at)
{
    mp_item it = {.kind = MP_ITEM_SET};
    if (*at == '[') {
        const mp_pattern_set *set = mp_pattern_read_set(m, at);
        it.bits = set->bits;
        it.end = set->end;
        return it;
    }
    if (at + 1 == m->end)
        mp_pattern_fail(m, "malformed pattern (ends with '%')");
    it.byte = (unsigned char)at[1];
    const uint64_t *bits = class_of(it.byte);
    if (bits == NULL)
        it.kind = MP_ITEM_BYTE;
    else
        it.bits = bits;
    it.end = at + 2;
    return it;
}
