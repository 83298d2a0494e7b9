/* program_file.c: finds the path, checks the file, and starts it. */
#define _GNU_SOURCE
#include "program_file.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "MOONPOOL_HANDOVER"

/* -- the path ------------------------------------------------------------------------------------------------------ */

static bool is_running_file(const char *path)
{
    struct stat running, there;
    return stat("/proc/self/exe", &running) == 0 && stat(path, &there) == 0 && running.st_dev == there.st_dev &&
           running.st_ino == there.st_ino;
}

/* The path if it names the file that runs, made absolute. NULL: it does not. */
static char *MP_NULLABLE absolute(const char *MP_NULLABLE path)
{
    char folder[PATH_MAX], *whole = NULL;
    bool is_fleeting = path == NULL || strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/dev/fd/", 8) == 0;
    if (is_fleeting || strchr(path, '/') == NULL || !is_running_file(path))
        return NULL;
    if (path[0] == '/')
        return mp_dup(mp_str_of(path));
    path += strncmp(path, "./", 2) == 0 ? 2 : 0;
    if (getcwd(folder, sizeof folder) == NULL || asprintf(&whole, "%s/%s", folder, path) < 0)
        return NULL;
    return whole;
}

void mp_program_file_find(mp_program_file *file, char *const *argv)
{
    char link[PATH_MAX];
    file->argv = argv;
    file->path = absolute((const char *)getauxval(AT_EXECFN)); /* the argument of execve */
    if (file->path == NULL)
        file->path = absolute(argv[0]);
    ssize_t len = file->path == NULL ? readlink("/proc/self/exe", link, sizeof link - 1) : -1;
    if (len <= 0)
        return;
    link[len] = '\0';
    file->path = absolute(link);
}

void mp_program_file_clear(mp_program_file *file)
{
    free(file->path);
    file->path = NULL;
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

/* True if only root and the user of this process can write the file or the folder. */
static bool is_ours(const struct stat *one)
{
    bool has_owner = one->st_uid == 0 || one->st_uid == geteuid();
    bool is_of_group = (one->st_mode & S_IWGRP) != 0 && one->st_gid != 0 && one->st_gid != getegid();
    bool is_sticky = S_ISDIR(one->st_mode) && (one->st_mode & S_ISVTX) != 0;
    return has_owner && (is_sticky || (!is_of_group && (one->st_mode & S_IWOTH) == 0));
}

int mp_program_file_check(const mp_program_file *file, mp_err *err)
{
    struct stat info, folder;
    const char *path = file->path;
    if (path == NULL) {
        mp_err_set(err, "it is not known by which path this program was started");
        return mp_err_hint(err, "start it by the path of its file");
    }
    char *parent = mp_dup((mp_str){path, (size_t)(strrchr(path, '/') - path) + 1});
    bool has_folder = stat(parent, &folder) == 0;
    free(parent);
    if (!has_folder || stat(path, &info) != 0 || access(path, X_OK) != 0)
        return mp_err_set(err, "%s cannot be started: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return mp_err_set(err, "%s is no file", path);
    if (is_ours(&info) && is_ours(&folder))
        return 0;
    mp_err_set(err, "other users can write %s, or its folder", path);
    return mp_err_hint(err, "let the file and its folder belong to root, and to no group that may write");
}

/* -- its start ----------------------------------------------------------------------------------------------------- */

static bool is_variable(const char *entry, const char *name)
{
    size_t len = strlen(name);
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* The environment of this process without what names it. */
static char **make_environment(char *own)
{
    static const char *const left_out[] = {"WATCHDOG_PID",   "LISTEN_PID",       "LISTEN_FDS", "LISTEN_FDNAMES",
                                           "LISTEN_PIDFDID", "SYSTEMD_EXEC_PID", VARIABLE};
    char **all = mp_environment_all();
    size_t count = mp_count_texts(all), kept = 0;
    char **list = mp_new((count + 2) * sizeof *list);
    for (size_t i = 0; i < count; i++) {
        bool is_out = false;
        for (size_t k = 0; k < sizeof left_out / sizeof *left_out && !is_out; k++)
            is_out = is_variable(all[i], left_out[k]);
        if (!is_out)
            list[kept++] = all[i];
    }
    free(all);
    list[kept] = own;
    return list;
}

/* Runs in the child up to execve, with the memory of the parent: it makes system calls only. SIGHUP and SIGUSR2 stay
 * blocked, as the new program blocks them in main(): before that, while its libraries are loaded, they would end it. */
static void become_program(const mp_program_file *file, char **env, int handover, int said, volatile int *error)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGUSR2);
    if (dup2(said, STDERR_FILENO) == STDERR_FILENO && fcntl(handover, F_SETFD, 0) == 0 &&
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &held, NULL, NSIG / 8) == 0)
        execve(file->path, file->argv, env);
    *error = errno;
    _exit(127);
}

int mp_program_file_start(const mp_program_file *file, int handover, int said, pid_t *pid, int *pidfd, mp_err *err)
{
    volatile int error = 0;
    char variable[64];
    snprintf(variable, sizeof variable, VARIABLE "=%d", handover);
    char **env = make_environment(variable);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *pid = vfork();
    if (*pid == 0)
        become_program(file, env, handover, said, &error);
    if (*pid < 0)
        error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(env);
    *pidfd = *pid > 0 && error == 0 ? (int)syscall(SYS_pidfd_open, *pid, 0U) : -1;
    if (*pidfd >= 0)
        return 0;
    error = error == 0 ? errno : error;
    if (*pid > 0)
        kill(*pid, SIGKILL);
    while (*pid > 0 && waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return mp_err_set(err, "%s cannot be started: %s", file->path, strerror(error));
}
