/* audit.h: the audit log: one line of JSON per decision and per call, in its own file. A thread writes the lines. Lines
 * that do not fit the queue (4 MiB), or that the disk does not accept, are dropped and counted.
 *
 * {"time":"2026-11-21T10:15:03.412Z","event":"call","principal":"robot:ci",…} */
#ifndef MP_TELEMETRY_AUDIT_H
#define MP_TELEMETRY_AUDIT_H

#include "base/base.h"

/* Starts appending to `path`, which is created with mode 0600. When the audit log is already open, switches to
 * `path` (possibly the same path, opened again after another program has renamed it). Returns -1 and changes nothing if
 * the file cannot be opened. */
int mp_audit_open(const char *path, mp_err *err);
/* Writes the queued lines, for at most one second. */
void mp_audit_close(void);
bool mp_audit_is_on(void);
/* Any thread. `members` is the JSON line without braces and time: "\"event\":\"call\",…". Does nothing while the
 * audit log is off. */
void mp_audit_write(mp_str members);
/* The share of the calls with the outcome `ok` that have a line, 0 to 1 (log.audit_sample.ok). Any thread. */
void mp_audit_sample(double ratio);
/* Writes the line of a call whose outcome is `ok`, if it is among that share. Below 1 the line says so:
 * "sample":0.1. */
void mp_audit_write_ok(mp_str members);

#endif
