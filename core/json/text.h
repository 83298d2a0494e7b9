/* text.h: shared by the reader and the writer of strings in this module: runs of plain bytes, \u escapes. */
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
