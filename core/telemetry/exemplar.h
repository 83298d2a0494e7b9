/* exemplar.h: exemplars of OpenMetrics: for each bucket of a histogram the last recorded trace whose time fell into it. The process keeps them once.
 * Only calls that a trace records come here. */
#ifndef MP_TELEMETRY_EXEMPLAR_H
#define MP_TELEMETRY_EXEMPLAR_H

#include "series.h"

#define MP_EXEMPLAR_TRACE_BYTES 33 /* 32 hexadecimal digits and a zero byte */

typedef struct {
    char trace[MP_EXEMPLAR_TRACE_BYTES];
    uint64_t us;    /* the observation */
    uint64_t at_ms; /* when it was made, since 1970 */
} mp_exemplar;

/* Keeps an observation of `us` microseconds as the exemplar of its bucket. Does nothing if another thread uses the exemplars at the moment. */
void mp_exemplar_keep(mp_series series, mp_buckets buckets, uint64_t us, const char trace[MP_EXEMPLAR_TRACE_BYTES]);
/* Reads the exemplar of the bucket whose cell this is. False if it has none. */
bool mp_exemplar_read(mp_series cell, mp_exemplar *to);

#endif
