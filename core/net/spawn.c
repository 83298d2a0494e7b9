/* spawn.c: from a thread of many to a program of its own. Between vfork and execve the child borrows our memory while this
 * thread stands still: it makes system calls and nothing else. */
#define _GNU_SOURCE 1
#include "spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 1024 /* the limit of open files that programs are used to */

/* The rest of the child's life here. */
static void become(const mp_spawn *spawn, pid_t parent, volatile int *error)
{
    const unsigned long plain[4] = {
        0}; /* the kernel's sigaction: SIG_DFL. glibc's, or a sanitizer's, would note it in our memory */
    for (long number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, plain, NULL, NSIG / 8L);
    struct rlimit files, none = {0, 0};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > FILES) {
        files.rlim_cur = FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    setrlimit(RLIMIT_CORE, &none);
    int failed = setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent ||
                 prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || fchdir(spawn->folder) != 0;
    for (int i = 0; i < 3 && !failed; i++)
        failed = dup2(spawn->fds[i], i) < 0;
    if (!failed && syscall(SYS_close_range, 3U, ~0U, 0U) != 0)
        for (int fd = 3; fd < 65536; fd++)
            close(fd);
    sigset_t set;
    sigemptyset(&set);
    if (!failed) {
        pthread_sigmask(SIG_SETMASK, &set, NULL);
        execve(spawn->path, spawn->argv, spawn->env);
    }
    *error = errno;
    _exit(127);
}

int mp_spawn_process(const mp_spawn *spawn, pid_t *pid, int *pidfd)
{
    volatile int error = 0;
    pid_t parent = getpid();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t made = vfork();
    if (made == 0)
        become(spawn, parent, &error);
    if (made < 0)
        error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made > 0 && error == 0) {
        *pidfd = (int)syscall(SYS_pidfd_open, made, 0U);
        if (*pidfd >= 0) {
            *pid = made;
            return 0;
        }
        error = errno;
        kill(-made, SIGKILL); /* and what it has begun meanwhile */
    }
    while (made > 0 && waitpid(made, NULL, 0) < 0 && errno == EINTR)
        continue;
    return error;
}
