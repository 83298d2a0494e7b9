#include "utf8.h"

size_t mp_utf8_visible_at(mp_str s, size_t i)
{
    const unsigned char *p = (const unsigned char *)s.ptr + i;
    size_t width = mp_utf8_length(s.ptr + i, s.ptr + s.len);
    if (width <= 1)
        return width == 1 && p[0] >= ' ' && p[0] != 0x7f;
    uint32_t code = p[0] & (0xffu >> (width + 1));
    for (size_t k = 1; k < width; k++)
        code = code << 6 | (p[k] & 0x3fu);
    bool is_control = code < 0xa0 || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                      (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
    return is_control ? 0 : width;
}
