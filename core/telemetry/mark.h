/* mark.h: marks: random numbers that the lines of one request have in common, in the log (`call`) and in the audit
 * (`id`); a span of a trace has the mark as its id. A mark gives access to nothing. */
#ifndef MP_TELEMETRY_MARK_H
#define MP_TELEMETRY_MARK_H

#include "base/base.h"

/* A new mark, never 0. Any thread. */
uint64_t mp_mark_new(void);

/* The 16 hexadecimal digits of a mark. */
typedef struct {
    char text[17];
} mp_mark_text;
mp_mark_text mp_mark_text_of(uint64_t mark);
/* Reads the digits of a mark. False if the text is no mark. */
bool mp_mark_read(mp_str text, uint64_t *mark);

/* The facts of a request that are in each log line about it. */
typedef struct {
    uint64_t call;  /* the mark; 0: none */
    char trace[33]; /* the id of its trace, if that is sent; else empty */
} mp_marks;
/* Sets the function that finds the marks of the request for which the calling thread runs a script now. Lines of the
 * log that have no field `call` get them. Before threads start. */
void mp_mark_set_source(void (*running)(mp_marks *marks));
/* The marks of the request for which this thread runs a script now. */
void mp_mark_running(mp_marks *marks);

#endif
