/* state.h: the struct of a trace, for the files of this module. */
#ifndef MP_TRACE_STATE_H
#define MP_TRACE_STATE_H

#include "trace.h"

typedef struct {
    uint8_t id[8];
    int16_t parent; /* MP_NO_SPAN: the trace's parent, if it has one */
    uint8_t kind;
    bool has_failed, has_ended;
    uint16_t facts, cut; /* attributes and events that the trace has, and those that were over a limit */
    uint64_t began_us, ended_us;
} mp_span_record;

/* The facts of a span, one after the other in `text`: this head, the key, the value. Of several names or failures the
 * last one counts. */
typedef enum {
    MP_FACT_NAME,
    MP_FACT_FAILURE,
    MP_FACT_TEXT,
    MP_FACT_INT,
    MP_FACT_DOUBLE,
    MP_FACT_BOOL,
    MP_FACT_EVENT
} mp_fact_type;
typedef struct {
    uint16_t span;
    uint16_t type;
    uint32_t key_bytes, value_bytes;
} mp_fact;

struct mp_trace {
    mp_message message; /* posts the trace to the exporter's loop */
    mp_link link;       /* in the exporter's queue */
    uint8_t id[16];
    mp_trace_context parent, cause; /* `parent`: context that the trace continues; `cause`: context that it links to */
    bool has_parent, has_cause;
    bool is_tentative; /* sent only if the call fails or is slow */
    bool is_private;   /* never sent, and carried on by no request: it is shown to an operator */
    int count, most;
    mp_span_record *spans;
    mp_buf state; /* the text of tracestate */
    mp_buf text;
};

/* Sets the rules by which calls are recorded. */
void mp_trace_rules(const mp_trace_config *config, bool is_on);
void mp_trace_free(mp_trace *trace);
/* The memory of the trace, in bytes. */
size_t mp_trace_bytes(const mp_trace *trace);

/* Reads the fact at `*at` of a trace's text, and moves `*at` behind it. False at the end. */
bool mp_fact_next(mp_str text, size_t *at, mp_fact *fact, mp_str *key, mp_str *value);
/* The last fact of this type; empty if the span has none. */
mp_str mp_fact_last(const mp_trace *trace, mp_span span, mp_fact_type type);

/* -- otlp.c -- */

/* Appends the resource as JSON: made once for all batches. `instance`: service.instance.id. */
void mp_otlp_put_resource(mp_buf *out, const mp_trace_config *config, const char *instance);
/* Appends the spans of the trace as JSON, separated by commas. `offset_us`: from the monotonic clock to the time of
 * day. */
void mp_otlp_put_trace(mp_buf *out, const mp_trace *trace, uint64_t offset_us);
/* A whole request: begin, traces with commas between them, end. */
void mp_otlp_begin(mp_buf *out, mp_str resource);
void mp_otlp_end(mp_buf *out);
/* The number of spans that the collector says it has rejected, in the body of its answer. */
int64_t mp_otlp_rejected(mp_str answer);

/* -- export.c -- */

/* Hands the trace to the exporter, which frees it. Any thread. */
void mp_export(mp_trace *trace);

#endif
