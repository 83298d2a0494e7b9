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

/* The oldest series; the others follow by `next`. NULL: there is none. */
mp_member *MP_NULLABLE mp_series_oldest(void);

#endif
