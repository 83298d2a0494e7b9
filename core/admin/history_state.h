/* history_state.h: the structs that the files history*.c share. */
#ifndef MP_ADMIN_HISTORY_STATE_H
#define MP_ADMIN_HISTORY_STATE_H

#include "history.h"

#define SPARE 8  /* rows that are kept longer, for an answer that is being written */
#define STEPS 12 /* rows of the hour in one row of the day */

/* How a number is computed from a family of counters or gauges. */
typedef enum {
    RATE,  /* growth of the counters of a family, per second */
    LEVEL, /* the sum of the gauges of a family */
    ERRORS,
    HALF_CALLS, /* the time within which half of the requests were answered, in ms */
    MOST_CALLS, /* the time within which 99 of 100 were answered */
    MOST_TURNS, /* the time within which 99 of 100 turns of the workers ended */
    CPU,        /* processors in use */
    RESIDENT
} kind;

typedef struct {
    const char *name;
    kind kind;
    const char *MP_NULLABLE family; /* the family of a number of the kinds RATE and LEVEL */
} mp_history_number;

extern const mp_history_number mp_history_numbers[MP_HISTORY_NUMBERS];

/* The counts of another process of the gateway. */
typedef struct {
    uint16_t number; /* number of the process */
    mp_history_reading first, last;
} mp_history_other;

struct mp_history {
    /* gauges and counters of all families, sorted by family */
    const mp_stat *const *stats;
    size_t first[MP_HISTORY_NUMBERS], count[MP_HISTORY_NUMBERS]; /* of `stats`, those of each number */
    uint64_t started_ms;                                         /* monotonic time of row 0 */
    uint64_t serial;                                             /* rows of the hour that were added */
    uint64_t own; /* the first row that this process has measured: those before are of the process before it */
    mp_history_reading step, minute; /* at the end of the last row of each span */
    mp_history_row hour[720 + SPARE], day[1440 + SPARE];
    mp_history_other others[MP_OLDER_MOST + 1];
    int other_count;
    mp_history_reading left; /* counts of processes that have ended */
};

/* True for a number that is a level at one moment, summed over all processes; false for one that describes a span of
 * time. */
static inline bool mp_history_is_level(size_t n)
{
    return mp_history_numbers[n].kind == LEVEL || mp_history_numbers[n].kind == RESIDENT;
}

/* implemented in history.c */
void mp_history_read_own(const mp_history *history, mp_history_reading *now);
mp_history_row *mp_history_row_at(const mp_history *history, mp_history_span span, uint64_t serial);

/* implemented in history_others.c */
void mp_history_add_others(const mp_history *history, mp_history_reading *to);

#endif
