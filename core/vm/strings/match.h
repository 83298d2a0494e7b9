/* match.h: Lua's patterns, as the files of the string library see them. A search that takes long can be left in the
 * middle, so that others run, and goes on there; one that is short knows nothing of that. */
#ifndef MP_VM_STRINGS_MATCH_H
#define MP_VM_STRINGS_MATCH_H

#include "vm/strings/strings.h"

/* A pattern, the text it is sought in, and what the last match captured. */
#define MP_PATTERN_CAPTURES 32
#define MP_PATTERN_SETS 2

typedef struct {
    const char *from;
    ptrdiff_t len; /* or one of these: */
} mp_pattern_capture;

enum { MP_CAPTURE_OPEN = -1, MP_CAPTURE_POSITION = -2 };

/* A set of bytes of the pattern, in square brackets, as bits. */
typedef struct {
    const char *at, *end;
    uint64_t bits[4];
} mp_pattern_set;

typedef struct {
    lua_State *L; /* who asks now */
    mp_string_limits *limits;
    const char *text, *text_end, *start, *end;
    bool is_anchored, is_plain;
    int64_t budget, left, look_at; /* steps; with fewer left than the last, it is asked whether a turn is wanted */
    int level;
    unsigned sets_made;
    mp_pattern_capture *captures;
    mp_pattern_set sets[MP_PATTERN_SETS];
    void *kept;     /* the attempt that was left, in a userdata on the stack; NULL before the first */
    bool is_paused; /* it goes on there */
} mp_pattern;

/* Nothing in it means anything but itself to string.find. */
bool mp_pattern_is_literal(mp_str pattern);
/* The caller keeps both texts on its stack while it uses `m`. A '^' in front anchors if `may_anchor`. */
void mp_pattern_init(mp_pattern *m, mp_string_limits *limits, mp_str text, mp_str pattern, bool may_anchor);
static inline void mp_pattern_look_later(mp_pattern *m)
{
    int64_t at = m->left - m->limits->turns->every;
    m->look_at = at > 0 ? at : 0;
}

/* Before each series of searches: a new budget, for work in `L`, and room for MP_PATTERN_CAPTURES. */
static inline void mp_pattern_begin(mp_pattern *m, lua_State *L, mp_pattern_capture *captures)
{
    m->L = L;
    m->captures = captures;
    int64_t most = mp_string_budget(L, m->limits), by_length = most / 32 + 8 * (m->text_end - m->text);
    m->budget = m->left = by_length < most ? by_length : most;
    m->kept = NULL;
    m->is_paused = false;
    mp_pattern_look_later(m);
}

/* Adds the steps since the last call to the counter. Called before the library returns, calls Lua or raises an error. */
static inline void mp_pattern_charge(mp_pattern *m)
{
    mp_string_charge(m->L, m->limits, m->budget - m->left);
    m->budget = m->left;
}

/* The next match from *at on, which does not end at `last`: its end, and *at is its start; NULL when there is none.
 *
 * Or mp_pattern_paused: others want to run. Then everything is copied to where it lasts (`m` and its captures to a userdata;
 * the first time the attempt is in one already, which was pushed), mp_pattern_yield is called, and after that the same search,
 * with *at as it was left, goes on where it was.  [-0, +0|1, throws] */
const char *mp_pattern_search(mp_pattern *m, const char **at, const char *last);
extern const char mp_pattern_paused[];
/* Lets others run; then `back` is called.  [-0, +0, yields] */
int mp_pattern_yield(mp_pattern *m, lua_KContext context, lua_KFunction back);
/* Where `plain` stands in `text` from `at` on, or NULL. */
const char *mp_pattern_find_plain(mp_str text, size_t at, mp_str plain);

/* -- for the matcher -------------------------------------------------------------------------------------------- */

/* Raises.  [-0, +0, throws] */
_Noreturn void mp_pattern_fail(mp_pattern *m, const char *text);
_Noreturn void mp_pattern_fail_long(mp_pattern *m);

static inline void mp_pattern_spend(mp_pattern *m, size_t steps)
{
    m->left -= (int64_t)steps;
    if (m->left < 0)
        mp_pattern_fail_long(m);
}

/* Fewer steps are left than look_at: none, which raises; or it is asked whether a turn is wanted.  [-0, +0, throws] */
bool mp_pattern_should_pause(mp_pattern *m);

/* An item of a pattern matches one byte. */
typedef enum { MP_ITEM_ANY, MP_ITEM_BYTE, MP_ITEM_SET } mp_item_kind;

typedef struct {
    mp_item_kind kind;
    unsigned char byte;   /* BYTE */
    const uint64_t *bits; /* SET; good until other sets are read */
    const char *end;      /* behind it in the pattern */
} mp_item;

/* The item that begins with the '%' or the '[' at `at`.  [-0, +0, throws] */
mp_item mp_item_read_long(mp_pattern *m, const char *at);
/* The set that opens at `at`; the sets met last are kept.  [-0, +0, throws] */
const mp_pattern_set *mp_pattern_read_set(mp_pattern *m, const char *at);

static inline mp_item mp_item_read(mp_pattern *m, const char *at)
{
    if (*at == '%' || *at == '[')
        return mp_item_read_long(m, at);
    mp_item_kind kind = *at == '.' ? MP_ITEM_ANY : MP_ITEM_BYTE;
    return (mp_item){.kind = kind, .byte = (unsigned char)*at, .end = at + 1};
}

static inline bool mp_set_has(const uint64_t *bits, unsigned char byte)
{
    return (bits[byte >> 6] >> (byte & 63) & 1) != 0;
}

static inline bool mp_item_fits(const mp_pattern *m, const mp_item *it, const char *s)
{
    if (s >= m->text_end)
        return false;
    if (it->kind == MP_ITEM_BYTE)
        return (unsigned char)*s == it->byte;
    return it->kind == MP_ITEM_ANY || mp_set_has(it->bits, (unsigned char)*s);
}

#endif
