/* spawn.c: starts a keeper process from a multi-threaded process. Between vfork and execve the child uses the
 * parent's memory while the calling thread is suspended, so the child makes only system calls. */
#define _GNU_SOURCE 1
#include "spawn.h"
#include "telemetry/telemetry.h"
#include "reaper.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 1024 /* the usual limit of open files, for programs */
#define ABOVE 16   /* descriptors are first moved above this number, then to their final numbers */

/* Moves the descriptors to their final numbers: 0 to 2, the folder, the pipe that reports an errno, the pipe whose end
 * is the gateway's end. */
static int place_descriptors(const mp_spawn *spawn, int error_pipe)
{
    int from[] = {spawn->fds[0], spawn->fds[1], spawn->fds[2], spawn->folder, error_pipe, spawn->life};
    for (int i = 0; i < 6; i++)
        if ((from[i] = fcntl(from[i], F_DUPFD, ABOVE)) < 0)
            return -1;
    for (int i = 0; i < 6; i++)
        if (dup2(from[i], i) < 0)
            return -1;
    if (syscall(SYS_close_range, MP_KEEPER_LIFE + 1U, ~0U, 0U) != 0)
        for (int fd = MP_KEEPER_LIFE + 1; fd < 65536; fd++)
            close(fd);
    return 0;
}

/* Runs in the child up to execve. All signals are blocked and stay blocked. */
static void become_keeper(const mp_spawn *spawn, char **argv, int error_pipe, pid_t parent, volatile int *error)
{
    const unsigned long plain[4] = {/* the kernel's struct sigaction with SIG_DFL. The system call is made without libc:
                                     * a sanitizer's sigaction writes to memory, which is the parent's */
                                    0};
    for (long number = 1; number < NSIG; number++)
        syscall(SYS_rt_sigaction, number, plain, NULL, NSIG / 8L);
    struct rlimit files, none = {0, 0};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > FILES) {
        files.rlim_cur = FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    setrlimit(RLIMIT_CORE, &none);
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && place_descriptors(spawn, error_pipe) == 0)
        execve("/proc/self/exe", argv, spawn->env);
    *error = errno;
    _exit(127);
}

static char **keeper_argv(const mp_spawn *spawn)
{
    size_t count = 0;
    while (spawn->argv[count] != NULL)
        count++;
    char **argv = mp_new((count + 3) * sizeof *argv);
    argv[0] = (char *)MP_KEEPER;
    argv[1] = (char *)spawn->path;
    for (size_t i = 0; i <= count; i++)
        argv[i + 2] = spawn->argv[i];
    return argv;
}

/* The keeper's report on its program: 0 if it has started, else an errno. */
static int read_error(int fd)
{
    int error = 0;
    ssize_t got;
    while ((got = read(fd, &error, sizeof error)) < 0 && errno == EINTR)
        continue;
    return got == (ssize_t)sizeof error ? error : 0;
}

int mp_spawn_process(const mp_spawn *spawn, pid_t *pid, int *pidfd)
{
    volatile int error = 0;
    pid_t parent = getpid();
    int said[2];
    if (pipe2(said, O_CLOEXEC) != 0)
        return errno;
    char **argv = keeper_argv(spawn);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t made = vfork();
    if (made == 0)
        become_keeper(spawn, argv, said[1], parent, &error);
    if (made < 0)
        error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(argv);
    close(said[1]);
    if (made > 0 && error == 0)
        error = read_error(said[0]);
    close(said[0]);
    if (made > 0 && error == 0) {
        *pidfd = (int)syscall(SYS_pidfd_open, made, 0U);
        if (*pidfd >= 0) {
            *pid = made;
            return 0;
        }
        error = errno;
        kill(made, MP_KEEPER_END);
    }
    while (made > 0 && waitpid(made, NULL, 0) < 0 && errno == EINTR)
        continue;
    return error;
}
