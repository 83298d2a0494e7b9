/* pattern.h: patterns of names, as in "search_*". */
#ifndef MP_BASE_PATTERN_H
#define MP_BASE_PATTERN_H

#include "str.h"

/* True if `text` is like `pattern`, in which '*' stands for any text. Takes a time of at most the product of both
 * lengths. */
bool mp_pattern_matches(const char *pattern, mp_str text);

#endif
