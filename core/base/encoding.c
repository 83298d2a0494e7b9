#include "encoding.h"
#include <stdint.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Value of a base64url digit, or 64 for any other byte. */
static unsigned value_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26u;
    if (c >= '0' && c <= '9')
        return c - '0' + 52u;
    return c == '-' ? 62 : c == '_' ? 63 : 64;
}

size_t mp_base64url_encode(char *to, mp_str from)
{
    char *at = to;
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < from.len; i++) {
        bits = bits << 8 | (unsigned char)from.ptr[i];
        for (count += 8; count >= 6; count -= 6)
            *at++ = digits[bits >> (count - 6) & 63];
    }
    if (count > 0)
        *at++ = digits[bits << (6 - count) & 63];
    return (size_t)(at - to);
}

ptrdiff_t mp_base64url_decode(unsigned char *to, mp_str from)
{
    unsigned char *at = to;
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < from.len; i++) {
        unsigned value = value_of((unsigned char)from.ptr[i]);
        if (value > 63)
            return -1;
        bits = bits << 6 | value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            *at++ = (unsigned char)(bits >> count);
        }
    }
    return count >= 6 || (bits & ((1u << count) - 1)) != 0 ? -1 : at - to;
}
