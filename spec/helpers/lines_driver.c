/* lines_driver.c: two processes that write one log, one audit file and one file of recorded calls for a spec, as two processes of a gateway do:
 *   lines_driver LINES SIZE RECORD_SIZE
 * writes out.log, audit.jsonl and calls.jsonl in the current folder. Each process writes LINES lines to each of them, 5,000 a second. The first one
 * renames the files when they have SIZE bytes, until it has written half of its lines; then the second one does. Prints how many
 * lines were dropped, a number for each process. */
#include "telemetry/audit.h"
#include "telemetry/log.h"
#include "telemetry/record_file.h"
#include "telemetry/stats.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BURST 25
#define BURST_MS 5

extern const mp_stat mp_stat_dropped_log, mp_stat_dropped_audit, mp_stat_dropped_records;

static void ignore(mp_str line)
{
    (void)line;
}

static bool open_files(int64_t size, size_t record_size)
{
    mp_err err = {"", ""};
    const mp_rotation_limits limits = {size, 200, true};
    mp_log_rotate(&limits);
    mp_audit_rotate(&limits);
    mp_log_configure(MP_LOG_JSON, INT64_MAX);
    if (mp_log_open("out.log", &err) != 0 || mp_audit_open("audit.jsonl", &err) != 0 ||
        mp_record_file_open("calls.jsonl", record_size, ignore, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    mp_log_start(MP_INFO);
    return true;
}

static void write_line(int process, int64_t number)
{
    mp_buf line = {0};
    mp_log(MP_INFO, "counted", mp_log_int("process", process), mp_log_int("i", number));
    mp_buf_printf(&line, "\"process\":%d,\"i\":%lld", process, (long long)number);
    mp_audit_write(mp_buf_str(&line));
    line.len = 0;
    mp_buf_printf(&line, "{\"process\":%d,\"i\":%lld,\"text\":\"%0100d\"}\n", process, (long long)number, 0);
    mp_record_file_put(mp_buf_str(&line));
    mp_buf_clear(&line);
}

/* The first process gives the renaming away in the middle: by a byte. */
static void write_lines(int process, int64_t lines, int baton)
{
    bool is_given = false;
    for (int64_t i = 1; i <= lines; i++) {
        struct pollfd ready = {.fd = baton, .events = POLLIN};
        write_line(process, i);
        if (process == 1 && i == lines / 2) {
            mp_rotate_allow(false);
            is_given = write(baton, "", 1) == 1;
        }
        if (process == 2 && !is_given && poll(&ready, 1, 0) == 1)
            mp_rotate_allow(is_given = true);
        if (i % BURST == 0)
            poll(NULL, 0, BURST_MS);
    }
}

int main(int argc, char **argv)
{
    int baton[2];
    pid_t child;
    if (argc != 4 || pipe(baton) != 0 || (child = fork()) < 0)
        return 2;
    int process = child == 0 ? 2 : 1, status = 0;
    if (process == 2)
        mp_rotate_allow(false);
    if (!open_files(strtoll(argv[2], NULL, 10), strtoul(argv[3], NULL, 10)))
        return 1;
    write_lines(process, strtoll(argv[1], NULL, 10), baton[process == 1]);
    mp_record_file_close();
    mp_audit_close();
    mp_log_stop();
    printf("%lld\n", (long long)(mp_stat_read(&mp_stat_dropped_log) + mp_stat_read(&mp_stat_dropped_audit) +
                                 mp_stat_read(&mp_stat_dropped_records)));
    fflush(stdout);
    if (process == 1)
        return waitpid(child, &status, 0) == child ? status != 0 : 1;
    return 0;
}
