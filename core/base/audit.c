/* audit.c: lines are composed by whoever decided; here they get their time, and a place in the file. */
#include "audit.h"
#include "log.h"
#include "stats.h"
#include "visible.h"
#include "writer.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_CAP ((size_t)4 << 20)
#define COMPLAIN_S 10 /* seconds between two complaints */

static atomic_bool is_on;
static time_t complained_at; /* the writer's thread alone */

static void failed(mp_str lost, int error)
{
    int64_t lines = 0;
    for (size_t i = 0; i < lost.len; i++)
        lines += lost.ptr[i] == '\n';
    mp_stat_add(MP_STAT_DROPPED_AUDIT, lines);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (complained_at != 0 && now.tv_sec - complained_at < COMPLAIN_S)
        return;
    complained_at = now.tv_sec;
    mp_log(MP_ERROR, "audit not written", mp_log_int("lines", lines), mp_log_str("why", mp_str_of(strerror(error))));
}

static mp_writer writer = MP_WRITER(-1, QUEUE_CAP, failed);

int mp_audit_open(const char *path, mp_err *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        mp_err_set(err, "log.audit: %s cannot be opened: %s", path, strerror(errno));
        return mp_err_hint(err, "its folder must be there, and this user must be able to write in it");
    }
    mp_writer_swap(&writer, fd);
    if (mp_audit_is_on())
        return 0;
    if (!mp_writer_start(&writer)) {
        mp_writer_swap(&writer, -1);
        return mp_err_set(err, "log.audit: no thread can be had");
    }
    atomic_store(&is_on, true);
    return 0;
}

void mp_audit_close(void)
{
    if (!atomic_exchange(&is_on, false))
        return;
    mp_writer_stop(&writer);
    mp_writer_swap(&writer, -1);
}

bool mp_audit_is_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

/* JSON in which nothing commands the terminal of who reads it: such characters stand in strings, and are escaped. */
static void put_plain(mp_buf *out, mp_str json)
{
    size_t kept = 0;
    for (size_t i = 0; i < json.len;) {
        size_t width = mp_visible_at(json, i);
        if (width > 0) {
            i += width;
            continue;
        }
        const unsigned char *c = (const unsigned char *)json.ptr + i;
        size_t left = json.len - i;
        mp_buf_put(out, (mp_str){json.ptr + kept, i - kept});
        if (c[0] < 0x80) {
            mp_buf_printf(out, "\\u%04x", c[0]);
            i += 1;
        } else if (c[0] == 0xc2 && left > 1 && (c[1] & 0xc0) == 0x80) { /* C1 */
            mp_buf_printf(out, "\\u%04x", c[1]);
            i += 2;
        } else if ((c[0] == 0xe2 || c[0] == 0xef) && left > 2 && (c[1] & 0xc0) == 0x80 &&
                   (c[2] & 0xc0) == 0x80) { /* the marks, all of three bytes */
            mp_buf_printf(out, "\\u%04x", (c[0] & 0x0fu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu));
            i += 3;
        } else {
            mp_buf_put(out, MP_STR("\\ufffd"));
            i += 1;
        }
        kept = i;
    }
    mp_buf_put(out, mp_str_from(json, kept));
}

void mp_audit_write(mp_str members)
{
    if (!mp_audit_is_on())
        return;
    mp_buf line = {0};
    mp_buf_put(&line, MP_STR("{\"time\":\""));
    mp_log_put_time(&line);
    mp_buf_put(&line, MP_STR("\","));
    put_plain(&line, members);
    mp_buf_put(&line, MP_STR("}\n"));
    if (mp_writer_put(&writer, mp_buf_str(&line)) == MP_WRITER_FULL)
        mp_stat_add(MP_STAT_DROPPED_AUDIT, 1);
    mp_buf_clear(&line);
}
