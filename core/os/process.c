/* process.c: a long-lived program: lines to and from it, its stderr, its memory, its orderly end. */
#define _GNU_SOURCE 1
#include "process.h"
#include "reaper.h"
#include "loop/state.h"
#include "program.h"
#include <errno.h>
#include <signal.h>
#include <unistd.h>

MP_GAUGE(upstream_processes, "upstream_processes", "", "", "running programs of upstreams", MP_SHOWN_BY_LABELS)
MP_COUNTER(dropped_stderr, "dropped", "reason", "stderr", "lines of upstreams' stderr over 64 KiB a second")

#define PIECE ((size_t)64 << 10)
/* ms from the end of stdout to the notice that the program has ended, which usually arrives at once */
#define CLOSED_MS 750
/* ms for the last output of a program that has ended: a process of another user may hold the pipe open for ever */
#define REST_MS 1000
/* ms after the start, at most, to the first measurement, so that people soon see the memory */
#define FIRST_MEASURE_MS 1000
#define RATE_WINDOW_MS 1000

/* A reading of the memory, on the thread pool. Both the process and the job have it; the last one frees it. */
typedef struct {
    mp_job job;
    atomic_int users;
    mp_process *MP_NULLABLE process; /* NULL once the process is freed; used on the loop's thread only */
    pid_t keeper;
    mp_process_usage usage;
} reading;

struct mp_process {
    mp_program program;
    mp_process_hooks hooks; /* empty but for on_gone after mp_process_leave */
    void *ctx;
    mp_pipe *pipe; /* stdin and stdout, while the program may use them */
    size_t longest_line, most_queued, stall_bytes;
    uint64_t stall_ms, measure_ms, grace_ms;
    uint64_t queued;     /* bytes of all lines that were queued */
    uint64_t stalled_at; /* bytes written when the stall timer was started */
    mp_timer flushing, stalling, stopping, measuring, closing, freeing;
    bool is_counted; /* true while the gauge of running programs includes it */
    bool runs;       /* the program was started, and its keeper is not reaped yet */
    bool is_over;    /* on_ended has run, or would have */
    bool has_rest;   /* the keeper has ended, and stdout may still have lines */
    bool is_silent;  /* stdout has ended */
    bool is_ending;  /* the orderly end has begun */
    mp_process_end how;
    mp_buf why;
    mp_fdwatch errors;  /* watches stderr */
    mp_buf error_line;  /* the line of stderr that is incomplete */
    bool is_cutting;    /* the remainder of a long line of stderr is dropped */
    uint64_t window_ms; /* begin of the second in which `window_bytes` of stderr were given to the hook */
    size_t window_bytes;
    mp_buf kept[MP_PROCESS_ERRORS_KEPT]; /* the last lines of stderr */
    /* lines that were kept; the oldest one still there is at this number, modulo the limit */
    size_t kept_count;
    mp_process_usage usage;
    reading *MP_NULLABLE reading; /* the reading that runs; NULL: none */
};

static mp_process *process_of(mp_program *program)
{
    return mp_container(program, mp_process, program);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

static void reading_unref(reading *one)
{
    if (atomic_fetch_sub(&one->users, 1) == 1)
        free(one);
}

static void stop_all(mp_process *process)
{
    mp_loop *loop = process->program.loop;
    mp_timer_stop(loop, &process->flushing);
    mp_timer_stop(loop, &process->stalling);
    mp_timer_stop(loop, &process->stopping);
    mp_timer_stop(loop, &process->measuring);
    mp_timer_stop(loop, &process->closing);
    mp_timer_stop(loop, &process->freeing);
    mp_fdwatch_stop(loop, &process->errors);
}

/* Takes a process out of the gauge: it has ended, or never ran. No effect if it is not counted. */
static void discount_process(mp_process *process)
{
    if (process->is_counted)
        mp_stat_add(&mp_stat_upstream_processes, -1);
    process->is_counted = false;
    process->runs = false;
}

static void process_free(mp_process *process)
{
    if (process->hooks.on_gone != NULL)
        process->hooks.on_gone(process->ctx);
    discount_process(process);
    stop_all(process);
    if (process->pipe != NULL)
        mp_pipe_free(process->pipe);
    if (process->reading != NULL) {
        process->reading->process = NULL;
        reading_unref(process->reading);
    }
    mp_program_clear(&process->program);
    mp_buf_clear(&process->why);
    mp_buf_clear(&process->error_line);
    for (size_t i = 0; i < MP_PROCESS_ERRORS_KEPT; i++)
        mp_buf_clear(&process->kept[i]);
    free(process);
}

static void on_free_time(mp_timer *timer)
{
    process_free(mp_container(timer, mp_process, freeing));
}

/* Frees the process at the bottom of a turn, outside all hooks; or with the loop. */
static void free_later(mp_process *process)
{
    mp_timer_start(process->program.loop, &process->freeing, 0, on_free_time);
}

/* -- end ----------------------------------------------------------------------------------------------------------- */

static void on_kill_time(mp_timer *timer)
{
    mp_process *process = mp_container(timer, mp_process, stopping);
    kill(process->program.keeper, MP_KEEPER_END);
}

static void on_term_time(mp_timer *timer)
{
    mp_process *process = mp_container(timer, mp_process, stopping);
    kill(process->program.keeper, MP_KEEPER_STOP);
    mp_timer_start(process->program.loop, &process->stopping, process->grace_ms, on_kill_time);
}

static void on_flush(mp_timer *timer)
{
    mp_process *process = mp_container(timer, mp_process, flushing);
    if (process->runs)
        mp_pipe_flush(process->pipe);
}

/* Ends a program that runs. Its output is read and dropped, so that it can end in order. */
static void begin_end(mp_process *process)
{
    if (process->is_ending || !process->runs)
        return;
    process->is_ending = true;
    mp_pipe_finish(process->pipe);
    mp_timer_start(process->program.loop, &process->flushing, 0, on_flush);
    mp_timer_start(process->program.loop, &process->stopping, process->grace_ms, on_term_time);
}

static void describe_failure(mp_process *process)
{
    const mp_program *program = &process->program;
    const char *name = program->argv[0], *path = "";
    mp_buf *why = &process->why;
    for (char **one = program->env; *one != NULL; one++)
        if (strncmp(*one, "PATH=", 5) == 0)
            path = *one + 5;
    switch (program->failed_at) {
    case MP_FAILED_FOLDER:
        mp_buf_printf(why, "%s: cannot use the working folder %s: %s", name, program->rest, strerror(program->error));
        return;
    case MP_FAILED_SEARCH:
        mp_buf_printf(why, "%s: there is no such program in PATH (%s)", name, path);
        return;
    case MP_FAILED_INTERPRETER:
        mp_buf_printf(why, "%s: the interpreter that its first line names does not exist", name);
        return;
    case MP_FAILED_PIPES:
    case MP_FAILED_RUN:
        mp_buf_printf(why, "%s: %s", name, strerror(program->error));
        return;
    }
}

static void describe_end(mp_process *process)
{
    const mp_program *program = &process->program;
    mp_buf *why = &process->why;
    if (process->how == MP_PROCESS_FAILED)
        describe_failure(process);
    else if (process->how == MP_PROCESS_CLOSED)
        mp_buf_printf(why, "closed its %s", process->is_silent ? "stdout" : "stdin");
    else if (process->how == MP_PROCESS_STALLED)
        mp_buf_printf(why, "read nothing for %llu ms", (unsigned long long)process->stall_ms);
    else if (program->signal != 0)
        mp_buf_printf(why, "signal %d (%s)", program->signal, strsignal(program->signal));
    else
        mp_buf_printf(why, "exit %d", program->status);
}

static void finish_process(mp_process *process, mp_process_end how)
{
    if (process->is_over || process->program.is_left)
        return;
    process->is_over = true;
    process->how = how;
    describe_end(process);
    mp_timer_stop(process->program.loop, &process->stalling);
    mp_timer_stop(process->program.loop, &process->closing);
    begin_end(process);
    if (process->hooks.on_ended != NULL)
        process->hooks.on_ended(process->ctx);
}

static void on_closed(mp_timer *timer)
{
    finish_process(mp_container(timer, mp_process, closing), MP_PROCESS_CLOSED);
}

static void on_rest_time(mp_timer *timer)
{
    finish_process(mp_container(timer, mp_process, closing), MP_PROCESS_EXITED);
}

/* -- stdin and stdout ---------------------------------------------------------------------------------------------- */

static void on_line(void *ctx, mp_str line)
{
    mp_process *process = ctx;
    if (process->hooks.on_line != NULL && !process->is_over && line.len > 0)
        process->hooks.on_line(process->ctx, line);
}

static void on_long(void *ctx)
{
    mp_process *process = ctx;
    if (process->hooks.on_long != NULL && !process->is_over)
        process->hooks.on_long(process->ctx);
}

/* The program closed stdout (`error` 0) or stdin. Its end, if it comes at once, is the better news. */
static void on_pipe_end(void *ctx, int error)
{
    mp_process *process = ctx;
    process->is_silent = process->is_silent || error == 0;
    if (process->has_rest && process->is_silent)
        finish_process(process, MP_PROCESS_EXITED);
    else if (process->runs && !process->is_over)
        mp_timer_start(process->program.loop, &process->closing, CLOSED_MS, on_closed);
}

static void on_stall(mp_timer *timer)
{
    mp_process *process = mp_container(timer, mp_process, stalling);
    uint64_t written = mp_pipe_written(process->pipe);
    if (mp_pipe_queued(process->pipe) <= process->stall_bytes)
        return;
    if (written == process->stalled_at) {
        finish_process(process, MP_PROCESS_STALLED);
        return;
    }
    process->stalled_at = written;
    mp_timer_start(process->program.loop, timer, process->stall_ms, on_stall);
}

int mp_process_send(mp_process *process, mp_str line)
{
    if (process->is_over || process->is_ending || process->pipe == NULL)
        return -1;
    size_t waiting = mp_pipe_queued(process->pipe);
    if (waiting > 0 && waiting + line.len + 1 > process->most_queued)
        return -1;
    if (mp_pipe_send(process->pipe, line) != 0)
        return -1;
    process->queued += line.len + 1;
    if (process->runs && process->flushing.slot == 0)
        mp_timer_start(process->program.loop, &process->flushing, 0, on_flush);
    if (process->stalling.slot == 0 && mp_pipe_queued(process->pipe) > process->stall_bytes) {
        process->stalled_at = mp_pipe_written(process->pipe);
        mp_timer_start(process->program.loop, &process->stalling, process->stall_ms, on_stall);
    }
    return 0;
}

/* -- stderr -------------------------------------------------------------------------------------------------------- */

static void deliver_error_line(mp_process *process)
{
    mp_str line = mp_buf_str(&process->error_line);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    process->error_line.len = 0;
    if (line.len == 0)
        return;
    mp_buf *kept = &process->kept[process->kept_count++ % MP_PROCESS_ERRORS_KEPT];
    kept->len = 0;
    mp_buf_put(kept, line);
    uint64_t now = mp_loop_now(process->program.loop);
    if (now - process->window_ms >= RATE_WINDOW_MS) {
        process->window_ms = now;
        process->window_bytes = 0;
    }
    if (process->window_bytes + line.len > MP_PROCESS_ERROR_RATE) {
        mp_stat_add(&mp_stat_dropped_stderr, 1);
        return;
    }
    process->window_bytes += line.len;
    if (process->hooks.on_error_line != NULL)
        process->hooks.on_error_line(process->ctx, line);
}

static void take_errors(mp_process *process, mp_str bytes)
{
    while (bytes.len > 0) {
        const char *stop = memchr(bytes.ptr, '\n', bytes.len);
        size_t len = stop == NULL ? bytes.len : (size_t)(stop - bytes.ptr);
        size_t room = MP_PROCESS_ERROR_LINE - process->error_line.len;
        if (!process->is_cutting) {
            mp_buf_put(&process->error_line, (mp_str){bytes.ptr, len < room ? len : room});
            process->is_cutting = len > room;
            if (stop != NULL || process->is_cutting)
                deliver_error_line(process);
        }
        if (stop != NULL)
            process->is_cutting = false;
        bytes = mp_str_from(bytes, stop == NULL ? len : len + 1);
    }
}

#define PIPE_PIECES 16 /* a pipe holds no more, unless an operator has raised its size */

/* Reads stderr, once or to its end. */
static void read_errors(mp_process *process, int times)
{
    char bytes[PIECE];
    while (times-- > 0) {
        ssize_t got = read(process->program.own_ends[2], bytes, sizeof bytes);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            mp_fdwatch_stop(process->program.loop, &process->errors);
            mp_close_end(&process->program.own_ends[2]);
            return;
        }
        take_errors(process, (mp_str){bytes, (size_t)got});
    }
}

void mp_process_read_errors(mp_process *process)
{
    if (process->program.own_ends[2] >= 0)
        read_errors(process, PIPE_PIECES);
}

static void on_errors(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    read_errors(mp_container(watch, mp_process, errors), 1);
}

/* -- memory of the program ----------------------------------------------------------------------------------------- */

static void measure_later(mp_process *process);

static void on_read(mp_job *job)
{
    reading *one = mp_container(job, reading, job);
    mp_measure_descendants(one->keeper, &one->usage);
}

static void on_was_read(mp_job *job, mp_loop *MP_NULLABLE loop)
{
    reading *one = mp_container(job, reading, job);
    mp_process *process = loop == NULL ? NULL : one->process;
    if (process != NULL) {
        process->reading = NULL;
        reading_unref(one);
        if (process->runs) {
            process->usage = one->usage;
            measure_later(process);
            if (process->hooks.on_measured != NULL && !process->is_over)
                process->hooks.on_measured(process->ctx);
        }
    }
    reading_unref(one);
}

static void on_measure_time(mp_timer *timer)
{
    mp_process *process = mp_container(timer, mp_process, measuring);
    reading *one = mp_new(sizeof *one);
    *one = (reading){.job = {.work = on_read, .done = on_was_read},
                     .users = 2,
                     .process = process,
                     .keeper = process->program.keeper};
    if (mp_pool_run(process->program.loop, &one->job) == 0) {
        process->reading = one;
    } else {
        free(one);
        measure_later(process);
    }
}

static void measure_in(mp_process *process, uint64_t ms)
{
    if (process->measure_ms > 0)
        mp_timer_start(process->program.loop, &process->measuring, ms, on_measure_time);
}

static void measure_later(mp_process *process)
{
    measure_in(process, process->measure_ms);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static void on_started(mp_program *program)
{
    static const mp_pipe_hooks hooks = {
        .on_line = on_line, .on_long = on_long, .on_end = on_pipe_end, .reads_to_end = true};
    mp_process *process = process_of(program);
    process->runs = program->keeper != 0;
    if (!process->runs)
        discount_process(process);
    if (program->is_left) {
        if (process->runs)
            kill(program->keeper, MP_KEEPER_END);
        else
            free_later(process);
        return;
    }
    if (!process->runs) {
        finish_process(process, MP_PROCESS_FAILED);
        return;
    }
    mp_fdwatch_start(program->loop, &process->errors, program->own_ends[2], EPOLLIN, on_errors);
    mp_timer_start(program->loop, &process->flushing, 0, on_flush);
    measure_in(process, process->measure_ms < FIRST_MEASURE_MS ? process->measure_ms : FIRST_MEASURE_MS);
    if (process->hooks.on_started != NULL)
        process->hooks.on_started(process->ctx);
    mp_pipe_start(process->pipe, &hooks, process);
}

static void on_exited(mp_program *program)
{
    mp_process *process = process_of(program);
    discount_process(process);
    mp_timer_stop(program->loop, &process->stopping);
    mp_timer_stop(program->loop, &process->measuring);
    mp_timer_stop(program->loop, &process->closing);
    if (program->own_ends[2] >= 0)
        read_errors(process, PIPE_PIECES);
    if (process->error_line.len > 0)
        deliver_error_line(process);
    process->has_rest = true;
    if (program->is_left)
        free_later(process);
    else if (process->is_silent)
        finish_process(process, MP_PROCESS_EXITED);
    else
        mp_timer_start(program->loop, &process->closing, REST_MS, on_rest_time);
}

static void on_stopped(mp_program *program)
{
    mp_process *process = process_of(program);
    stop_all(process);
    discount_process(process);
    if (process->pipe != NULL)
        mp_pipe_free(process->pipe);
    process->pipe = MP_UNSET;
}

static void on_free(mp_program *program)
{
    process_free(process_of(program));
}

static bool has_variable(const char *const *MP_NULLABLE env, const char *name)
{
    size_t len = strlen(name);
    for (; env != NULL && *env != NULL; env++)
        if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
            return true;
    return false;
}

/* The program's whole environment: nothing of the gateway's but the variables that most programs need. */
static char **make_environment(const char *const *MP_NULLABLE env)
{
    static const char *const common[] = {"PATH", "HOME", "USER", "LANG", "TZ", "TMPDIR"};
    size_t count = 0, most = sizeof common / sizeof *common;
    while (env != NULL && env[count] != NULL)
        count++;
    char **list = mp_new((count + most + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = mp_dup(mp_str_of(env[i]));
    for (size_t i = 0; i < most; i++) {
        const char *value = getenv(common[i]);
        mp_scoped_buf text = {0};
        if (value == NULL || has_variable(env, common[i]))
            continue;
        mp_buf_printf(&text, "%s=%s", common[i], value);
        list[count++] = mp_dup(mp_buf_str(&text));
    }
    return list;
}

mp_process *MP_NULLABLE mp_process_start(mp_loop *loop, const mp_process_command *command,
                                         const mp_process_hooks *hooks, void *ctx, mp_err *err)
{
    static const mp_program_hooks program_hooks = {on_started, on_exited, on_stopped, on_free};
    mp_process *process = mp_new(sizeof *process);
    *process = (mp_process){.hooks = *hooks,
                            .ctx = ctx,
                            .longest_line = command->longest_line,
                            .most_queued = command->most_queued,
                            .stall_ms = command->stall_ms,
                            .stall_bytes = command->stall_bytes,
                            .measure_ms = command->measure_ms,
                            .grace_ms = command->grace_ms};
    mp_program *program = &process->program;
    mp_program_init(program, loop, &program_hooks);
    process->is_counted = true;
    mp_stat_add(&mp_stat_upstream_processes, 1);
    program->holder = command->holder;
    program->rest = mp_dup(mp_str_of(command->folder == NULL ? "." : command->folder));
    program->argv = mp_copy_texts(command->argv);
    program->env = make_environment(command->env);
    if (mp_program_open(program, err) == 0) {
        /* A program that reads nothing while it writes must not wait for its own output: reading never pauses. */
        mp_pipe *pipe =
            mp_pipe_new(loop, program->own_ends[1], program->own_ends[0], process->longest_line, SIZE_MAX, err);
        program->own_ends[0] = program->own_ends[1] = -1;
        if (pipe != NULL) {
            process->pipe = pipe;
            if (mp_program_start(program, err) == 0)
                return process;
        }
    }
    process->hooks.on_gone = NULL;
    process_free(process);
    return NULL;
}

/* -- public functions ---------------------------------------------------------------------------------------------- */

uint64_t mp_process_queued(const mp_process *process)
{
    return process->queued;
}

uint64_t mp_process_written(const mp_process *process)
{
    return process->pipe == NULL ? process->queued : mp_pipe_written(process->pipe);
}

mp_process_end mp_process_how(const mp_process *process)
{
    return process->how;
}

mp_str mp_process_why(const mp_process *process)
{
    return mp_buf_str(&process->why);
}

mp_str mp_process_error_line(const mp_process *process, size_t i)
{
    size_t first = process->kept_count > MP_PROCESS_ERRORS_KEPT ? process->kept_count - MP_PROCESS_ERRORS_KEPT : 0;
    if (first + i >= process->kept_count)
        return MP_STR_NONE;
    return mp_buf_str(&process->kept[(first + i) % MP_PROCESS_ERRORS_KEPT]);
}

mp_process_usage mp_process_usage_of(const mp_process *process)
{
    return process->usage;
}

void mp_process_leave(mp_process *process, bool now)
{
    process->hooks = (mp_process_hooks){.on_gone = process->hooks.on_gone};
    if (mp_program_leave(&process->program)) {
        free_later(process);
    } else if (process->runs) {
        begin_end(process);
        if (now)
            kill(process->program.keeper, MP_KEEPER_END);
    }
}

void mp_process_forget(mp_process *process, bool now)
{
    process->hooks.on_gone = NULL;
    mp_process_leave(process, now);
}
