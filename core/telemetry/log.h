/* log.h: the log: one event is one line of logfmt on stderr. A thread writes the lines, so that no worker waits for the
 * reader of stderr. Lines that do not fit the queue (1 MiB) are dropped and counted. Values are escaped and cut at 512
 * bytes.
 *
 *   mp_log(MP_INFO, "session closed", mp_log_str("reason", MP_STR("gone")), mp_log_int("ms", 12));
 *   2026-11-21T10:15:03.412Z info  session closed   reason=gone ms=12 */
#ifndef MP_TELEMETRY_LOG_H
#define MP_TELEMETRY_LOG_H

#include "base/base.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum { MP_DEBUG, MP_INFO, MP_WARN, MP_ERROR } mp_log_level;

typedef struct {
    const char *key; /* NULL ends the list of fields */
    mp_str text;     /* ptr == NULL: `number` is the value */
    int64_t number;
} mp_log_field;

static inline mp_log_field mp_log_str(const char *key, mp_str value)
{
    return (mp_log_field){key, value.ptr == NULL ? MP_STR("") : value, 0};
}

static inline mp_log_field mp_log_int(const char *key, int64_t value)
{
    return (mp_log_field){key, {NULL, 0}, value};
}

#define mp_log(level, event, ...)                                                                                      \
    (mp_log_wants(level)                                                                                               \
         ? mp_log_write(level, event, (const mp_log_field[]){__VA_ARGS__ __VA_OPT__(, ){NULL, {NULL, 0}, 0}})          \
         : (void)0)

/* Lines logged before mp_log_start and after mp_log_stop are written synchronously. mp_log_stop waits at most one
 * second for the queue to be written. */
void mp_log_start(mp_log_level least);
/* Sets the lowest level that is logged. Any thread. */
void mp_log_from(mp_log_level least);
void mp_log_stop(void);
/* Sets how long mp_log_stop and the end of the audit log wait for their readers: `ms` instead of a second. Any thread. */
void mp_log_hurry(int ms);
bool mp_log_wants(mp_log_level level);
/* The number of lines logged at warn and error since the process started. Any thread. */
uint64_t mp_log_warnings(void);
void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields);
/* Appends the current time (UTC, with milliseconds), as at the start of a log line. */
void mp_log_put_time(mp_buf *line);
/* Appends at most `most` bytes of `text`, with "..." where it was cut. Characters that a terminal could interpret
 * are escaped. */
void mp_log_put_text(mp_buf *line, mp_str text, size_t most);
/* Queues complete lines, whatever the level. */
void mp_log_put_line(mp_str lines);

#endif
