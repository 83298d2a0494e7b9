/* declared.h: families of /metrics that scripts declare while they load.
 *
 * The main thread calls mp_declared_begin() before a generation of scripts loads. Each Lua state of the generation
 * declares its families. mp_declared_serve() follows when the generation serves: /metrics shows the families of the
 * newest generation that serves. A family lives as long as the process: declaring it again, by name, kind, labels and
 * buckets, gives the same family with its numbers. A family of another form is another one, with numbers of its own. */
#ifndef MP_TELEMETRY_DECLARED_H
#define MP_TELEMETRY_DECLARED_H

#include "series.h"

#define MP_DECLARED_MAX 512  /* families that scripts may declare in the life of the process */
#define MP_DECLARED_NAME 64  /* limit of the bytes of a name */
#define MP_DECLARED_TEXT 256 /* limit of the bytes of a description */

/* A generation of scripts is about to load. */
void mp_declared_begin(void);
/* Shows the families that were declared since mp_declared_begin(), and no other family of scripts. */
void mp_declared_serve(void);
/* Finds or makes the family of this name, kind, labels and bounds; its text stays as it was declared first. NULL, with
 * an error, if the process has no room for it. Any thread. */
const mp_family *MP_NULLABLE mp_declare(const mp_family *wanted, mp_err *err);
/* Adds to a counter or gauge, sets a gauge if `is_set`, or adds an observation to a histogram. Any thread. */
void mp_declared_enter(const mp_family *family, mp_series series, double value, bool is_set);
/* Writes the shown families to `list`, which has room for MP_DECLARED_MAX. Returns their number. Two of them have one
 * name only if the Lua states of a generation differ. */
size_t mp_declared_list(const mp_family **list);

#endif
