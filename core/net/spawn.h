/* spawn.h: a process from a command; blocks. */
#ifndef MP_NET_SPAWN_H
#define MP_NET_SPAWN_H

#include <sys/types.h>

typedef struct {
    const char *path;
    char **argv, **env;
    int folder; /* where it starts */
    int fds[3]; /* its stdin, stdout and stderr; above 2 */
} mp_spawn;

/* 0, and the process with a descriptor that becomes readable when it ends; else an errno, and there is no process. */
int mp_spawn_process(const mp_spawn *spawn, pid_t *pid, int *pidfd);

#endif
