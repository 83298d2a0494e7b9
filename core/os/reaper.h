/* reaper.h: the keeper: a process between the gateway and each program that it runs, for scripts and for upstreams.
 *
 * The keeper is the gateway's own binary, started with a different argv[0]. It adopts every descendant of its
 * program, also those that left its session and process group. It ends all of them when the program has ended, when
 * the gateway requests it, and when the gateway's process is gone. Then it exits with the program's status.
 *
 * Two signs tell the keeper that the gateway is gone: the kernel's signal at the end of the thread that started it,
 * and the end of a pipe whose other end only the gateway has. Each alone is enough. */
#ifndef MP_OS_REAPER_H
#define MP_OS_REAPER_H

#include <signal.h>

#define MP_KEEPER "moonpool: keeper" /* argv[0] of a keeper */

/* Descriptors that a keeper inherits, besides the program's 0 to 2. */
enum {
    MP_KEEPER_FOLDER = 3,
    MP_KEEPER_ERROR = 4, /* receives an errno if the program cannot start; closed when it has started */
    MP_KEEPER_LIFE = 5   /* the read end of a pipe that nothing is written to */
};

enum {
    MP_KEEPER_STOP = SIGTERM, /* sends SIGTERM to the program's process group */
    MP_KEEPER_END = SIGUSR1,  /* kills the program and all its descendants */
};

/* The main function of a keeper. `argv` is the program's path followed by the program's own argv. Does not return. */
_Noreturn void mp_keep(char **argv);

#endif
