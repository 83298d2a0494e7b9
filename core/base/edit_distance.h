/* edit_distance.h: how far apart two words are, to suggest a name for a misspelt one. */
#ifndef MP_BASE_EDIT_DISTANCE_H
#define MP_BASE_EDIT_DISTANCE_H

#include "str.h"

#define MP_EDIT_BYTES 64

/* The smallest number of insertions, deletions, replacements and swaps of adjacent bytes that turn `a` into `b`; each
 * pair of bytes is edited at most once. ASCII case is ignored. INT_MAX if `a` or `b` is longer than MP_EDIT_BYTES. */
int mp_edit_distance(mp_str a, mp_str b);

#endif
