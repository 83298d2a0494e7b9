/* reaper.c: the main function of the keeper of one program and its descendants. */
#define _GNU_SOURCE 1
#include "reaper.h"
#include "telemetry/telemetry.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_NS 5000000L /* between two searches for remaining descendants */
/* Limit for descendants that do not die of SIGKILL: they hang in the kernel, or belong to another user. */
#define MAX_WAIT_S 5
#define MAX_SEGMENTS 128
#define TRIM_MS 1000 /* age of a program whose keeper returns memory */

extern char **environ;

/* Runs in the program's process, up to execve. */
static _Noreturn void become_program(char **argv, pid_t keeper)
{
    sigset_t none;
    sigemptyset(&none);
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == keeper &&
        fchdir(MP_KEEPER_FOLDER) == 0 && fcntl(MP_KEEPER_ERROR, F_SETFD, FD_CLOEXEC) == 0 &&
        close(MP_KEEPER_FOLDER) == 0 && close(MP_KEEPER_LIFE) == 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
        execve(argv[0], argv + 1, environ);
    int error = errno;
    while (write(MP_KEEPER_ERROR, &error, sizeof error) < 0 && errno == EINTR)
        continue;
    _exit(127);
}

/* -- descendants --------------------------------------------------------------------------------------------------- */

/* The parent of a process; 0 if the process is gone. */
static long parent_of(const char *pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    const char *end = strrchr(text, ')'); /* the end of its name, which may contain any character */
    return end == NULL || strlen(end) < 4 ? 0 : strtol(end + 4, NULL, 10);
}

/* Kills our children. Their own children then become ours, and are killed in the next round. */
static void kill_children(void)
{
    DIR *all = opendir("/proc");
    if (all == NULL)
        return;
    for (struct dirent *one; (one = readdir(all)) != NULL;)
        if (one->d_name[0] >= '1' && one->d_name[0] <= '9' && parent_of(one->d_name) == getpid())
            kill((pid_t)strtol(one->d_name, NULL, 10), SIGKILL);
    closedir(all);
}

/* Runs until no descendant is left. Returns the program's wait status. */
static int end_all(pid_t program)
{
    const uint64_t began_ms = mp_monotonic_ms();
    struct timespec nap = {0, WAIT_NS};
    int status = 0, one;
    kill(-program, SIGKILL);
    kill(program, SIGKILL);
    for (bool first = true;; first = false) {
        pid_t got;
        while ((got = waitpid(-1, &one, WNOHANG)) > 0)
            if (got == program)
                status = one;
        if (got < 0 && errno == ECHILD)
            return status;
        if (mp_monotonic_ms() - began_ms > MAX_WAIT_S * 1000)
            return status;
        if (!first)
            nanosleep(&nap, NULL);
        kill_children();
    }
}

/* -- the program --------------------------------------------------------------------------------------------------- */

/* Reaps orphans that have ended. True if the program itself has ended: it stays a zombie, so that its process id,
 * which is also its process group's, is not reused. */
static bool has_ended(pid_t program)
{
    siginfo_t news;
    for (;;) {
        news.si_pid = 0;
        if (waitid(P_ALL, 0, &news, WEXITED | WNOHANG | WNOWAIT) != 0 || news.si_pid == 0)
            return false;
        if (news.si_pid == program)
            return true;
        waitpid(news.si_pid, NULL, 0);
    }
}

/* Reads the signals that have arrived. True if one of them ends the program or reports its end. */
static bool take_signals(int signals, pid_t program)
{
    struct signalfd_siginfo news;
    while (read(signals, &news, sizeof news) == (ssize_t)sizeof news) {
        if (news.ssi_signo == MP_KEEPER_END || (news.ssi_signo == SIGCHLD && has_ended(program)))
            return true;
        if (news.ssi_signo == MP_KEEPER_STOP)
            kill(-program, SIGTERM);
    }
    return false;
}

typedef struct {
    struct {
        uintptr_t from, to;
    } all[MAX_SEGMENTS];
    size_t count;
} segments;

/* Adds the segments of one loaded object that are never written: code and constants. Pages that the dynamic linker
 * changed are in writable segments. */
static int add_segments(struct dl_phdr_info *object, MP_UNUSED size_t size, void *ctx)
{
    segments *list = ctx;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum && list->count < MAX_SEGMENTS; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t from = (object->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
        uintptr_t to = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz) & ~(page - 1);
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) == 0 && to > from) {
            list->all[list->count].from = from;
            list->all[list->count++].to = to;
        }
    }
    return 0;
}

/* Returns the memory of code and constants; the kernel reads from the files again the pages that are used. */
static void trim_list(void)
{
    segments list = {.count = 0};
    dl_iterate_phdr(add_segments, &list);
    for (size_t i = 0; i < list.count; i++)
        madvise((void *)list.all[i].from, list.all[i].to - list.all[i].from, MADV_DONTNEED);
}

/* Waits for the end of the program, for the gateway's request, or for the end of the gateway. */
static void wait_for_end(pid_t program)
{
    sigset_t all;
    sigfillset(&all);
    struct pollfd ready[] = {{.fd = MP_KEEPER_LIFE, .events = POLLIN},
                             {.fd = signalfd(-1, &all, SFD_NONBLOCK), .events = POLLIN}};
    int wait_ms = TRIM_MS;
    if (ready[1].fd < 0)
        return;
    do {
        int count = poll(ready, 2, wait_ms);
        if (count < 0 && errno != EINTR)
            return;
        if (count == 0) {
            trim_list();
            wait_ms = -1;
        }
    } while (ready[0].revents == 0 && !take_signals(ready[1].fd, program));
}

static _Noreturn void exit_as(int status)
{
    if (WIFEXITED(status))
        _exit(WEXITSTATUS(status));
    int number = WTERMSIG(status);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    _exit(128 + number);
}

_Noreturn void mp_keep(char **argv)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* Until here the gateway's death would kill this process (SIGKILL); from the fork on there are descendants to end
     * first. */
    prctl(PR_SET_PDEATHSIG, MP_KEEPER_END);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    pid_t self = getpid(), program = fork();
    if (program == 0)
        become_program(argv, self);
    if (program < 0) {
        int error = errno;
        if (write(MP_KEEPER_ERROR, &error, sizeof error) < 0)
            _exit(126);
        _exit(127);
    }
    setpgid(program, program);
    prctl(PR_SET_NAME, "moonpool-keeper"); /* the name would be "exe" */
    for (int fd = 0; fd < MP_KEEPER_LIFE; fd++)
        close(fd);
    wait_for_end(program);
    exit_as(end_all(program));
}
