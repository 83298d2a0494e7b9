/* stdio.c: upstreams that are programs. A channel has one process, which its worker owns; messages are lines. Exchanges
 * wait here until the process runs and reads; from then on the program may have received them. */
#define _GNU_SOURCE 1
#include "upstream/transport.h"

MP_COUNTER(dropped_noise, "dropped", "reason", "upstream_noise",
           "lines of upstreams' stdout that are no JSON-RPC message")

/* No key sets these three: they refuse nothing that a client has sent. Messages above MAX_BACKLOG wait as exchanges,
 * which `calls` and `waiting` bound; the time before a program that does not read is ended is `timeout`; what is queued
 * beyond the backlog are answers to the program's own questions. */
#define MAX_BACKLOG ((size_t)2 << 20) /* bytes that wait in the pipe */
/* a program that reads nothing for `timeout` while more than this waits is ended */
#define STALL_BYTES ((size_t)1 << 20)
/* bytes that wait, with answers and cancellations; above it a program that reads none of them is ended */
#define MAX_QUEUED ((size_t)64 << 20)
#define MAX_NOISE MP_LIMIT(upstream_noise, 200) /* lines in a row that are no message: a banner has fewer */
#define MEASURE_MS 10000
#define GRACE_MS 900 /* twice: a program that ignores the end of its input and SIGTERM is gone within 2 s */

/* An exchange whose message was not written yet; it is exchange->request. */
typedef struct {
    mp_link link;
    mp_own_exchange *exchange; /* a counted reference */
} place;

typedef struct {
    mp_link link; /* in host->processes */
    mp_upstream_host *host;
    mp_channel *channel; /* a counted reference, also when the channel is closed */
    mp_process *process; /* valid until is_gone */
    mp_link waiting;     /* connections that wait for a place, oldest first */
    int64_t noise;       /* lines in a row that were no message */
    bool is_started;
    bool is_probed; /* the program was sent a request that older programs may not know, and has sent no message since */
    bool is_over;   /* the connection has ended; the process may still run */
    bool is_gone;   /* no descendant of the program is left */
    uint64_t memory;
    int64_t pid; /* id of the program's process; 0 before it was measured, and if the upstream's list is full */
} connection;

/* -- memory -------------------------------------------------------------------------------------------------------- */

static void note_memory(connection *it, uint64_t bytes)
{
    mp_upstream *upstream = it->channel->upstream;
    pthread_mutex_lock(&upstream->lock);
    upstream->memory += bytes - it->memory;
    pthread_mutex_unlock(&upstream->lock);
    it->memory = bytes;
}

static void note_pid(connection *it, int64_t pid)
{
    mp_upstream_note_pid(it->channel->upstream, it->pid, pid);
    it->pid = pid;
}

static bool is_open(const connection *it)
{
    return it->channel->connection == it;
}

static void free_if_done(connection *it)
{
    if (is_open(it) || !it->is_gone)
        return;
    mp_link_drop(&it->link);
    mp_channel_unref(it->channel);
    free(it);
}

static void on_gone(void *ctx)
{
    connection *it = ctx;
    it->is_gone = true;
    note_memory(it, 0);
    note_pid(it, 0);
    mp_upstream_stopped(it->channel->upstream);
    free_if_done(it);
}

static void free_place(place *one)
{
    mp_link_drop(&one->link);
    one->exchange->request = NULL;
    mp_exchange_unref(one->exchange);
    free(one);
}

/* -- messages to the program --------------------------------------------------------------------------------------- */

/* Line breaks between the tokens of a message would end its line; inside strings JSON has none. */
static int send_line(connection *it, mp_str message)
{
    if (memchr(message.ptr, '\n', message.len) == NULL && memchr(message.ptr, '\r', message.len) == NULL)
        return mp_process_send(it->process, message);
    char *line = mp_dup(message);
    for (size_t i = 0; i < message.len; i++)
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' ';
    int result = mp_process_send(it->process, (mp_str){line, message.len});
    free(line);
    return result;
}

/* Reads the program's stderr before the probe ends: these lines are logged as part of the probe. */
static void end_probe(connection *it)
{
    if (it->is_probed)
        mp_process_read_errors(it->process);
    it->is_probed = false;
}

/* True if a message waits and the process has room for it. */
static bool can_hand_over(const connection *it)
{
    return it->is_started && !it->is_over && !mp_link_is_alone(&it->waiting) &&
           mp_process_queued(it->process) - mp_process_written(it->process) <= MAX_BACKLOG;
}

/* Gives waiting messages to the process as long as it reads them. True if a message was given. */
static bool hand_over(connection *it)
{
    bool did = false;
    while (can_hand_over(it)) {
        place *first = mp_container(it->waiting.next, place, link);
        mp_own_exchange *exchange = mp_exchange_ref(first->exchange);
        free_place(first);
        did = true;
        if (send_line(it, exchange->message) != 0) {
            mp_exchange_fail_with(exchange, MP_FAILURE_CLOSED, "the program reads no more");
        } else {
            atomic_store(&exchange->was_sent, true);
            it->is_probed =
                it->is_probed || exchange->is_trial; /* a slow program reads the probe after later messages were sent */
            if (!exchange->has_id)
                mp_exchange_accepted(exchange, 0);
        }
        mp_exchange_unref(exchange);
    }
    return did;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* The connection has ended by itself: the next request for the channel's key opens another one. */
static void end_by_itself(connection *it, mp_failure_reason reason, const char *why, bool now)
{
    mp_upstream *upstream = it->channel->upstream;
    it->is_over = true;
    mp_upstream_ended_by_itself(upstream, why);
    mp_log_field name = mp_log_str("upstream", mp_str_of(upstream->name)), cause = mp_log_str("why", mp_str_of(why));
    if (it->is_probed)
        mp_log(MP_INFO, "upstream process ended", name, cause,
               mp_log_str("hint", MP_STR("server/discover may have ended it: it is started again, with `initialize`; "
                                         "`revision: legacy` begins with that")));
    else
        mp_log(MP_WARN, "upstream process ended", name, cause);
    mp_upstream_note(upstream, why);
    mp_process_leave(it->process, now);
    mp_channel_broken(it->channel, reason, why);
}

/* True if the line names an error, as Node, Python, Java, Go and Rust do. */
static bool names_error(mp_str line)
{
    static const char *const marks[] = {"rror: ", "xception: ", "xception in ", "panic: ", "panicked at ", "fatal: "};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (memmem(line.ptr, line.len, marks[i], strlen(marks[i])) != NULL)
            return true;
    return false;
}

/* True for what runtimes print after the error: frames of the stack, a mark below the code, their version, advice. */
static bool is_noise(mp_str line)
{
    static const char *const starts[] = {" ", "\t", "^", "}", "Node.js v", "note: "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (mp_str_starts(line, mp_str_of(starts[i])))
            return true;
    return line.len == 0;
}

/* What a line of npm or npx says behind its prefix; empty: the line is of another program. */
static mp_str said_by_npm(mp_str line)
{
    static const char *const starts[] = {"npm error ", "npm ERR! "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (mp_str_starts(line, mp_str_of(starts[i])))
            return mp_str_from(line, strlen(starts[i]));
    return MP_STR_NONE;
}

/* npm says why in its first line that is no code, and ends with the path of a log. */
static bool is_reason_of_npm(mp_str said)
{
    static const char *const others[] = {"code ", "errno ", "syscall ", "path ", "A complete log "};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (mp_str_starts(said, mp_str_of(others[i])))
            return false;
    return said.len > 0;
}

/* The line of stderr that says why the program ended: the last one that names an error, else that of npm, else the
 * last one that is no noise, else the last. */
static mp_str telling_line(const connection *it)
{
    mp_str named = MP_STR_NONE, plain = MP_STR_NONE, last = MP_STR_NONE, of_npm = MP_STR_NONE, line;
    for (size_t i = 0; (line = mp_process_error_line(it->process, i)).ptr != NULL; i++) {
        last = line;
        mp_str said = said_by_npm(line);
        if (of_npm.len == 0 && is_reason_of_npm(said))
            of_npm = line;
        if (said.len > 0)
            continue;
        if (!is_noise(line))
            plain = line;
        if (!is_noise(line) && names_error(line))
            named = line;
    }
    return named.len > 0 ? named : of_npm.len > 0 ? of_npm : plain.len > 0 ? plain : last;
}

static void on_ended(void *ctx)
{
    connection *it = ctx;
    char why[sizeof((mp_upstream_failure *)0)->why];
    mp_str text = mp_process_why(it->process), line = telling_line(it);
    bool has_failed = mp_process_how(it->process) == MP_PROCESS_FAILED;
    if (line.len > 0)
        snprintf(why, sizeof why, "the program ended: %.*s: %.*s", MP_STR_ARG(text), MP_STR_ARG(line));
    else
        snprintf(why, sizeof why, "%s%.*s", has_failed ? "" : "the program ended: ", MP_STR_ARG(text));
    end_by_itself(it, has_failed ? MP_FAILURE_REFUSED : MP_FAILURE_CLOSED, why, false);
}

/* -- messages from the program ------------------------------------------------------------------------------------- */

static void on_started(void *ctx)
{
    connection *it = ctx;
    it->is_started = true;
    hand_over(it);
}

static void on_line(void *ctx, mp_str line)
{
    connection *it = ctx;
    end_probe(it);
    if (mp_channel_message(it->channel, line)) {
        it->noise = 0;
        return;
    }
    mp_stat_add(&mp_stat_dropped_noise, 1);
    mp_log(MP_DEBUG, "the upstream's program printed a line that is no message",
           mp_log_str("upstream", mp_str_of(it->channel->upstream->name)), mp_log_str("text", line));
    if (++it->noise == MAX_NOISE)
        end_by_itself(it, MP_FAILURE_UNREADABLE,
                      "the program printed lines that are no JSON-RPC messages, more in a row than "
                      "may be, 200",
                      true);
}

static void on_long(void *ctx)
{
    end_by_itself(ctx, MP_FAILURE_TOO_LARGE, "the program printed a line above limits.upstreams.answer", true);
}

/* Programs on python-sdk 1.x write a hundred lines about a request that they do not know. These lines are logged at
 * debug, since the program is healthy; the last ones are kept in case it ends. */
static void on_error_line(void *ctx, mp_str line)
{
    const connection *it = ctx;
    mp_log(it->is_probed ? MP_DEBUG : MP_INFO, "upstream printed to stderr",
           mp_log_str("upstream", mp_str_of(it->channel->upstream->name)), mp_log_str("text", line));
}

static bool is_busy(connection *it)
{
    mp_upstream *upstream = it->channel->upstream;
    MP_LOCKED(&upstream->lock);
    return it->channel->running > 0;
}

/* Ends a program above its limit of memory as soon as nothing runs on it, and one a quarter above the limit at once. */
static void on_measured(void *ctx)
{
    connection *it = ctx;
    size_t most = it->channel->part->it.memory;
    mp_process_usage usage = mp_process_usage_of(it->process);
    note_memory(it, usage.memory);
    note_pid(it, usage.pid);
    if (most == 0 || it->memory <= most || (it->memory <= most + most / 4 && is_busy(it)))
        return;
    char why[120];
    snprintf(why, sizeof why, "the program used %llu MiB of memory, and process.memory is %llu MiB",
             (unsigned long long)it->memory >> 20, (unsigned long long)most >> 20);
    end_by_itself(it, MP_FAILURE_CLOSED, why, false);
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static int start_process(connection *it, mp_err *err)
{
    static const mp_process_hooks hooks = {.on_started = on_started,
                                           .on_line = on_line,
                                           .on_long = on_long,
                                           .on_error_line = on_error_line,
                                           .on_measured = on_measured,
                                           .on_ended = on_ended,
                                           .on_gone = on_gone};
    const mp_upstream_part *part = it->channel->part;
    char *hops = mp_upstreams_hops_variable(it->channel->upstream->table);
    if (hops == NULL)
        return mp_err_set(err, "8 gateways already run each other (a loop): this one does not start another program");
    size_t count = mp_count_texts(part->it.env);
    const char **env = mp_new((count + 2) * sizeof *env);
    for (size_t i = 0; i < count; i++)
        env[i] = part->it.env[i];
    env[count] = hops;
    mp_process_command command = {.argv = (const char *const *)part->it.argv,
                                  .env = env,
                                  .folder = part->it.cwd,
                                  .longest_line = part->limits.answer,
                                  .holder = mp_holder_number(part->it.name, strlen(part->it.name)),
                                  .most_queued = MAX_QUEUED,
                                  .stall_ms = part->it.timeout_ms,
                                  .stall_bytes = STALL_BYTES,
                                  .measure_ms = MEASURE_MS,
                                  .grace_ms = GRACE_MS};
    mp_process *process = mp_process_start(it->host->loop, &command, &hooks, it, err);
    free(env);
    free(hops);
    if (process == NULL)
        return -1;
    it->process = process;
    return 0;
}

/* Starts the process of a channel. NULL: the exchange has failed. */
static connection *MP_NULLABLE connect_channel(mp_channel *channel, mp_own_exchange *exchange)
{
    mp_failure_reason reason;
    int64_t retry_ms;
    mp_err err = {"", ""};
    if (!mp_channel_may_start(channel, &reason, &retry_ms)) {
        mp_upstream_failure failure =
            mp_upstream_failure_of(reason, false, "limits.upstreams.processes programs run already");
        if (retry_ms >= 0)
            mp_upstream_put_ends(channel->upstream, &failure);
        failure.retry_after_ms = retry_ms;
        mp_exchange_fail(exchange, failure);
        return NULL;
    }
    connection *it = mp_new(sizeof *it);
    it->host = channel->worker;
    it->channel = mp_channel_ref(channel);
    if (start_process(it, &err) == 0) {
        mp_link_put(&it->host->processes, &it->link);
        channel->connection = it;
        return it;
    }
    mp_upstream_ended_by_itself(channel->upstream, err.text);
    on_gone(it);
    mp_exchange_fail_with(exchange, MP_FAILURE_REFUSED, err.text);
    return NULL;
}

/* -- the transport ------------------------------------------------------------------------------------------------- */

static void send_exchange(mp_own_exchange *exchange)
{
    mp_channel *channel = exchange->super.channel;
    connection *it = channel->connection;
    if (it == NULL && !channel->is_closed) {
        it = connect_channel(channel, exchange);
        if (it == NULL)
            return;
    }
    if (it == NULL || it->is_over) {
        mp_exchange_fail_with(exchange, MP_FAILURE_CLOSED, "the program has ended");
        return;
    }
    place *last = mp_new(sizeof *last);
    last->exchange = mp_exchange_ref(exchange);
    exchange->request = last;
    mp_link_put(&it->waiting, &last->link);
    hand_over(it);
}

static void say_message(mp_own_exchange *exchange, mp_str message, MP_UNUSED bool is_reply)
{
    connection *it = exchange->super.channel->connection;
    if (it != NULL && !it->is_over)
        send_line(it, message);
}

static void leave_exchange(mp_own_exchange *exchange)
{
    if (exchange->request != NULL)
        free_place(exchange->request);
}

static void close_connection(connection *it)
{
    if (!it->is_over) {
        it->is_over = true;
        mp_channel_fail_all(it->channel, MP_FAILURE_CLOSED, "the channel was closed");
        mp_process_leave(it->process, false);
    }
    while (!mp_link_is_alone(&it->waiting)) /* exchanges of tasks on other workers, which learn of the end later */
        free_place(mp_container(it->waiting.next, place, link));
    it->channel->connection = NULL;
    free_if_done(it);
}

static void close_channel(mp_channel *channel, MP_UNUSED bool is_lost)
{
    connection *it = channel->connection;
    channel->is_closed = true;
    mp_channel_release_place(channel);
    if (it != NULL)
        close_connection(it);
    mp_channel_drop_exchanges(channel);
}

static bool turn_host(mp_upstream_host *host)
{
    bool did = false;
    for (mp_link *link = mp_link_first(&host->processes); link != &host->processes; link = link->next)
        did = hand_over(mp_container(link, connection, link)) || did;
    return did;
}

static bool has_work(const mp_upstream_host *host)
{
    bool found = false;
    for (const mp_link *link = mp_link_first(&host->processes); link != &host->processes && !found; link = link->next)
        found = can_hand_over(mp_container(link, const connection, link));
    return found;
}

static bool end_host(mp_upstream_host *host)
{
    return mp_link_is_alone(&host->processes);
}

static void free_host(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->processes)) {
        connection *it = mp_container(host->processes.next, connection, link);
        mp_channel *channel = mp_channel_ref(it->channel);
        if (is_open(it)) {
            it->is_over = true;
            mp_channel_fail_all(channel, MP_FAILURE_STOPPED, "the gateway stops");
        }
        if (!it->is_gone) {
            mp_process_forget(it->process, true);
            it->is_gone = true;
            mp_upstream_stopped(it->channel->upstream);
        }
        if (is_open(it))
            close_channel(channel, true);
        else
            free_if_done(it);
        mp_channel_unref(channel);
    }
}

const mp_upstream_transport mp_upstream_stdio = {.name = "stdio",
                                                 .one_worker = true,
                                                 .send = send_exchange,
                                                 .say = say_message,
                                                 .leave = leave_exchange,
                                                 .close = close_channel,
                                                 .turn = turn_host,
                                                 .has_work = has_work,
                                                 .end_host = end_host,
                                                 .free_host = free_host};
