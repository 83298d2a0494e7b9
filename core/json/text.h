/* text.h: shared by the reader and the writer of strings in this module: runs of plain bytes, UTF-8, \u escapes. */
#ifndef MP_JSON_TEXT_H
#define MP_JSON_TEXT_H

#include <stddef.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The first byte that needs special treatment (a quote, a backslash, a control character or a byte above 0x7f), or
 * `end`. */
static inline const char *plain_run(const char *at, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        /* The comparison is signed: bytes above 0x7f are also less than a space. */
        __m128i odd = _mm_cmplt_epi8(bytes, space);
        odd = _mm_or_si128(odd, _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape)));
        unsigned mask = (unsigned)_mm_movemask_epi8(odd);
        if (mask != 0)
            return at + __builtin_ctz(mask);
    }
#endif
    while (at < end && *at >= ' ' && (unsigned char)*at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* The first quote or backslash, or `end`. */
static inline const char *quote_or_escape(const char *at, const char *end)
{
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), escape = _mm_set1_epi8('\\');
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, escape));
        unsigned mask = (unsigned)_mm_movemask_epi8(found);
        if (mask != 0)
            return at + __builtin_ctz(mask);
    }
#endif
    while (at < end && *at != '"' && *at != '\\')
        at++;
    return at;
}

/* Length in bytes of the UTF-8 character at `at`, which is less than `end`; 0 if the bytes are not valid UTF-8 (RFC
 * 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
static inline unsigned utf8_length(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at);
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        return left >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((p[0] & 0xf0) == 0xe0) {
        if (left < 3 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80)
            return 0;
        unsigned code = (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6;
        return code >= 0x800 && (code & 0xf800) != 0xd800 ? 3 : 0;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        if (left < 4 || (p[1] & 0xc0) != 0x80 || (p[2] & 0xc0) != 0x80 || (p[3] & 0xc0) != 0x80)
            return 0;
        unsigned code = (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12;
        return code >= 0x10000 && code <= 0x10ffff ? 4 : 0;
    }
    return 0;
}

/* The value of four hexadecimal digits; -1 if one of them is not a digit. */
static inline int32_t hex4(const char *at)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

#endif
