/* edit_distance.h: how far apart two words are, to suggest a name for a misspelt one. */
#ifndef MP_BASE_EDIT_DISTANCE_H
#define MP_BASE_EDIT_DISTANCE_H

#include "str.h"

#define MP_EDIT_BYTES 64

/* The fewest insertions, deletions, replacements and swaps of adjacent bytes that make `b` of `a`; each pair of bytes
 * is edited once at most. The case of ASCII letters does not matter. INT_MAX if one of them has more than MP_EDIT_BYTES
 * bytes. */
int mp_edit_distance(mp_str a, mp_str b);

#endif
