/* log.h: the log: one event is one line on stderr, in logfmt or as a JSON object with the same keys. A thread writes
 * the lines, so that no worker waits for the reader of stderr. Lines that do not fit the queue (1 MiB) are dropped and
 * counted. Values are escaped and cut at 512 bytes.
 *
 *   mp_log(MP_INFO, "session closed", mp_log_str("reason", MP_STR("gone")), mp_log_int("ms", 12));
 *   2026-11-21T10:15:03.412Z info  session closed   reason=gone ms=12
 *   {"time":"2026-11-21T10:15:03.412Z","level":"info","event":"session closed","reason":"gone","ms":12}
 *
 * A line written while a script serves a request has its mark as `call`, and the id of its trace as `trace_id`.
 *
 * Of the lines of one event, those over a limit per second are counted: the next line that is written says how many, as
 * `suppressed`. Where stderr is journald's, lines of logfmt begin with its <priority> and have no time. */
#ifndef MP_TELEMETRY_LOG_H
#define MP_TELEMETRY_LOG_H

#include "base/base.h"

typedef enum { MP_DEBUG, MP_INFO, MP_WARN, MP_ERROR } mp_log_level;

typedef struct {
    const char *MP_NULLABLE key; /* NULL ends the list of fields */
    mp_str text;                 /* ptr == NULL: `number` is the value */
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
/* stderr is another file now, which journald may read or not. */
void mp_log_find_reader(void);
typedef enum { MP_LOG_LOGFMT, MP_LOG_JSON } mp_log_format;
/* Set the form of the lines, and the lowest level that is logged. Any thread. */
void mp_log_configure(mp_log_format format);
void mp_log_from(mp_log_level least);
void mp_log_stop(void);
/* Lines go to the file `path` instead of stderr, which is made with mode 0600: from mp_log_start on, or from now. Where
 * the log has the file already, opens it again. Returns -1 and changes nothing if the file cannot be opened. */
int mp_log_open(const char *path, mp_err *err);
bool mp_log_has_file(void);
/* Sets how long mp_log_stop and the end of the audit log wait for their readers: `ms` instead of a second. Any
 * thread. */
void mp_log_hurry(int ms);
bool mp_log_wants(mp_log_level level);
/* The number of lines logged at warn and error since the process started. Any thread. */
uint64_t mp_log_warnings(void);
void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields);
/* A line whose event a script has chosen: it is none of the gateway's events, whatever its words are. */
void mp_log_write_of_script(mp_log_level level, const char *event, const mp_log_field *fields);
/* Appends the current time (UTC, with milliseconds), as at the start of a log line. */
void mp_log_put_time(mp_buf *line);
/* Appends at most `most` bytes of `text`, with "..." where it was cut. Characters that a terminal could interpret
 * are escaped. */
void mp_log_put_text(mp_buf *line, mp_str text, size_t most);
/* Queues complete lines at any level. */
void mp_log_put_line(mp_str lines);

/* The state of the log, for the line about a crash (crash.h). It is read without the log's lock, so that a signal
 * handler may ask. */
typedef struct {
    int fd;
    bool is_json, is_journal;
    bool is_behind; /* the log's thread has lines to write */
    bool is_torn;   /* the file ends inside of a line */
} mp_log_view;
mp_log_view mp_log_look(void);

#endif
