/* hex.h: bytes as hexadecimal digits. */
#ifndef MP_BASE_HEX_H
#define MP_BASE_HEX_H

#include <stddef.h>

/* Writes two digits of lower case for each byte to `to`, without a NUL. Returns the place behind them. */
static inline char *mp_hex_put(char *to, const unsigned char *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

/* The value of a digit of either case; -1: it is none. */
static inline int mp_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

#endif
