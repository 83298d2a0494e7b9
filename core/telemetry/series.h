/* series.h: counters and histograms with labels, for /metrics. A file declares a family beside the code that measures:
 *
 *     MP_HISTOGRAM(tool_duration, "moonpool_tool_duration_seconds", MP_BUCKETS_CALL, 500, "time of a tool's calls",
 *                  "gen_ai_tool_name")
 *     ...
 *     mp_series series = mp_series_of(&mp_family_tool_duration, &name);
 *     mp_series_observe(series, us);
 *
 * A series is one member of a family: one value for each label. It is looked up once, under a lock, and is never
 * removed:
 * its numbers go on over reloads. Observing it takes no lock, no lookup and no allocation but that of the thread's own
 * copy of the numbers; a reader sums the copies. Above the family's limit of series, and where the text of all series
 * would be longer than /metrics may be, mp_series_of returns the series whose labels are all "_other", so a client that
 * invents names makes no series. */
#ifndef MP_TELEMETRY_SERIES_H
#define MP_TELEMETRY_SERIES_H

#include "base/base.h"
#include "stats.h"
#include <stdatomic.h>

#define MP_SERIES_LABELS 4 /* limit of the labels of a family */
#define MP_SERIES_MAX                                                                                                  \
    (UINT32_C(320)                                                                                                     \
     << 9) /* above the number of every cell of a series: 1.25 MiB of a thread's copy if every family is full */
/* limit of the cells of a series: a histogram's buckets, and the sum of its observations */
#define MP_SERIES_CELLS 21

/* The upper bounds of a histogram's buckets. */
typedef enum { MP_BUCKETS_CALL, MP_BUCKETS_SESSION } mp_buckets;

#define MP_BOUNDS_MAX 19

/* The upper bounds of the buckets of a histogram whose numbers are not times. */
typedef struct {
    double most[MP_BOUNDS_MAX];      /* rising */
    const char *text[MP_BOUNDS_MAX]; /* as Prometheus writes them */
    int count;
} mp_real_bounds;

enum { MP_FAMILY_COUNTER = -1, MP_FAMILY_GAUGE = -2, MP_FAMILY_HISTOGRAM = -3 }; /* in place of mp_buckets */

typedef struct {
    const char *name, *text; /* of a counter: without "_total" */
    const char *labels[MP_SERIES_LABELS + 1];
    int most;           /* limit of its series, not counting "_other" */
    int buckets;        /* one of mp_buckets; MP_FAMILY_COUNTER, and with `own` further ones */
    _Atomic int *count; /* number of its series */
    /* of its series in the text, about; NULL for families of scripts; guarded by the lock of all series */
    size_t *MP_NULLABLE bytes;
    const mp_real_bounds *MP_NULLABLE own; /* not NULL: its numbers are of type double, its buckets these */
} mp_family;

extern const mp_stat mp_stat_left_out_most; /* sets of labels that a limit of series leaves out */

typedef uint32_t mp_series; /* 0: not known; observing it does nothing */

#define MP_FAMILY_DECLARE(id, name, most, buckets, text, ...)                                                          \
    static _Atomic int mp_family_count_##id;                                                                           \
    static size_t mp_family_bytes_##id;                                                                                \
    const mp_family mp_family_##id = {                                                                                 \
        name, text, {__VA_ARGS__}, most, buckets, &mp_family_count_##id, &mp_family_bytes_##id, NULL};                 \
    static const mp_family *const mp_family_row_##id __attribute__((used, section("mp_family_rows"))) = &mp_family_##id;
#define MP_LABELLED_COUNTER(id, name, most, text, ...)                                                                 \
    MP_FAMILY_DECLARE(id, name, most, MP_FAMILY_COUNTER, text, __VA_ARGS__)
#define MP_HISTOGRAM(id, name, buckets, most, text, ...)                                                               \
    MP_FAMILY_DECLARE(id, name, most, (int)(buckets), text, __VA_ARGS__)

/* Finds or makes the series with these values, one for each label. Any thread. 0 if the process has no room for more
 * series. */
mp_series mp_series_of(const mp_family *family, const mp_str *values);
/* As mp_series_of, but 0 instead of the series of "_other". */
mp_series mp_series_alone(const mp_family *family, const mp_str *values);
/* mp_series_of with another limit than the family's. */
mp_series mp_series_within(const mp_family *family, const mp_str *values, int most);
/* Adds `n` to a counter. */
void mp_series_add(mp_series series, int64_t n);
/* Adds one observation of `us` microseconds to a histogram of `buckets`. */
void mp_series_observe(mp_series series, mp_buckets buckets, uint64_t us);
/* Adds the same observation to two histograms of `buckets`. */
void mp_series_observe_both(mp_series one, mp_series other, mp_buckets buckets, uint64_t us);
/* For families with `own`: adds to a counter; adds to a gauge or sets it, as all threads see it; adds an observation to
 * a histogram. */
void mp_series_add_real(mp_series series, double n);
void mp_series_gauge(mp_series series, double n, bool is_set);
void mp_series_observe_real(const mp_real_bounds *bounds, mp_series series, double n);
/* The value of a counter. Any thread. */
int64_t mp_series_count(mp_series series);
/* The cells of a histogram, as mp_series_sum() has them. Any thread. */
void mp_series_read_histogram(mp_series series, mp_buckets buckets, int64_t cells[MP_SERIES_CELLS]);
/* Enables or disables the measured numbers; numbers that are counted in any case are not affected. Any thread. */
void mp_series_enable(bool is_on);
bool mp_series_is_on(void);
/* Gives the calling thread its own copy of the numbers, for its whole life. Threads without one share a copy. */
void mp_series_thread(void);
/* The text of all families in Prometheus's format; in that of OpenMetrics if `is_open`, without the line "# EOF". It is
 * written in slices: mp_series_text_put() appends what `steps` allow, and is to be called again while it returns true.
 * One step passes over a series, a sample takes ten of them, a histogram 210. The numbers are those of the moment at
 * which they are written. */
typedef struct mp_series_text mp_series_text;
mp_series_text *mp_series_text_new(bool is_open);
void mp_series_text_free(mp_series_text *MP_NULLABLE text);
bool mp_series_text_put(mp_series_text *text, mp_buf *out, unsigned steps);
/* Adds up the cells of all series of the family of this name, a histogram; of those whose last label has the value
 * `last`, unless it is NULL. */
void mp_series_sum(const char *name, const char *MP_NULLABLE last, int64_t cells[MP_SERIES_CELLS]);
/* The number of counting cells of a histogram: one for each bound, and one for values above all. */
int mp_series_buckets(mp_buckets buckets);
/* The time in microseconds within which `share` (0 to 1) of the observations in `cells` lie, between the bounds of its
 * bucket; -1: there are none. */
double mp_series_quantile(mp_buckets buckets, const int64_t *cells, double share);
/* Begins a family: the lines HELP and TYPE. `suffix` "_total" belongs to a counter's samples; OpenMetrics leaves it out
 * of the family's name. */
void mp_metrics_put_head(mp_buf *out, const char *name, const char *suffix, const char *type, const char *text);
/* Appends a gauge with one sample. */
void mp_metrics_put_gauge(mp_buf *out, const char *name, const char *text, double value);
/* Appends `value` with the escapes of a label's value: \\, \" and \n. */
void mp_metrics_put_label(mp_buf *out, mp_str value);

#endif
