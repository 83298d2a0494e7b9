/* history.h: numbers of the gateway over time, for the charts of the dashboard: MP_HISTORY_NUMBERS numbers for the last
 * hour, a row each 5 s, and for the last day, a row each minute. All of it is one block below 1 MiB; nothing is written
 * to a disk. After an upgrade the new process takes the rows of the one before it, and measures all processes of the
 * gateway together; a restart begins anew. A measurement reads counters and gauges, takes no lock, and wakes no worker.
 * Belongs to one thread. */
#ifndef MP_ADMIN_HISTORY_H
#define MP_ADMIN_HISTORY_H

#include "rpc/observe.h"

#define MP_HISTORY_NUMBERS 40
#define MP_HISTORY_STEP_MS 5000

typedef struct mp_history mp_history;

/* The values of counters at some time. */
typedef struct {
    uint64_t at_us; /* monotonic; 0: never */
    int64_t counts[MP_HISTORY_NUMBERS];
    double calls[MP_SERIES_CELLS], turns[MP_SERIES_CELLS]; /* histograms of the times of requests, and of turns */
    double good;                                           /* requests without an error */
    uint64_t cpu_us;
} mp_history_reading;

/* One number for each name; NAN where the number is unknown, as the time of calls when there was no call. */
typedef struct {
    float values[MP_HISTORY_NUMBERS];
} mp_history_row;

typedef enum { MP_HISTORY_HOUR, MP_HISTORY_DAY } mp_history_span;

mp_history *mp_history_new(void);
void mp_history_free(mp_history *MP_NULLABLE history);

/* "calls", "p99_ms", …; NULL from MP_HISTORY_NUMBERS on. */
const char *MP_NULLABLE mp_history_name(size_t number);
/* The index of a name; MP_HISTORY_NUMBERS if there is none. */
size_t mp_history_find(mp_str name);

/* Reads the counters into `now`, and writes a row with the changes since `*before`. Rates are per second. */
void mp_history_measure(const mp_history *history, const mp_history_reading *before, mp_history_reading *now,
                        mp_history_row *row);
/* Adds the row of this time; returns the ms until the next is due. Times in which it was not called get rows without
 * numbers. */
uint64_t mp_history_step(mp_history *history);

/* The number of rows, at most 720 or 1440; the milliseconds between two; and the time of the newest, in ms since
 * 1970. */
size_t mp_history_count(const mp_history *history, mp_history_span span);
uint64_t mp_history_every_ms(mp_history_span span);
uint64_t mp_history_until_ms(const mp_history *history, mp_history_span span);
/* Counts the rows that were ever added: row `serial` is kept while it is among the last mp_history_count(). The first
 * is 0. */
uint64_t mp_history_serial(const mp_history *history, mp_history_span span);
float mp_history_value(const mp_history *history, mp_history_span span, uint64_t serial, size_t number);

/* -- several processes (history_others.c) -- */

/* Appends what this process has counted, as a text for another one. */
void mp_history_put_numbers(const mp_history *history, mp_buf *out);
/* Takes the text that mp_history_put_numbers made in another process. From now on its numbers are included in the rows
 * of this process. */
void mp_history_take_numbers(mp_history *history, uint16_t number, mp_str text);
/* Of processes that have ended, only their counts are kept. */
void mp_history_settle(mp_history *history, const mp_processes *processes);
/* Puts the rows of an answer to GET /api/history before those of this process. The serial of each row, in the span of
 * the hour, grows by the number that is returned: a multiple of MP_HISTORY_SHIFT, which is one row of the day. */
#define MP_HISTORY_SHIFT 12
uint64_t mp_history_take_rows(mp_history *history, mp_str json);

/* Appends a number as JSON, with at most 3 decimals; null for NAN. */
void mp_history_put(mp_buf *out, float value);

#endif
