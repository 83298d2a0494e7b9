/* match.c: the matcher of Lua's patterns. The alternatives that are still to be tried are on a stack of its own, as
 * deep as Lua's recursion may go. Each attempt is a step, and steps are counted. An error in a pattern is raised
 * when matching reaches it, as in Lua. */
#define _GNU_SOURCE
#include "vm/strings/match.h"
#include <ctype.h>
#include <lauxlib.h>

#define MAX_PENDING 199      /* pending alternatives; with the attempt itself, these are Lua's 200 levels */
#define SCAN 8               /* bytes that a byte-by-byte scan passes in the time of a step */
#define FAST_SCAN 64         /* bytes that memchr passes in the time of a step */
#define MAX_SCAN_BYTES 65536 /* bytes compared one by one between two checks whether other tasks have to run */
/* candidates compared before memmem is called, because memmem prepares each search */
#define GUESSES 4

/* The number of bytes from `s` on that match the item. */
static size_t run_length(mp_pattern *m, const mp_item *it, const char *s)
{
    const char *at = s;
    if (it->kind == MP_ITEM_ANY)
        return (size_t)(m->text_end - s);
    if (it->kind == MP_ITEM_SET)
        while (at < m->text_end && mp_set_has(it->bits, (unsigned char)*at))
            at++;
    else
        while (at < m->text_end && (unsigned char)*at == it->byte)
            at++;
    mp_pattern_spend(m, (size_t)(at - s) / SCAN);
    return (size_t)(at - s);
}

/* The byte that must be next in the text when the pattern continues at `p`; -1 if more than one byte may be. */
static inline int needed_byte(const mp_pattern *m, const char *p)
{
    if (p >= m->end)
        return -1;
    int byte = (unsigned char)*p++;
    if (byte == '%' && p < m->end && !isalnum((unsigned char)*p))
        byte = (unsigned char)*p++;
    else if (strchr("().[%$", byte) != NULL) /* strchr also finds a zero byte, which is rare */
        return -1;
    return p < m->end && (*p == '*' || *p == '?' || *p == '-') ? -1 : byte;
}

/* -- an attempt -------------------------------------------------------------------------------------------------- */

/* The next alternative when an attempt fails: */
typedef enum {
    OPENED,   /* no alternative: the opening of a capture is undone */
    CLOSED,   /* no alternative: the closing of a capture is undone */
    LONGEST,  /* the repeated item matches one byte less */
    SHORTEST, /* the repeated item matches one byte more */
    WITHOUT   /* continues with no byte of the item */
} pending_kind;

typedef struct {
    pending_kind kind;
    int needed;       /* LONGEST, SHORTEST: the byte that must follow; CLOSED: index of the capture */
    const char *text; /* where the repeated item began to match, or where its last byte ends */
    const char *rest; /* position in the pattern behind the repetition; SHORTEST: position of the item */
    size_t count;     /* LONGEST: number of bytes matched */
} pending;

typedef struct {
    pending *stack; /* array of MAX_PENDING */
    unsigned depth;
    const char *s, *p; /* position of the attempt in text and pattern */
} attempt;

/* An attempt that was suspended. */
typedef struct {
    attempt a;
    pending stack[MAX_PENDING];
} kept_attempt;

static inline pending *push_attempt(mp_pattern *m, attempt *a, pending_kind kind)
{
    if (a->depth == MAX_PENDING)
        mp_pattern_fail(m, "pattern too complex");
    pending *top = &a->stack[a->depth++];
    top->kind = kind;
    return top;
}

static void open_capture(mp_pattern *m, attempt *a)
{
    bool is_position = a->p + 1 < m->end && a->p[1] == ')';
    if (m->level >= MP_PATTERN_CAPTURES)
        mp_pattern_fail(m, "too many captures");
    m->captures[m->level].from = a->s;
    m->captures[m->level].len = is_position ? MP_CAPTURE_POSITION : MP_CAPTURE_OPEN;
    m->level++;
    a->p += is_position ? 2 : 1;
    push_attempt(m, a, OPENED);
}

static void close_capture(mp_pattern *m, attempt *a)
{
    int which = m->level - 1;
    while (which >= 0 && m->captures[which].len != MP_CAPTURE_OPEN)
        which--;
    if (which < 0)
        mp_pattern_fail(m, "invalid pattern capture");
    m->captures[which].len = a->s - m->captures[which].from;
    a->p++;
    push_attempt(m, a, CLOSED)->needed = which;
}

/* Matches a pattern item %bxy. */
static bool match_balance(mp_pattern *m, attempt *a)
{
    const char *p = a->p + 2, *s = a->s;
    if (p + 1 >= m->end)
        mp_pattern_fail(m, "malformed pattern (missing arguments to '%b')");
    if (s == m->text_end || *s != p[0])
        return false;
    size_t open = 1;
    while (++s < m->text_end) {
        if (*s == p[1]) {
            if (--open == 0)
                break;
        } else if (*s == p[0]) {
            open++;
        }
    }
    mp_pattern_spend(m, (size_t)(s - a->s) / (SCAN / 2));
    if (s >= m->text_end)
        return false;
    a->s = s + 1;
    a->p += 4;
    return true;
}

/* Matches a pattern item %f[set]. */
static bool match_frontier(mp_pattern *m, attempt *a)
{
    const char *at = a->p + 2;
    if (at >= m->end || *at != '[')
        mp_pattern_fail(m, "missing '[' after '%f' in pattern");
    const mp_pattern_set *set = mp_pattern_read_set(m, at);
    unsigned char before = a->s == m->text ? 0 : (unsigned char)a->s[-1];
    unsigned char after = a->s == m->text_end ? 0 : (unsigned char)*a->s;
    a->p = set->end;
    return !mp_set_has(set->bits, before) && mp_set_has(set->bits, after);
}

/* %1 */
static bool match_again(mp_pattern *m, attempt *a)
{
    int which = a->p[1] - '1';
    if (which < 0 || which >= m->level || m->captures[which].len == MP_CAPTURE_OPEN) {
        char text[] = "invalid capture index %0";
        text[sizeof text - 2] = a->p[1];
        mp_pattern_fail(m, text);
    }
    ptrdiff_t len = m->captures[which].len;
    if (len == MP_CAPTURE_POSITION || m->text_end - a->s < len)
        return false;
    mp_pattern_spend(m, (size_t)len / SCAN);
    if (memcmp(m->captures[which].from, a->s, (size_t)len) != 0)
        return false;
    a->s += len;
    a->p += 2;
    return true;
}

/* Matches an item and its repetition sign; false if it does not match here. */
static bool match_item(mp_pattern *m, attempt *a)
{
    mp_item it = mp_item_read(m, a->p);
    char suffix = '\0';
    if (it.end < m->end)
        suffix = *it.end;
    bool fit = mp_item_fits(m, &it, a->s);
    pending *top;
    switch (suffix) {
    case '?':
        if (fit) {
            top = push_attempt(m, a, WITHOUT);
            top->text = a->s++;
            top->rest = it.end + 1;
        }
        break;
    case '-':
        if (fit) {
            top = push_attempt(m, a, SHORTEST);
            top->text = a->s;
            top->rest = a->p;
            top->needed = needed_byte(m, it.end + 1);
        }
        break;
    case '+':
    case '*':
        if (!fit && suffix == '+')
            return false;
        if (fit) {
            size_t count = run_length(m, &it, a->s), least = suffix == '+';
            top = push_attempt(m, a, LONGEST);
            top->text = a->s + least;
            top->rest = it.end + 1;
            top->count = count - least;
            top->needed = needed_byte(m, it.end + 1);
            a->s += count;
        }
        break;
    default:
        a->s++;
        a->p = it.end;
        return fit;
    }
    a->p = it.end + 1;
    return true;
}

/* Shortens the match of a repeated item to the next length after which the needed byte follows. */
static bool shorten_attempt(mp_pattern *m, attempt *a, pending *top)
{
    if (top->count == 0)
        return false;
    top->count--;
    if (top->needed >= 0) {
        const char *found = memrchr(top->text, top->needed, top->count + 1);
        size_t count = found == NULL ? 0 : (size_t)(found - top->text);
        mp_pattern_spend(m, (top->count - count) / FAST_SCAN);
        if (found == NULL)
            return false;
        top->count = count;
    }
    a->s = top->text + top->count;
    a->p = top->rest;
    return true;
}

static bool lengthen_attempt(mp_pattern *m, attempt *a, pending *top)
{
    mp_item it = mp_item_read(m, top->rest);
    const char *s = top->text;
    if (!mp_item_fits(m, &it, s++))
        return false;
    if (it.kind == MP_ITEM_ANY && top->needed >= 0) {
        s = memchr(s, top->needed, (size_t)(m->text_end - s));
        mp_pattern_spend(m, (size_t)((s == NULL ? m->text_end : s) - top->text) / FAST_SCAN);
        if (s == NULL)
            return false;
    } else if (top->needed >= 0) {
        const char *end = m->text_end - s > MAX_SCAN_BYTES ? s + MAX_SCAN_BYTES : m->text_end;
        while (s < end && (unsigned char)*s != top->needed && mp_item_fits(m, &it, s))
            s++;
        mp_pattern_spend(m, (size_t)(s - top->text) / SCAN);
        if (s == m->text_end || (s < end && (unsigned char)*s != top->needed))
            return false;
    }
    a->s = top->text = s;
    a->p = it.end + 1;
    return true;
}

/* Returns to the last choice that has an alternative left; false if there is none. */
static bool go_back(mp_pattern *m, attempt *a)
{
    while (a->depth > 0) {
        pending *top = &a->stack[a->depth - 1];
        switch (top->kind) {
        case OPENED:
            m->level--;
            break;
        case CLOSED:
            m->captures[top->needed].len = MP_CAPTURE_OPEN;
            break;
        case LONGEST:
            if (shorten_attempt(m, a, top))
                return true;
            break;
        case SHORTEST:
            if (lengthen_attempt(m, a, top))
                return true;
            break;
        case WITHOUT:
            a->s = top->text;
            a->p = top->rest;
            a->depth--;
            return true;
        }
        a->depth--;
    }
    return false;
}

/* Matches one piece of the pattern. The pattern is not at its end. */
static bool advance_match(mp_pattern *m, attempt *a)
{
    char second = '\0';
    switch (*a->p) {
    case '(':
        open_capture(m, a);
        return true;
    case ')':
        close_capture(m, a);
        return true;
    case '$':
        if (a->p + 1 != m->end)
            break;
        a->p++;
        return a->s == m->text_end;
    case '%':
        if (a->p + 1 < m->end)
            second = a->p[1];
        if (second == 'b')
            return match_balance(m, a);
        if (second == 'f')
            return match_frontier(m, a);
        if (second >= '0' && second <= '9')
            return match_again(m, a);
        break;
    default:
        break;
    }
    return match_item(m, a);
}

/* Suspends the attempt: copies its alternatives to a userdata. The current step has not been taken yet. [-0, +0|1,
 * throws] */
__attribute__((cold, noinline)) static const char *leave(mp_pattern *m, attempt a)
{
    kept_attempt *kept = m->kept;
    if (kept == NULL)
        m->kept = kept = lua_newuserdatauv(m->L, sizeof(kept_attempt), 0);
    kept->a = a;
    memcpy(kept->stack, a.stack, a.depth * sizeof *a.stack);
    m->is_paused = true;
    m->left++;
    return mp_pattern_paused;
}

__attribute__((cold, noinline)) static attempt come_back(mp_pattern *m, pending *stack)
{
    const kept_attempt *kept = m->kept;
    if (kept == NULL) /* impossible: only a suspended attempt is resumed */
        __builtin_unreachable();
    attempt a = kept->a;
    a.stack = memcpy(stack, kept->stack, a.depth * sizeof *stack);
    m->is_paused = false;
    return a;
}

/* The end of a match that begins at `s`; NULL if there is none; or mp_pattern_paused. */
static const char *MP_NULLABLE match_at(mp_pattern *m, const char *s)
{
    pending stack[MAX_PENDING];
    attempt a = {stack, 0, s,
                 m->start}; /* small, and no pointer to it leaves this file: the compiler can keep it in registers */
    if (m->is_paused)
        a = come_back(m, stack);
    else
        m->level = 0;
    for (;;) {
        if (--m->left < m->look_at && mp_pattern_should_pause(m))
            return leave(m, a);
        if (a.p == m->end)
            return a.s;
        if (!advance_match(m, &a) && !go_back(m, &a))
            return NULL;
    }
}

/* -- searching --------------------------------------------------------------------------------------------------- */

static const bool specials[256] = {['^'] = true, ['$'] = true, ['*'] = true, ['+'] = true, ['?'] = true,
                                   ['.'] = true, ['('] = true, ['['] = true, ['%'] = true, ['-'] = true};

bool mp_pattern_is_literal(mp_str pattern)
{
    for (size_t i = 0; i < pattern.len; i++)
        if (specials[(unsigned char)pattern.ptr[i]])
            return false;
    return true;
}

void mp_pattern_init(mp_pattern *m, mp_string_limits *limits, mp_str text, mp_str pattern, bool may_anchor)
{
    m->limits = limits;
    m->text = text.ptr;
    m->text_end = text.ptr + text.len;
    m->is_anchored = may_anchor && pattern.len > 0 && pattern.ptr[0] == '^';
    m->start = pattern.ptr + m->is_anchored;
    m->end = pattern.ptr + pattern.len;
    m->is_plain = pattern.len > 0 && mp_pattern_is_literal(pattern) && memchr(pattern.ptr, ')', pattern.len) == NULL;
    m->level = 0;
    m->sets_made = 0;
}

const char *MP_NULLABLE mp_pattern_find_plain(mp_str text, size_t at, mp_str plain)
{
    const char *end = text.ptr + text.len, *from = text.ptr + at;
    for (int i = 0; plain.len > 0 && i < GUESSES; i++) {
        from = memchr(from, plain.ptr[0], (size_t)(end - from));
        if (from == NULL || (size_t)(end - from) < plain.len)
            return NULL;
        if (memcmp(from, plain.ptr, plain.len) == 0)
            return from;
        from++;
    }
    return memmem(from, (size_t)(end - from), plain.ptr, plain.len);
}

/* The first item of every match: true, and `it`. False if the pattern does not begin with one certain item. */
static bool read_first(mp_pattern *m, mp_item *it)
{
    const char *p = m->start;
    if (p + 1 < m->end && *p == '(' && p[1] != ')')
        p++;
    if (p == m->end || *p == '(' || *p == ')' || (*p == '$' && p + 1 == m->end))
        return false;
    if (*p == '%' && p + 1 < m->end) {
        if (p[1] == 'b' && p + 3 < m->end) {
            *it = (mp_item){.kind = MP_ITEM_BYTE, .byte = (unsigned char)p[2]};
            return true;
        }
        if (p[1] == 'b' || p[1] == 'f' || (p[1] >= '0' && p[1] <= '9'))
            return false;
    }
    *it = mp_item_read(m, p);
    return it->end == m->end || (*it->end != '*' && *it->end != '?' && *it->end != '-');
}

/* The next position where `it` matches; or an earlier one, when a long stretch was scanned; NULL if there is none. */
static const char *MP_NULLABLE skip_item(mp_pattern *m, mp_item it, const char *s)
{
    const char *at = s;
    if (it.kind == MP_ITEM_BYTE && s < m->text_end) {
        at = memchr(s, it.byte, (size_t)(m->text_end - s));
        mp_pattern_spend(m, (size_t)((at == NULL ? m->text_end : at) - s) / FAST_SCAN);
    } else {
        const char *end = m->text_end - s > MAX_SCAN_BYTES ? s + MAX_SCAN_BYTES : m->text_end;
        while (at < end && !mp_item_fits(m, &it, at))
            at++;
        mp_pattern_spend(m, (size_t)(at - s) / SCAN);
    }
    return at == m->text_end ? NULL : at;
}

const char *MP_NULLABLE mp_pattern_search(mp_pattern *m, const char **at, const char *MP_NULLABLE last)
{
    if (m->is_plain) {
        if (m->left < m->look_at && mp_pattern_should_pause(m))
            return mp_pattern_paused;
        mp_str text = {m->text, (size_t)(m->text_end - m->text)}, plain = {m->start, (size_t)(m->end - m->start)};
        const char *found = mp_pattern_find_plain(text, (size_t)(*at - m->text), plain);
        mp_pattern_spend(m, 1 + (size_t)((found == NULL ? m->text_end : found) - *at) / (SCAN * 2));
        m->level = 0;
        if (found == NULL)
            return NULL;
        *at = found;
        return found + plain.len;
    }
    mp_item first;
    uint64_t bits[4];
    bool skips = !m->is_anchored && read_first(m, &first);
    if (skips && first.kind == MP_ITEM_SET)
        first.bits = memcpy(bits, first.bits, sizeof bits); /* the pattern may have more sets than are cached */
    for (const char *s = *at;; s++) {
        if (skips && !m->is_paused && (s = skip_item(m, first, s)) == NULL)
            return NULL;
        const char *end = match_at(m, s);
        if (end != NULL && end != last) { /* the attempt is suspended */
            *at = s;
            return end;
        }
        if (m->is_anchored || s >= m->text_end)
            return NULL;
    }
}
