/* gateway.c: starts the threads of the process, waits until the workers have ended, and frees everything. All
 * workers have loaded the scripts and all addresses are bound before any worker serves. */
#define _GNU_SOURCE
#include "gateway.h"
#include "gateway/certificates/certificates.h"
#include "gateway/upgrade/hop.h"
#include "config/config.h"
#include "gateway/listeners/listeners.h"
#include "notify.h"
#include "gateway/reload/reload.h"
#include "gateway/start/start.h"
#include "postgres/postgres.h"
#include "traces.h"
#include "trim.h"
#include "gateway/upgrade/upgrade.h"
#include "for_admin.h"
#include "watchdog.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_CONFIG 78
#define FLUSH_MS 3000 /* for the spans that wait when the gateway ends */
#define MIN_FLUSH_MS 100
#define NAP_MS 5
#define BLIND_MS 10 /* between two looks at what is ready where the system does not tell */

typedef struct {
    mp_worker_shared shared;
    mp_worker **workers;
    int worker_count;
    mp_passed passed; /* listening sockets of other processes */
    mp_listeners listeners;
    mp_admin *MP_NULLABLE admin; /* NULL: there is no admin listener */
    bool on_stdio;
    int in, out; /* the client's descriptors on stdio; -1 once handed over */
    mp_start start;
} gateway;

static void print_err(const mp_err *err)
{
    fprintf(stderr, "moonpool: %s\n", err->text);
    if (err->hint[0] != '\0')
        fprintf(stderr, "  hint: %s\n", err->hint);
}

/* Opens the files of the log and of the audit again, since another program may have moved them away. */
static void open_files_again(const mp_config *config)
{
    mp_err err;
    if (mp_log_has_file() && config->log_file != NULL && mp_log_open(config->log_file, &err) != 0)
        mp_log(MP_ERROR, "log file not reopened", mp_log_str("why", mp_str_of(err.text)));
    if (mp_audit_is_on() && config->audit != NULL && mp_audit_open(config->audit, &err) != 0)
        mp_log(MP_ERROR, "audit file not reopened", mp_log_str("why", mp_str_of(err.text)));
}

/* Opens the files of the log and of the audit, before threads write to them. -1 if one of them cannot be opened. */
static int open_files(const mp_config *config, mp_err *err)
{
    mp_audit_sample(strtod(config->audit_sample, NULL));
    if (config->log_file != NULL && mp_log_open(config->log_file, err) != 0)
        return -1;
    return config->audit == NULL ? 0 : mp_audit_open(config->audit, err);
}

static int add_upstreams(const char *path, mp_str entries, const char *const *names, mp_buf *MP_NULLABLE out,
                         mp_buf *report)
{
    if (out == NULL)
        return mp_config_add_upstreams_to_file(path, entries, names, report);
    mp_scoped_buf text = {0};
    int result = mp_config_read_file(path, &text) == 0 || errno == ENOENT ? 0 : -1;
    if (result != 0)
        mp_buf_printf(report, "%s: cannot read the configuration: %s\n", path, strerror(errno));
    else
        result = mp_config_add_upstreams(mp_buf_str(&text), path, entries, names, out, report);
    return result;
}

static void put_upstreams(const char *path, mp_buf *out)
{
    mp_scoped_buf text = {0}, report = {0};
    mp_config *config =
        mp_config_read_file(path, &text) == 0 ? mp_config_parse_unexpanded(mp_buf_str(&text), path, &report) : NULL;
    for (mp_upstream_entry **one = config == NULL ? NULL : config->upstreams; one != NULL && *one != NULL; one++)
        mp_buf_printf(out, "%s\n", (*one)->core.name);
    mp_config_free(config);
}

int mp_gateway_workbench(const char *command, const mp_workbench_argument *arguments, size_t count)
{
    static const mp_workbench_tools tools = {add_upstreams, put_upstreams, mp_config_replace_file};
    return mp_workbench_run(command, arguments, count, &tools);
}

/* -- stdio --------------------------------------------------------------------------------------------------------- */

/* Moves the client's two descriptors to private numbers. For scripts and libraries stdin is empty, and stdout goes
 * to stderr. */
static int take_stdio(gateway *h, mp_err *err)
{
    h->in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    h->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (h->in < 0 || h->out < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        mp_err_set(err, "cannot use stdin and stdout: %s", strerror(errno));
        return -1;
    }
    close(nothing);
    if (isatty(h->in))
        fputs("moonpool: an MCP server on stdin and stdout, to be started by a client: one JSON message per line; "
              "Ctrl-D ends it\n",
              stderr);
    return 0;
}

static int hand_out_stdio(gateway *h, mp_err *err)
{
    int in = h->in, out = h->out;
    h->in = h->out = -1;
    return mp_worker_serve_pipe(h->workers[0], in, out, err);
}

/* -- serving ------------------------------------------------------------------------------------------------------- */

static int await_workers(gateway *h, mp_err *err)
{
    mp_scoped_buf report = {0};
    int failed = 0;
    for (int i = 0; i < h->worker_count && failed == 0; i++)
        failed = mp_worker_await(h->workers[i], &report);
    if (failed != 0)
        mp_err_set(err, "a worker cannot load the scripts: %.*s", MP_STR_ARG(mp_buf_str(&report)));
    return failed;
}

/* Loads the scripts in every worker before any worker listens, so that no connection waits for loading. */
static int start_workers(gateway *h, mp_vm *first, mp_err *err)
{
    for (int i = 0; i < h->worker_count; i++) {
        h->workers[i] = mp_worker_new(&h->shared, i == 0 ? first : NULL, i, err);
        if (h->workers[i] == NULL)
            return -1;
    }
    for (int i = 0; i < h->worker_count; i++)
        if (mp_worker_start(h->workers[i], err) != 0)
            return -1;
    if (await_workers(h, err) != 0)
        return -1;
    if (h->on_stdio)
        return hand_out_stdio(h, err);
    const mp_admin_gateway for_admin = mp_gateway_for_admin(&h->shared);
    if (mp_listeners_bind(&h->listeners, h->shared.settings->config, h->shared.certificates, &h->passed,
                          h->worker_count, err) != 0 ||
        mp_listeners_hand_out(&h->listeners, h->workers, h->worker_count, &for_admin, &h->admin, err) != 0)
        return -1;
    mp_workers_balance(h->workers, h->worker_count);
    mp_admin *admin = h->admin;
    if (admin != NULL && atomic_load(&h->shared.is_on_trial))
        mp_admin_hold(admin, true);
    return admin == NULL ? 0 : mp_admin_start(admin, err);
}

/* This process, which an upgrade has begun, is the newest one. */
static void on_committed(void *ctx)
{
    gateway *h = ctx;
    mp_admin *admin = h->admin;
    mp_listeners_ready(&h->listeners, h->shared.settings->config);
    if (admin != NULL)
        mp_admin_hold(admin, false);
    mp_lib_allow_schedules(true);
    mp_reload_commit(h->shared.reload);
}

/* Writes the ready line to `ready_fd`, as the last step: the log then has all lines of the start. */
static void say_ready(gateway *h, int ready_fd)
{
    const mp_config *config = h->shared.settings->config;
    mp_listeners_log(&h->listeners, h->shared.own_level);
    if (!h->on_stdio && !atomic_load(&h->shared.is_on_trial)) {
        mp_listeners_ready(&h->listeners, config);
        mp_admin *admin = h->admin;
        if (admin != NULL)
            mp_listeners_show_dashboard(&h->listeners, config, admin);
    }
    mp_log(h->shared.own_level, "serving", mp_log_int("workers", h->worker_count),
           mp_log_str("scripts", mp_str_of(config->scripts_path)));
    if (ready_fd < 0)
        return;
    mp_scoped_buf line = {0};
    mp_buf_put(&line, h->on_stdio ? MP_STR("ready stdio") : MP_STR("ready"));
    if (!h->on_stdio)
        mp_listeners_put_ready(&h->listeners, config, &line);
    mp_buf_printf(&line, " pid=%d\n", (int)getpid());
    ssize_t written = write(ready_fd, line.ptr, line.len);
    (void)written; /* the reader has closed the pipe */
    close(ready_fd);
}

static void on_hangup(gateway *h)
{
    mp_notify_reloading();
    mp_certificates_now(h->shared.certificates);
    open_files_again(h->shared.settings->config);
    mp_reload_now(h->shared.reload, "SIGHUP");
}

/* How long this process waits for older ones, which have work that ends within limits.drain, and hand its changes to
 * the store of this one. */
static int older_ms(const gateway *h)
{
    uint64_t end_at = atomic_load(&h->shared.end_at), now = mp_monotonic_ms() + MP_ENDING_MS;
    return mp_upgrade_has_older(h->shared.upgrade) && now < end_at ? (int)(end_at - now) : 0;
}

/* Runs the main loop until every worker has ended. */
static void serve_gateway(gateway *h)
{
    mp_watchdog *watchdog = h->shared.watchdog;
    bool is_stopping = false;
    mp_trim trim = {0};
    mp_trim_look(&trim, mp_monotonic_ms());
    for (int running = h->worker_count; running > 0 || older_ms(h) > 0;) {
        mp_reload_wait next = mp_reload_next(h->shared.reload);
        int certificates_fd =
            atomic_load(&h->shared.draining) ? -1 : mp_certificates_next(h->shared.certificates, &next.wait_ms);
        struct pollfd fds[6 + MP_UPGRADE_FDS] = {
            {.fd = h->shared.ended_fd, .events = POLLIN}, {.fd = mp_watchdog_fd(watchdog), .events = POLLIN},
            {.fd = next.fds[0], .events = POLLIN},        {.fd = next.fds[1], .events = POLLIN},
            {.fd = next.fds[2], .events = POLLIN},        {.fd = certificates_fd, .events = POLLIN}};
        int others = mp_upgrade_next(h->shared.upgrade, fds + 6, &next.wait_ms);
        bool is_leaving = atomic_load(&h->shared.leaving) && !is_stopping;
        if (is_leaving)
            mp_notify_leaving();
        next.wait_ms = mp_notify_turn(next.wait_ms);
        if (is_leaving && (next.wait_ms < 0 || next.wait_ms > MP_NOTIFY_EXTEND_MS))
            next.wait_ms = MP_NOTIFY_EXTEND_MS;
        if (next.wait_ms < 0 || next.wait_ms > MP_TRIM_EVERY_MS)
            next.wait_ms = MP_TRIM_EVERY_MS;
        if (running == 0 && next.wait_ms > older_ms(h))
            next.wait_ms = older_ms(h);
        mp_watchdog_wait_begins(watchdog);
        /* poll refuses more entries than the limit of descriptors, which may be lowered while the process runs;
         * whatever is ready is found without it, a little later */
        if (poll(fds, (nfds_t)(6 + others), next.wait_ms) < 0 && errno == EINVAL)
            poll(NULL, 0, next.wait_ms < BLIND_MS ? next.wait_ms : BLIND_MS);
        mp_watchdog_wait_ends(watchdog);
        mp_trim_look(&trim, mp_monotonic_ms());
        if (mp_watchdog_take_hangup(watchdog) && !atomic_load(&h->shared.draining))
            on_hangup(h);
        if (mp_watchdog_take_reopen(watchdog))
            open_files_again(h->shared.settings->config);
        if (mp_watchdog_take_upgrade(watchdog))
            mp_upgrade_signal(h->shared.upgrade);
        mp_upgrade_run(h->shared.upgrade);
        if (!is_stopping && atomic_load(&h->shared.draining)) {
            is_stopping = true;
            mp_notify_stopping();
        }
        uint64_t ended;
        if (read(h->shared.ended_fd, &ended, sizeof ended) == (ssize_t)sizeof ended)
            if ((running -= (int)ended) == 0)
                mp_traces_flush();
        bool may_reload = !atomic_load(&h->shared.draining);
        mp_reload_run(h->shared.reload, may_reload);
        if (may_reload)
            mp_certificates_run(h->shared.certificates);
    }
    if (!is_stopping) /* the workers ended before this thread saw that they were to */
        mp_notify_stopping();
}

/* Frees the memory of the workers. `code`: exit code of the process if there is no time for that. */
static void take_down(gateway *h, int code)
{
    mp_watchdog_release(h->shared.watchdog);
    mp_hop_close(&h->shared);
    mp_listeners_unlink(&h->listeners, true);
    mp_admin *admin = h->admin;
    if (admin != NULL)
        mp_admin_drain(admin);
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_join(h->workers[i]);
    mp_pool_stop();
    /* tasks that wait for the store, and their streams, are freed next */
    mp_store_finish_waits(h->shared.process_state.store);
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_unwind(h->workers[i]);
    mp_watchdog_spare(h->shared.watchdog, code);
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_free_vms(h->workers[i]);
    mp_postgres_stop();
    mp_admin_free(admin); /* the admin thread uses the session table */
    mp_traces_stop();
    mp_session_table_free(h->shared.table);
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_free(h->workers[i]);
    mp_listeners_close(&h->listeners);
    free(h->workers);
    mp_reload_free(h->shared.reload);
    mp_source_unref(h->shared.source);
    close(h->shared.ended_fd);
    if (h->in >= 0)
        close(h->in);
    if (h->out >= 0)
        close(h->out);
}

/* Raises the limit of descriptors as far as the system allows: every client needs one. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Tunes malloc. Memory of large bodies is returned to the system when it is freed; otherwise glibc would adapt its
 * threshold and keep as much in each thread's arena. Freed blocks are merged at once; otherwise a few hundred
 * thousand of them are merged by one later allocation, which stalls the worker. */
static void keep_memory_small(void)
{
    mallopt(M_MXFAST, 0);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 512 << 10);
}

static void on_session_end(void *ctx, mp_str session_id)
{
    mp_upstreams_end_session(ctx, session_id);
}

/* Opens the sockets for other processes, in a process that an upgrade has begun. */
static int open_sockets(gateway *h, mp_err *err)
{
    mp_admin *MP_NULLABLE admin = h->admin;
    if (mp_processes_folder(h->shared.processes) == NULL)
        return 0;
    return mp_hop_open(&h->shared, err) != 0 || (admin != NULL && mp_admin_open_door(admin, err) != 0) ? -1 : 0;
}

/* The others would not reach this process, so that it must not become the newest one. */
static void give_up(gateway *h, const mp_err *why)
{
    mp_log(MP_ERROR, "no socket for other processes", mp_log_str("why", mp_str_of(why->text)));
    atomic_store(&h->shared.failed, true);
    mp_watchdog_end(h->shared.watchdog, "no other process can reach this one");
}

/* The time by which spans must be sent, or are dropped: within limits.drain, or soon after where calls have used it
 * up. */
static uint64_t flush_until(const mp_worker_shared *shared, uint64_t began)
{
    uint64_t end_at = atomic_load(&shared->end_at), until = began + FLUSH_MS;
    if (end_at == 0)
        return until;
    uint64_t latest = end_at > MP_ENDING_MS ? end_at - MP_ENDING_MS : 0;
    if (latest < began + MIN_FLUSH_MS)
        latest = began + MIN_FLUSH_MS;
    return until < latest ? until : latest;
}

/* All workers have ended: waits until the collector has the spans that wait, at most 3 s, and within limits.drain. */
static void finish_traces(const mp_worker_shared *shared)
{
    const struct timespec nap = {0, NAP_MS * 1000000L};
    uint64_t began = mp_monotonic_ms();
    mp_traces_flush();
    while (!mp_traces_are_flushed() && mp_monotonic_ms() < flush_until(shared, began)) {
        mp_watchdog_beat(shared->watchdog);
        nanosleep(&nap, NULL);
    }
}

/* Serves with `first` as the VM of the first worker, until all workers have ended. */
static int run_workers(gateway *h, mp_vm *first, const mp_gateway_options *options, mp_err *err)
{
    const mp_config *config = h->shared.settings->config;
    int code = 0;
    mp_pool_start();
    h->shared.reload = mp_reload_new(&h->start, first);
    raise_descriptor_limit();
    if (config->lib.cluster.name != NULL && !options->on_stdio && !options->is_apart)
        mp_processes_set_nodes(
            h->shared.processes,
            mp_nodes_new(config->lib.cluster.node_name, atomic_load(&h->shared.is_on_trial), &h->shared.leaving),
            mp_certificates_of_nodes(h->shared.certificates));
    if (config->cluster_listen != NULL)
        mp_processes_use_seal_keys(h->shared.processes, h->shared.settings->seal_keys);
    h->shared.ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->shared.table = mp_session_table_new(&h->shared.settings->rpc, h->shared.processes);
    mp_session_table_on_session_end(h->shared.table, on_session_end, h->shared.process_state.upstreams);
    if (config->store_file != NULL && !options->on_stdio && !options->is_apart)
        mp_session_table_keep(h->shared.table, h->shared.process_state.store,
                              config->forgets_sessions == MP_SESSIONS_KEPT, !atomic_load(&h->shared.is_on_trial));
    mp_upgrade_carry_news(h->shared.upgrade);
    h->workers = mp_new((size_t)h->worker_count * sizeof *h->workers);
    h->shared.workers = h->workers;
    h->shared.worker_count = h->worker_count;
    if ((!options->is_apart && config->record_file != NULL && mp_record_open(config->record_file, err) != 0) ||
        (!options->on_stdio && open_files(config, err) != 0)) {
        mp_lib_free(first);
        code = EXIT_FAILED;
    } else {
        mp_log_configure(config->log_format);
        if (options->traces)
            mp_trace_start(isatty(STDERR_FILENO) && getenv("NO_COLOR") == NULL);
        if (!options->is_apart) /* a command runs one call: its lines need no mark */
            mp_mark_set_source(mp_lib_running_marks);
        mp_log_start(config->log_level);
        bool serves = (options->is_apart || mp_traces_use(config, err) == 0) && start_workers(h, first, err) == 0;
        if (serves && !h->on_stdio) {
            mp_open_relay_warn(config, &h->passed, first); /* no thread uses this VM before its worker is released */
            mp_runtime_config_warn(h->shared.settings);
        }
        /* before the first session, for which other processes may be asked */
        bool is_reachable = !serves || open_sockets(h, err) == 0;
        for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
            mp_worker_release(h->workers[i], serves);
        if (serves) {
            mp_start_log(&h->start);
            mp_watchdog_watch(h->shared.watchdog, h->workers, h->worker_count, h->admin, &h->listeners);
            mp_certificates_watch(h->shared.certificates);
            mp_reload_start(h->shared.reload, &h->start, h->workers, h->worker_count, h->admin, &h->listeners);
            mp_start_clear(&h->start);
            say_ready(h, options->ready_fd);
            if (is_reachable)
                mp_upgrade_serve(h->shared.upgrade, &h->listeners);
            else
                give_up(h, err);
            serve_gateway(h);
            finish_traces(&h->shared);
        } else if (!atomic_load(&h->shared.draining)) {
            code = EXIT_FAILED;
        }
    }
    if (atomic_load(&h->shared.failed))
        code = EXIT_FAILED;
    take_down(h, code);
    return code;
}

static void free_passed(gateway *h)
{
    mp_passed_free(&h->passed);
    mp_upgrade_free(h->shared.upgrade);
    mp_processes_free(h->shared.processes);
    free(h->shared.process_state.handed_seal_key);
    mp_buf_clear(&h->shared.may_lack);
    if (h->shared.admin_token >= 0)
        close(h->shared.admin_token);
}

bool mp_gateway_is_successor(void)
{
    return mp_upgrade_is_joining();
}

/* Takes the sockets and facts that an earlier process of this gateway, or the service manager, passes to this one. -1
 * with the reason. */
static int take_passed(gateway *h, mp_err *err)
{
    const mp_gateway_options *options = h->start.options;
    bool listens = !h->on_stdio && !options->is_apart, is_joining = listens && mp_upgrade_is_joining();
    if (listens && !is_joining)
        mp_passed_read(&h->passed); /* before another descriptor is opened */
    h->shared.processes = mp_processes_new();
    h->shared.admin_token = -1;
    h->shared.upgrade = mp_upgrade_new(&h->shared, options, on_committed, h);
    if (!is_joining)
        return 0;
    mp_lib_allow_schedules(false);
    return mp_upgrade_join(h->shared.upgrade, &h->passed, err);
}

static void beat(void *MP_NULLABLE watchdog)
{
    mp_watchdog_beat(MP_NEVER_NULL(watchdog));
}

int mp_gateway_run(mp_config *MP_NULLABLE config, const mp_gateway_options *options)
{
    gateway h = {.on_stdio = options->on_stdio, .in = -1, .out = -1, .start = {.options = options}};
    mp_err err = {0};
    int code = EXIT_FAILED;
    h.start.shared = &h.shared;
    h.shared.process_state.passed = &h.passed;
    h.shared.started_at = mp_monotonic_ms();
    if (take_passed(&h, &err) != 0) {
        print_err(&err);
        mp_config_free(config);
        free_passed(&h);
        return EXIT_FAILED;
    }
    if (config == NULL && (config = mp_start_find_config(&h.start)) == NULL) {
        mp_start_clear(&h.start);
        free_passed(&h);
        return EXIT_CONFIG;
    }
    h.shared.own_level = options->is_apart ? MP_DEBUG : MP_INFO;
    h.shared.process_state.has_specs = options->has_specs;
    h.shared.process_state.is_replay = options->is_replay;
    h.shared.process_state.is_apart = options->is_apart;
    mp_watchdog *watchdog = mp_watchdog_start(&h.shared, config, &err);
    if (watchdog == NULL || (h.on_stdio && take_stdio(&h, &err) != 0)) {
        mp_config_free(config);
    } else {
        h.shared.watchdog = watchdog;
        h.start.beat = (mp_certificate_beat){beat, watchdog};
        keep_memory_small();
        mp_vm *first = mp_start_load(&h.start, config, &code, &err);
        if (first != NULL) {
            /* uses the configuration that serves, which may be the last good one */
            mp_watchdog_configure(watchdog, h.shared.settings->config);
            h.worker_count = h.on_stdio ? 1 : (int)h.shared.settings->config->workers;
            code = run_workers(&h, first, options, &err);
            mp_upgrade_await_older(h.shared.upgrade);
            mp_process_state_close(&h.shared.process_state);
        }
    }
    free_passed(&h);
    mp_notify_end();
    mp_certificates_free(h.shared.certificates);
    mp_runtime_config_unref(h.shared.settings);
    mp_start_clear(&h.start);
    mp_audit_close();
    mp_record_file_close();
    if (code == 0)
        mp_log(h.shared.own_level, "stopped");
    mp_log_stop();
    if (watchdog != NULL)
        mp_watchdog_free(watchdog);
    if (err.text[0] != '\0' && code != 0)
        print_err(&err);
    return code;
}
