/* expand.h: ${…} in a scalar, after YAML has been parsed, so that no value can change the structure around it.
 *
 *   ${NAME}            the environment variable; an error when it is not set
 *   ${NAME:-default}   the default when it is not set or empty
 *   ${NAME:?message}   an error with this message when it is not set or empty
 *   ${file:path}       what the file holds, without the line break at its end
 *   $$                 a dollar; one before any other character is a dollar too */
#ifndef MP_GATEWAY_EXPAND_H
#define MP_GATEWAY_EXPAND_H

#include "base/base.h"

#define MP_EXPAND_CAP ((size_t)64 << 10) /* bytes of one value */

bool mp_expand_has(mp_str text);
/* Appends the expanded text. `folder` is where relative files are looked for. On -1 `*where` is the part of `text` at fault,
 * and the message holds nothing that came out of an expansion. */
int mp_expand(mp_str text, const char *folder, mp_buf *out, mp_str *where, mp_err *err);

#endif
