/* spawn.h: starts a program below a keeper; blocks until the program runs. */
#ifndef MP_OS_SPAWN_H
#define MP_OS_SPAWN_H

#include <sys/types.h>

typedef struct {
    const char *path;
    char **argv, **env;
    int folder; /* descriptor of the working directory */
    int fds[3]; /* the program's stdin, stdout and stderr; each above 2 */
    int life;   /* the read end of a pipe: the program and its descendants are killed when its write end is closed */
} mp_spawn;

/* Returns 0, the process id of the keeper (reaper.h), and a descriptor that becomes readable when the
 * keeper ends. On failure returns an errno, and no process exists. */
int mp_spawn_process(const mp_spawn *spawn, pid_t *pid, int *pidfd);

#endif
