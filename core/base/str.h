/* str.h: a borrowed byte string with a length. It owns no memory, needs no NUL at the end and may contain NULs. */
#ifndef MP_BASE_STR_H
#define MP_BASE_STR_H

#include "nullable.h"
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

typedef struct {
    const char *ptr;
    size_t len;
} mp_str;

#define MP_STR(literal) ((mp_str){(literal), sizeof(literal) - 1})
#define MP_STR_NONE ((mp_str){NULL, 0})
/* Arguments for printf's "%.*s". */
#define MP_STR_ARG(s) (int)(s).len, (s).ptr == NULL ? "" : (s).ptr

static inline mp_str mp_str_of(const char *MP_NULLABLE text)
{
    return (mp_str){text, text == NULL ? 0 : strlen(text)};
}

static inline bool mp_str_eq(mp_str a, mp_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool mp_str_is(mp_str s, const char *text)
{
    return mp_str_eq(s, mp_str_of(text));
}

/* Compares without case, in ASCII only, which is enough for HTTP header names. */
static inline bool mp_str_is_nocase(mp_str s, const char *text)
{
    return s.len == strlen(text) && (s.len == 0 || strncasecmp(s.ptr, text, s.len) == 0);
}

static inline bool mp_str_starts(mp_str s, mp_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

static inline mp_str mp_str_from(mp_str s, size_t offset)
{
    return offset >= s.len ? (mp_str){s.ptr + s.len, 0} : (mp_str){s.ptr + offset, s.len - offset};
}

/* Removes spaces and tabs (HTTP's optional white space) from both ends. */
static inline mp_str mp_str_trim(mp_str s)
{
    while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s.ptr++;
        s.len--;
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
        s.len--;
    return s;
}

/* Cuts `*rest` at the first `mark`: returns the part before it and leaves the part after it in `*rest`. Without a
 * mark it returns the whole string and sets `rest->ptr` to NULL. */
static inline mp_str mp_str_cut(mp_str *rest, char mark)
{
    mp_str head = *rest;
    const char *at = rest->len == 0 ? NULL : memchr(rest->ptr, mark, rest->len);
    if (at == NULL) {
        *rest = MP_STR_NONE;
        return head;
    }
    head.len = (size_t)(at - head.ptr);
    *rest = (mp_str){at + 1, rest->len - head.len - 1};
    return head;
}

#endif
