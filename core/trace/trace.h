/* trace.h: spans of calls, and the thread that sends them to a collector by OTLP/HTTP.
 *
 *   context   the trace and the span that caused something: the header traceparent (W3C Trace Context)
 *   trace     the spans of one call, in the order in which they began; the first one is the call itself
 *   span      one step of the call: a name, a start, an end, attributes
 *   exporter  a thread with a loop and an HTTP client of its own (export.c)
 *
 * A trace belongs to the thread of its call until mp_trace_end. A call that is not recorded has no trace: every
 * function here takes NULL for it and does nothing. What a trace may hold is bounded: 64 spans, and the limits below;
 * the rest is counted. */
#ifndef MP_TRACE_TRACE_H
#define MP_TRACE_TRACE_H

#include "net/net.h"

/* -- context.c ----------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t trace[16], span[8];
    bool is_sampled;
} mp_trace_context;

#define MP_TRACEPARENT_BYTES 55
#define MP_TRACESTATE_BYTES 512 /* a longer tracestate is not kept */
#define MP_TRACESTATE_MEMBERS 32

/* Reads a traceparent. False if it is not valid: another version than 00 may have more behind its flags. */
bool mp_trace_context_read(mp_trace_context *context, mp_str text);
/* Writes a traceparent of version 00, with a zero byte behind it. */
void mp_trace_context_write(const mp_trace_context *context, char room[MP_TRACEPARENT_BYTES + 1]);
/* True if a tracestate may be kept: printable, of at most MP_TRACESTATE_BYTES and MP_TRACESTATE_MEMBERS. */
bool mp_trace_state_is_valid(mp_str text);

/* -- configuration ------------------------------------------------------------------------------------------------- */

/* Texts are copied. */
typedef struct {
    const char *MP_NULLABLE otlp;  /* URL of the collector, without /v1/traces; NULL: no call is recorded */
    const char *const *headers;    /* lines "name: value"; ends with NULL */
    const char *service;           /* service.name */
    const char *const *attributes; /* of the resource: a name, its value, a name, …; ends with NULL */
    const char *MP_NULLABLE ca;    /* path of CA certificates to trust; NULL: the system's */
    double ratio;                  /* of the calls without a parent that are recorded, 0 to 1 */
    bool takes_errors;             /* calls that fail are recorded even if the ratio excludes them */
    uint64_t slower_ms;            /* calls that take longer are recorded; 0: they are not */
    bool accepts_parents;          /* a client's context decides whether its call is recorded, and is its parent */
    bool hides_addresses;          /* spans do not have the addresses of clients */
} mp_trace_config;

/* Starts the exporter if there is to be one, or gives it another configuration. Called on the main thread. -1 if its
 * thread cannot be started; then no call is recorded. */
int mp_traces_configure(const mp_trace_config *config, mp_err *err);
/* Sends the waiting spans without waiting for the interval. Called on the main thread when all calls have ended. */
void mp_traces_flush(void);
/* True if no span waits to be sent. */
bool mp_traces_are_flushed(void);
/* Ends the exporter; spans that still wait are dropped and counted. Called on the main thread, after every thread that
 * ends traces has ended. */
void mp_traces_stop(void);

extern atomic_bool mp_traces_on; /* for mp_traces_are_on alone */
/* True if some calls may be recorded. */
static inline bool mp_traces_are_on(void)
{
    return atomic_load_explicit(&mp_traces_on, memory_order_relaxed);
}
/* True if spans may have the addresses of clients. */
bool mp_traces_show_addresses(void);

/* -- trace.c ------------------------------------------------------------------------------------------------------- */

typedef struct mp_trace mp_trace;
typedef int mp_span; /* number of a span in its trace; MP_NO_SPAN: none */
#define MP_NO_SPAN (-1)
#define MP_ROOT_SPAN 0

/* kinds of spans, with the numbers of OTLP */
typedef enum { MP_SPAN_INTERNAL = 1, MP_SPAN_SERVER, MP_SPAN_CLIENT } mp_span_kind;

#define MP_SPAN_NAME_BYTES 160    /* a longer name is cut */
#define MP_SPAN_VALUE_BYTES 1024  /* a longer value is cut */
#define MP_SPAN_ATTRIBUTES 64     /* attributes of one span and its events; further ones are only counted */
#define MP_TRACE_BYTES (64 << 10) /* bytes of the names and values of one trace; further values are only counted */

/* The trace context of a client's call. Texts are empty if the client sends none. */
typedef struct {
    mp_str parent, state;               /* traceparent and tracestate of `_meta` */
    mp_str header_parent, header_state; /* traceparent and tracestate of the HTTP request */
    uint64_t began_us;                  /* by mp_monotonic_us */
    bool is_shown;                      /* an operator sees the spans: the call has some, even if it is not recorded */
} mp_trace_origin;

/* Decides whether a call is recorded; NULL if not. The root span has begun then, with the kind SERVER. */
mp_trace *MP_NULLABLE mp_trace_begin(const mp_trace_origin *origin);
/* Gives the root span the mark of its call as its id (telemetry/mark.h). Called before other spans begin. */
void mp_trace_mark(mp_trace *trace, uint64_t mark);
/* The 32 hexadecimal digits of the trace's id, with a zero byte behind them; an empty text for a trace that may be
 * discarded yet. */
#define MP_TRACE_ID_DIGITS 32
void mp_trace_put_id(const mp_trace *MP_NULLABLE trace, char room[MP_TRACE_ID_DIGITS + 1]);
/* Decides whether work that no client has asked for is recorded, as for a call without a parent. The root span has
 * begun then, without a name. */
mp_trace *MP_NULLABLE mp_trace_begin_alone(void);
/* Starts a trace of its own that was caused by a span of another one, and is recorded because that one is. */
mp_trace *MP_NULLABLE mp_trace_begin_linked(const mp_trace *MP_NULLABLE cause, mp_span span);
/* Ends the trace with all its spans. It has failed if the caller or its root span says so. Hands it to the exporter.
 * The caller has no trace any more. */
void mp_trace_end(mp_trace *MP_NULLABLE trace, bool has_failed);

/* Begins a span below `parent`. MP_NO_SPAN if the trace is NULL or has too many. */
mp_span mp_span_begin(mp_trace *MP_NULLABLE trace, mp_span parent, mp_span_kind kind, mp_str name);
/* Begins a span whose start is past. */
mp_span mp_span_begin_at(mp_trace *MP_NULLABLE trace, mp_span parent, mp_span_kind kind, mp_str name,
                         uint64_t began_us);
void mp_span_end(mp_trace *MP_NULLABLE trace, mp_span span);
/* Replaces the name. */
void mp_span_name(mp_trace *trace, mp_span span, mp_str name);
/* Adds an attribute. Texts are cut; an empty text adds nothing. */
void mp_span_text(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, mp_str value);
void mp_span_int(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, int64_t value);
void mp_span_double(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, double value);
void mp_span_bool(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, bool value);
/* Adds an event that happens now. */
void mp_span_event(mp_trace *MP_NULLABLE trace, mp_span span, mp_str name);
/* Sets the status ERROR. `message`: the text that clients got; may be empty. */
void mp_span_fail(mp_trace *MP_NULLABLE trace, mp_span span, mp_str message);
/* The context for a request that the span sends. */
mp_trace_context mp_span_context(const mp_trace *MP_NULLABLE trace, mp_span span);
/* False for the spans of a call that is not recorded: no request carries them on. */
bool mp_trace_goes_on(const mp_trace *MP_NULLABLE trace);
/* Appends the spans so far as a JSON array of {"name", "below", "began_us", "took_us", "failed", "object"}: `below` is
 * the place of the parent in the array, -1 for the first; times are from the start of the first. A span that has not
 * ended has lasted until now. */
void mp_trace_put_steps(const mp_trace *trace, mp_buf *out);
/* The tracestate of the trace's parent; empty if it has none. Valid as long as no attribute is added. */
mp_str mp_trace_state(const mp_trace *MP_NULLABLE trace);

#endif
