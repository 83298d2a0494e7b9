/* others_left.h: the counts of the processes of this gateway, as last known: of living ones, in case they are killed or
 * do not answer, and the sum of those that have ended. Pure data of one thread. */
#ifndef MP_ADMIN_OTHERS_LEFT_H
#define MP_ADMIN_OTHERS_LEFT_H

#include "rpc/observe.h"

/* A process that lives. */
typedef struct {
    uint16_t number;
    bool has_ended; /* the process has sent its counts, which are in the sum */
    mp_buf status, metrics;
} mp_left_record;

typedef struct {
    mp_left_record records[MP_OLDER_MOST + 1];
    int count;
    /* the added counts of ended processes, as JSON and as a text of /metrics; empty: no process has ended */
    mp_buf status, metrics;
} mp_others_left;

static inline bool mp_left_is_empty(const mp_others_left *left)
{
    return left->status.len == 0 && left->metrics.len == 0;
}

/* Cuts a status into its texts: that of the process, and that of processes that have ended before. */
size_t mp_left_split(mp_str status, mp_str texts[2]);
/* The record of a process. NULL: there is none, and `makes` is false, or there is no room. */
mp_left_record *MP_NULLABLE mp_left_record_of(mp_others_left *left, uint16_t number, bool makes);
/* Keeps a status or a text of metrics. Without one, appends to `counted` the counters of the last one. */
void mp_left_keep(mp_left_record *of, bool is_status, mp_str text, mp_buf *counted);
/* Adds the last known counts of processes that have ended to the sum. */
void mp_left_settle(mp_others_left *left, const mp_processes *processes);
/* Takes the counts of a process that ends: two lines of counters as JSON, its own and those of processes that ended
 * before it, then the text of its metrics. False: it has said that already. */
bool mp_left_take_end(mp_others_left *left, uint16_t number, mp_str body);
void mp_left_clear(mp_others_left *left);

#endif
