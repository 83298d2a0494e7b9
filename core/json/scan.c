/* scan.c: one pass over a text: validates the JSON and reports the members of the objects that the visitor enters.
 * No recursion: the open arrays and objects are an array of closing brackets. Allocates memory only for escaped keys
 * and from the 33rd key on. */
#include "json/json.h"
#include "json/text.h"

enum { KEYS_INLINE = 32, MAX_KEYS = 256 };

typedef struct {
    mp_str text; /* the unescaped text of the key */
    bool owned;
} seen_key;

/* An object that the visitor entered. Entered objects are always nested directly in each other, from the outermost
 * one inwards. */
typedef struct {
    size_t first; /* index of its first key */
    bool hidden;  /* the current member repeats a key or is over the limit of keys: it is validated but not reported */
    mp_json_type type;
    const char *value; /* start of the value of the current member */
} looked;

typedef struct mp_json_check {
    const char *start, *end;
    /* What is at or behind this byte is left to the next part; `end`: there is but one part. */
    const char *pause;
    const char *MP_NULLABLE paused; /* where the next part begins: at a value, or inside a string */
    bool is_inside, is_key;         /* inside a string; and that string is a key */
    const mp_json_visitor *MP_NULLABLE visitor;
    unsigned depth;                       /* number of open arrays and objects */
    unsigned level;                       /* how many of the open objects the visitor entered */
    const char *MP_NULLABLE what, *where; /* reason and place of the first fault */
    const char *MP_NULLABLE repeated, *repeated_at;
    bool stopped, is_many;
    size_t values, most_values, tables;
    size_t count, cap;
    seen_key *keys;
    char closer[MP_JSON_DEPTH + 1];
    looked levels[MP_JSON_DEPTH + 1];
    seen_key few[KEYS_INLINE];
} scan;

static const char *MP_NULLABLE fail_at(scan *s, const char *at, const char *what)
{
    s->what = at < s->end ? what : "text ends too early";
    s->where = at;
    return NULL;
}

static inline const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static inline bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* `at` is behind the backslash. Returns the byte behind the escape. */
static const char *MP_NULLABLE skip_escape(scan *s, const char *at)
{
    if (at < s->end && *at != 'u')
        return mp_json_escaped[(unsigned char)*at] != 0 ? at + 1 : fail_at(s, at, "unknown escape");
    if (s->end - at < 5)
        return fail_at(s, s->end, "");
    int32_t unit = hex4(at + 1);
    if (unit < 0)
        return fail_at(s, at, "unknown escape");
    if ((unit & 0xf800) != 0xd800)
        return at + 5;
    if (unit >= 0xdc00 || s->end - at < 11 || at[5] != '\\' || at[6] != 'u' || (hex4(at + 7) & ~0x3ff) != 0xdc00)
        return fail_at(s, at, "lone surrogate");
    return at + 11;
}

/* Each function below takes the start of a syntax element and returns the byte behind it, or NULL if the text is
 * invalid. */
static const char *MP_NULLABLE skip_string(scan *s, const char *at)
{
    const char *end = s->end;
    for (at++;;) {
        at = plain_run(at, end);
        if (at == end)
            return fail_at(s, at, "");
        if (*at == '"')
            return at + 1;
        if (at >= s->pause) {
            s->paused = at;
            s->is_inside = true;
            return NULL;
        }
        if (*at == '\\') {
            do {
                if ((at = skip_escape(s, at + 1)) == NULL)
                    return NULL;
            } while (at < s->pause && *at == '\\');
            continue;
        }
        if ((unsigned char)*at < ' ')
            return fail_at(s, at, "control character in a string");
        do {
            unsigned length = mp_utf8_length(at, end);
            if (length == 0)
                return fail_at(s, at, "not UTF-8");
            at += length;
        } while (at < s->pause && (unsigned char)*at >= 0x80);
    }
}

static const char *MP_NULLABLE skip_number(scan *s, const char *at)
{
    const char *end = s->end;
    if (*at == '-')
        at++;
    if (!is_digit(at, end))
        return fail_at(s, at, "malformed number");
    if (*at == '0')
        at++;
    else
        while (is_digit(at, end))
            at++;
    if (at < end && *at == '.') {
        if (!is_digit(++at, end))
            return fail_at(s, at, "malformed number");
        while (is_digit(at, end))
            at++;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        if (!is_digit(at, end))
            return fail_at(s, at, "malformed number");
        while (is_digit(at, end))
            at++;
    }
    return at;
}

static const char *MP_NULLABLE skip_word(scan *s, const char *at, mp_str word)
{
    size_t left = (size_t)(s->end - at);
    if (left >= word.len && memcmp(at, word.ptr, word.len) == 0)
        return at + word.len;
    return fail_at(s, at, "unexpected character");
}

static void drop_keys(scan *s, size_t first)
{
    while (s->count > first)
        if (s->keys[--s->count].owned)
            free((void *)(uintptr_t)s->keys[s->count].text.ptr);
}

static void hide_value(scan *s, const char *at, const char *what)
{
    s->levels[s->level].hidden = true;
    if (s->repeated == NULL) {
        s->repeated = what;
        s->repeated_at = at;
    }
}

/* Compares a key of an entered object with the earlier keys of that object. */
static void note_key(scan *s, mp_str span)
{
    looked *object = &s->levels[s->level];
    mp_str text = {span.ptr + 1, span.len - 2};
    bool owned = memchr(text.ptr, '\\', text.len) != NULL;
    object->hidden = false;
    if (s->count - object->first == MAX_KEYS) {
        hide_value(s, span.ptr, "more than 256 keys");
        return;
    }
    if (owned) {
        char *copy = mp_new(text.len);
        text = (mp_str){copy, mp_json_copy_string(copy, span)};
    }
    for (size_t i = object->first; i < s->count; i++)
        if (mp_str_eq(s->keys[i].text, text)) {
            hide_value(s, span.ptr, "repeated key");
            if (owned)
                free((void *)(uintptr_t)text.ptr);
            return;
        }
    if (s->count == s->cap) {
        s->cap *= 2;
        seen_key *more = mp_resize(s->keys == s->few ? NULL : s->keys, s->cap * sizeof *more);
        if (s->keys == s->few)
            memcpy(more, s->few, sizeof s->few);
        s->keys = more;
    }
    s->keys[s->count++] = (seen_key){text, owned};
}

/* A key ends at `at`. */
static const char *MP_NULLABLE skip_colon(scan *s, const char *at)
{
    at = skip_space(at, s->end);
    return at < s->end && *at == ':' ? at + 1 : fail_at(s, at, "expected ':'");
}

static const char *MP_NULLABLE read_key(scan *s, const char *at)
{
    const char *from = at = skip_space(at, s->end);
    if (at == s->end || *at != '"')
        return fail_at(s, at, "expected a key");
    s->is_key = true;
    if ((at = skip_string(s, at)) == NULL)
        return NULL;
    s->is_key = false;
    if (s->depth == s->level)
        note_key(s, (mp_str){from, (size_t)(at - from)});
    return skip_colon(s, at);
}

/* Returns the first byte behind the opening bracket and white space: the first member, the first element or the
 * closing bracket. */
static const char *MP_NULLABLE open_at(scan *s, const char *at)
{
    if (s->depth == MP_JSON_DEPTH)
        return fail_at(s, at, "nested deeper than 128 levels");
    if (*at == '{' && s->depth == s->level && s->visitor != NULL) {
        const looked *outer = &s->levels[s->level];
        bool enter = s->level == 0 || (!outer->hidden && s->visitor->enter != NULL &&
                                       s->visitor->enter(s->visitor->ctx, s->level, s->keys[s->count - 1].text));
        if (enter)
            s->levels[++s->level].first = s->count;
    }
    s->tables++;
    s->closer[++s->depth] = *at == '{' ? '}' : ']';
    return skip_space(at + 1, s->end);
}

static void close_last(scan *s)
{
    if (s->depth == s->level) {
        drop_keys(s, s->levels[s->level].first);
        s->level--;
    }
    s->depth--;
}

/* A value ends at `at`. If it is a member of an entered object, passes it to the visitor. False if the visitor stops
 * the scan. */
static inline bool show_value(scan *s, const char *at)
{
    if (s->level == 0 || s->depth != s->level)
        return true;
    const looked *object = &s->levels[s->level];
    const mp_json_visitor *visitor = s->visitor;
    if (object->hidden || visitor == NULL || visitor->member == NULL)
        return true;
    mp_str value = {object->value, (size_t)(at - object->value)};
    s->stopped = visitor->member(visitor->ctx, s->level, s->keys[s->count - 1].text, object->type, value) != 0;
    return !s->stopped;
}

static mp_json_type type_at(const char *at)
{
    switch (*at) {
    case '{':
        return MP_JSON_OBJECT;
    case '[':
        return MP_JSON_ARRAY;
    case '"':
        return MP_JSON_STRING;
    case 't':
        return MP_JSON_TRUE;
    case 'f':
        return MP_JSON_FALSE;
    case 'n':
        return MP_JSON_NULL;
    default:
        return MP_JSON_NUMBER;
    }
}

static const char *MP_NULLABLE read_scalar(scan *s, const char *at, mp_json_type type)
{
    switch (type) {
    case MP_JSON_STRING:
        return skip_string(s, at);
    case MP_JSON_TRUE:
        return skip_word(s, at, MP_STR("true"));
    case MP_JSON_FALSE:
        return skip_word(s, at, MP_STR("false"));
    case MP_JSON_NULL:
        return skip_word(s, at, MP_STR("null"));
    default:
        return *at == '-' || is_digit(at, s->end) ? skip_number(s, at) : fail_at(s, at, "unexpected character");
    }
}

/* A value ends at `at`. Closing brackets right behind it end the values around it. Returns the byte behind what has
 * ended: behind the outermost value, or where the next value begins. */
static const char *MP_NULLABLE end_values(scan *s, const char *at)
{
    while (s->depth > 0) {
        if (!show_value(s, at))
            return NULL;
        at = skip_space(at, s->end);
        if (at < s->end && *at == ',')
            return s->closer[s->depth] == '}' ? read_key(s, at + 1) : at + 1;
        if (at == s->end || *at != s->closer[s->depth])
            return fail_at(s, at, "expected ',' or a closing bracket");
        at++;
        close_last(s);
    }
    return at;
}

/* Returns the byte behind the outermost value, or NULL if the text is invalid, the visitor stopped the scan, or it has
 * paused. */
static const char *MP_NULLABLE read_values(scan *s, const char *at, mp_json_type *outermost)
{
    for (;;) {
        at = skip_space(at, s->end);
        if (at == s->end)
            return fail_at(s, at, "");
        if (at >= s->pause) {
            s->paused = at;
            return NULL;
        }
        mp_json_type type = type_at(at);
        if (s->values++ == s->most_values) {
            s->is_many = true;
            return NULL;
        }
        if (s->depth == s->level) {
            s->levels[s->level].value = at;
            s->levels[s->level].type = type;
            if (s->depth == 0)
                *outermost = type;
        }
        if (type == MP_JSON_OBJECT || type == MP_JSON_ARRAY) {
            if ((at = open_at(s, at)) == NULL)
                return NULL;
            if (at == s->end || *at != s->closer[s->depth]) {
                if (type == MP_JSON_OBJECT && (at = read_key(s, at)) == NULL)
                    return NULL;
                continue;
            }
            at++;
            close_last(s);
        } else if ((at = read_scalar(s, at, type)) == NULL) {
            return NULL;
        }
        if ((at = end_values(s, at)) == NULL || s->depth == 0)
            return at;
    }
}

static void begin_scan(scan *s, mp_str text, const mp_json_visitor *MP_NULLABLE visitor, size_t most_values)
{
    s->start = text.len == 0 ? "" : text.ptr;
    s->end = s->pause = s->start + text.len;
    s->visitor = visitor;
    s->depth = s->level = 0;
    s->what = s->repeated = s->paused = NULL;
    s->where = s->repeated_at = s->start;
    s->stopped = s->is_many = s->is_inside = s->is_key = false;
    s->values = s->tables = 0;
    s->most_values = most_values;
    s->count = 0;
    s->cap = KEYS_INLINE;
    s->keys = s->few;
    s->levels[0].hidden = false;
}

/* `at`: what read_values() has returned. */
static mp_json_result end_scan(scan *s, const char *MP_NULLABLE at, mp_json_fault *MP_NULLABLE fault)
{
    if (at != NULL && (at = skip_space(at, s->end)) != s->end)
        fail_at(s, at, "text after the value");
    drop_keys(s, 0);
    if (s->keys != s->few)
        free(s->keys);
    mp_json_result result = s->stopped            ? MP_JSON_STOPPED
                            : s->is_many          ? MP_JSON_MANY
                            : s->what != NULL     ? MP_JSON_BROKEN
                            : s->repeated != NULL ? MP_JSON_REPEATED
                                                  : MP_JSON_OK;
    if (fault != NULL && (result == MP_JSON_BROKEN || result == MP_JSON_REPEATED)) {
        bool broken = result == MP_JSON_BROKEN;
        fault->what = broken ? s->what : s->repeated;
        fault->offset = (size_t)((broken ? s->where : s->repeated_at) - s->start);
    }
    return result;
}

mp_json_result mp_json_scan(mp_str text, const mp_json_visitor *MP_NULLABLE visitor, mp_json_type *MP_NULLABLE type,
                            mp_json_fault *MP_NULLABLE fault)
{
    mp_json_type outermost = MP_JSON_NULL;
    mp_json_tally *tally = visitor == NULL ? NULL : visitor->tally;
    scan s; /* 4 KiB, not cleared: the arrays are written before they are read */
    begin_scan(&s, text, visitor, tally == NULL ? SIZE_MAX : tally->most);
    mp_json_result result = end_scan(&s, read_values(&s, s.start, &outermost), fault);
    if (type != NULL)
        *type = outermost;
    if (tally != NULL) {
        tally->values = s.values;
        tally->tables = s.tables;
    }
    return result;
}

size_t mp_json_check_size(void)
{
    return sizeof(scan);
}

void mp_json_check_begin(mp_json_check *check, mp_str text)
{
    begin_scan(check, text, NULL, SIZE_MAX);
    check->paused = check->start;
}

/* Ends the string that the last part has ended in. Returns what end_values() does. */
static const char *MP_NULLABLE leave_string(scan *s, const char *at)
{
    s->is_inside = false;
    const char *behind = skip_string(s, at - 1);
    if (behind == NULL)
        return NULL;
    if (!s->is_key)
        return end_values(s, behind);
    s->is_key = false;
    return skip_colon(s, behind);
}

mp_json_result mp_json_check_part(mp_json_check *check, size_t bytes, mp_json_fault *fault)
{
    mp_json_type unused;
    const char *at = MP_NEVER_NULL(check->paused);
    check->paused = NULL;
    check->pause = (size_t)(check->end - at) <= bytes ? check->end : at + bytes;
    if (check->is_inside && (at = leave_string(check, at)) != NULL && check->depth == 0)
        return end_scan(check, at, fault);
    if (at != NULL)
        at = read_values(check, at, &unused);
    return check->paused != NULL ? MP_JSON_STOPPED : end_scan(check, at, fault);
}
