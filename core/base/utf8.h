/* utf8.h: UTF-8 validity, and which characters of untrusted text are safe to print. */
#ifndef MP_BASE_UTF8_H
#define MP_BASE_UTF8_H

#include "str.h"
#include <stdint.h>

/* Length in bytes of the UTF-8 character at `at`, which is less than `end`; 0 if the bytes are not valid UTF-8 (RFC
 * 3629: no overlong forms, no surrogates, nothing above U+10FFFF). */
static inline unsigned mp_utf8_length(const char *at, const char *end)
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

/* Length in bytes of the UTF-8 character at `i`. 0 if the bytes are not valid UTF-8, or if a terminal could
 * interpret the character: control characters (C0, C1) and marks that change the direction of text. */
size_t mp_utf8_visible_at(mp_str text, size_t i);

#endif
