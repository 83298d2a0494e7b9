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

/* By the letter behind a backslash: the byte that the escape is for; 0 if it is no such letter. */
extern const char mp_json_escaped[256];
/* By byte: the value of the hexadecimal digit, plus 1; 0 if it is none. */
extern const unsigned char mp_json_digits[256];

static inline int32_t digit_at(const char *at)
{
    return mp_json_digits[(unsigned char)*at] - 1;
}

/* The value of four hexadecimal digits; negative if one of them is not a digit. */
static inline int32_t hex4(const char *at)
{
    int32_t a = digit_at(at), b = digit_at(at + 1), c = digit_at(at + 2), d = digit_at(at + 3);
    return (a | b | c | d) < 0 ? -1 : a << 12 | b << 8 | c << 4 | d;
}

#endif
