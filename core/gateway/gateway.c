/* gateway.c: builds the house, waits for signals, takes it down again. Scripts are proven and addresses bound before any
 * thread starts, so a gateway that cannot serve has served nobody. */
#define _GNU_SOURCE
#include "gateway.h"
#include "exposure.h"
#include "reload.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_CONFIG 78

typedef struct {
    mp_address address;
    int *fds; /* one per worker; -1 once taken over */
    int count;
    mp_tls_slot *tls;
} listener;

typedef struct {
    mp_shared shared;
    mp_worker **workers;
    int worker_count;
    listener *listeners; /* the last is the admin's, if there is one */
    int listener_count;
    bool has_admin;
    bool on_stdio;
    int in, out; /* the client's, on stdio; -1 once taken over */
} house;

static void print_err(const mp_err *err)
{
    fprintf(stderr, "moonpool: %s\n", err->text);
    if (err->hint[0] != '\0')
        fprintf(stderr, "  hint: %s\n", err->hint);
}

/* Whoever rotates the file has moved it away. */
static void open_audit_again(const mp_config *config)
{
    mp_err err;
    if (config->audit != NULL && mp_audit_open(config->audit, &err) != 0)
        mp_log(MP_ERROR, "audit goes on as it was", mp_log_str("why", mp_str_of(err.text)));
}

static void print_report(const mp_buf *report)
{
    fprintf(stderr, "%.*s", MP_STR_ARG(mp_buf_str(report)));
    if (report->len > 0 && report->ptr[report->len - 1] != '\n')
        fputc('\n', stderr);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* -- scripts ------------------------------------------------------------------------------------------------------- */

/* Whether they leave nobody in who was not meant: else it has been said. */
static bool is_exposed(const mp_config *config, const mp_vm *vm)
{
    mp_buf report = {0};
    bool exposed = mp_exposure_check(config, vm, &report) != 0;
    if (exposed)
        print_report(&report);
    mp_buf_clear(&report);
    return exposed;
}

/* Reads the scripts and proves them in a VM, which the first worker then uses. NULL when they are wrong: it has been said. */
static mp_vm *prove(const mp_settings *settings, mp_source **source)
{
    mp_err err;
    mp_buf report = {0};
    *source = mp_source_read(settings->config->scripts_path, &err);
    if (*source == NULL) {
        print_err(&err);
        return NULL;
    }
    mp_vm *vm = mp_vm_new(*source, &settings->vm, &report);
    if (vm == NULL) {
        print_report(&report);
        mp_source_unref(*source);
    }
    mp_buf_clear(&report);
    return vm;
}

/* Reads the files that TLS needs. NULL when they are wrong: it has been said, like what is doubtful. */
static mp_certificates *read_certificates(const mp_config *config, bool listens)
{
    mp_buf report = {0};
    mp_certificates *certificates = mp_certificates_new(config, listens, &report);
    if (report.len > 0)
        print_report(&report);
    mp_buf_clear(&report);
    return certificates;
}

int mp_gateway_check(mp_config *config, const char *form)
{
    mp_certificates *certificates = read_certificates(config, true);
    int code = certificates == NULL ? EXIT_CONFIG : 0;
    mp_certificates_free(certificates);
    mp_source *source;
    mp_commons commons = {0};
    mp_commons_open(&commons, config);
    mp_settings *settings = mp_settings_new(config, &commons);
    mp_vm *vm = prove(settings, &source);
    if (vm == NULL || is_exposed(config, vm))
        code = EXIT_CONFIG;
    if (vm != NULL) {
        mp_buf out = {0}, doubts = {0};
        mp_vm_describe(vm, form, &out, &doubts);
        printf("%.*s", MP_STR_ARG(mp_buf_str(&out)));
        if (doubts.len > 0)
            print_report(&doubts);
        mp_buf_clear(&out);
        mp_buf_clear(&doubts);
        mp_vm_free(vm);
        mp_source_unref(source);
    }
    mp_commons_close(&commons);
    mp_settings_free(settings);
    return code;
}

int mp_gateway_bench(const char *command, const mp_bench_argument *arguments, size_t count)
{
    return mp_bench_run(command, arguments, count);
}

/* -- addresses ----------------------------------------------------------------------------------------------------- */

static int bind_one(house *h, const char *where, mp_tls_slot *tls, int count, mp_err *err)
{
    listener *one = &h->listeners[h->listener_count];
    one->fds = mp_new((size_t)count * sizeof *one->fds);
    one->count = count;
    one->tls = tls;
    if (mp_listen(where, count, h->shared.settings->config->dead_peer, one->fds, &one->address, err) != 0) {
        free(one->fds);
        return -1;
    }
    h->listener_count++;
    return 0;
}

static int bind_all(house *h, mp_err *err)
{
    const mp_config *config = h->shared.settings->config;
    const mp_certificates *certificates = h->shared.certificates;
    size_t count = 0;
    while (config->listen[count] != NULL)
        count++;
    h->listeners = mp_new((count + 1) * sizeof *h->listeners);
    for (size_t i = 0; i < count; i++)
        if (bind_one(h, config->listen[i], mp_certificates_of(certificates, i), h->worker_count, err) != 0)
            return -1;
    if (config->admin_listen != NULL &&
        bind_one(h, config->admin_listen, mp_certificates_of_admin(certificates), 1, err) != 0)
        return -1;
    h->has_admin = config->admin_listen != NULL;
    return 0;
}

/* Hands every worker its descriptors; the admin's belong to the first. */
static int hand_out(house *h, mp_err *err)
{
    for (int i = 0; i < h->listener_count; i++) {
        bool is_admin = h->has_admin && i == h->listener_count - 1;
        listener *one = &h->listeners[i];
        for (int k = 0; k < one->count; k++) {
            int fd = one->fds[k];
            one->fds[k] = -1;
            if ((is_admin ? mp_worker_listen_admin : mp_worker_listen)(h->workers[k], fd, one->tls, err) != 0)
                return -1;
        }
    }
    return 0;
}

/* -- stdio --------------------------------------------------------------------------------------------------------- */

/* Keeps the client's two descriptors to ourselves: what scripts and libraries read is empty, what they print is a log. */
static int take_stdio(house *h, mp_err *err)
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
        fputs("moonpool: an MCP server, for a client to start: a JSON message a line; Ctrl-D ends it\n", stderr);
    return 0;
}

static int hand_out_stdio(house *h, mp_err *err)
{
    int in = h->in, out = h->out;
    h->in = h->out = -1;
    return mp_worker_serve_pipe(h->workers[0], in, out, err);
}

/* -- serving ------------------------------------------------------------------------------------------------------- */

static int start_workers(house *h, mp_vm *first, mp_err *err)
{
    for (int i = 0; i < h->worker_count; i++) {
        h->workers[i] = mp_worker_new(&h->shared, i == 0 ? first : NULL, err);
        if (h->workers[i] == NULL)
            return -1;
    }
    if ((h->on_stdio ? hand_out_stdio : hand_out)(h, err) != 0)
        return -1;
    for (int i = 0; i < h->worker_count; i++)
        if (mp_worker_start(h->workers[i], err) != 0)
            return -1;
    mp_buf report = {0};
    int failed = 0;
    for (int i = 0; i < h->worker_count && failed == 0; i++)
        failed = mp_worker_await(h->workers[i], &report);
    if (failed != 0)
        mp_err_set(err, "a worker cannot load the scripts: %.*s", MP_STR_ARG(mp_buf_str(&report)));
    mp_buf_clear(&report);
    return failed;
}

static void say_ready(const house *h, int ready_fd)
{
    const mp_config *config = h->shared.settings->config;
    mp_buf line = {0};
    mp_buf_put(&line, MP_STR("ready"));
    const mp_address *first = h->on_stdio ? NULL : &h->listeners[0].address;
    const char *scheme = first == NULL || first->is_unix ? "" : h->listeners[0].tls == NULL ? "http://" : "https://";
    if (first == NULL)
        mp_buf_put(&line, MP_STR(" stdio"));
    if (first != NULL && config->endpoint_mcp != NULL)
        mp_buf_printf(&line, " mcp=%s%s%s", scheme, first->text, config->endpoint_mcp);
    if (first != NULL && config->endpoint_sse != NULL)
        mp_buf_printf(&line, " sse=%s%s%s", scheme, first->text, config->endpoint_sse);
    if (h->has_admin) {
        const listener *admin = &h->listeners[h->listener_count - 1];
        mp_buf_printf(&line, " admin=%s%s",
                      admin->address.is_unix ? ""
                      : admin->tls == NULL   ? "http://"
                                             : "https://",
                      admin->address.text);
    }
    mp_buf_printf(&line, " pid=%d\n", (int)getpid());
    if (ready_fd >= 0) {
        ssize_t written = write(ready_fd, line.ptr, line.len);
        (void)written; /* whoever asked and did not wait */
        close(ready_fd);
    }
    mp_buf_clear(&line);
    for (int i = 0; i < h->listener_count; i++)
        mp_log(h->shared.own_level, "listening", mp_log_str("address", mp_str_of(h->listeners[i].address.text)),
               mp_log_str("for", h->has_admin && i == h->listener_count - 1 ? MP_STR("admin") : MP_STR("mcp")));
    mp_log(h->shared.own_level, "serving", mp_log_int("workers", h->worker_count),
           mp_log_str("scripts", mp_str_of(config->scripts_path)));
}

static void on_signal(house *h, int number)
{
    if (number == SIGHUP) {
        mp_certificates_now(h->shared.certificates);
        open_audit_again(h->shared.settings->config);
        mp_reload_now(h->shared.reload, "SIGHUP");
        return;
    }
    bool again = atomic_exchange(&h->shared.draining, true);
    mp_log(h->shared.own_level, again ? "stopping now" : "draining", mp_log_int("signal", number));
    for (int i = 0; i < h->worker_count; i++)
        (again ? mp_worker_stop : mp_worker_drain)(h->workers[i]);
}

static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
enum { SIGNALS = sizeof signals / sizeof *signals };
static volatile sig_atomic_t came[NSIG]; /* since serve looked */

static void note_signal(int number)
{
    came[number] = 1;
}

/* They are blocked but for where serve waits. No signalfd: whoever waits for one is woken by each signal of each thread, and
 * workers have an alarm (script/preempt.h). */
static void block_signals(sigset_t *while_waiting)
{
    struct sigaction action = {.sa_handler = note_signal};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&set, signals[i]);
    pthread_sigmask(SIG_BLOCK, &set, while_waiting);
    for (int i = 0; i < SIGNALS; i++) {
        sigdelset(while_waiting, signals[i]);
        sigaction(signals[i], &action, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of whoever writes it */
}

/* Until every worker has ended. */
static void serve(house *h, const sigset_t *while_waiting)
{
    for (int running = h->worker_count; running > 0;) {
        mp_reload_wait next = mp_reload_next(h->shared.reload);
        int certificates_fd =
            atomic_load(&h->shared.draining) ? -1 : mp_certificates_next(h->shared.certificates, &next.wait_ms);
        struct pollfd fds[] = {{.fd = h->shared.ended_fd, .events = POLLIN},
                               {.fd = next.fds[0], .events = POLLIN},
                               {.fd = next.fds[1], .events = POLLIN},
                               {.fd = certificates_fd, .events = POLLIN}};
        struct timespec most = {next.wait_ms / 1000, next.wait_ms % 1000 * 1000000L};
        int ready = ppoll(fds, sizeof fds / sizeof *fds, next.wait_ms < 0 ? NULL : &most, while_waiting);
        for (int i = 0; i < SIGNALS; i++)
            if (came[signals[i]]) {
                came[signals[i]] = 0;
                on_signal(h, signals[i]);
            }
        uint64_t ended;
        if (ready > 0 && (fds[0].revents & POLLIN) &&
            read(h->shared.ended_fd, &ended, sizeof ended) == (ssize_t)sizeof ended)
            running -= (int)ended;
        bool may_reload = !atomic_load(&h->shared.draining);
        mp_reload_run(h->shared.reload, may_reload);
        if (may_reload)
            mp_certificates_run(h->shared.certificates);
    }
}

static void take_down(house *h)
{
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_join(h->workers[i]);
    mp_pool_stop();
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_unwind(h->workers[i]);
    mp_table_free(h->shared.table);
    for (int i = 0; i < h->worker_count && h->workers[i] != NULL; i++)
        mp_worker_free(h->workers[i]);
    for (int i = 0; i < h->listener_count; i++) {
        mp_unlisten(&h->listeners[i].address, h->listeners[i].fds, h->listeners[i].count);
        free(h->listeners[i].fds);
    }
    free(h->listeners);
    free(h->workers);
    mp_certificates_free(h->shared.certificates);
    mp_reload_free(h->shared.reload);
    mp_source_unref(h->shared.source);
    mp_settings_free(h->shared.settings);
    mp_commons_close(&h->shared.commons);
    close(h->shared.ended_fd);
    if (h->in >= 0)
        close(h->in);
    if (h->out >= 0)
        close(h->out);
}

/* A descriptor per client: take what the system allows us. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* What a large body took goes back to the system when it is over. Left alone, glibc would learn from it to keep as much for
 * each thread. And freed blocks are joined at once: else a few hundred thousand wait for one that is large, which joins them
 * all while everybody waits. */
static void keep_memory_small(void)
{
    mallopt(M_MXFAST, 0);
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 512 << 10);
}

int mp_gateway_run(mp_config *config, const mp_gateway_options *options)
{
    house h = {.worker_count = options->on_stdio ? 1 : (int)config->workers,
               .on_stdio = options->on_stdio,
               .in = -1,
               .out = -1};
    mp_err err = {0};
    if (h.on_stdio && take_stdio(&h, &err) != 0) {
        mp_config_free(config);
        print_err(&err);
        return EXIT_FAILED;
    }
    keep_memory_small();
    h.shared.certificates = read_certificates(config, !h.on_stdio);
    if (h.shared.certificates == NULL) {
        mp_config_free(config);
        return EXIT_CONFIG;
    }
    h.shared.started_at = now_ms();
    h.shared.own_level = options->is_apart ? MP_DEBUG : MP_INFO;
    h.shared.commons.has_specs = options->has_specs;
    mp_commons_open(&h.shared.commons, config);
    h.shared.settings = mp_settings_new(config, &h.shared.commons);
    if (!options->is_apart && mp_store_keep(h.shared.commons.store, config->store_file, &err) != 0) {
        print_err(&err);
        mp_certificates_free(h.shared.certificates);
        mp_settings_free(h.shared.settings);
        mp_commons_close(&h.shared.commons);
        return EXIT_FAILED;
    }
    mp_vm *first = prove(h.shared.settings, &h.shared.source);
    if (first != NULL && !h.on_stdio && is_exposed(config, first)) {
        mp_vm_free(first);
        mp_source_unref(h.shared.source);
        first = NULL;
    }
    if (first == NULL) {
        mp_certificates_free(h.shared.certificates);
        mp_settings_free(h.shared.settings);
        mp_commons_close(&h.shared.commons);
        return EXIT_CONFIG;
    }
    mp_pool_start(config->pool_threads, config->pool_queue);
    h.shared.reload = mp_reload_new(&h.shared, options, first);
    raise_descriptor_limit();
    sigset_t while_waiting;
    block_signals(&while_waiting);
    h.shared.ended_fd = eventfd(0, EFD_CLOEXEC);
    h.shared.table = mp_table_new(&h.shared.settings->rpc);
    h.workers = mp_new((size_t)h.worker_count * sizeof *h.workers);

    int code = 0;
    if ((config->audit != NULL && mp_audit_open(config->audit, &err) != 0) ||
        (!h.on_stdio && bind_all(&h, &err) != 0)) {
        mp_vm_free(first);
        code = EXIT_FAILED;
    } else {
        mp_log_start(config->log_level);
        if (!h.on_stdio)
            mp_exposure_warn(config, first);
        if (start_workers(&h, first, &err) != 0) {
            for (int i = 0; i < h.worker_count && h.workers[i] != NULL; i++)
                mp_worker_stop(h.workers[i]);
            code = EXIT_FAILED;
        } else {
            mp_certificates_watch(h.shared.certificates);
            mp_reload_start(h.shared.reload, h.workers, h.worker_count);
            say_ready(&h, options->ready_fd);
            serve(&h, &while_waiting);
        }
    }
    if (atomic_load(&h.shared.failed))
        code = EXIT_FAILED;
    take_down(&h);
    mp_audit_close();
    if (code == 0)
        mp_log(h.shared.own_level, "stopped");
    mp_log_stop();
    if (err.text[0] != '\0')
        print_err(&err);
    return code;
}
