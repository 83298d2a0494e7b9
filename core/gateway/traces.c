/* traces.c: the configuration of spans, and the end of the thread that sends them. */
#include "traces.h"
#include <stdlib.h>
#include <time.h>

#define FLUSH_MS 3000 /* for the spans that wait when the gateway ends */
#define MIN_FLUSH_MS 100
#define NAP_MS 5

/* Lines "name: value"; the caller frees each and the list. */
static char **lines_of(const mp_pair *MP_NULLABLE pairs)
{
    char **lines = mp_new((mp_pairs_count(pairs) + 1) * sizeof *lines), **next = lines;
    for (const mp_pair *pair = pairs; pair != NULL && pair->name != NULL; pair++) {
        mp_buf line = {0};
        mp_buf_printf(&line, "%s: %s", pair->name, pair->value);
        *next++ = mp_dup(mp_buf_str(&line));
        mp_buf_clear(&line);
    }
    return lines;
}

int mp_traces_use(const mp_config *config, mp_err *err)
{
    const mp_config_traces *from = &config->traces;
    char **headers = lines_of(from->headers);
    const char **attributes = mp_new((2 * mp_pairs_count(from->attributes) + 1) * sizeof *attributes),
               **next = attributes;
    for (const mp_pair *pair = from->attributes; pair != NULL && pair->name != NULL; pair++) {
        *next++ = pair->name;
        *next++ = pair->value;
    }
    mp_trace_config to = {.otlp = from->otlp,
                          .headers = (const char *const *)headers,
                          .service = from->service,
                          .attributes = attributes,
                          .compresses = from->compression == MP_COMPRESSION_GZIP,
                          .ca = config->client.ca,
                          .ratio = strtod(from->ratio, NULL),
                          .takes_errors = from->takes_errors == MP_TAKES_ERRORS_TRUE,
                          .slower_ms = from->slower_ms,
                          .accepts_parents = from->refuses_parents == MP_PARENTS_ACCEPTED,
                          .parents = from->parents,
                          .spans = from->spans,
                          .queue = from->queue,
                          .queue_bytes = from->queue_bytes,
                          .interval_ms = from->interval_ms,
                          .timeout_ms = from->timeout_ms,
                          .hides_addresses = from->addresses == MP_ADDRESSES_HIDDEN};
    int result = mp_traces_configure(&to, err);
    for (char **line = headers; *line != NULL; line++)
        free(*line);
    free(headers);
    free(attributes);
    return result;
}

/* The time by which spans must be sent, or are dropped: within limits.drain, or soon after where calls have used it up. */
static uint64_t flush_until(const mp_shared *shared, uint64_t began)
{
    uint64_t end_at = atomic_load(&shared->end_at), until = began + FLUSH_MS;
    if (end_at == 0)
        return until;
    uint64_t latest = end_at > MP_ENDING_MS ? end_at - MP_ENDING_MS : 0;
    if (latest < began + MIN_FLUSH_MS)
        latest = began + MIN_FLUSH_MS;
    return until < latest ? until : latest;
}

void mp_traces_finish(mp_shared *shared)
{
    const struct timespec nap = {0, NAP_MS * 1000000L};
    uint64_t began = mp_monotonic_ms();
    mp_traces_flush();
    while (!mp_traces_are_flushed() && mp_monotonic_ms() < flush_until(shared, began)) {
        mp_watchdog_beat(shared->watchdog);
        nanosleep(&nap, NULL);
    }
}
