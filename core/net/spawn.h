/* spawn.h: starts a supervised process; blocks until the program runs. */
#ifndef MP_NET_SPAWN_H
#define MP_NET_SPAWN_H

#include <sys/types.h>

typedef struct {
    const char *path;
    char **argv, **env;
    int folder; /* descriptor of the working directory */
    int fds[3]; /* the program's stdin, stdout and stderr; each above 2 */
} mp_spawn;

/* Returns 0, the process id of the supervisor (supervise.h), and a descriptor that becomes readable when the
 * supervisor ends. On failure returns an errno, and no process exists. */
int mp_spawn_process(const mp_spawn *spawn, pid_t *pid, int *pidfd);

#endif
