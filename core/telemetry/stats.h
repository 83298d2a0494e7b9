/* stats.h: gauges and counters. A file declares each of its own beside the code that counts:
 *
 *     MP_GAUGE(pool_jobs, "pool_jobs", "", "", "blocking jobs that wait for a thread or run")
 *     ...
 *     mp_stat_add(&mp_stat_pool_jobs, 1);
 *
 * and /status shows it. The linker gathers the declarations of the whole program. A gauge or counter that several files
 * use is declared in one of them and announced as `extern const mp_stat` in a header.
 *
 * Each thread adds to its own copy of all numbers, and a reader sums the copies, so a gauge that rises on one worker
 * and falls on another reads correctly. Nothing here takes a lock. */
#ifndef MP_TELEMETRY_STATS_H
#define MP_TELEMETRY_STATS_H

#include "base/base.h"

typedef enum { MP_STAT_COUNTER, MP_STAT_GAUGE, MP_STAT_HISTOGRAM } mp_stat_kind; /* histograms: series.h alone */

/* How /metrics shows a number. */
typedef enum {
    MP_SHOWN_AS_COUNTED,
    MP_SHOWN_IN_SECONDS, /* counted in microseconds as NAME_us; /metrics shows it as NAME_seconds */
    MP_SHOWN_BY_LABELS,  /* only /status has it: /metrics has a family of series with its name */
} mp_shown;

/* Why something was refused. `moonpool status` and an alert tell of limits alone. */
typedef enum {
    MP_NOT_REFUSED,   /* the number counts no refusals */
    MP_FAULT,         /* of a client, a script or a server behind the gateway: more room would not mend it */
    MP_LIMIT_REACHED, /* an operator gives more room, or changes what needs so much */
} mp_refused_for;

typedef struct {
    /* in the section mp_stat_slots: the copy that threads without a slot of their own share; elsewhere: an account
     * (account.h), which has no copies */
    _Atomic int64_t *shared;
    const char *family, *label, *value, *text; /* label and value are "" if the family has one member */
    mp_stat_kind kind;
    mp_shown shown;
    mp_refused_for refused_for;
} mp_stat;

/* Declares the gauge or counter mp_stat_<id>: a member of `family`, for which `label` has `value`; `text` says what it
 * counts. Gauges rise and fall; counters only rise. An mp_shown may follow. */
#define MP_GAUGE(id, family, label, value, ...) MP_STAT_DECLARE(id, MP_STAT_GAUGE, family, label, value, __VA_ARGS__)
#define MP_COUNTER(id, family, label, value, ...)                                                                      \
    MP_STAT_DECLARE(id, MP_STAT_COUNTER, family, label, value, __VA_ARGS__)

/* Declares a counter of the family `refused`: a refusal whose `reason` is a limit or a fault. */
#define MP_REFUSED(id, reason, refused_for, text)                                                                      \
    static _Atomic int64_t mp_stat_slot_##id MP_STAT_SLOT;                                                             \
    MP_STAT_KEEP(id, &mp_stat_slot_##id, "refused", "reason", reason, text, MP_STAT_COUNTER, MP_SHOWN_AS_COUNTED,      \
                 refused_for)

/* A variable of each thread's copy of the numbers. */
#define MP_STAT_SLOT __attribute__((section("mp_stat_slots")))

#define MP_STAT_DECLARE(id, kind, family, label, value, ...)                                                           \
    static _Atomic int64_t mp_stat_slot_##id MP_STAT_SLOT;                                                             \
    MP_STAT_ROW(id, &mp_stat_slot_##id, kind, family, label, value, __VA_ARGS__, MP_SHOWN_AS_COUNTED, 0)

/* Takes `shown`, or its default, which follows. */
#define MP_STAT_ROW(id, slot, kind, family, label, value, text, shown, ...)                                            \
    MP_STAT_KEEP(id, slot, family, label, value, text, kind, shown, MP_NOT_REFUSED)

#define MP_STAT_KEEP(id, ...)                                                                                          \
    const mp_stat mp_stat_##id = {__VA_ARGS__};                                                                        \
    static const mp_stat *const mp_stat_row_##id __attribute__((used, section("mp_stat_rows"))) = &mp_stat_##id;

/* Bytes from the section mp_stat_slots to the calling thread's copy of it; 0 for threads without a copy. */
extern _Thread_local intptr_t mp_stat_offset __attribute__((visibility("hidden")));

/* Adds to a gauge or counter. A thread's own copy has no other writer, so that no locked instruction is needed. */
static inline void mp_stat_add(const mp_stat *stat, int64_t n)
{
    intptr_t offset = mp_stat_offset;
    if (offset == 0) {
        atomic_fetch_add_explicit(stat->shared, n, memory_order_relaxed);
        return;
    }
    _Atomic int64_t *own = (_Atomic int64_t *)((intptr_t)stat->shared + offset);
    atomic_store_explicit(own, atomic_load_explicit(own, memory_order_relaxed) + n, memory_order_relaxed);
}

int64_t mp_stat_read(const mp_stat *stat);
/* All gauges and counters, ordered by family and then by value ("5ms" before "20ms"). */
const mp_stat *const *mp_stat_list(size_t *count);
/* The part of that list with this family. */
const mp_stat *const *mp_stat_family(const char *family, size_t *count);
/* The sum of all values of a family. */
int64_t mp_stat_sum(const char *family);
/* Gives the calling thread its own copy, for its whole life. Threads without one share a copy. */
void mp_stat_thread(void);
/* The copies of a variable of MP_STAT_SLOT, one after another: `*at` is 0 before the first, which is the one that
 * threads share. NULL: there are no more. */
void *MP_NULLABLE mp_stat_next_copy(const void *slot, int *at);

#endif
