/* child.h: programs that one loop runs, part of the door net.h.
 *
 *   child   a program with pipes on its stdin, stdout and stderr, in a process group of its own
 *
 * Nothing is waited for: it is started on the pool, its pipes and its end are events of the loop. A child that is left, and
 * one that outlives its loop, is killed and reaped. */
#ifndef MP_NET_CHILD_H
#define MP_NET_CHILD_H

#include "base/base.h"

struct mp_loop;
typedef struct mp_child mp_child;

typedef struct {
    const char *path;           /* absolute; the program */
    const char *const *argv;    /* NULL at the end */
    const char *const *env;     /* "NAME=value", NULL at the end; it sees no more */
    const char *root, *rest;    /* the folder it starts in, as in files.h */
    mp_str input;               /* what it reads */
    size_t most;                /* bytes of each of its outputs; one that prints more is ended */
    uint64_t time_ms, grace_ms; /* then it is told to end (SIGTERM), and after the grace made to (SIGKILL) */
    void (*ended)(mp_child *child, void *ctx);
    void *ctx;
} mp_command;

typedef enum {
    MP_CHILD_RUNS,
    MP_CHILD_EXITED, /* by itself, or by a signal */
    MP_CHILD_FAILED, /* it could not start */
    MP_CHILD_LATE,   /* it took longer than it may */
    MP_CHILD_LOUD,   /* it printed more than it may */
} mp_child_end;

/* NULL: it cannot be tried. The command is copied. `ended` runs once, from the loop, never before this returns. */
mp_child *mp_child_start(struct mp_loop *loop, const mp_command *command, mp_err *err);
/* From then on: how it went; status of an exit, or the signal that ended it, else 0; an errno where it failed. */
mp_child_end mp_child_how(const mp_child *child, int *status, int *signal);
mp_str mp_child_output(const mp_child *child);
mp_str mp_child_errors(const mp_child *child);
/* At any time: `ended` does not run any more. What still runs is ended unseen. */
void mp_child_leave(mp_child *child);
/* How many this loop has, those that were left and still run among them. */
int64_t mp_child_count(const struct mp_loop *loop);

#endif
