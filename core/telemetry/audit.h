/* audit.h: the audit log: one line of JSON per decision and per call, in its own file. A thread writes the lines. Lines
 * that do not fit the queue (4 MiB), or that the disk does not accept, are dropped and counted. */
#ifndef MP_TELEMETRY_AUDIT_H
#define MP_TELEMETRY_AUDIT_H

#include "base/base.h"

/* Starts appending to `path`, which is created with mode 0600, instead of to the file that is open, if one is: it may
 * have been renamed. Returns -1 and changes nothing if the file cannot be opened. */
int mp_audit_open(const char *path, mp_err *err);
/* Writes the queued lines, for at most one second. */
void mp_audit_close(void);
bool mp_audit_is_on(void);
/* Any thread. `members` is the JSON line without braces and time: "\"event\":\"call\",…". Does nothing while the
 * audit log is off. */
void mp_audit_write(mp_str members);
/* The share of the calls with the outcome `ok` that have a line, 0 to 1 (log.audit_sample.ok). Any thread. */
void mp_audit_sample(double ratio);
#define MP_AUDIT_HEAD 35 /* bytes of a line before its members: {"time":"2026-11-21T10:15:03.412Z", */
/* Appends JSON to the members of a line, with every character escaped that a terminal could interpret. */
void mp_audit_put(mp_buf *line, mp_str json);
/* As mp_audit_write, of members that need no escapes, behind MP_AUDIT_HEAD bytes of the line, which is changed.
 * `is_ok`: of a call whose outcome is `ok`; a share below 1 is a member. */
void mp_audit_write_line(mp_buf *line, bool is_ok);

#endif
