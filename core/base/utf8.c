#include "utf8.h"
#include <stdint.h>

size_t mp_utf8_visible_at(mp_str s, size_t i)
{
    unsigned char c = (unsigned char)s.ptr[i];
    size_t width = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (width == 0 || i + width > s.len)
        return 0;
    if (width == 1)
        return c >= ' ' && c != 0x7f;
    uint32_t code = c & (0xffu >> (width + 1));
    for (size_t k = 1; k < width; k++) {
        unsigned char next = (unsigned char)s.ptr[i + k];
        if ((next & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (next & 0x3fu);
    }
    bool is_long_form = (width == 3 && code < 0x800) || (width == 4 && code < 0x10000);
    bool is_control = code < 0xa0 || (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
                      (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
    bool is_none = (code >= 0xd800 && code <= 0xdfff) || code > 0x10ffff;
    return is_long_form || is_control || is_none ? 0 : width;
}
