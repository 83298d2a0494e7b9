/* match.h: Lua's patterns, for the files of the string library. A long search can be suspended, so that other tasks
 * run, and continued later; a short search has no cost from that. */
#ifndef MP_VM_STRINGS_MATCH_H
#define MP_VM_STRINGS_MATCH_H

#include "vm/strings/strings.h"

/* A pattern, the text to be searched, and the captures of the last match. */
#define MP_PATTERN_CAPTURES 32
#define MP_PATTERN_SETS 2

typedef struct {
    const char *from;
    ptrdiff_t len; /* length of the capture, or one of these values: */
} mp_pattern_capture;

enum { MP_CAPTURE_OPEN = -1, MP_CAPTURE_POSITION = -2 };

/* A set of bytes of the pattern, in square brackets, as bits. */
typedef struct {
    const char *at, *end;
    uint64_t bits[4];
} mp_pattern_set;

typedef struct {
    lua_State *L; /* the coroutine that searches now */
    mp_string_limits *limits;
    const char *text, *text_end, *start, *end;
    bool is_anchored, is_plain;
    int64_t budget, left,
        look_at; /* numbers of steps; with fewer than `look_at` steps left, the search checks whether it must yield */
    int level;
    unsigned sets_made;
    mp_pattern_capture *captures;
    mp_pattern_set sets[MP_PATTERN_SETS];
    void *MP_NULLABLE kept; /* the suspended attempt, in a userdata on the stack; NULL before the first suspension */
    bool is_paused;         /* the search continues with `kept` */
} mp_pattern;

/* True if the pattern has no special characters, so that string.find may search for plain text. */
bool mp_pattern_is_literal(mp_str pattern);
/* The caller keeps text and pattern on its stack while it uses `m`. A leading '^' is an anchor if `may_anchor`. */
void mp_pattern_init(mp_pattern *m, mp_string_limits *limits, mp_str text, mp_str pattern, bool may_anchor);
static inline void mp_pattern_look_later(mp_pattern *m)
{
    int64_t at = m->left - m->limits->turns->every;
    m->look_at = at > 0 ? at : 0;
}

/* Called before each series of searches: sets a new budget for work in `L`, and the array of MP_PATTERN_CAPTURES
 * captures. */
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

/* Adds the steps since the last call to the counter. Called before the library returns, calls Lua or raises an
 * error. */
static inline void mp_pattern_charge(mp_pattern *m)
{
    mp_string_charge(m->L, m->limits, m->budget - m->left);
    m->budget = m->left;
}

/* Searches the next match from *at on that does not end at `last`. Returns its end, and sets *at to its start; NULL
 * if there is none. Returns mp_pattern_paused when other tasks have to run. The caller then copies `m` and its
 * captures to a userdata (the attempt is in a userdata already, which the first suspension pushed), calls
 * mp_pattern_yield, and repeats the search with the same *at. [-0, +0|1, throws] */
const char *MP_NULLABLE mp_pattern_search(mp_pattern *m, const char **at, const char *MP_NULLABLE last);
extern const char mp_pattern_paused[];
/* Yields, so that other tasks run; then `back` is called. [-0, +0, yields] */
int mp_pattern_yield(mp_pattern *m, lua_KContext context, lua_KFunction back);
/* Finds `plain` in `text`, from `at` on; NULL if it does not occur. */
const char *MP_NULLABLE mp_pattern_find_plain(mp_str text, size_t at, mp_str plain);

/* -- for the matcher -------------------------------------------------------------------------------------------- */

/* Raise an error. [-0, +0, throws] */
_Noreturn void mp_pattern_fail(mp_pattern *m, const char *text);
_Noreturn void mp_pattern_fail_long(mp_pattern *m);

static inline void mp_pattern_spend(mp_pattern *m, size_t steps)
{
    m->left -= (int64_t)steps;
    if (m->left < 0)
        mp_pattern_fail_long(m);
}

/* Called when fewer than look_at steps are left. Raises an error if none is left; otherwise returns true if other
 * tasks have to run. [-0, +0, throws] */
bool mp_pattern_should_pause(mp_pattern *m);

/* An item of a pattern matches one byte. */
typedef enum { MP_ITEM_ANY, MP_ITEM_BYTE, MP_ITEM_SET } mp_item_kind;

typedef struct {
    mp_item_kind kind;
    unsigned char byte;   /* if `kind` is BYTE */
    const uint64_t *bits; /* SET: valid until other sets are read */
    const char *end;      /* position behind the item in the pattern */
} mp_item;

/* Reads the item that begins with the '%' or the '[' at `at`. [-0, +0, throws] */
mp_item mp_item_read_long(mp_pattern *m, const char *at);
/* Reads the set that opens at `at`; caches the last sets. [-0, +0, throws] */
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
