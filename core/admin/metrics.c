/* metrics.c: the text of GET /metrics. It is written in slices, so that no turn of the admin thread is long; requests
 * that come meanwhile wait for the same text. */
#define _GNU_SOURCE /* for memmem */
#include "metrics.h"
#include <moonpool/version.h>
#include <sys/resource.h>

MP_REFUSED(refused_scrapes, "metrics", MP_LIMIT_REACHED,
           "requests of /metrics that found 64 others waiting for the text")
MP_COUNTER(scrapes, "scrapes", "", "", "answers to GET /metrics")

/* requests for a text that is being made: more than there are scrapers */
#define MAX_WAITING MP_LIMIT(metrics_waiting, 64)
#define KEEP_MS 1000      /* a text is sent again to requests that come within this time */
#define SLICE_STEPS 3000u /* steps of one turn: about fourteen histograms */
#define SEND_BYTES 262144 /* bytes of answers that one turn sends */
#define PAUSE_MS 1        /* between two slices: other requests are served */

typedef struct {
    bool is_open;
    mp_buf text;
    uint64_t made_at;                   /* monotonic ms; 0: never, or the text is being written */
    mp_series_text *MP_NULLABLE series; /* NULL, unless the text is being written or sent */
    mp_metrics_facts facts;             /* facts of the request that began the text */
    mp_loop *loop;
    mp_timer next;
    mp_link waiting; /* list of waiter */
    unsigned waiting_count;
} kept;

/* A request that waits for the text. */
typedef struct {
    mp_link link;
    kept *text;
    mp_stream *stream; /* counted reference */
} waiter;

struct mp_metrics {
    kept plain, open; /* in Prometheus's format, and in OpenMetrics */
};

mp_metrics *mp_metrics_new(void)
{
    mp_metrics *metrics = mp_new(sizeof *metrics);
    metrics->open.is_open = true;
    return metrics;
}

static void free_waiter(waiter *one)
{
    mp_stream_on_gone(one->stream, NULL, NULL);
    mp_stream_unref(one->stream);
    mp_link_drop(&one->link);
    one->text->waiting_count--;
    free(one);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    free_waiter(ctx);
}

static void clear_kept(kept *one)
{
    if (one->series != NULL)
        mp_timer_stop(one->loop, &one->next);
    mp_series_text_free(one->series);
    while (!mp_link_is_alone(&one->waiting))
        free_waiter(mp_container(one->waiting.next, waiter, link));
    mp_buf_clear(&one->text);
}

void mp_metrics_free(mp_metrics *MP_NULLABLE metrics)
{
    if (metrics == NULL)
        return;
    clear_kept(&metrics->plain);
    clear_kept(&metrics->open);
    free(metrics);
}

/* -- the process --------------------------------------------------------------------------------------------------- */

static void put_process(mp_buf *out, uint64_t started_at, bool is_open)
{
    struct rlimit most = {0};
    getrlimit(RLIMIT_NOFILE, &most);
    mp_metrics_put_head(out, "process_cpu_seconds", is_open ? "" : "_total", "counter",
                        "processor time of the process");
    mp_buf_printf(out, "process_cpu_seconds_total %.2f\n", (double)mp_process_us() / 1e6);
    mp_metrics_put_gauge(out, "process_resident_memory_bytes", "resident memory", (double)mp_resident_bytes());
    mp_metrics_put_gauge(out, "process_open_fds", "open file descriptors", (double)mp_count_fds());
    mp_metrics_put_gauge(out, "process_max_fds", "limit of the open file descriptors", (double)most.rlim_cur);
    double age = (double)(mp_monotonic_ms() - started_at) / 1000;
    mp_metrics_put_gauge(out, "process_start_time_seconds", "start of the process, in seconds since 1970",
                         (double)mp_clock_ms(CLOCK_REALTIME) / 1000 - age);
}

/* -- the gateway --------------------------------------------------------------------------------------------------- */

static void put_saturation(mp_buf *out, const mp_metrics_facts *given)
{
    double uses[MP_USES];
    mp_saturation_read(given->readiness, given->settings(given->ctx), uses);
    mp_metrics_put_head(out, "moonpool_saturation_ratio", "", "gauge", "use of a resource, from 0 to 1 of its limit");
    for (int i = 0; i < MP_USES; i++)
        mp_buf_printf(out, "moonpool_saturation_ratio{resource=\"%s\"} %.6f\n", mp_use_names[i], uses[i]);
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */

static void send_text(const kept *one, mp_stream *stream)
{
    mp_scoped_buf whole = {0};
    one->facts.put_last(one->facts.ctx, stream, &whole);
    if (whole.len > 0) {
        mp_str last = mp_buf_str(&whole);
        whole = (mp_buf){0};
        mp_buf_put(&whole, mp_buf_str(&one->text));
        mp_buf_put(&whole, last);
        free((void *)(uintptr_t)last.ptr);
    }
    mp_stream_answer(stream, 200,
                     one->is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                  : "text/plain; version=0.0.4; charset=utf-8",
                     mp_buf_str(whole.len > 0 ? &whole : &one->text), NULL, 0);
}

/* Appends the part of the text after the series. */
static void put_rest(kept *one)
{
    mp_buf *out = &one->text;
    mp_metrics_put_head(out, "moonpool_build_info", "", "gauge", "always 1; the label names the version");
    mp_buf_put(out, MP_STR("moonpool_build_info{version=\"" MOONPOOL_VERSION "\"} 1\n"));
    one->facts.put(one->facts.ctx, out);
    put_saturation(out, &one->facts);
    put_process(out, one->facts.started_at, one->is_open);
    if (one->is_open)
        mp_buf_put(out, MP_STR("# EOF\n"));
}

/* One turn's part of the text, or of its answers. */
static void on_next(mp_timer *timer)
{
    kept *one = mp_container(timer, kept, next);
    mp_loop_measure(one->loop, MP_MEASURE_ADMIN);
    mp_series_text *series = one->series;
    if (one->made_at == 0 && (series == NULL || !mp_series_text_put(series, &one->text, SLICE_STEPS))) {
        put_rest(one);
        one->made_at = mp_monotonic_ms();
    }
    size_t left = one->made_at == 0 ? 0 : SEND_BYTES;
    while (left > 0 && !mp_link_is_alone(&one->waiting)) {
        waiter *first = mp_container(one->waiting.next, waiter, link);
        mp_stream *stream = mp_stream_ref(first->stream);
        free_waiter(first);
        send_text(one, stream);
        mp_stream_unref(stream);
        left -= one->text.len < left ? one->text.len : left;
    }
    if (one->made_at == 0 || !mp_link_is_alone(&one->waiting)) {
        mp_timer_start(one->loop, &one->next, PAUSE_MS, on_next);
        return;
    }
    one->series = NULL;
    mp_series_text_free(series);
}

void mp_metrics_put(const mp_metrics_facts *facts, mp_buf *out)
{
    kept one = {.facts = *facts, .text = *out};
    mp_series_text *series = mp_series_text_new(false);
    while (mp_series_text_put(series, &one.text, SLICE_STEPS))
        continue;
    mp_series_text_free(series);
    put_rest(&one);
    *out = one.text;
}

bool mp_metrics_adds_up(mp_str gauge)
{
    size_t count;
    const mp_stat *const *all = mp_stat_list(&count);
    mp_str prefix = MP_STR("moonpool_"), family = mp_str_from(gauge, prefix.len);
    if (!mp_str_starts(gauge, prefix))
        return mp_str_is(gauge, "process_resident_memory_bytes") || mp_str_is(gauge, "process_open_fds");
    for (size_t i = 0; i < count; i++)
        if (all[i]->kind == MP_STAT_GAUGE && mp_str_is(family, all[i]->family))
            return true;
    return false;
}

static void wait_for_text(kept *one, mp_stream *stream)
{
    if ((int64_t)one->waiting_count >= MAX_WAITING) {
        mp_stat_add(&mp_stat_refused_scrapes, 1);
        mp_stream_answer(stream, 503, "text/plain", MP_STR("64 requests wait for /metrics: ask again in a second\n"),
                         &(mp_header){"retry-after", MP_STR("1")}, 1);
        return;
    }
    waiter *added = mp_new(sizeof *added);
    added->text = one;
    added->stream = mp_stream_ref(stream);
    mp_link_put(&one->waiting, &added->link);
    one->waiting_count++;
    mp_stream_on_gone(stream, on_gone, added);
}

void mp_metrics_serve(mp_metrics *metrics, const mp_metrics_facts *facts, mp_stream *stream)
{
    mp_str accept = mp_stream_header(stream, "accept", NULL);
    mp_str wanted = MP_STR("application/openmetrics-text");
    bool is_open = accept.ptr != NULL && memmem(accept.ptr, accept.len, wanted.ptr, wanted.len) != NULL;
    kept *one = is_open ? &metrics->open : &metrics->plain;
    mp_stat_add(&mp_stat_scrapes, 1);
    if (one->made_at != 0 && mp_monotonic_ms() - one->made_at < KEEP_MS) {
        send_text(one, stream);
        return;
    }
    wait_for_text(one, stream);
    if (one->series != NULL) /* a text that is being written or sent is used, however old it is */
        return;
    one->facts = *facts;
    one->loop = mp_stream_loop(stream);
    one->text.len = 0;
    one->made_at = 0;
    one->series = mp_series_text_new(is_open);
    on_next(&one->next);
}
