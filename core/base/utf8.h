/* utf8.h: UTF-8 validity, and which characters of untrusted text are safe to print. */
#ifndef MP_BASE_UTF8_H
#define MP_BASE_UTF8_H

#include "str.h"

/* Length in bytes of the UTF-8 character at `i`. 0 if the bytes are not valid UTF-8, or if a terminal could
 * interpret the character: control characters (C0, C1) and marks that change the direction of text. */
size_t mp_utf8_visible_at(mp_str text, size_t i);

#endif
