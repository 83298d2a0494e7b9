/* process_driver.c: a program that runs processes of core/os/process.h for a spec, one event loop, commands by lines.
 * The words of a command are separated by tabs; byte 1 in a word stands for a newline:
 *   start ID [KEY=VALUE…] -- ARGV…   keys: env (may be repeated), folder, line, queued, stall, stall_bytes, measure,
 *                                    grace
 *   send ID TEXT                     a line
 *   bulk ID BYTES                    a line of that many bytes
 *   leave ID, kill ID                in order, or by SIGKILL at once
 *   offsets ID                       answers "offsets ID QUEUED WRITTEN"
 *   errors ID                        answers "kept ID TEXT" for each line of stderr that is kept, then "kept ID"
 *   count                            answers "count N": the processes that run
 *   stop                             ends the loop, then the program
 * What happens is printed in lines: started ID | line ID TEXT (TEXT cut at 200 bytes, then its size) | long ID |
 * error ID TEXT | measured ID COUNT BYTES PID | ended ID HOW WHY | gone ID | refused ID WHY. */
#include "net/net.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define IDS 256
#define WORDS 64
#define SHOWN 200

typedef struct {
    int id;
    mp_process *process;
} slot;

extern const mp_stat mp_stat_upstream_processes;

static slot slots[IDS];
static mp_loop *loop;
static mp_pipe *commands;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    mp_buf line = {0};
    va_list args;
    va_start(args, format);
    mp_buf_vprintf(&line, format, args);
    va_end(args);
    mp_pipe_send(commands, mp_buf_str(&line));
    mp_buf_clear(&line);
}

static void say_text(const char *what, const slot *one, mp_str text)
{
    if (text.len <= SHOWN)
        say("%s %d %.*s", what, one->id, MP_STR_ARG(text));
    else
        say("%s %d %.*s (%zu)", what, one->id, SHOWN, text.ptr, text.len);
}

static void on_started(void *ctx)
{
    say("started %d", ((slot *)ctx)->id);
}

static void on_line(void *ctx, mp_str line)
{
    say_text("line", ctx, line);
}

static void on_long(void *ctx)
{
    say("long %d", ((slot *)ctx)->id);
}

static void on_error_line(void *ctx, mp_str line)
{
    say_text("error", ctx, line);
}

static void on_measured(void *ctx)
{
    const slot *one = ctx;
    mp_process_usage usage = mp_process_usage_of(one->process);
    say("measured %d %lld %llu %d", one->id, (long long)usage.count, (unsigned long long)usage.memory, (int)usage.pid);
}

static void on_ended(void *ctx)
{
    static const char *const names[] = {"runs", "failed", "exited", "closed", "stalled"};
    slot *one = ctx;
    say("ended %d %s %.*s", one->id, names[mp_process_how(one->process)], MP_STR_ARG(mp_process_why(one->process)));
}

static void on_gone(void *ctx)
{
    say("gone %d", ((slot *)ctx)->id);
}

static const mp_process_hooks hooks = {.on_started = on_started,
                                       .on_line = on_line,
                                       .on_long = on_long,
                                       .on_error_line = on_error_line,
                                       .on_measured = on_measured,
                                       .on_ended = on_ended,
                                       .on_gone = on_gone};

static void start(slot *one, char **words)
{
    const char *env[WORDS];
    size_t count = 0;
    mp_process_command command = {
        .longest_line = 4 << 20, .most_queued = 64 << 20, .stall_ms = 60000, .stall_bytes = 1 << 20, .grace_ms = 2000};
    for (; *words != NULL && strcmp(*words, "--") != 0; words++) {
        char *value = strchr(*words, '=');
        *value++ = '\0';
        uint64_t number = strtoull(value, NULL, 10);
        if (strcmp(*words, "env") == 0)
            env[count++] = value;
        else if (strcmp(*words, "folder") == 0)
            command.folder = value;
        else if (strcmp(*words, "line") == 0)
            command.longest_line = number;
        else if (strcmp(*words, "queued") == 0)
            command.most_queued = number;
        else if (strcmp(*words, "stall") == 0)
            command.stall_ms = number;
        else if (strcmp(*words, "stall_bytes") == 0)
            command.stall_bytes = number;
        else if (strcmp(*words, "measure") == 0)
            command.measure_ms = number;
        else if (strcmp(*words, "grace") == 0)
            command.grace_ms = number;
    }
    env[count] = NULL;
    command.env = env;
    command.argv = (const char *const *)words + 1;
    mp_err err = {"", ""};
    one->process = mp_process_start(loop, &command, &hooks, one, &err);
    if (one->process == NULL)
        say("refused %d %s", one->id, err.text);
}

static void send_bulk(slot *one, size_t bytes)
{
    char *text = malloc(bytes);
    memset(text, 'x', bytes);
    if (mp_process_send(one->process, (mp_str){text, bytes}) != 0)
        say("refused %d", one->id);
    free(text);
}

static void obey(const char *verb, slot *one, char **words)
{
    if (strcmp(verb, "start") == 0) {
        start(one, words);
    } else if (strcmp(verb, "send") == 0) {
        if (mp_process_send(one->process, mp_str_of(words[0])) != 0)
            say("refused %d", one->id);
    } else if (strcmp(verb, "bulk") == 0) {
        send_bulk(one, strtoull(words[0], NULL, 10));
    } else if (strcmp(verb, "offsets") == 0) {
        say("offsets %d %llu %llu", one->id, (unsigned long long)mp_process_queued(one->process),
            (unsigned long long)mp_process_written(one->process));
    } else if (strcmp(verb, "errors") == 0) {
        mp_str line;
        for (size_t i = 0; (line = mp_process_error_line(one->process, i)).ptr != NULL; i++)
            say_text("kept", one, line);
        say("kept %d", one->id);
    } else {
        mp_process_leave(one->process, strcmp(verb, "kill") == 0);
        one->process = NULL;
        say("left %d", one->id);
    }
}

static void on_command(void *ctx, mp_str line)
{
    (void)ctx;
    char *text = mp_dup(line), *words[WORDS] = {NULL}, *rest = text;
    for (int i = 0; i < WORDS - 1 && rest != NULL; i++)
        words[i] = strsep(&rest, "\t");
    for (size_t i = 0; i < line.len; i++)
        if (text[i] == 1)
            text[i] = '\n';
    int id = words[1] == NULL ? 0 : atoi(words[1]) % IDS;
    slots[id].id = id;
    if (strcmp(words[0], "stop") == 0)
        mp_loop_stop(loop);
    else if (strcmp(words[0], "count") == 0)
        say("count %lld", (long long)mp_stat_read(&mp_stat_upstream_processes));
    else
        obey(words[0], &slots[id], words + 2);
    free(text);
}

static void on_end(void *ctx, int error)
{
    (void)ctx;
    (void)error;
    mp_loop_stop(loop);
}

static bool turn(void *ctx)
{
    (void)ctx;
    mp_pipe_flush(commands);
    return false;
}

int main(int argc, char **argv)
{
    static const mp_pipe_hooks pipe_hooks = {.on_line = on_command, .on_end = on_end};
    if (argc > 2 && strcmp(argv[0], MP_KEEPER) == 0)
        mp_keep(argv + 1);
    mp_err err = {"", ""};
    mp_pool_start();
    loop = mp_loop_new(&err);
    commands = loop == NULL ? NULL : mp_pipe_new(loop, 0, 1, 1 << 20, SIZE_MAX, &err);
    if (commands == NULL)
        return 1;
    mp_loop_on_turn(loop, turn, NULL, NULL);
    mp_pipe_start(commands, &pipe_hooks, NULL);
    mp_loop_run(loop);
    for (int i = 0; i < IDS; i++)
        if (slots[i].process != NULL)
            mp_process_forget(slots[i].process, false);
    mp_pool_stop();
    mp_pipe_free(commands);
    mp_loop_free(loop);
    return 0;
}
