/* program.h: one program below a keeper: its start on the thread pool, the ends of its pipes, its end. The common part
 * of child.c and process.c, which embed an mp_program in their structs. Belongs to the thread of its loop. */
#ifndef MP_OS_PROGRAM_H
#define MP_OS_PROGRAM_H

#include "os.h"
#include <stdatomic.h>

typedef struct mp_program mp_program;

typedef struct {
    /* The start is over. `keeper` is 0 if it failed: then `error` and `failed_at` say why. */
    void (*started)(mp_program *program);
    /* The keeper has ended and was reaped: no descendant is left, and all output is in the pipes. */
    void (*exited)(mp_program *program);
    /* The loop has ended: stops the owner's timers and watches. */
    void (*stopped)(mp_program *program);
    /* Frees the owner, which mp_program_leave was called for. */
    void (*free)(mp_program *program);
} mp_program_hooks;

struct mp_program {
    mp_link link; /* link in the loop's list of programs */
    mp_loop *loop;
    const mp_program_hooks *hooks;
    mp_job job; /* the pool's job that starts the program */
    /* the program's file; NULL: argv[0], looked for in the environment's PATH if it has no '/' */
    char *MP_NULLABLE path;
    char *MP_NULLABLE root; /* the working folder is `rest` below `root`, as in files.h; NULL: the path `rest` */
    char *rest;
    char **argv, **env;
    int child_ends[3], own_ends[3]; /* the pipes of stdin, stdout and stderr; -1: closed. child_ends: until the start */
    int life[2];                    /* the pipe whose end is our end (reaper.h) */
    mp_fdwatch ending;
    bool is_starting;        /* the pool's job runs or waits */
    atomic_bool is_stranded; /* the loop ended before the program had started */
    bool is_left;
    /* 0 until the program has started, and after the keeper is reaped; belongs to the pool's job while `is_starting` */
    pid_t keeper;
    int pidfd;
    int taken; /* by mp_outgoing_take, for `holder`, which is set before mp_program_open */
    unsigned holder;
    int error; /* errno of a failed start */
    enum { MP_FAILED_PIPES, MP_FAILED_FOLDER, MP_FAILED_SEARCH, MP_FAILED_INTERPRETER, MP_FAILED_RUN } failed_at;
    int status, signal; /* exit status of the program, or the signal that ended it */
};

/* Initializes the members, and adds the program to its loop. Set path, root, rest, argv and env, which the program
 * frees. */
void mp_program_init(mp_program *program, mp_loop *loop, const mp_program_hooks *hooks);
/* Opens the pipes; then mp_program_start queues the start of the program. Both return -1 with `err` on failure: call
 * mp_program_clear then. */
int mp_program_open(mp_program *program, mp_err *err);
int mp_program_start(mp_program *program, mp_err *err);
/* Frees what the program has, and removes it from its loop. */
void mp_program_clear(mp_program *program);
/* Kills the remaining descendants of the keeper, waits for the keeper's end, and reads the program's status. */
void mp_program_reap(mp_program *program);
/* True: the program has started, and its keeper was not reaped. */
static inline bool mp_program_runs(const mp_program *program)
{
    return !program->is_starting && program->keeper != 0;
}

/* The owner has no more use for the program. True: nothing runs, and the owner can be freed. False: the program runs
 * or is about to: the owner ends it, at once or when `started` runs. */
bool mp_program_leave(mp_program *program);
void mp_close_end(int *fd);

#endif
