/* hex.h: bytes as hexadecimal digits, in lower case. */
#ifndef MP_BASE_HEX_H
#define MP_BASE_HEX_H

#include <stddef.h>

/* Writes two digits for each byte to `to`, without a NUL. Returns the place behind them. */
static inline char *mp_hex_put(char *to, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

#endif
