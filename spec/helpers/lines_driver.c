/* lines_driver.c: two processes that write one log, one audit file and one file of recorded calls for a spec, as two
 * processes of a gateway do:
 *   lines_driver LINES RECORD_SIZE
 * writes out.log, audit.jsonl and calls.jsonl in the current folder. Each process writes LINES lines to each of them,
 * 5,000 a second. The first one renames out.log and audit.jsonl RENAMES times, to NAME.10 first and to NAME.1 last, as
 * another program would, and both then open them again as at SIGUSR1. Prints how many lines were dropped, a number for
 * each process. */
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

#define RENAMES 10
#define BURST 25
#define BURST_MS 5

extern const mp_stat mp_stat_dropped_log, mp_stat_dropped_audit, mp_stat_dropped_records;

static void ignore(mp_str line)
{
    (void)line;
}

static const char *const names[] = {"out.log", "audit.jsonl"};

static bool open_again(void)
{
    mp_err err = {"", ""};
    bool is_open = mp_log_open(names[0], &err) == 0 && mp_audit_open(names[1], &err) == 0;
    if (!is_open)
        fprintf(stderr, "%s\n", err.text);
    return is_open;
}

static bool open_files(size_t record_size)
{
    mp_err err = {"", ""};
    mp_log_configure(MP_LOG_JSON);
    bool is_open = open_again() && mp_record_file_open("calls.jsonl", record_size, ignore, &err) == 0;
    mp_log_start(MP_INFO);
    return is_open;
}

static bool rename_files(int number)
{
    char name[64];
    bool is_renamed = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "%s.%d", names[i], number);
        is_renamed = rename(names[i], name) == 0 && is_renamed;
    }
    return is_renamed;
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

/* By a byte the first process tells the second one to open the files again. */
static bool write_lines(int process, int64_t lines, int baton)
{
    char byte = 0;
    for (int64_t i = 1; i <= lines; i++) {
        struct pollfd ready = {.fd = baton, .events = POLLIN};
        write_line(process, i);
        if (process == 1 && i % (lines / RENAMES) == 0 &&
            (!rename_files((int)(RENAMES + 1 - i * RENAMES / lines)) || !open_again() || write(baton, &byte, 1) != 1))
            return false;
        if (process == 2 && poll(&ready, 1, 0) == 1 && (read(baton, &byte, 1) != 1 || !open_again()))
            return false;
        if (i % BURST == 0)
            poll(NULL, 0, BURST_MS);
    }
    return true;
}

int main(int argc, char **argv)
{
    int baton[2];
    pid_t child;
    if (argc != 3 || pipe(baton) != 0 || (child = fork()) < 0)
        return 2;
    int process = child == 0 ? 2 : 1, status = 0;
    if (!open_files(strtoul(argv[2], NULL, 10)) ||
        !write_lines(process, strtoll(argv[1], NULL, 10), baton[process == 1]))
        return 1;
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
