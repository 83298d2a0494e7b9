/* supervise.h: the supervisor: a process between the gateway and each program that a script runs.
 *
 * The supervisor is the gateway's own binary, started with a different argv[0]. It adopts every descendant of its
 * program, also those that left its session and process group. It ends all of them when the program has ended, when
 * the gateway requests it, and when the gateway's process is gone. Then it exits with the program's status. */
#ifndef MP_NET_SUPERVISE_H
#define MP_NET_SUPERVISE_H

#include <signal.h>

#define MP_SUPERVISOR "moonpool: supervisor" /* argv[0] of a supervisor */

/* Descriptors that a supervisor inherits, besides the program's 0 to 2. */
enum {
    MP_SUPERVISOR_FOLDER = 3,
    MP_SUPERVISOR_ERROR = 4 /* receives an errno if the program cannot start; closed when it has started */
};

enum {
    MP_SUPERVISOR_STOP = SIGTERM, /* sends SIGTERM to the program's process group */
    MP_SUPERVISOR_END = SIGUSR1,  /* kills the program and all its descendants */
};

/* The main function of a supervisor. `argv` is the program's path followed by the program's own argv. Does not
 * return. */
_Noreturn void mp_supervise(char **argv);

#endif
