/* series_state.h: declarations that the files about series share: series.c counts, series_text.c writes the text of
 * /metrics. */
#ifndef MP_TELEMETRY_SERIES_STATE_H
#define MP_TELEMETRY_SERIES_STATE_H

#include "series.h"

typedef struct mp_member {
    mp_node node; /* the key: the family's address, then the values, each behind a NUL */
    _Atomic(struct mp_member *)
        next; /* in the order in which they were made; set once, when the next one is complete */
    const mp_family *family;
    mp_series cell; /* the first of its cells */
} mp_member;

/* The sum of a cell over all copies: `whole` for integers, `real` for doubles. */
typedef struct {
    int64_t whole;
    double real;
} mp_sums;

/* The oldest series; the others follow by `next`. NULL: there is none. */
mp_member *MP_NULLABLE mp_series_oldest(void);
mp_sums mp_series_read(mp_series cell, bool is_real);
bool mp_family_is_histogram(const mp_family *family);
/* Of a histogram: the number of its bounds, and their texts. */
int mp_family_bounds(const mp_family *family);
const char *const *mp_family_texts(const mp_family *family);

#endif
