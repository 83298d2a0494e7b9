/* process.h: long-lived programs that a loop runs and talks with in lines; part of the public header os.h.
 *
 *   process   a program with its descendants: lines to its stdin, lines from its stdout, its stderr for the log
 *
 * Nothing here blocks: the thread pool starts the program and reads its memory; pipes, timers and the end are events
 * of the loop, on whose thread all functions are called and all hooks run. Every descendant of a process ends with it,
 * and with the gateway (reaper.h). */
#ifndef MP_OS_PROCESS_H
#define MP_OS_PROCESS_H

#include "telemetry/telemetry.h"
#include <sys/types.h>

struct mp_loop;
typedef struct mp_process mp_process;

typedef struct {
    const char *const *argv; /* argv[0]: a path, or a name that is looked for in PATH; no shell; ends with NULL */
    /* "NAME=value", ends with NULL; PATH, HOME, USER, LANG, TZ and TMPDIR of the gateway are added where they lack */
    const char *const *MP_NULLABLE env;
    /* the working folder; NULL: the gateway's. A relative argv[0] with a '/' is relative to it */
    const char *MP_NULLABLE folder;
    size_t longest_line; /* limit for a line of stdout, in bytes */
    unsigned holder;     /* number of the upstream, for mp_outgoing_take */
    size_t most_queued;  /* limit of the bytes that wait for the program to read them */
    uint64_t stall_ms;   /* the program is ended if it reads nothing for this time while `stall_bytes` wait */
    size_t stall_bytes;
    uint64_t measure_ms; /* between two readings of the memory; 0: it is never read */
    uint64_t grace_ms;   /* from end-of-file on stdin to SIGTERM, and from SIGTERM to SIGKILL */
} mp_process_command;

typedef struct {
    void (*MP_NULLABLE on_started)(void *ctx); /* the program runs */
    void (*MP_NULLABLE on_line)(void *ctx,
                                mp_str line); /* a line of stdout without its end, not empty; valid during the call */
    void (*MP_NULLABLE on_long)(void *ctx);   /* a line of stdout exceeded the limit and was dropped */
    /* A line of stderr, cut at MP_PROCESS_ERROR_LINE bytes; at most MP_PROCESS_ERROR_RATE bytes a second, the others
     * are dropped and counted. */
    void (*MP_NULLABLE on_error_line)(void *ctx, mp_str line);
    void (*MP_NULLABLE on_measured)(void *ctx); /* mp_process_usage has new numbers */
    /* The process is of no more use, for the reason of mp_process_how. Runs once, as the last hook, after the last
     * line; never before mp_process_start has returned. */
    void (*MP_NULLABLE on_ended)(void *ctx);
    /* Neither the program nor a descendant is left. The only hook that also runs after mp_process_leave; if it is NULL
     * then, nothing does. The process is freed after it. */
    void (*MP_NULLABLE on_gone)(void *ctx);
} mp_process_hooks; /* each may be NULL but on_line and on_ended; those before on_gone may call mp_process_leave */

enum {
    MP_PROCESS_ERROR_LINE = 4096,
    MP_PROCESS_ERROR_RATE = 65536, /* bytes of stderr a second that hooks get */
    MP_PROCESS_ERRORS_KEPT = 20    /* last lines of stderr that are kept */
};

typedef enum {
    MP_PROCESS_RUNS,
    MP_PROCESS_FAILED,  /* the program could not be started */
    MP_PROCESS_EXITED,  /* the program ended, by exit or by a signal */
    MP_PROCESS_CLOSED,  /* the program closed its stdin or stdout and still ran */
    MP_PROCESS_STALLED, /* the program read nothing for `stall_ms` */
} mp_process_end;

typedef struct {
    pid_t pid;       /* the program's process id; 0 if unknown */
    int64_t count;   /* processes below the keeper */
    uint64_t memory; /* their resident memory, in bytes */
    bool is_partial; /* there were more processes or threads than the limit of those that are read */
} mp_process_usage;

/* Copies the command and the hooks. Returns NULL with `err` if the start cannot even be tried. */
mp_process *MP_NULLABLE mp_process_start(struct mp_loop *loop, const mp_process_command *command,
                                         const mp_process_hooks *hooks, void *ctx, mp_err *err);
/* Queues a line (copied; the line end is added); may be called before the program runs. Returns -1 if the program has
 * ended or reads no more, or if more than `most_queued` bytes would wait. A line is never refused for its size
 * alone. */
int mp_process_send(mp_process *process, mp_str line);
/* The bytes of all lines that were queued so far, and of those the number that the pipe has taken. A line that was
 * queued when mp_process_queued was `n` was not seen by the program as long as mp_process_written is at most `n`. */
uint64_t mp_process_queued(const mp_process *process);
uint64_t mp_process_written(const mp_process *process);
/* Why it ended, and in words: "npx: there is no such program in PATH (/usr/bin:/bin)", "exit 1", "signal 9
 * (Killed)". */
mp_process_end mp_process_how(const mp_process *process);
mp_str mp_process_why(const mp_process *process);
/* The last lines of stderr: 0 is the oldest; ptr == NULL after the newest. Valid until the next turn. */
mp_str mp_process_error_line(const mp_process *process, size_t i);
/* Reads what the program has written to stderr by now, so that lines which it wrote before one of stdout come before
 * it. */
void mp_process_read_errors(mp_process *process);
/* The memory at the last reading; zero before the first reading. */
mp_process_usage mp_process_usage_of(const mp_process *process);
/* No hook but on_gone runs any more, and the process must not be used. A program that runs is ended in the background:
 * end-of-file on its stdin, SIGTERM, SIGKILL, with `grace_ms` between them; at once by SIGKILL if `now`. May be called
 * by hooks. */
void mp_process_leave(mp_process *process, bool now);
/* Like mp_process_leave, and on_gone does not run either. */
void mp_process_forget(mp_process *process, bool now);

/* -- programs ------------------------------------------------------------------------------------------------------ */

/* True if the path leads to a file that can be run. Blocks. */
bool mp_is_program(const char *path);
/* Looks for a program in `folders`, a PATH (NULL: the usual one); relative folders are left out. Writes the path to
 * `found`; -1 if there is none. Blocks. */
int mp_find_program(const char *MP_NULLABLE folders, const char *name, char *found, size_t size);
/* Reads the memory of the descendants of a process. A few hundred small reads of /proc at most. Blocks. */
void mp_measure_descendants(pid_t root, mp_process_usage *usage);

#endif
