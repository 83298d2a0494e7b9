/* audit.h: who did what: one line of JSON per decision and call, in a file of its own. A thread writes it; lines that do not fit
 * its queue (4 MiB), or that the disk does not take, are dropped and counted.
 *
 *   {"time":"2026-11-21T10:15:03.412Z","event":"call","principal":"robot:ci",…} */
#ifndef MP_BASE_AUDIT_H
#define MP_BASE_AUDIT_H

#include "err.h"
#include "str.h"
#include <stdbool.h>

/* Begins to append to `path`, made with mode 0600, or goes on with another file (again the same one: it may have been moved
 * away). -1, and all stays as it was, when the file cannot be opened. */
int mp_audit_open(const char *path, mp_err *err);
/* Writes what is queued. */
void mp_audit_close(void);
bool mp_audit_is_on(void);
/* Any thread. `members` is the line's JSON without its braces and its time: "\"event\":\"call\",…". Quiet when it is off. */
void mp_audit_write(mp_str members);

#endif
