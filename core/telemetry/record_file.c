#include "record_file.h"
#include "log.h"
#include "stats.h"
#include "writer.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

MP_COUNTER(dropped_records, "dropped", "reason", "records",
           "recorded calls that did not fit the queue of record.file, or could not be written")

MP_GAUGE(lines_records, "lines_waiting", "file", "records",
         "recorded calls that wait for their file, or for the reader of a pipe")

#define QUEUE_CAP ((size_t)16 << 20)
#define COMPLAIN_MS 60000 /* minimum interval between two "records not written" log lines */

static atomic_bool is_open;
static uint64_t complained_at_ms; /* used only by the writer's thread */

/* The first one of `lost` may be written in part: it is no whole line, and is dropped, too. */
static void on_failure(mp_str lost, int error)
{
    int64_t lines = mp_count_lines(lost);
    mp_stat_add(&mp_stat_dropped_records, lines);
    uint64_t now_ms = mp_monotonic_ms();
    if (complained_at_ms != 0 && now_ms - complained_at_ms < COMPLAIN_MS)
        return;
    complained_at_ms = now_ms;
    mp_log(MP_ERROR, "records not written", mp_log_int("lines", lines), mp_log_str("why", mp_str_of(strerror(error))),
           mp_log_str("hint", MP_STR("see record.file: calls are recorded in memory meanwhile; this is logged at most "
                                     "once a minute")));
}

static void not_replaced(const char *step, int error)
{
    mp_log(MP_ERROR, "record file not replaced", mp_log_str("step", mp_str_of(step)),
           mp_log_str("why", mp_str_of(strerror(error))),
           mp_log_str("hint", MP_STR("lines go on to the file that is open: make its folder writable")));
}

static mp_writer writer = MP_WRITER(-1, QUEUE_CAP, &mp_stat_lines_records, on_failure, not_replaced);

/* Gives the lines of the last `bytes` of the file to `read`, also a last one without its end. */
static void read_lines(const char *path, size_t bytes, mp_record_reader *read_line)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) {
        if (fd >= 0)
            close(fd);
        return;
    }
    size_t length = (size_t)facts.st_size;
    off_t from = length > bytes ? (off_t)(length - bytes) : 0;
    char *text = malloc(length - (size_t)from);
    size_t have = 0;
    for (ssize_t got = 1; text != NULL && got > 0 && have < length - (size_t)from; have += got > 0 ? (size_t)got : 0)
        got = pread(fd, text + have, length - (size_t)from - have, from + (off_t)have);
    close(fd);
    mp_str rest = {text, have};
    for (bool is_cut = from > 0; rest.len > 0; is_cut = false) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t len = end == NULL ? rest.len : (size_t)(end - rest.ptr) + 1;
        if (!is_cut)
            read_line((mp_str){rest.ptr, len});
        rest = mp_str_from(rest, len);
    }
    free(text);
}

int mp_record_file_open(const char *path, size_t bytes, mp_record_reader *read, mp_err *err)
{
    mp_scoped_buf before = {0};
    mp_buf_printf(&before, "%s.1", path);
    mp_buf_putc(&before, '\0');
    read_lines(before.ptr, bytes, read);
    read_lines(path, bytes, read);
    int fd = mp_open_lines(path);
    if (fd < 0)
        return mp_lines_refused("record.file", path, errno, err);
    mp_writer_set_path(&writer, path);
    mp_record_file_limit(bytes);
    mp_writer_swap(&writer, fd);
    if (!mp_writer_start(&writer)) {
        mp_writer_swap(&writer, -1);
        return mp_err_set(err, "record.file: cannot start the writer's thread");
    }
    atomic_store(&is_open, true);
    return 0;
}

void mp_record_file_limit(size_t bytes)
{
    atomic_store(&writer.full_bytes, (int64_t)bytes);
}

void mp_record_file_put(mp_str line)
{
    if (!atomic_load_explicit(&is_open, memory_order_relaxed))
        return;
    mp_writer_result result = mp_writer_put(&writer, line);
    if (result == MP_WRITER_FULL || result == MP_WRITER_LOST)
        mp_stat_add(&mp_stat_dropped_records, 1);
}

void mp_record_file_close(void)
{
    if (!atomic_exchange(&is_open, false))
        return;
    int64_t lost = mp_writer_stop(&writer);
    mp_writer_swap(&writer, -1);
    mp_stat_add(&mp_stat_dropped_records, lost);
}
