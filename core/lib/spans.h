/* spans.h: spans of what a task does, for the libraries. Each function does nothing where the call of the task is not
 * recorded.
 *
 *     mp_open_span span = mp_task_span_open(task, MP_SPAN_CLIENT, MP_STR("GET"));
 *     mp_span_text(mp_open_span_trace(&span), span.span, "url.full", url);
 *     ...                                                     the task may wait, be cancelled, or end
 *     mp_open_span_close(&span);                              on the thread of the task */
#ifndef MP_LIB_SPANS_H
#define MP_LIB_SPANS_H

#include "lib/state.h"

/* A span that has begun, and the task that it belongs to. */
typedef struct {
    mp_lib_task *MP_NULLABLE task; /* NULL: there is no span */
    uint64_t serial; /* serial of the task; if it differs from the task's present one, the task has ended */
    mp_span span;
} mp_open_span;

/* The trace of the call that the task works for; NULL if it is not recorded, or has ended. */
mp_trace *MP_NULLABLE mp_task_trace(const mp_lib_task *MP_NULLABLE task);
/* Begins a span below the current one of the task; NULL: there is no task. */
mp_open_span mp_task_span_open(mp_lib_task *MP_NULLABLE task, mp_span_kind kind, mp_str name);
/* The trace of the span; NULL if there is no span, or the call has ended. */
mp_trace *MP_NULLABLE mp_open_span_trace(const mp_open_span *span);
/* Ends the span. May be called again. */
void mp_open_span_close(mp_open_span *span);
/* Sets the status ERROR and error.type, which may be NULL. `message` is the error text that the script gets; it may be
 * empty. */
void mp_open_span_fail(const mp_open_span *span, const char *MP_NULLABLE type, mp_str message);

#endif
