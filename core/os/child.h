/* child.h: programs that a loop runs; part of the public header os.h.
 *
 *   child   a program with pipes on its stdin, stdout and stderr, in its own process group
 *
 * Nothing here blocks: the thread pool starts the program, and its pipes and its end are events of the loop. A
 * program is killed and reaped when its child is left or its loop ends. */
#ifndef MP_OS_CHILD_H
#define MP_OS_CHILD_H

#include "telemetry/telemetry.h"

struct mp_loop;
typedef struct mp_child mp_child;

typedef struct {
    const char *path;           /* absolute path of the program */
    const char *const *argv;    /* array that ends with NULL */
    const char *const *env;     /* "NAME=value", ends with NULL; the program's whole environment */
    const char *root, *rest;    /* the working directory, as in files.h */
    mp_str input;               /* the program's stdin */
    size_t most;                /* limit for each of stdout and stderr, in bytes; a program that exceeds it is ended */
    unsigned holder;            /* number of the script that runs it, for mp_outgoing_take */
    uint64_t time_ms, grace_ms; /* SIGTERM is sent after `time_ms`, SIGKILL `grace_ms` later */
    void (*ended)(mp_child *child, void *ctx);
    void *ctx;
} mp_command;

typedef enum {
    MP_CHILD_RUNS,
    MP_CHILD_EXITED, /* the program ended, by exit or by a signal */
    MP_CHILD_FAILED, /* the program could not be started */
    MP_CHILD_LATE,   /* the program exceeded `time_ms` */
    MP_CHILD_LOUD,   /* the program printed more than `most` bytes */
} mp_child_end;

/* Copies the command. Returns NULL if the program cannot be started. `ended` runs once, from the loop, never before
 * this function returns. */
mp_child *MP_NULLABLE mp_child_start(struct mp_loop *loop, const mp_command *command, mp_err *err);
/* Call it once `ended` has run. `status` receives the exit status (or the errno if it failed to start), `signal` the
 * signal that ended the program, else 0. */
mp_child_end mp_child_how(const mp_child *child, int *status, int *signal);
mp_str mp_child_output(const mp_child *child);
mp_str mp_child_errors(const mp_child *child);
/* May be called at any time: frees the child, and `ended` will not run any more. If the program still runs, it is
 * ended in the background. */
void mp_child_leave(mp_child *child);
/* The number of this loop's programs that still run, including those that were left. */
int64_t mp_child_count(const struct mp_loop *loop);

#endif
