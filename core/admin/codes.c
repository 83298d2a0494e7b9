#include "codes.h"
#include "json/json.h"
#include <sys/random.h>

MP_COUNTER(dropped_codes, "dropped", "reason", "admin_codes",
           "unused links to the dashboard that ended for a newer one")
MP_COUNTER(dropped_sign_ins, "dropped", "reason", "admin_sign_ins", "browsers that were signed out for a newer one")

/* Each operator has a few: a script that makes links in a loop loses its own. */
#define MAX_CODES MP_LIMIT(admin_codes, 16)       /* unused links; a new one takes the place of the oldest */
#define MAX_SIGN_INS MP_LIMIT(admin_sign_ins, 64) /* browsers that are signed in; a new one ends the oldest */

typedef struct {
    mp_secret_hash hash;  /* hash of the code, or of the session's token */
    mp_secret_hash maker; /* hash of the token that made the code, if has_maker */
    bool has_maker;
    uint64_t made_ms;
    uint64_t ends_ms; /* 0: the place is free */
    mp_admin_role role;
    char name[sizeof((mp_admin_caller *)0)->name];
} entry;

typedef struct {
    entry *list; /* `most` places */
    size_t most;
    const mp_stat *dropped;
} places;

struct mp_admin_codes {
    pthread_mutex_t lock; /* guards the members below */
    places codes, sessions;
};

static places places_for(size_t most, const mp_stat *dropped)
{
    return (places){mp_new(most * sizeof(entry)), most, dropped};
}

mp_admin_codes *mp_admin_codes_new(void)
{
    mp_admin_codes *codes = mp_new(sizeof *codes);
    pthread_mutex_init(&codes->lock, NULL);
    codes->codes = places_for((size_t)MAX_CODES, &mp_stat_dropped_codes);
    codes->sessions = places_for((size_t)MAX_SIGN_INS, &mp_stat_dropped_sign_ins);
    return codes;
}

void mp_admin_codes_free(mp_admin_codes *MP_NULLABLE codes)
{
    if (codes == NULL)
        return;
    pthread_mutex_destroy(&codes->lock);
    free(codes->codes.list);
    free(codes->sessions.list);
    free(codes);
}

static mp_secret_hash make_text(char text[MP_CODE_SIZE])
{
    unsigned char random[MP_CODE_SIZE / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        abort(); /* a code that can be guessed is worse than no service */
    *mp_hex_put(text, random, sizeof random) = '\0';
    explicit_bzero(random, sizeof random);
    return mp_secret_hash_of(mp_str_of(text));
}

/* A free place, or that of the oldest entry. */
static entry *place_in(places *in, uint64_t now)
{
    entry *oldest = in->list;
    for (entry *at = in->list; at < in->list + in->most; at++) {
        if (at->ends_ms <= now)
            return at;
        if (at->made_ms < oldest->made_ms)
            oldest = at;
    }
    mp_stat_add(in->dropped, 1);
    return oldest;
}

/* Compares with every entry that is valid, so that the time does not depend on which one it is. */
static entry *MP_NULLABLE find_entry(const places *in, const mp_secret_hash *hash, uint64_t now)
{
    entry *found = NULL;
    for (entry *at = in->list; at < in->list + in->most; at++)
        if (at->ends_ms > now && mp_secret_hash_is(hash, &at->hash))
            found = at;
    return found;
}

void mp_admin_code_make(mp_admin_codes *codes, const mp_admin_caller *maker, char text[MP_CODE_SIZE])
{
    uint64_t now = mp_monotonic_ms();
    entry made = {.maker = maker->token, .has_maker = maker->has_token, .made_ms = now, .role = maker->role};
    made.hash = make_text(text);
    made.ends_ms = now + (uint64_t)MP_CODE_S * 1000;
    snprintf(made.name, sizeof made.name, "%s", maker->name);
    MP_LOCKED(&codes->lock);
    *place_in(&codes->codes, now) = made;
}

bool mp_admin_code_change(mp_admin_codes *codes, mp_str code, char token[MP_CODE_SIZE], mp_admin_caller *caller)
{
    uint64_t now = mp_monotonic_ms();
    mp_secret_hash hash = mp_secret_hash_of(code);
    MP_LOCKED(&codes->lock);
    entry *found = find_entry(&codes->codes, &hash, now);
    bool is_good = found != NULL;
    if (is_good) {
        entry session = *found;
        const entry *parent = session.has_maker ? find_entry(&codes->sessions, &session.maker, now) : NULL;
        found->ends_ms = 0;
        session.hash = make_text(token);
        session.made_ms = now;
        session.ends_ms = parent != NULL ? parent->ends_ms : now + (uint64_t)MP_CODE_SESSION_S * 1000;
        if (parent != NULL) {
            session.maker = parent->maker;
            session.has_maker = parent->has_maker;
        }
        *place_in(&codes->sessions, now) = session;
        *caller = (mp_admin_caller){.role = session.role, .token = session.hash, .has_token = true};
        snprintf(caller->name, sizeof caller->name, "%s", session.name);
    }
    return is_good;
}

bool mp_admin_code_session(mp_admin_codes *codes, const mp_secret_hash *token, mp_admin_caller *caller)
{
    MP_LOCKED(&codes->lock);
    const entry *found = find_entry(&codes->sessions, token, mp_monotonic_ms());
    bool is_good = found != NULL;
    if (is_good) {
        *caller = (mp_admin_caller){.role = found->role, .token = found->hash, .has_token = true};
        snprintf(caller->name, sizeof caller->name, "%s", found->name);
    }
    return is_good;
}

void mp_admin_codes_review(mp_admin_codes *codes, bool (*is_valid)(const void *ctx, const mp_secret_hash *token),
                           const void *ctx)
{
    uint64_t now = mp_monotonic_ms();
    MP_LOCKED(&codes->lock);
    for (entry *at = codes->sessions.list; at < codes->sessions.list + codes->sessions.most; at++)
        if (at->has_maker && !is_valid(ctx, &at->maker))
            at->ends_ms = 0;
    for (entry *at = codes->codes.list; at < codes->codes.list + codes->codes.most; at++)
        /* sessions are reviewed first, since one of them may be the maker */
        if (at->has_maker && !is_valid(ctx, &at->maker) && find_entry(&codes->sessions, &at->maker, now) == NULL)
            at->ends_ms = 0;
}

/* -- at an upgrade ------------------------------------------------------------------------------------------------- */

#define MOST_BYTES 512 /* bytes of one entry as a line */

static void put_hash(mp_buf *out, const mp_secret_hash *hash)
{
    mp_hex_put(mp_buf_room(out, 2 * sizeof hash->bytes), hash->bytes, sizeof hash->bytes);
    out->len += 2 * sizeof hash->bytes;
}

static void put_entry(mp_buf *out, char kind, const entry *at)
{
    mp_buf_putc(out, kind);
    put_hash(out, &at->hash);
    put_hash(out, &at->maker);
    mp_buf_printf(out, " %d %d %llu %llu %s%c", at->has_maker, (int)at->role, (unsigned long long)at->made_ms,
                  (unsigned long long)at->ends_ms, at->name, 0);
}

static void hand_entries(const places *in, char kind, void (*send)(void *ctx, mp_str text), void *ctx)
{
    mp_scoped_buf out = {0};
    uint64_t now = mp_monotonic_ms();
    for (const entry *at = in->list; at < in->list + in->most; at++) {
        if (at->ends_ms > now)
            put_entry(&out, kind, at);
        if (out.len > MP_CODES_HANDED - MOST_BYTES || (at + 1 == in->list + in->most && out.len > 0)) {
            send(ctx, mp_buf_str(&out));
            out.len = 0;
        }
    }
}

void mp_admin_codes_hand(mp_admin_codes *codes, void (*send)(void *ctx, mp_str text), void *ctx)
{
    MP_LOCKED(&codes->lock);
    hand_entries(&codes->sessions, 's', send, ctx); /* sessions first: a session may have made a code */
    hand_entries(&codes->codes, 'c', send, ctx);
}

static bool read_hash(mp_str *text, mp_secret_hash *hash)
{
    unsigned value;
    for (size_t i = 0; i < sizeof hash->bytes && text->len >= 2 * sizeof hash->bytes; i++) {
        if (sscanf(text->ptr + 2 * i, "%2x", &value) != 1)
            return false;
        hash->bytes[i] = (unsigned char)value;
    }
    bool is_whole = text->len >= 2 * sizeof hash->bytes;
    *text = mp_str_from(*text, 2 * sizeof hash->bytes);
    return is_whole;
}

static bool read_number(mp_str *text, int64_t most, int64_t *number)
{
    return mp_json_int(mp_str_cut(text, ' '), number) && *number >= 0 && *number <= most;
}

/* The clock of both processes is that of the machine. */
static bool read_entry(mp_str line, entry *to)
{
    int64_t has_maker, role, made_ms, ends_ms;
    mp_str text = mp_str_from(line, 1);
    if (!read_hash(&text, &to->hash) || !read_hash(&text, &to->maker) || text.len == 0)
        return false;
    text = mp_str_from(text, 1);
    if (!read_number(&text, 1, &has_maker) || !read_number(&text, MP_ROLE_OPERATE, &role) ||
        !read_number(&text, INT64_MAX, &made_ms) || !read_number(&text, INT64_MAX, &ends_ms))
        return false;
    to->has_maker = has_maker == 1;
    to->role = (mp_admin_role)role;
    to->made_ms = (uint64_t)made_ms;
    to->ends_ms = (uint64_t)ends_ms;
    snprintf(to->name, sizeof to->name, "%.*s", MP_STR_ARG(text));
    return true;
}

void mp_admin_codes_take(mp_admin_codes *codes, mp_str text)
{
    uint64_t now = mp_monotonic_ms();
    MP_LOCKED(&codes->lock);
    while (text.len > 0) {
        entry taken = {0};
        mp_str line = mp_str_cut(&text, '\0');
        if (line.len > 0 && read_entry(line, &taken))
            *place_in(line.ptr[0] == 's' ? &codes->sessions : &codes->codes, now) = taken;
    }
}
