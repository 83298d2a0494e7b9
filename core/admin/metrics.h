/* metrics.h: GET /metrics of the admin listener: all counters, gauges and histograms, in Prometheus's text format
 * 0.0.4, or in OpenMetrics 1.0 if the request accepts it. Called on the admin thread, which runs no Lua and serves no
 * client. */
#ifndef MP_ADMIN_METRICS_H
#define MP_ADMIN_METRICS_H

#include "config/config.h"
#include "saturation.h"

typedef struct mp_metrics mp_metrics;

/* Sources of the text besides the counters of the program. They are used until mp_metrics_free(). */
typedef struct {
    const mp_runtime_config *(*settings)(void *ctx);
    const mp_readiness *readiness;
    uint64_t started_at;                 /* of the process, in ms of the monotonic clock */
    void (*put)(void *ctx, mp_buf *out); /* appends further families */
    /* appends what belongs to the answer of this request alone */
    void (*put_last)(void *ctx, const mp_stream *stream, mp_buf *out);
    void *ctx;
} mp_metrics_facts;

mp_metrics *mp_metrics_new(void);
/* Before the loop of its requests is freed. `metrics` may be NULL. */
void mp_metrics_free(mp_metrics *MP_NULLABLE metrics);
/* Answers with a text that is at most a second old, in this turn or a later one. */
void mp_metrics_serve(mp_metrics *metrics, const mp_metrics_facts *facts, mp_stream *stream);
/* Appends the text, in Prometheus's format, in one turn. */
void mp_metrics_put(const mp_metrics_facts *facts, mp_buf *out);
/* True if the values of this gauge in several processes of one gateway make one value when they are added. */
bool mp_metrics_adds_up(mp_str gauge);

#endif
