/* log.h: one event, one line of logfmt on stderr, written by a thread of its own so that no worker ever waits for
 * whoever reads it. Lines that do not fit the queue (1 MiB) are dropped and counted. Values are escaped and cut at 512 bytes.
 *
 *   mp_log(MP_INFO, "session closed", mp_log_str("reason", MP_STR("gone")), mp_log_int("ms", 12));
 *   2026-11-21T10:15:03.412Z info  session closed   reason=gone ms=12 */
#ifndef MP_BASE_LOG_H
#define MP_BASE_LOG_H

#include "buf.h"
#include "str.h"
#include <stdint.h>

typedef enum { MP_DEBUG, MP_INFO, MP_WARN, MP_ERROR } mp_log_level;

typedef struct {
    const char *key; /* NULL ends the fields */
    mp_str text;     /* ptr == NULL: the number counts */
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

/* Lines before `start` and after `stop` are written at once. `stop` waits until the queue is on stderr. */
void mp_log_start(mp_log_level least);
/* From now on. Any thread. */
void mp_log_from(mp_log_level least);
void mp_log_stop(void);
bool mp_log_wants(mp_log_level level);
void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields);
/* Appends the time, as a line begins with it: UTC, milliseconds. */
void mp_log_put_time(mp_buf *line);

#endif
