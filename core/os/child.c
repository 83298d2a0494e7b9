/* child.c: one program of a script, from its start to its last byte of output. */
#define _GNU_SOURCE 1
#include "child.h"
#include "reaper.h"
#include "program.h"
#include "loop/state.h"
#include <errno.h>
#include <signal.h>
#include <unistd.h>

MP_GAUGE(child_processes, "child_processes", "", "", "running programs of scripts")

#define CHUNK 65536

struct mp_child {
    mp_program program;
    char *input;
    mp_str unread; /* the part of the input that was not written yet */
    mp_buf out[2];
    size_t most;
    uint64_t time_ms, grace_ms;
    void (*MP_NULLABLE ended)(mp_child *child, void *ctx); /* NULL after mp_child_leave */
    void *ctx;
    mp_fdwatch pipes[3];
    mp_timer timer;
    mp_child_end how, why; /* how: the result; why: the reason for which it is being ended */
};

static mp_child *child_of(mp_program *program)
{
    return mp_container(program, mp_child, program);
}

static void child_free(mp_child *child)
{
    child->program.loop->child_count--;
    mp_stat_add(&mp_stat_child_processes, -1);
    mp_program_clear(&child->program);
    free(child->input);
    mp_buf_clear(&child->out[0]);
    mp_buf_clear(&child->out[1]);
    free(child);
}

/* -- pipes --------------------------------------------------------------------------------------------------------- */

static void close_pipe(mp_child *child, int i)
{
    mp_fdwatch_stop(child->program.loop, &child->pipes[i]);
    mp_close_end(&child->program.own_ends[i]);
}

static void end_it(mp_child *child, mp_child_end why);

/* Reads what is available: at most one chunk, or everything if `all`. False at the end of the file. */
static bool read_pipe(mp_child *child, int i, bool all)
{
    mp_buf *out = &child->out[i - 1];
    do {
        ssize_t got = read(child->program.own_ends[i], mp_buf_room(out, CHUNK), CHUNK);
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

static void on_stdout(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    on_output(mp_container(watch, mp_child, pipes[1]), 1);
}

static void on_stderr(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    on_output(mp_container(watch, mp_child, pipes[2]), 2);
}

static void on_stdin(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    mp_child *child = mp_container(watch, mp_child, pipes[0]);
    ssize_t put = child->unread.len == 0 ? 0 : write(child->program.own_ends[0], child->unread.ptr, child->unread.len);
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
        mp_fdwatch_stop(child->program.loop, &child->pipes[i]);
    mp_timer_stop(child->program.loop, &child->timer);
}

static void finish_child(mp_child *child, mp_child_end how)
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

/* A process that still holds the pipes open is not waited for. */
static void on_exited(mp_program *program)
{
    mp_child *child = child_of(program);
    for (int i = 1; i < 3 && child->ended != NULL; i++)
        if (program->own_ends[i] >= 0)
            read_pipe(child, i, true);
    finish_child(child, child->why != MP_CHILD_RUNS ? child->why : MP_CHILD_EXITED);
}

static void on_grace_over(mp_timer *timer)
{
    mp_child *child = mp_container(timer, mp_child, timer);
    kill(child->program.keeper, MP_KEEPER_END);
}

static void end_it(mp_child *child, mp_child_end why)
{
    if (child->why == MP_CHILD_RUNS)
        child->why = why;
    if (!mp_program_runs(&child->program) || child->timer.fire == on_grace_over)
        return;
    kill(child->program.keeper, MP_KEEPER_STOP);
    mp_timer_start(child->program.loop, &child->timer, child->grace_ms, on_grace_over);
}

static void on_late(mp_timer *timer)
{
    end_it(mp_container(timer, mp_child, timer), MP_CHILD_LATE);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static int watch_pipes(mp_child *child)
{
    static void (*const ready[])(mp_fdwatch *, uint32_t) = {on_stdin, on_stdout, on_stderr};
    for (int i = 0; i < 3; i++)
        if (mp_fdwatch_start(child->program.loop, &child->pipes[i], child->program.own_ends[i],
                             i == 0 ? EPOLLOUT : EPOLLIN, ready[i]) != 0)
            return -1;
    return 0;
}

static void on_started(mp_program *program)
{
    mp_child *child = child_of(program);
    if (program->keeper == 0) {
        finish_child(child, MP_CHILD_FAILED);
    } else if (watch_pipes(child) != 0) {
        program->error = errno;
        mp_program_reap(program);
        finish_child(child, MP_CHILD_FAILED);
    } else if (child->ended == NULL) {
        end_it(child, MP_CHILD_LATE);
    } else {
        mp_timer_start(program->loop, &child->timer, child->time_ms, on_late);
    }
}

static void on_stopped(mp_program *program)
{
    stop_watching(child_of(program));
}

static void on_free(mp_program *program)
{
    child_free(child_of(program));
}

mp_child *MP_NULLABLE mp_child_start(mp_loop *loop, const mp_command *command, mp_err *err)
{
    static const mp_program_hooks hooks = {on_started, on_exited, on_stopped, on_free};
    mp_child *child = mp_new(sizeof *child);
    *child = (mp_child){.input = mp_dup(command->input),
                        .most = command->most,
                        .time_ms = command->time_ms,
                        .grace_ms = command->grace_ms,
                        .ended = command->ended,
                        .ctx = command->ctx};
    child->unread = (mp_str){child->input, command->input.len};
    mp_program *program = &child->program;
    mp_program_init(program, loop, &hooks);
    program->holder = command->holder;
    program->path = mp_dup(mp_str_of(command->path));
    program->root = mp_dup(mp_str_of(command->root));
    program->rest = mp_dup(mp_str_of(command->rest));
    program->argv = mp_copy_texts(command->argv);
    program->env = mp_copy_texts(command->env);
    loop->child_count++;
    mp_stat_add(&mp_stat_child_processes, 1);
    if (mp_program_open(program, err) == 0 && mp_program_start(program, err) == 0)
        return child;
    child_free(child);
    return NULL;
}

/* -- public functions ---------------------------------------------------------------------------------------------- */

mp_child_end mp_child_how(const mp_child *child, int *status, int *signal)
{
    *status = child->how == MP_CHILD_FAILED ? child->program.error : child->program.status;
    *signal = child->program.signal;
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
    if (mp_program_leave(&child->program))
        child_free(child);
    else
        end_it(child, MP_CHILD_LATE);
}

int64_t mp_child_count(const mp_loop *loop)
{
    return loop->child_count;
}
