/* expand.h: expands ${…} in a scalar after the YAML was parsed, so that no value can change the document's structure.
 *
 *   ${NAME}            the environment variable; an error if it is not set
 *   ${NAME:-default}   the default if the variable is not set or empty
 *   ${NAME:?message}   an error with this message if the variable is not set or empty
 *   ${file:path}       the contents of the file, without the final line break
 *   $$                 a dollar; a single dollar before any other character is kept */
#ifndef MP_CONFIG_EXPAND_H
#define MP_CONFIG_EXPAND_H

#include "telemetry/telemetry.h"

#define MP_EXPAND_CAP ((size_t)64 << 10) /* maximum bytes of one value */

bool mp_expand_has(mp_str text);
/* Appends the expanded text. Relative paths start at `folder`. On -1 `*where` is the part of `text` that caused the
 * error; the message contains nothing that came from an expansion. */
int mp_expand(mp_str text, const char *folder, mp_buf *out, mp_str *where, mp_err *err);

#endif
