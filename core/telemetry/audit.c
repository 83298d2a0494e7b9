/* audit.c: callers compose the lines; this file adds the time and queues them for the file. */
#include "audit.h"
#include "log.h"
#include "mark.h"
#include "stats.h"
#include "base/base.h"
#include "writer.h"
#include <errno.h>

MP_COUNTER(dropped_audit, "dropped", "reason", "audit",
           "audit lines that did not fit the queue, or could not be written")

MP_COUNTER(audit_unsampled, "audit_unsampled", "", "",
           "calls without an audit line: their outcome is ok, see log.audit_sample")

MP_GAUGE(lines_audit, "lines_waiting", "file", "audit",
         "audit lines that wait for their file, or for the reader of a pipe")

#define QUEUE_CAP ((size_t)4 << 20)
#define COMPLAIN_MS 10000 /* minimum interval between two "audit not written" log lines */

static atomic_bool is_on;
static _Atomic double ok_ratio = 1;
static uint64_t complained_at_ms; /* used only by the writer's thread */

static void on_failure(mp_str lost, int error)
{
    int64_t lines = mp_count_lines(lost);
    mp_stat_add(&mp_stat_dropped_audit, lines);
    uint64_t now_ms = mp_monotonic_ms();
    if (complained_at_ms != 0 && now_ms - complained_at_ms < COMPLAIN_MS)
        return;
    complained_at_ms = now_ms;
    mp_log(MP_ERROR, "audit not written", mp_log_int("lines", lines), mp_log_str("why", mp_str_of(strerror(error))));
}

static void not_replaced(const char *step, int error)
{
    mp_log(MP_ERROR, "audit file not replaced", mp_log_str("step", mp_str_of(step)),
           mp_log_str("why", mp_str_of(strerror(error))),
           mp_log_str("hint", MP_STR("lines go on to the file that is open: make its folder writable")));
}

static mp_writer writer = MP_WRITER(-1, QUEUE_CAP, &mp_stat_lines_audit, on_failure, not_replaced);

int mp_audit_open(const char *path, mp_err *err)
{
    int fd = mp_open_lines(path);
    if (fd < 0)
        return mp_lines_refused("log.audit", path, errno, err);
    if (!mp_audit_is_on()) /* the path does not change without a restart */
        mp_writer_set_path(&writer, path);
    mp_writer_swap(&writer, fd);
    if (mp_audit_is_on())
        return 0;
    if (!mp_writer_start(&writer)) {
        mp_writer_swap(&writer, -1);
        return mp_err_set(err, "log.audit: cannot start the writer's thread");
    }
    atomic_store(&is_on, true);
    return 0;
}

void mp_audit_close(void)
{
    if (!atomic_exchange(&is_on, false))
        return;
    int64_t lost = mp_writer_stop(&writer);
    mp_writer_swap(&writer, -1);
    mp_stat_add(&mp_stat_dropped_audit, lost);
    if (lost > 0)
        mp_log(MP_ERROR, "audit not written", mp_log_int("lines", lost),
               mp_log_str("why", MP_STR("the process is ending and the file's reader is blocked")));
}

bool mp_audit_is_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

/* Returns the first place from `i` on that may not be visible ASCII. Eight bytes are tested at once by their high bits:
 * a byte beyond ASCII has it, DEL has it after 1 is added, and a control character after 32 is subtracted. */
static size_t skip_visible(mp_str json, size_t i)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    for (; json.len - i >= sizeof each; i += sizeof each) {
        uint64_t bytes;
        memcpy(&bytes, json.ptr + i, sizeof bytes);
        if (((bytes | (bytes + each) | (bytes - each * ' ')) & each * 0x80) != 0)
            break;
    }
    return i;
}

/* Such characters occur in JSON only inside strings. */
void mp_audit_put(mp_buf *line, mp_str json)
{
    size_t kept = 0;
    for (size_t i = 0; (i = skip_visible(json, i)) < json.len;) {
        size_t width = mp_utf8_visible_at(json, i);
        if (width > 0) {
            i += width;
            continue;
        }
        const unsigned char *c = (const unsigned char *)json.ptr + i;
        size_t left = json.len - i;
        mp_buf_put(line, (mp_str){json.ptr + kept, i - kept});
        if (c[0] < 0x80) {
            mp_buf_printf(line, "\\u%04x", c[0]);
            i += 1;
        } else if (c[0] == 0xc2 && left > 1 && (c[1] & 0xc0) == 0x80) { /* C1 control characters */
            mp_buf_printf(line, "\\u%04x", c[1]);
            i += 2;
        } else if ((c[0] == 0xe2 || c[0] == 0xef) && left > 2 && (c[1] & 0xc0) == 0x80 &&
                   (c[2] & 0xc0) == 0x80) { /* direction marks: each has three bytes */
            mp_buf_printf(line, "\\u%04x", (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu));
            i += 3;
        } else {
            mp_buf_put(line, MP_STR("\\ufffd"));
            i += 1;
        }
        kept = i;
    }
    mp_buf_put(line, mp_str_from(json, kept));
}

/* -- a share of the lines ------------------------------------------------------------------------------------------ */

void mp_audit_sample(double ratio)
{
    atomic_store(&ok_ratio, ratio);
}

/* A number from 0 to below 1 for the choice of lines, which need not be secret. */
static double random_chance(void)
{
    static _Thread_local uint64_t state;
    if (state == 0)
        state = mp_mark_new() | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state * UINT64_C(0x2545f4914f6cdd1d) >> 11) / (double)(UINT64_C(1) << 53);
}

/* -- a line -------------------------------------------------------------------------------------------------------- */

static void queue_line(mp_buf *line)
{
    mp_buf head = {line->ptr, 0, MP_AUDIT_HEAD};
    mp_buf_put(&head, MP_STR("{\"time\":\""));
    mp_log_put_time(&head);
    mp_buf_put(&head, MP_STR("\","));
    mp_buf_put(line, MP_STR("}\n"));
    mp_writer_result result = mp_writer_put(&writer, mp_buf_str(line));
    if (result == MP_WRITER_FULL || result == MP_WRITER_LOST)
        mp_stat_add(&mp_stat_dropped_audit, 1);
}

void mp_audit_write_line(mp_buf *line, bool is_ok)
{
    double ratio = is_ok ? atomic_load_explicit(&ok_ratio, memory_order_relaxed) : 1;
    if (!mp_audit_is_on())
        return;
    if (ratio < 1 && random_chance() >= ratio) {
        mp_stat_add(&mp_stat_audit_unsampled, 1);
        return;
    }
    if (ratio < 1)
        mp_buf_printf(line, ",\"sample\":%.6g", ratio);
    queue_line(line);
}

void mp_audit_write(mp_str members)
{
    if (!mp_audit_is_on())
        return;
    mp_scoped_buf line = {0};
    mp_buf_room(&line, MP_AUDIT_HEAD + members.len);
    line.len = MP_AUDIT_HEAD;
    mp_audit_put(&line, members);
    mp_audit_write_line(&line, false);
}
