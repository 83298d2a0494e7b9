/* string.c: finds the end of strings, unescapes string spans, compares ids, writes strings. */
#include "json/json.h"
#include "json/text.h"

static size_t put_code(char *to, uint32_t code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

const char mp_json_escaped[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};

const unsigned char mp_json_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16};

const char *MP_NULLABLE mp_json_string_end(const char *at, const char *end, bool *escaped)
{
    for (;;) {
        at = plain_run(at, end);
        if (at == end)
            return NULL;
        if (*at == '"')
            return at;
        if ((unsigned char)*at >= 0x80) {
            unsigned length = mp_utf8_length(at, end);
            if (length == 0)
                return NULL;
            at += length;
        } else if (*at == '\\' && end - at >= 2 && mp_json_escaped[(unsigned char)at[1]] != 0) {
            *escaped = true;
            at += 2;
        } else {
            return NULL;
        }
    }
}

/* Copies up to the first backslash or `end`. Moves `*to` and `*at`; false at the end. Up to 15 bytes behind the copy
 * are overwritten: an escape is longer than what it is for, so they lie inside the room of the caller. */
static inline bool copy_plain(char **to, const char **at, const char *end)
{
#ifdef __SSE2__
    for (int i = 0; i < 4 && *at < end; i++) { /* faster where escapes are dense */
        if (**at == '\\')
            return true;
        *(*to)++ = *(*at)++;
    }
    const __m128i escape = _mm_set1_epi8('\\');
    for (; end - *at >= 16; *at += 16, *to += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)*at);
        _mm_storeu_si128((__m128i *)(void *)*to, bytes);
        unsigned mask = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, escape));
        if (mask != 0) {
            *at += __builtin_ctz(mask);
            *to += __builtin_ctz(mask);
            return true;
        }
    }
#endif
    while (*at < end && **at != '\\')
        *(*to)++ = *(*at)++;
    return *at < end;
}

size_t mp_json_copy_string(char *to, mp_str span)
{
    const char *at = span.ptr + 1, *end = span.ptr + span.len - 1;
    char *start = to;
    while (at < end) {
        if (*at != '\\' && !copy_plain(&to, &at, end))
            break;
        if (at[1] != 'u') {
            *to++ = mp_json_escaped[(unsigned char)at[1]];
            at += 2;
            continue;
        }
        uint32_t code = (uint32_t)hex4(at + 2);
        at += 6;
        if ((code & 0xfc00) == 0xd800) {
            code = 0x10000 + ((code & 0x3ff) << 10) + ((uint32_t)hex4(at + 2) & 0x3ff);
            at += 6;
        }
        to += put_code(to, code);
    }
    return (size_t)(to - start);
}

void mp_json_unescape(mp_buf *out, mp_str span)
{
    out->len += mp_json_copy_string(mp_buf_room(out, span.len), span);
}

bool mp_json_string_is(mp_str span, mp_str text)
{
    mp_str inside = {span.ptr + 1, span.len - 2};
    if (memchr(inside.ptr, '\\', inside.len) == NULL)
        return mp_str_eq(inside, text);
    if (inside.len <= text.len)
        return false; /* an escaped text is never shorter than the unescaped one */
    mp_scoped_buf plain = {0};
    mp_json_unescape(&plain, span);
    return mp_str_eq(mp_buf_str(&plain), text);
}

bool mp_json_is_id(mp_json_type type, mp_str span)
{
    if (type == MP_JSON_STRING)
        return true;
    if (type != MP_JSON_NUMBER)
        return false;
    for (size_t i = 0; i < span.len; i++)
        if (span.ptr[i] == '.' || span.ptr[i] == 'e' || span.ptr[i] == 'E')
            return false;
    return true;
}

/* JSON has one spelling for each integer, except zero ("0" and "-0"). */
static bool is_zero(mp_str span)
{
    return mp_str_eq(span, MP_STR("0")) || mp_str_eq(span, MP_STR("-0"));
}

bool mp_json_id_eq(mp_str a, mp_str b)
{
    if (mp_str_eq(a, b))
        return true;
    if (a.len == 0 || b.len == 0 || (a.ptr[0] == '"') != (b.ptr[0] == '"'))
        return false;
    if (a.ptr[0] != '"')
        return is_zero(a) && is_zero(b);
    mp_scoped_buf plain = {0};
    mp_json_unescape(&plain, a);
    return mp_json_string_is(b, mp_buf_str(&plain));
}

static void put_escape(mp_buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char short_forms[0x20] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (c >= 0x80)
        mp_buf_put(out, MP_STR("\xef\xbf\xbd"));
    else if (c >= 0x20 || short_forms[c] != 0)
        mp_buf_put(out, (mp_str){(char[]){'\\', c >= 0x20 ? (char)c : short_forms[c]}, 2});
    else
        mp_buf_put(out, (mp_str){(char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6});
}

/* Appends `s` without quotes. `is_strict`: stops at the first byte that is not valid UTF-8, and gives false. */
static inline bool put_text(mp_buf *out, mp_str s, bool is_strict)
{
    const char *at = s.len == 0 ? "" : s.ptr, *end = at + s.len, *from = at;
    while ((at = plain_run(at, end)) < end) {
        unsigned length = (unsigned char)*at >= 0x80 ? mp_utf8_length(at, end) : 0;
        if (length != 0) {
            at += length;
            continue;
        }
        if (is_strict && (unsigned char)*at >= 0x80)
            return false;
        mp_buf_put(out, (mp_str){from, (size_t)(at - from)});
        put_escape(out, (unsigned char)*at);
        from = ++at;
    }
    mp_buf_put(out, (mp_str){from, (size_t)(end - from)});
    return true;
}

void mp_json_put_text(mp_buf *out, mp_str s)
{
    put_text(out, s, false);
}

bool mp_json_put_utf8(mp_buf *out, mp_str s)
{
    size_t start = out->len;
    mp_buf_room(out, s.len + 2);
    mp_buf_putc(out, '"');
    if (!put_text(out, s, true)) {
        out->len = start;
        return false;
    }
    mp_buf_putc(out, '"');
    return true;
}

void mp_json_put_string(mp_buf *out, mp_str s)
{
    mp_buf_room(out, s.len + 2);
    mp_buf_putc(out, '"');
    mp_json_put_text(out, s);
    mp_buf_putc(out, '"');
}
