/* child.c: one program, from its start on the thread pool to its last byte of output. */
#define _GNU_SOURCE 1
#include "child.h"
#include "loop.h"
#include "spawn.h"
#include "supervise.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

MP_GAUGE(child_processes, "child_processes", "", "", "running programs of scripts")

#define CHUNK 65536

static void end_all_children(mp_loop *loop);

struct mp_child {
    mp_link link; /* link in the loop's list of children */
    mp_loop *loop;
    mp_job job; /* the pool's job that starts the program */
    char *path, *root, *rest;
    char **argv, **env;
    char *input;
    mp_str unread; /* the part of the input that was not written yet */
    mp_buf out[2];
    size_t most;
    uint64_t time_ms, grace_ms;
    void (*ended)(mp_child *child, void *ctx); /* NULL after mp_child_leave */
    void *ctx;
    int child_ends[3]; /* the program's ends of the pipes, until it has started */
    int own_ends[3];   /* our ends of the pipes; -1 once closed */
    mp_fdwatch pipes[3], life;
    mp_timer timer;
    bool is_starting;        /* the pool's job runs or waits */
    atomic_bool is_stranded; /* the loop ended before the program had started */
    bool is_left;
    pid_t pid; /* process id of the supervisor; 0 until it has started and after it is reaped */
    int pidfd;
    int error;
    mp_child_end how, why; /* how: the result; why: the reason for which it is being ended */
    int status, signal;
};

/* -- memory -------------------------------------------------------------------------------------------------------- */

static char **copy_list(const char *const *list)
{
    size_t count = 0;
    while (list[count] != NULL)
        count++;
    char **copy = mp_new((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = mp_dup(mp_str_of(list[i]));
    return copy;
}

static void free_list(char **list)
{
    for (size_t i = 0; list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void child_free(mp_child *child)
{
    for (int i = 0; i < 3; i++) {
        close_one(&child->child_ends[i]);
        close_one(&child->own_ends[i]);
    }
    close_one(&child->pidfd);
    mp_stat_add(&mp_stat_child_processes, -1);
    child->loop->child_count--;
    mp_link_drop(&child->link);
    free_list(child->argv);
    free_list(child->env);
    free(child->path);
    free(child->root);
    free(child->rest);
    free(child->input);
    mp_buf_clear(&child->out[0]);
    mp_buf_clear(&child->out[1]);
    free(child);
}

/* -- pipes --------------------------------------------------------------------------------------------------------- */

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

static int open_pipes(mp_child *child)
{
    if (open_pipe(&child->child_ends[0], &child->own_ends[0]) != 0 ||
        open_pipe(&child->own_ends[1], &child->child_ends[1]) != 0 ||
        open_pipe(&child->own_ends[2], &child->child_ends[2]) != 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (fcntl(child->own_ends[i], F_SETFL, O_NONBLOCK) != 0)
            return -1;
    return 0;
}

static void close_pipe(mp_child *child, int i)
{
    mp_fdwatch_stop(child->loop, &child->pipes[i]);
    close_one(&child->own_ends[i]);
}

static void end_it(mp_child *child, mp_child_end why);

/* Reads what is available: at most one chunk, or everything if `all`. False at the end of the file. */
static bool read_pipe(mp_child *child, int i, bool all)
{
    mp_buf *out = &child->out[i - 1];
    do {
        ssize_t got = read(child->own_ends[i], mp_buf_room(out, CHUNK), CHUNK);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR;
        if (got == 0)
            return false;
        if (child->ended == NULL)
            continue;
        out->len += (size_t)got;
        if (out->len > child->most) {
            out->len = child->most;
            end_it(child, MP_CHILD_LOUD);
            return false;
        }
    } while (all);
    return true;
}

static void on_output(mp_child *child, int i)
{
    if (!read_pipe(child, i, false))
        close_pipe(child, i);
}

static void on_stdout(mp_fdwatch *watch, uint32_t events)
{
    (void)events;
    on_output(mp_container(watch, mp_child, pipes[1]), 1);
}

static void on_stderr(mp_fdwatch *watch, uint32_t events)
{
    (void)events;
    on_output(mp_container(watch, mp_child, pipes[2]), 2);
}

static void on_stdin(mp_fdwatch *watch, uint32_t events)
{
    (void)events;
    mp_child *child = mp_container(watch, mp_child, pipes[0]);
    ssize_t put = child->unread.len == 0 ? 0 : write(child->own_ends[0], child->unread.ptr, child->unread.len);
    if (put > 0)
        child->unread = mp_str_from(child->unread, (size_t)put);
    /* the program closed its stdin, which is not an error */
    bool is_broken = put < 0 && errno != EAGAIN && errno != EINTR;
    if (is_broken || child->unread.len == 0)
        close_pipe(child, 0);
}

/* -- end ----------------------------------------------------------------------------------------------------------- */

static void stop_watching(mp_child *child)
{
    for (int i = 0; i < 3; i++)
        mp_fdwatch_stop(child->loop, &child->pipes[i]);
    mp_fdwatch_stop(child->loop, &child->life);
    mp_timer_stop(child->loop, &child->timer);
}

/* The supervisor exits when no descendant of the program is left: by itself, or after it has killed them. */
static void reap(mp_child *child)
{
    siginfo_t news = {0};
    kill(child->pid, MP_SUPERVISOR_END);
    while (waitid(P_PIDFD, (id_t)child->pidfd, &news, WEXITED) != 0 && errno == EINTR)
        continue;
    child->pid = 0;
    child->status = news.si_code == CLD_EXITED ? news.si_status : 0;
    child->signal = news.si_code == CLD_EXITED ? 0 : news.si_status;
}

static void finish(mp_child *child, mp_child_end how)
{
    stop_watching(child);
    child->how = how;
    if (child->ended == NULL) {
        child_free(child);
        return;
    }
    void (*ended)(mp_child *, void *) = child->ended;
    child->ended = NULL;
    ended(child, child->ctx);
}

/* The supervisor has ended, so all output is in the pipes. A process that still holds them open is not waited for. */
static void on_life(mp_fdwatch *watch, uint32_t events)
{
    (void)events;
    mp_child *child = mp_container(watch, mp_child, life);
    reap(child);
    for (int i = 1; i < 3 && child->ended != NULL; i++)
        if (child->own_ends[i] >= 0)
            read_pipe(child, i, true);
    finish(child, child->why != MP_CHILD_RUNS ? child->why : MP_CHILD_EXITED);
}

static void on_grace_over(mp_timer *timer)
{
    mp_child *child = mp_container(timer, mp_child, timer);
    kill(child->pid, MP_SUPERVISOR_END);
}

static void end_it(mp_child *child, mp_child_end why)
{
    if (child->why == MP_CHILD_RUNS)
        child->why = why;
    if (child->pid == 0 || child->timer.fire == on_grace_over)
        return;
    kill(child->pid, MP_SUPERVISOR_STOP);
    mp_timer_start(child->loop, &child->timer, child->grace_ms, on_grace_over);
}

static void on_late(mp_timer *timer)
{
    end_it(mp_container(timer, mp_child, timer), MP_CHILD_LATE);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static void on_work(mp_job *job)
{
    mp_child *child = mp_container(job, mp_child, job);
    mp_spawn spawn = {.path = child->path,
                      .argv = child->argv,
                      .env = child->env,
                      .folder = mp_file_open(child->root, child->rest, O_PATH | O_DIRECTORY, 0),
                      .fds = {child->child_ends[0], child->child_ends[1], child->child_ends[2]}};
    child->error = spawn.folder < 0 ? errno : mp_spawn_process(&spawn, &child->pid, &child->pidfd);
    close_one(&spawn.folder);
}

static int watch_all(mp_child *child)
{
    static void (*const ready[])(mp_fdwatch *, uint32_t) = {on_stdin, on_stdout, on_stderr};
    for (int i = 0; i < 3; i++)
        if (mp_fdwatch_start(child->loop, &child->pipes[i], child->own_ends[i], i == 0 ? EPOLLOUT : EPOLLIN,
                             ready[i]) != 0)
            return -1;
    return mp_fdwatch_start(child->loop, &child->life, child->pidfd, EPOLLIN, on_life);
}

static void on_started(mp_job *job, mp_loop *loop)
{
    mp_child *child = mp_container(job, mp_child, job);
    if (loop == NULL) { /* the loop has ended, this may be any thread: end_all_children frees the child */
        child->is_stranded = true;
        return;
    }
    child->is_starting = false;
    for (int i = 0; i < 3; i++)
        close_one(&child->child_ends[i]);
    if (child->pid == 0) {
        finish(child, MP_CHILD_FAILED);
    } else if (watch_all(child) != 0) {
        child->error = errno;
        reap(child);
        finish(child, MP_CHILD_FAILED);
    } else if (child->ended == NULL) {
        end_it(child, MP_CHILD_LATE);
    } else {
        mp_timer_start(loop, &child->timer, child->time_ms, on_late);
    }
}

mp_child *mp_child_start(mp_loop *loop, const mp_command *command, mp_err *err)
{
    mp_child *child = mp_new(sizeof *child);
    *child = (mp_child){.loop = loop,
                        .job = {.work = on_work, .done = on_started},
                        .path = mp_dup(mp_str_of(command->path)),
                        .root = mp_dup(mp_str_of(command->root)),
                        .rest = mp_dup(mp_str_of(command->rest)),
                        .argv = copy_list(command->argv),
                        .env = copy_list(command->env),
                        .input = mp_dup(command->input),
                        .most = command->most,
                        .time_ms = command->time_ms,
                        .grace_ms = command->grace_ms,
                        .ended = command->ended,
                        .ctx = command->ctx,
                        .child_ends = {-1, -1, -1},
                        .own_ends = {-1, -1, -1},
                        .pidfd = -1};
    child->unread = (mp_str){child->input, command->input.len};
    mp_link_init(&child->job.link);
    mp_link_put(&loop->children, &child->link);
    loop->end_children = end_all_children;
    loop->child_count++;
    mp_stat_add(&mp_stat_child_processes, 1);
    if (open_pipes(child) != 0)
        mp_err_set(err, "cannot create a pipe: %s", strerror(errno));
    else if (mp_pool_run(loop, &child->job) != 0)
        mp_err_set(err, "too many jobs wait for a thread (limits.pool.queue)");
    else {
        child->is_starting = true;
        return child;
    }
    child_free(child);
    return NULL;
}

/* -- public functions ---------------------------------------------------------------------------------------------- */

mp_child_end mp_child_how(const mp_child *child, int *status, int *signal)
{
    *status = child->how == MP_CHILD_FAILED ? child->error : child->status;
    *signal = child->signal;
    return child->how;
}

mp_str mp_child_output(const mp_child *child)
{
    return mp_buf_str(&child->out[0]);
}

mp_str mp_child_errors(const mp_child *child)
{
    return mp_buf_str(&child->out[1]);
}

void mp_child_leave(mp_child *child)
{
    child->ended = NULL;
    child->is_left = true;
    if (child->is_starting && mp_pool_take_back(&child->job))
        child->is_starting = false;
    if (child->is_stranded) {
        if (child->pid != 0)
            reap(child);
        child_free(child);
    } else if (child->is_starting) {
        return; /* on_started ends the program */
    } else if (child->pid == 0) {
        child_free(child);
    } else {
        end_it(child, MP_CHILD_LATE);
    }
}

int64_t mp_child_count(const mp_loop *loop)
{
    return loop->child_count;
}

/* The loop has ended. Children that were left are freed; the others keep their memory until mp_child_leave. */
static void end_all_children(mp_loop *loop)
{
    mp_link *next;
    for (mp_link *link = loop->children.next; link != &loop->children; link = next) {
        mp_child *child = mp_container(link, mp_child, link);
        next = link->next;
        if (child->is_starting && !child->is_stranded)
            continue;
        stop_watching(child);
        if (child->pid != 0)
            reap(child);
        if (child->is_left)
            child_free(child);
    }
}
