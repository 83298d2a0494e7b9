/* encoding.h: bytes as text: hexadecimal digits, and base64url without padding (RFC 4648, section 5). Decoding of
 * base64url is strict: text that mp_base64url_encode would not write is refused. */
#ifndef MP_BASE_ENCODING_H
#define MP_BASE_ENCODING_H

#include "str.h"

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

/* Length of the encoded text of `len` bytes, in characters. */
#define MP_BASE64URL_ROOM(len) (((len) * 4 + 2) / 3)

/* Writes the encoded text of `from` to `to`, without a NUL. Returns its length. */
size_t mp_base64url_encode(char *to, mp_str from);
/* Decodes `from` into `to`, which has three quarters of its length or more, and may be the same memory. -1: invalid. */
ptrdiff_t mp_base64url_decode(unsigned char *to, mp_str from);

#endif
