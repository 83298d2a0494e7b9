/* series.h: counters and histograms with labels, for /metrics. A file declares a family beside the code that measures:
 *
 *     MP_HISTOGRAM(tool_duration, "moonpool_tool_duration_seconds", mp_bounds_call, 500, "time of a tool's calls",
 *                  "gen_ai_tool_name")
 *     ...
 *     mp_series series = mp_series_of(&mp_family_tool_duration, &name);
 *     mp_series_observe(series, us);
 *
 * A series is one member of a family: one value for each label. It is looked up once, under a lock, and is never
 * removed:
 * its numbers go on over reloads. Observing it takes no lock, no lookup and no allocation but that of the thread's own
 * copy of the numbers (stats.h); a reader sums the copies. Above the family's limit of series, and where the text of
 * all series would be longer than /metrics may be, mp_series_of returns the series whose labels are all "_other", so a
 * client that invents names makes no series. */
#ifndef MP_TELEMETRY_SERIES_H
#define MP_TELEMETRY_SERIES_H

#include "stats.h"

#define MP_SERIES_LABELS 4 /* limit of the labels of a family */
#define MP_SERIES_MAX                                                                                                  \
    (UINT32_C(320)                                                                                                     \
     << 9) /* above the number of every cell of a series: 1.25 MiB of a thread's copy if every family is full */
/* limit of the cells of a series: a histogram's buckets, and the sum of its observations */
#define MP_SERIES_CELLS 21

#define MP_BOUNDS_MAX 19

/* The upper bounds of a histogram's buckets. */
typedef struct {
    double most[MP_BOUNDS_MAX];      /* rising; in microseconds, if the family is shown in seconds */
    const char *text[MP_BOUNDS_MAX]; /* as Prometheus writes them */
    int count;
} mp_bounds;

extern const mp_bounds mp_bounds_call, mp_bounds_session, mp_bounds_none;

typedef struct {
    const char *name, *text; /* the name of a counter is without "_total" */
    const char *labels[MP_SERIES_LABELS + 1];
    int most; /* limit of its series, not counting "_other" */
    mp_stat_kind kind;
    const mp_bounds *bounds; /* mp_bounds_none, unless it is a histogram */
    mp_shown shown;
    _Atomic int *count; /* number of the family's series */
    /* of its series in the text, about; NULL for families of scripts; guarded by the lock of all series */
    size_t *MP_NULLABLE bytes;
} mp_family;

extern const mp_stat mp_stat_left_out_most; /* sets of labels that a limit of series leaves out */

typedef uint32_t mp_series; /* 0: not known; observing it does nothing */

#define MP_FAMILY_DECLARE(id, name, most, kind, bounds, shown, text, ...)                                              \
    static _Atomic int mp_family_count_##id;                                                                           \
    static size_t mp_family_bytes_##id;                                                                                \
    const mp_family mp_family_##id = {                                                                                 \
        name, text, {__VA_ARGS__}, most, kind, &bounds, shown, &mp_family_count_##id, &mp_family_bytes_##id};          \
    static const mp_family *const mp_family_row_##id __attribute__((used, section("mp_family_rows"))) = &mp_family_##id;
#define MP_LABELLED_COUNTER(id, name, most, text, ...)                                                                 \
    MP_FAMILY_DECLARE(id, name, most, MP_STAT_COUNTER, mp_bounds_none, MP_SHOWN_AS_COUNTED, text, __VA_ARGS__)
/* Of times, which are observed in microseconds. */
#define MP_HISTOGRAM(id, name, bounds, most, text, ...)                                                                \
    MP_FAMILY_DECLARE(id, name, most, MP_STAT_HISTOGRAM, bounds, MP_SHOWN_IN_SECONDS, text, __VA_ARGS__)

/* Finds or makes the series with these values, one for each label. Any thread. 0 if the process has no room for more
 * series. */
mp_series mp_series_of(const mp_family *family, const mp_str *values);
/* As mp_series_of, but 0 instead of the series of "_other". */
mp_series mp_series_alone(const mp_family *family, const mp_str *values);
/* mp_series_of with another limit than the family's. */
mp_series mp_series_within(const mp_family *family, const mp_str *values, int most);
/* Adds `n` to a counter. */
void mp_series_add(mp_series series, double n);
/* Adds to a gauge or sets it, as all threads see it. */
void mp_series_gauge(mp_series series, double n, bool is_set);
/* Adds one observation to a histogram with these bounds. */
void mp_series_observe(mp_series series, const mp_bounds *bounds, double n);
/* Adds the same observation to two histograms. */
void mp_series_observe_both(mp_series one, mp_series other, const mp_bounds *bounds, double n);
/* The value of a counter, or of a cell of a histogram. Any thread. */
double mp_series_read(mp_series series);
/* Adds the cells of a histogram with these bounds to `cells`: one for each bound, one for what is above all, and the
 * sum of its observations. Any thread. */
void mp_series_add_cells(mp_series series, const mp_bounds *bounds, double cells[MP_SERIES_CELLS]);
/* Enables or disables the measured numbers; numbers that are counted in any case are not affected. Any thread. */
void mp_series_enable(bool is_on);
bool mp_series_is_on(void);
/* The text of all families, and of what stats.h declares, in Prometheus's format; in that of OpenMetrics if `is_open`,
 * without the line "# EOF". It is written in slices: mp_series_text_put() appends what `steps` allow, and is to be
 * called again while it returns true. One step passes over a series, a sample takes ten of them, a histogram 210. The
 * numbers are those of the moment at which they are written. */
typedef struct mp_series_text mp_series_text;
mp_series_text *mp_series_text_new(bool is_open);
void mp_series_text_free(mp_series_text *MP_NULLABLE text);
bool mp_series_text_put(mp_series_text *text, mp_buf *out, unsigned steps);
/* Adds up the cells of all series of the family of this name, a histogram of the gateway; of those whose last label has
 * the value `last`, unless it is NULL. */
void mp_series_sum(const char *name, const char *MP_NULLABLE last, double cells[MP_SERIES_CELLS]);
/* The value within which `share` (0 to 1) of the observations in `cells` lie, between the bounds of its bucket; -1:
 * there are none. */
double mp_series_quantile(const mp_bounds *bounds, const double *cells, double share);
/* Begins a family: the lines HELP and TYPE. `suffix` "_total" belongs to a counter's samples; OpenMetrics leaves it out
 * of the family's name. */
void mp_metrics_put_head(mp_buf *out, const char *name, const char *suffix, const char *type, const char *text);
/* Appends a gauge with one sample. */
void mp_metrics_put_gauge(mp_buf *out, const char *name, const char *text, double value);
/* Appends `value` with the escapes of a label's value: \\, \" and \n. */
void mp_metrics_put_label(mp_buf *out, mp_str value);

#endif
