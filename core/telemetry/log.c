/* log.c: callers compose the lines; the log's thread writes them. */
#include "log.h"
#include "mark.h"
#include "stats.h"
#include "troubles.h"
#include "base/base.h"
#include "writer.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

MP_COUNTER(dropped_log, "dropped", "reason", "log", "log lines that did not fit the queue")

MP_COUNTER(suppressed_repeat, "dropped", "reason", "repeated", "log lines above 1,000 a second of one event")

MP_GAUGE(lines_log, "lines_waiting", "file", "log", "log lines that wait for their file, or for the reader of a pipe")

#define QUEUE_CAP (1u << 20)
#define VALUE_CAP 512

static void write_now(mp_str text);
static uint64_t complained_at_ms; /* used only by the writer's thread */

/* Lines that could not be written are counted. Where they go to a file, stderr has a line about it. */
static void on_failure(mp_str lost, int error)
{
    mp_stat_add(&mp_stat_dropped_log, mp_count_lines(lost));
    uint64_t now = mp_monotonic_ms();
    if (!mp_log_has_file() || (complained_at_ms != 0 && now - complained_at_ms < MP_WRITER_COMPLAIN_MS))
        return;
    complained_at_ms = now;
    mp_scoped_buf line = {0};
    mp_log_put_time(&line);
    mp_buf_printf(&line, " error log not written  lines=%lld why=\"%s\"\n", (long long)mp_count_lines(lost),
                  strerror(error));
    write_now(mp_buf_str(&line));
}

static void not_replaced(const char *step, int error)
{
    mp_log(MP_ERROR, "log file not replaced", mp_log_str("step", mp_str_of(step)),
           mp_log_str("why", mp_str_of(strerror(error))),
           mp_log_str("hint", MP_STR("lines go on to the file that is open: make its folder writable")));
}

static mp_writer writer = MP_WRITER(STDERR_FILENO, QUEUE_CAP, &mp_stat_lines_log, on_failure, not_replaced);

static _Atomic mp_log_level least_level = MP_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

static _Atomic uint64_t warnings;

uint64_t mp_log_warnings(void)
{
    return atomic_load_explicit(&warnings, memory_order_relaxed);
}

bool mp_log_wants(mp_log_level level)
{
    return level >= MP_WARN || level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

static bool is_plain(mp_str s)
{
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        width = mp_utf8_visible_at(s, i);
        if (width == 0 || c == ' ' || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return s.len > 0;
}

/* Cuts `s` to at most `most` bytes, not inside a UTF-8 character. Returns true if anything was cut. */
static bool cut_to(mp_str *s, size_t most)
{
    if (s->len <= most)
        return false;
    s->len = most;
    while (s->len > 0 && ((unsigned char)s->ptr[s->len] & 0xc0) == 0x80)
        s->len--;
    return true;
}

/* Appends `s` escaped. If `quoted`, quotes and backslashes are escaped, too. */
static void put_escaped(mp_buf *line, mp_str s, bool quoted)
{
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t visible = mp_utf8_visible_at(s, i);
        width = visible == 0 ? 1 : visible;
        if (quoted && (c == '"' || c == '\\'))
            mp_buf_putc(line, '\\');
        if (c == '\n')
            mp_buf_put(line, MP_STR("\\n"));
        else if (visible == 0)
            mp_buf_printf(line, "\\x%02x", c);
        else
            mp_buf_put(line, (mp_str){s.ptr + i, width});
    }
}

void mp_log_put_text(mp_buf *line, mp_str text, size_t most)
{
    bool cut = cut_to(&text, most);
    put_escaped(line, text, false);
    if (cut)
        mp_buf_put(line, MP_STR("..."));
}

static void put_value(mp_buf *line, mp_str s)
{
    bool cut = cut_to(&s, VALUE_CAP);
    if (is_plain(s) && !cut) {
        mp_buf_put(line, s);
        return;
    }
    mp_buf_putc(line, '"');
    put_escaped(line, s, true);
    mp_buf_put(line, cut ? MP_STR("...\"") : MP_STR("\""));
}

/* Appends a number with `digits` digits, then `after`. */
static void put_digits(mp_buf *line, int64_t number, int digits, char after)
{
    char text[8];
    text[digits] = after;
    for (int i = digits; i-- > 0; number /= 10)
        text[i] = (char)('0' + number % 10);
    mp_buf_put(line, (mp_str){text, (size_t)digits + 1});
}

/* Years begin in March here, so that a leap day is the last of its year; 400 years have 146097 days. */
static void put_date(mp_buf *line, int64_t days_from_1970)
{
    int64_t days = days_from_1970 + 719468, cycle = days / 146097, day = days % 146097; /* days since 0000-03-01 */
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    day -= 365 * year + year / 4 - year / 100;
    int64_t month = (5 * day + 2) / 153; /* month, counted from March */
    put_digits(line, cycle * 400 + year + (month >= 10), 4, '-');
    put_digits(line, month + (month < 10 ? 3 : -9), 2, '-');
    put_digits(line, day - (153 * month + 2) / 5 + 1, 2, 'T');
}

/* Appends a second as 2026-11-21T10:15:03. with its point. */
static void put_second(mp_buf *line, time_t at)
{
    int64_t second = at % 86400;
    put_date(line, at / 86400);
    put_digits(line, second / 3600, 2, ':');
    put_digits(line, second / 60 % 60, 2, ':');
    put_digits(line, second % 60, 2, '.');
}

void mp_log_put_time(mp_buf *line)
{
    static _Thread_local char text[] = "1970-01-01T00:00:00."; /* of `at`, the second of the last line */
    static _Thread_local time_t at = 0;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != at) {
        mp_buf whole = {text, 0, sizeof text};
        put_second(&whole, now.tv_sec);
        at = now.tv_sec;
    }
    mp_buf_put(line, (mp_str){text, sizeof text - 1});
    put_digits(line, now.tv_nsec / 1000000, 3, 'Z');
}

/* Writes to stderr for at most mp_writer_patience(), as fast as its reader reads. */
static void write_now(mp_str text)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    while (text.len > 0 && poll(&out, 1, mp_writer_patience()) == 1) {
        mp_str piece = {text.ptr,
                        /* a write of at most PIPE_BUF bytes does not block a pipe that poll() reports as writable */
                        text.len < PIPE_BUF ? text.len : PIPE_BUF};
        text = mp_str_from(text, piece.len);
        if (mp_write_all(STDERR_FILENO, &piece) != 0)
            break;
    }
}

void mp_log_put_line(mp_str text)
{
    mp_writer_result result = mp_writer_put(&writer, text);
    if (result == MP_WRITER_OFF)
        write_now(text);
    else if (result != MP_WRITER_QUEUED)
        mp_stat_add(&mp_stat_dropped_log, 1);
}

/* -- lines of one event -------------------------------------------------------------------------------------------- */

/* lines per second of one event: no disk should be asked for more, and no reader needs more */
#define MAX_REPEATS MP_LIMIT(log_repeat, 1000)
#define LEAST_ERRORS 10 /* lines of level error that are written whatever the limit is */
#define EVENTS 256      /* events that are counted apart; those of one hash are counted together */

/* Scripts choose the events of their lines: these have limits of their own, so that they suppress no line of the
 * gateway. */
typedef enum { OF_GATEWAY, OF_SCRIPTS, WRITERS } log_writer;

static struct {
    _Atomic int64_t second, used, suppressed;
} budgets[WRITERS][EVENTS];

static size_t slot_of(const char *event)
{
    uint32_t hash = 2166136261u;
    for (; *event != '\0'; event++)
        hash = (hash ^ (unsigned char)*event) * 16777619u;
    return hash % EVENTS;
}

/* True if the line may be written; `*suppressed` gets the number of lines of this event that were not, since the last
 * one that was. Two threads may both reset a budget when a second begins; the cost is at most one line too many. */
static bool take_budget(mp_log_level level, const char *event, log_writer writes, int64_t *suppressed)
{
    int64_t limit = MAX_REPEATS;
    if (level == MP_ERROR && limit < LEAST_ERRORS)
        limit = LEAST_ERRORS;
    size_t slot = slot_of(event);
    int64_t second = (int64_t)(mp_monotonic_ms() / 1000);
    if (atomic_exchange_explicit(&budgets[writes][slot].second, second, memory_order_relaxed) != second)
        atomic_store_explicit(&budgets[writes][slot].used, 0, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&budgets[writes][slot].used, 1, memory_order_relaxed) >= limit) {
        atomic_fetch_add_explicit(&budgets[writes][slot].suppressed, 1, memory_order_relaxed);
        mp_stat_add(&mp_stat_suppressed_repeat, 1);
        return false;
    }
    *suppressed = atomic_load_explicit(&budgets[writes][slot].suppressed, memory_order_relaxed) == 0
                      ? 0
                      : atomic_exchange_explicit(&budgets[writes][slot].suppressed, 0, memory_order_relaxed);
    return true;
}

/* -- forms --------------------------------------------------------------------------------------------------------- */

static _Atomic mp_log_format form = MP_LOG_LOGFMT;
static atomic_bool is_journal; /* set by mp_log_find_reader(); other threads may log already */

/* True if stderr is a stream to journald, which the service manager says by its device and inode. */
static bool is_of_journal(void)
{
    struct stat found;
    unsigned long long device, inode;
    const char *stream = getenv("JOURNAL_STREAM");
    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &found) == 0 &&
           found.st_dev == device && found.st_ino == inode;
}

/* Finds the marks of the request for which a script writes the line: none if the line has a field `call`. */
static void find_marks(const mp_log_field *fields, mp_marks *marks)
{
    *marks = (mp_marks){0};
    for (; fields->key != NULL; fields++)
        if (strcmp(fields->key, "call") == 0)
            return;
    mp_mark_running(marks);
}

static void put_logfmt(mp_buf *line, mp_log_level level, const char *event, const mp_log_field *fields,
                       const mp_marks *marks, int64_t suppressed)
{
    static const int priorities[] = {7, 6, 4, 3};
    if (atomic_load_explicit(&is_journal, memory_order_relaxed)) {
        mp_buf_printf(line, "<%d>%s", priorities[level], event);
    } else {
        mp_log_put_time(line);
        mp_buf_printf(line, " %-5s %-*s", level_names[level], fields->key == NULL ? 0 : 16, event);
    }
    for (; fields->key != NULL; fields++) {
        mp_buf_printf(line, " %s=", fields->key);
        if (fields->text.ptr == NULL)
            mp_buf_printf(line, "%lld", (long long)fields->number);
        else
            put_value(line, fields->text);
    }
    if (marks->call != 0)
        mp_buf_printf(line, " call=%s", mp_mark_text_of(marks->call).text);
    if (marks->trace[0] != '\0')
        mp_buf_printf(line, " trace_id=%s", marks->trace);
    if (suppressed > 0)
        mp_buf_printf(line, " suppressed=%lld", (long long)suppressed);
}

/* Appends a JSON string. What a terminal could interpret is escaped, and a byte that is no UTF-8 becomes U+FFFD. */
static void put_json_text(mp_buf *line, mp_str text)
{
    bool cut = cut_to(&text, VALUE_CAP);
    mp_buf_putc(line, '"');
    for (size_t i = 0, width; i < text.len; i += width) {
        unsigned char c = (unsigned char)text.ptr[i];
        size_t visible = mp_utf8_visible_at(text, i);
        width = visible == 0 ? 1 : visible;
        if (c == '"' || c == '\\')
            mp_buf_printf(line, "\\%c", c);
        else if (visible > 0)
            mp_buf_put(line, (mp_str){text.ptr + i, width});
        else if (c < 0x80)
            mp_buf_printf(line, "\\u%04x", c);
        else if ((c & 0xc0) != 0x80) /* the bytes that follow one that begins an invisible character say nothing more */
            mp_buf_put(line, MP_STR("\\ufffd"));
    }
    mp_buf_put(line, cut ? MP_STR("...\"") : MP_STR("\""));
}

static bool is_own_key(const char *key)
{
    return strcmp(key, "time") == 0 || strcmp(key, "level") == 0 || strcmp(key, "event") == 0;
}

static void put_json(mp_buf *line, mp_log_level level, const char *event, const mp_log_field *fields,
                     const mp_marks *marks, int64_t suppressed)
{
    mp_buf_put(line, MP_STR("{\"time\":\""));
    mp_log_put_time(line);
    mp_buf_printf(line, "\",\"level\":\"%s\",\"event\":", level_names[level]);
    put_json_text(line, mp_str_of(event));
    for (; fields->key != NULL; fields++) {
        mp_buf_printf(line, ",\"%s%s\":", fields->key, is_own_key(fields->key) ? "_" : "");
        if (fields->text.ptr == NULL)
            mp_buf_printf(line, "%lld", (long long)fields->number);
        else
            put_json_text(line, fields->text);
    }
    if (marks->call != 0)
        mp_buf_printf(line, ",\"call\":\"%s\"", mp_mark_text_of(marks->call).text);
    if (marks->trace[0] != '\0')
        mp_buf_printf(line, ",\"trace_id\":\"%s\"", marks->trace);
    if (suppressed > 0)
        mp_buf_printf(line, ",\"suppressed\":%lld", (long long)suppressed);
    mp_buf_putc(line, '}');
}

static void write_line(mp_log_level level, const char *event, const mp_log_field *fields, log_writer writes)
{
    mp_scoped_buf line = {0};
    int64_t suppressed;
    if (level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    if (level >= MP_WARN)
        atomic_fetch_add_explicit(&warnings, 1, memory_order_relaxed);
    if (!take_budget(level, event, writes, &suppressed))
        return;
    mp_marks marks;
    find_marks(fields, &marks);
    bool is_json = atomic_load_explicit(&form, memory_order_relaxed) == MP_LOG_JSON;
    (is_json ? put_json : put_logfmt)(&line, level, event, fields, &marks, suppressed);
    mp_buf_putc(&line, '\n');
    mp_log_put_line(mp_buf_str(&line));
}

void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields)
{
    if (level >= MP_WARN)
        mp_trouble_count(event);
    write_line(level, event, fields, OF_GATEWAY);
}

void mp_log_write_of_script(mp_log_level level, const char *event, const mp_log_field *fields)
{
    write_line(level, event, fields, OF_SCRIPTS);
}

void mp_log_configure(mp_log_format format)
{
    atomic_store_explicit(&form, format, memory_order_relaxed);
}

void mp_log_from(mp_log_level least)
{
    atomic_store_explicit(&least_level, least, memory_order_relaxed);
}

void mp_log_find_reader(void)
{
    atomic_store_explicit(&is_journal, !mp_log_has_file() && is_of_journal(), memory_order_relaxed);
}

void mp_log_start(mp_log_level least)
{
    mp_log_from(least);
    mp_log_find_reader();
    mp_writer_start(&writer);
}

bool mp_log_has_file(void)
{
    return writer.path != NULL;
}

int mp_log_open(const char *path, mp_err *err)
{
    int fd = mp_open_lines(path);
    if (fd < 0)
        return mp_lines_refused("log.file", path, errno, err);
    if (!mp_log_has_file()) /* the path does not change without a restart */
        mp_writer_set_path(&writer, path);
    mp_writer_swap(&writer, fd);
    return 0;
}

void mp_log_stop(void)
{
    mp_stat_add(&mp_stat_dropped_log, mp_writer_stop(&writer));
}

void mp_log_hurry(int ms)
{
    mp_writer_hurry(ms);
}

mp_log_view mp_log_look(void)
{
    return (mp_log_view){.fd = writer.fd,
                         .is_json = atomic_load_explicit(&form, memory_order_relaxed) == MP_LOG_JSON,
                         .is_journal = atomic_load_explicit(&is_journal, memory_order_relaxed),
                         .is_behind = writer.is_running &&
                                      (*(volatile size_t *)&writer.queue.len > 0 || *(volatile int *)&writer.busy >= 0),
                         .is_torn = atomic_load(&writer.is_torn)};
}
