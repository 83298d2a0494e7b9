/* mark.h: marks: random numbers that the lines of one request have in common, in the log (`call`) and in the audit (`id`); a span of a trace has
 * the mark as its id. A mark gives access to nothing. */
#ifndef MP_TELEMETRY_MARK_H
#define MP_TELEMETRY_MARK_H

#include "base/base.h"
#include <stdbool.h>
#include <stdint.h>

/* A new mark, never 0. Any thread. */
uint64_t mp_mark_new(void);

/* The 16 hexadecimal digits of a mark. */
typedef struct {
    char text[17];
} mp_mark_text;
mp_mark_text mp_mark_text_of(uint64_t mark);
/* Reads such digits. False if the text is no mark. */
bool mp_mark_read(mp_str text, uint64_t *mark);

/* Sets the function that finds the mark of the request for which the calling thread runs a script now; 0: of none. Lines of the log that have
 * no field `call` get it. Before threads start. */
void mp_mark_set_source(uint64_t (*running)(void));
/* The mark of the request for which this thread runs a script now; 0: none. */
uint64_t mp_mark_running(void);

#endif
