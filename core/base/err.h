/* err.h: what went wrong, where, and what to do about it, for a person to read.
 * Functions that can fail give 0 / -1 (or a pointer / NULL) and fill the `mp_err` they got last; it may be NULL. */
#ifndef MP_BASE_ERR_H
#define MP_BASE_ERR_H

typedef struct {
    char text[1024]; /* "moonpool.yaml:3:5: unknown key 'worker'", perhaps with an excerpt below */
    char hint[512];  /* "did you mean 'workers'?", or empty */
} mp_err;

/* Both give -1, so that a function can end on `return mp_err_set(…)`. */
int mp_err_set(mp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
int mp_err_hint(mp_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
