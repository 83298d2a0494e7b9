/* program.c: starts programs on the thread pool and reaps their keepers. */
#define _GNU_SOURCE 1
#include "program.h"
#include "reaper.h"
#include "loop/state.h"
#include "spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void end_all_programs(mp_loop *loop);

/* -- memory -------------------------------------------------------------------------------------------------------- */

void mp_close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void on_work(mp_job *job);
static void on_started(mp_job *job, mp_loop *MP_NULLABLE loop);

void mp_program_init(mp_program *program, mp_loop *loop, const mp_program_hooks *hooks)
{
    *program = (mp_program){.loop = loop,
                            .hooks = hooks,
                            .job = {.work = on_work, .done = on_started},
                            .child_ends = {-1, -1, -1},
                            .own_ends = {-1, -1, -1},
                            .life = {-1, -1},
                            .pidfd = -1};
    mp_link_put(&loop->programs, &program->link);
    loop->end_programs = end_all_programs;
}

void mp_program_clear(mp_program *program)
{
    for (int i = 0; i < 3; i++) {
        mp_close_end(&program->child_ends[i]);
        mp_close_end(&program->own_ends[i]);
    }
    mp_close_end(&program->life[0]);
    mp_close_end(&program->life[1]);
    mp_close_end(&program->pidfd);
    mp_outgoing_give(program->taken, program->holder);
    mp_link_drop(&program->link);
    mp_free_texts(program->argv);
    mp_free_texts(program->env);
    free(program->path);
    free(program->root);
    free(program->rest);
}

#define DESCRIPTORS 5 /* of a program that runs: three pipes, `life` and `pidfd` */

/* -- start --------------------------------------------------------------------------------------------------------- */

/* Makes a pipe whose descriptors are above 2, because 0 to 2 are the program's own. */
static int open_pipe(int *read_end, int *write_end)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    for (int i = 0; i < 2; i++)
        if (fds[i] < 3) {
            int higher = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
            close(fds[i]);
            fds[i] = higher;
        }
    *read_end = fds[0];
    *write_end = fds[1];
    return fds[0] < 0 || fds[1] < 0 ? -1 : 0;
}

static int open_pipes(mp_program *program)
{
    int *child = program->child_ends, *own = program->own_ends;
    if (open_pipe(&child[0], &own[0]) != 0 || open_pipe(&own[1], &child[1]) != 0 ||
        open_pipe(&own[2], &child[2]) != 0 || open_pipe(&program->life[0], &program->life[1]) != 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (fcntl(own[i], F_SETFL, O_NONBLOCK) != 0)
            return -1;
    return 0;
}

bool mp_is_program(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

int mp_find_program(const char *MP_NULLABLE folders, const char *name, char *found, size_t size)
{
    mp_str rest = mp_str_of(folders == NULL ? "/usr/local/bin:/usr/bin:/bin" : folders);
    while (rest.ptr != NULL) {
        mp_str folder = mp_str_cut(&rest, ':');
        int len = snprintf(found, size, "%.*s/%s", MP_STR_ARG(folder), name);
        if (folder.len > 0 && folder.ptr[0] == '/' && len > 0 && (size_t)len < size && mp_is_program(found))
            return 0;
    }
    return -1;
}

/* The value of a variable in the program's environment; NULL if it has none. */
static const char *MP_NULLABLE variable(const mp_program *program, const char *name)
{
    size_t len = strlen(name);
    for (char **one = program->env; *one != NULL; one++)
        if (strncmp(*one, name, len) == 0 && (*one)[len] == '=')
            return *one + len + 1;
    return NULL;
}

/* The program's file: `program->path`, or `found`, or argv[0], which is then relative to the program's folder. NULL if
 * PATH has no such program. */
static const char *MP_NULLABLE file_of(const mp_program *program, char *found, size_t size)
{
    if (program->path != NULL)
        return program->path;
    if (strchr(program->argv[0], '/') != NULL)
        return program->argv[0];
    return mp_find_program(variable(program, "PATH"), program->argv[0], found, size) == 0 ? found : NULL;
}

static void on_work(mp_job *job)
{
    mp_program *program = mp_container(job, mp_program, job);
    char found[PATH_MAX];
    mp_spawn spawn = {.argv = program->argv,
                      .env = program->env,
                      .fds = {program->child_ends[0], program->child_ends[1], program->child_ends[2]},
                      .life = program->life[0]};
    spawn.folder = program->root != NULL ? mp_file_open(program->root, program->rest, O_PATH | O_DIRECTORY, 0)
                                         : open(program->rest, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (spawn.folder < 0) {
        program->error = errno;
        program->failed_at = MP_FAILED_FOLDER;
        return;
    }
    spawn.path = file_of(program, found, sizeof found);
    if (spawn.path == NULL) {
        program->error = ENOENT;
        program->failed_at = MP_FAILED_SEARCH;
    } else {
        program->error = mp_spawn_process(&spawn, &program->keeper, &program->pidfd);
        bool is_there = faccessat(spawn.folder, spawn.path, F_OK, 0) == 0;
        program->failed_at = program->error == ENOENT && is_there ? MP_FAILED_INTERPRETER : MP_FAILED_RUN;
    }
    close(spawn.folder);
}

/* The keeper exits when no descendant of the program is left: by itself, or after it has killed them. */
static void on_ending(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    mp_program *program = mp_container(watch, mp_program, ending);
    mp_program_reap(program);
    program->hooks->exited(program);
}

static void on_started(mp_job *job, mp_loop *MP_NULLABLE loop)
{
    mp_program *program = mp_container(job, mp_program, job);
    if (loop == NULL) { /* the loop has ended, this may be any thread: end_all_programs frees the program */
        program->is_stranded = true;
        return;
    }
    program->is_starting = false;
    for (int i = 0; i < 3; i++)
        mp_close_end(&program->child_ends[i]);
    mp_close_end(&program->life[0]);
    if (program->keeper != 0 && mp_fdwatch_start(loop, &program->ending, program->pidfd, EPOLLIN, on_ending) != 0) {
        program->error = errno;
        program->failed_at = MP_FAILED_PIPES;
        mp_program_reap(program);
    }
    program->hooks->started(program);
}

int mp_program_open(mp_program *program, mp_err *err)
{
    if (!mp_outgoing_take(DESCRIPTORS, program->holder))
        return mp_err_set(err, MP_OUTGOING_FULL);
    program->taken = DESCRIPTORS;
    return open_pipes(program) == 0 ? 0 : mp_err_set(err, "cannot create a pipe: %s", strerror(errno));
}

int mp_program_start(mp_program *program, mp_err *err)
{
    if (mp_pool_run(program->loop, &program->job) != 0)
        return mp_err_set(err, "too many jobs wait for a thread (1,024)");
    program->is_starting = true;
    return 0;
}

/* -- end ----------------------------------------------------------------------------------------------------------- */

void mp_program_reap(mp_program *program)
{
    siginfo_t news = {0};
    mp_fdwatch_stop(program->loop, &program->ending);
    kill(program->keeper, MP_KEEPER_END);
    while (waitid(P_PIDFD, (id_t)program->pidfd, &news, WEXITED) != 0 && errno == EINTR)
        continue;
    program->keeper = 0;
    program->status = news.si_code == CLD_EXITED ? news.si_status : 0;
    program->signal = news.si_code == CLD_EXITED ? 0 : news.si_status;
}

bool mp_program_leave(mp_program *program)
{
    program->is_left = true;
    if (program->is_starting && mp_pool_take_back(&program->job))
        program->is_starting = false;
    if (program->is_stranded) {
        if (program->keeper != 0)
            mp_program_reap(program);
        return true;
    }
    return !program->is_starting && program->keeper == 0;
}

/* The loop has ended. Programs that were left are freed; the others keep their memory until they are left. */
static void end_all_programs(mp_loop *loop)
{
    mp_link *next;
    for (mp_link *link = mp_link_first(&loop->programs); link != &loop->programs; link = next) {
        mp_program *program = mp_container(link, mp_program, link);
        next = link->next;
        if (program->is_starting && !program->is_stranded)
            continue;
        mp_fdwatch_stop(loop, &program->ending);
        program->hooks->stopped(program);
        if (program->keeper != 0)
            mp_program_reap(program);
        if (program->is_left)
            program->hooks->free(program);
    }
}

static char **MP_NULLABLE apart; /* the variables of libpq, and NULL; NULL until mp_environment_hide */

static bool is_of_libpq(const char *entry)
{
    return entry[0] == 'P' && entry[1] == 'G';
}

void mp_environment_hide(void)
{
    char **shown = environ;
    size_t count = mp_count_texts(shown), list_bytes = (count + 2) * sizeof *shown, bytes = list_bytes, others = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(shown[i]) + 1;
        others += !is_of_libpq(shown[i]);
    }
    char **hidden = mp_new(bytes); /* one block, so that none of it is lost where a variable is removed */
    char *at = (char *)hidden + list_bytes;
    char **set_apart = hidden + others + 1;
    for (size_t i = 0, own = 0, other = 0; i < count; i++) {
        *(is_of_libpq(shown[i]) ? &set_apart[own++] : &hidden[other++]) = at;
        at = stpcpy(at, shown[i]) + 1;
    }
    environ = hidden;
    apart = set_apart;
    for (size_t i = 0; i < count; i++)
        explicit_bzero(shown[i], strlen(shown[i]));
}

const char *MP_NULLABLE mp_environment_get(const char *name)
{
    size_t len = strlen(name);
    for (char **at = apart; at != NULL && *at != NULL; at++)
        if (strncmp(*at, name, len) == 0 && (*at)[len] == '=')
            return *at + len + 1;
    return getenv(name);
}

char **mp_environment_all(void)
{
    size_t count = mp_count_texts(environ), more = mp_count_texts(apart);
    char **list = mp_new((count + more + 1) * sizeof *list);
    memcpy(list, environ, count * sizeof *list);
    if (apart != NULL)
        memcpy(list + count, apart, more * sizeof *list);
    return list;
}
