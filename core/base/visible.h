/* visible.h: which bytes of a stranger's text may be shown to a person. */
#ifndef MP_BASE_VISIBLE_H
#define MP_BASE_VISIBLE_H

#include "str.h"

/* Bytes of the UTF-8 character at `i`; 0 when it is none, or commands a terminal: controls, C1, and the marks that turn
 * the direction of writing. */
size_t mp_visible_at(mp_str text, size_t i);

#endif
