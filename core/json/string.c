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

static char escaped_by(char letter)
{
    switch (letter) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    default:
        return letter;
    }
}

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
        } else if (*at == '\\' && end - at >= 2 && at[1] != '\0' && strchr("\"\\/bfnrt", at[1]) != NULL) {
            *escaped = true;
            at += 2;
        } else {
            return NULL;
        }
    }
}

size_t mp_json_copy_string(char *to, mp_str span)
{
    const char *at = span.ptr + 1, *end = span.ptr + span.len - 1;
    char *start = to;
    while (at < end) {
        const char *stop = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((stop == NULL ? end : stop) - at);
        memcpy(to, at, plain);
        to += plain;
        if (stop == NULL)
            break;
        at = stop + 2;
        if (stop[1] != 'u') {
            *to++ = escaped_by(stop[1]);
            continue;
        }
        uint32_t code = (uint32_t)hex4(at);
        at += 4;
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
