/* err.h: an error for a person to read: where, what, and what to do next.
 * A function that can fail returns 0 or -1 (or a pointer or NULL) and fills its last argument, an `mp_err *`, which
 * may be NULL. */
#ifndef MP_BASE_ERR_H
#define MP_BASE_ERR_H

#include "nullable.h"

typedef struct {
    char text[1024]; /* "moonpool.yaml:3:5: unknown key 'worker'", possibly followed by an excerpt of the file */
    char hint[512];  /* "did you mean 'workers'?", or "" */
} mp_err;

/* Both functions return -1, so that a caller can write `return mp_err_set(…)`. */
int mp_err_set(mp_err *MP_NULLABLE err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int mp_err_hint(mp_err *MP_NULLABLE err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
