#include "reload.h"
#include "replay_gate.h"
#include "handover.h"
#include "config/config.h"
#include "status.h"
#include "gateway/terminal.h"
#include "gateway/traces.h"
#include "gateway/watchdog.h"
#include "inotify.h"
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* delay of the retry after a reload that failed for lack of descriptors or memory, or of a worker that runs */
#define RETRY_MS 1000
#define LOOK_MS 1000 /* poll interval where inotify is not available */

/* A detached VM that waits to be freed on the main thread. */
typedef struct ended_vm {
    struct ended_vm *next;
    mp_vm *vm;
} ended_vm;

struct mp_reload {
    mp_worker_shared *shared;
    const mp_gateway_options *options;
    mp_last_good_writer *MP_NULLABLE writer; /* NULL: the serving generation is not kept */
    mp_worker **workers;
    int count;
    mp_admin *MP_NULLABLE admin;         /* NULL: there is no admin listener */
    mp_listeners *MP_NULLABLE listeners; /* NULL until mp_reload_start */
    mp_inotify *MP_NULLABLE watcher;     /* NULL: files are not watched */
    bool is_unwatched;                   /* watching failed, which was logged */
    int wake_fd;
    _Atomic(const char *MP_NULLABLE) asked_by; /* cause of the latest request for a reload; NULL: none */
    mp_handover *handover;
    mp_gate *gate;
    _Atomic(ended_vm *MP_NULLABLE) ended_vms;
    int64_t generation;
    mp_source *serving;
    mp_source *tried;         /* the source that was read last, with or without errors */
    mp_buf tried_config;      /* the configuration that was read last, in canonical form; empty: it could not be read */
    mp_buf config_report;     /* the errors of the configuration that was read last */
    mp_buf unread;            /* why the scripts could not be read last; empty: they were */
    mp_buf summary;           /* summary of the tools, resources and prompts that are served */
    uint64_t retry_at;        /* when to retry a reload that failed for lack of descriptors or memory; 0: no retry */
    bool is_retry;            /* the running reload is such a retry */
    bool has_auth;            /* the serving generation has auth scripts */
    mp_runtime_config *first; /* listeners and certificates have pointers into this configuration */
    mp_reload_status outcome;
};

static const char changed[] = "files"; /* the cause that is logged for a reload that no request caused */

static void wake_reload(mp_reload *reload)
{
    uint64_t one = 1;
    while (write(reload->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

static void free_vm(mp_reload *reload, mp_vm *vm)
{
    ended_vm *one = mp_new(sizeof *one);
    one->vm = vm;
    one->next = atomic_load(&reload->ended_vms);
    while (!atomic_compare_exchange_weak(&reload->ended_vms, &one->next, one))
        continue;
    wake_reload(reload);
}

mp_reload *mp_reload_new(const mp_start *start, mp_vm *first)
{
    mp_reload *reload = mp_new(sizeof *reload);
    mp_worker_shared *shared = start->shared;
    reload->shared = shared;
    reload->options = start->options;
    reload->first = mp_runtime_config_ref(shared->settings);
    reload->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    shared->serving = reload->serving = mp_source_ref(shared->source);
    mp_source *tried = start->tried;
    reload->tried = mp_source_ref(tried == NULL ? shared->source : tried);
    reload->generation = 1;
    reload->gate = mp_gate_new();
    if (!reload->options->is_apart)
        reload->writer = mp_last_good_writer_new(reload->options->file);
    mp_buf_put(&reload->tried_config, mp_buf_str(&start->tried_config));
    if (start->is_config)
        mp_buf_put(&reload->config_report, mp_buf_str(&start->report));
    else if (tried == NULL)
        mp_buf_put(&reload->unread, mp_buf_str(&start->report));
    mp_reload_status_init(&reload->outcome);
    reload->outcome.writer = reload->writer;
    shared->past = reload->outcome.past = mp_reload_past_new(shared->source);
    mp_lib_summary(first, &reload->summary);
    reload->has_auth = mp_lib_has_auth(first);
    shared->free_vm = free_vm;
    return reload;
}

static void free_ended_vms(mp_reload *reload)
{
    for (ended_vm *one = atomic_exchange(&reload->ended_vms, NULL), *next; one != NULL; one = next) {
        next = one->next;
        mp_lib_free(one->vm);
        free(one);
    }
}

void mp_reload_free(mp_reload *MP_NULLABLE reload)
{
    if (reload == NULL)
        return;
    free_ended_vms(reload);
    mp_last_good_writer_free(reload->writer);
    mp_inotify_free(reload->watcher);
    mp_handover_free(reload->handover);
    mp_gate_free(reload->gate);
    mp_runtime_config_unref(reload->first);
    mp_reload_status_clear(&reload->outcome);
    mp_reload_past_free(reload->shared->past);
    close(reload->wake_fd);
    mp_source_unref(reload->serving);
    mp_source_unref(reload->tried);
    mp_buf_clear(&reload->tried_config);
    mp_buf_clear(&reload->config_report);
    mp_buf_clear(&reload->unread);
    mp_buf_clear(&reload->summary);
    free(reload);
}

/* The loop for answers to waiting requests, which only an admin listener has. */
static mp_loop *admin_loop(const mp_reload *reload)
{
    mp_admin *admin = reload->admin;
    return admin == NULL ? mp_worker_loop(reload->workers[0]) : mp_admin_loop(admin);
}

void mp_reload_ask(mp_reload *reload, mp_stream *stream)
{
    if (mp_reload_status_wait(&reload->outcome, stream))
        mp_reload_now(reload, "admin");
    else
        mp_stream_answer(stream, 503, "text/plain", MP_STR("too many requests wait for a reload\n"), NULL, 0);
}

void mp_reload_describe(mp_reload *reload, mp_buf *out)
{
    mp_reload_status_describe(&reload->outcome, out);
}

void mp_reload_put_metrics(mp_reload *reload, mp_buf *out)
{
    mp_reload_status_put_metrics(&reload->outcome, out);
}

static void print_text(const mp_reload *reload, mp_str text)
{
    if (reload->options->prints)
        mp_terminal_print(text);
}

/* -- results ------------------------------------------------------------------------------------------------------- */

static void refuse_reload(mp_reload *reload, const char *event, size_t asked, mp_str report)
{
    if (mp_reload_status_is_starved(report) || !mp_handover_has_room(reload->handover)) {
        reload->retry_at = mp_monotonic_ms() + RETRY_MS;
        if (reload->is_retry) { /* the failure was logged before */
            mp_reload_status_answer_again(&reload->outcome, admin_loop(reload), asked);
            return;
        }
    }
    mp_scoped_buf shown = {0};
    mp_log_report(event, report);
    mp_log(MP_WARN, "not reloaded", mp_log_int("generation", reload->generation),
           mp_log_str("why", MP_STR("errors: the previous version stays in use")));
    mp_buf_printf(&shown, "not reloaded:\n%.*s", MP_STR_ARG(report));
    print_text(reload, mp_buf_str(&shown));
    mp_reload_status_keep_errors(&reload->outcome, report);
    mp_reload_status_answer(&reload->outcome, admin_loop(reload), asked, 422, report);
}

/* -- reloading ----------------------------------------------------------------------------------------------------- */

/* The changes of a reload, compared with the serving generation. */
typedef struct {
    size_t asked; /* number of waiting requests when the reload began */
    mp_config *MP_NULLABLE config;
    mp_source *source; /* the scripts, if they could be read */
    /* names of changed keys, of changed keys that need a restart, and of changed script files; and the errors */
    mp_buf keys, restart, files, report;
    mp_buf upstreams; /* the upstreams that differ, as a part of the plan */
    bool has_lock;    /* the approved definitions of upstreams differ */
    mp_buf replayed;  /* report of the replay of the recorded calls, where the reload goes on */
} attempt;

/* Makes a VM for every worker; on failure makes none and appends the errors to `report`. */
static mp_vm **MP_NULLABLE make_all(mp_reload *reload, mp_source *source, const mp_lib_config *how, mp_buf *report)
{
    mp_vm **vms = mp_new((size_t)reload->count * sizeof *vms);
    mp_declared_begin();
    for (int i = 0; i < reload->count; i++) {
        mp_watchdog_beat(reload->shared->watchdog);
        vms[i] = mp_lib_new(source, how, report);
        if (vms[i] != NULL)
            continue;
        while (i > 0)
            mp_lib_free(vms[--i]);
        free(vms);
        return NULL;
    }
    return vms;
}

static mp_inotify *new_watcher(const mp_reload *reload, const mp_config *config)
{
    const char *lock = config->upstreams == NULL ? NULL : config->upstream_lock;
    return mp_inotify_new(config->scripts_path, config->scripts_rocks, reload->options->file, lock);
}

static void use_shared_settings(mp_reload *reload, const mp_runtime_config *settings)
{
    const mp_config *config = settings->config;
    mp_session_table_configure(reload->shared->table, &settings->rpc);
    if (config->cluster_listen != NULL)
        mp_processes_use_seal_keys(reload->shared->processes, settings->seal_keys);
    mp_process_state_use_upstreams(&reload->shared->process_state, config);
    mp_store_limit(reload->shared->process_state.store, config->store_entries, config->store_bytes);
    mp_log_from(config->log_level);
    mp_log_configure(config->log_format);
    mp_audit_sample(strtod(config->audit_sample, NULL));
    mp_record_configure(&config->record);
    mp_series_enable(config->metrics_enabled == MP_METRICS_ON);
    mp_err err;
    if (!reload->options->is_apart && mp_traces_use(config, &err) != 0)
        mp_log(MP_ERROR, "traces not started", mp_log_str("why", mp_str_of(err.text)));
    mp_watchdog_configure(reload->shared->watchdog, config);
    mp_inotify_free(reload->watcher);
    reload->watcher = NULL;
    if (config->scripts_watch == MP_WATCH_TRUE) {
        reload->watcher = new_watcher(reload, config);
        mp_reload_now(reload, changed); /* handles changes made before the files were watched */
    }
}

static void put_parts(mp_buf *plan, const attempt *next)
{
    if (next->replayed.len > 0)
        mp_buf_printf(plan, "%s%.*s", plan->len == 0 ? "" : "\n", MP_STR_ARG(mp_str_trim(mp_buf_str(&next->replayed))));
    if (next->upstreams.len > 0)
        mp_buf_printf(plan, "%s%.*s", plan->len == 0 ? "" : "  ", MP_STR_ARG(mp_buf_str(&next->upstreams)));
    if (next->keys.len > 0)
        mp_buf_printf(plan, "%s~ moonpool.yaml (%.*s)", plan->len == 0 ? "" : "  ",
                      MP_STR_ARG(mp_buf_str(&next->keys)));
    if (next->has_lock)
        mp_buf_printf(plan, "%s~ approved definitions of upstreams", plan->len == 0 ? "" : "  ");
    if (next->restart.len > 0)
        mp_buf_printf(plan, "%sneeds a restart: %.*s", plan->len == 0 ? "" : "  ",
                      MP_STR_ARG(mp_buf_str(&next->restart)));
}

/* Hands `vms` over to the workers. */
static void put_in_place(mp_reload *reload, attempt *next, mp_vm **vms, mp_runtime_config *settings)
{
    mp_worker_shared *shared = reload->shared;
    mp_buf plan = {0}, lists = {0};
    mp_lib_difference(vms[0], mp_buf_str(&reload->summary), mp_buf_str(&next->files), &plan, &lists);
    put_parts(&plan, next);
    reload->summary.len = 0;
    mp_lib_summary(vms[0], &reload->summary);
    reload->has_auth = mp_lib_has_auth(vms[0]);
    mp_source_unref(reload->serving);
    reload->serving = mp_source_ref(next->source);
    shared->serving = reload->serving;
    shared->serves_kept = false;
    mp_reload_past_serve(reload->shared->past, next->source);
    if (settings != shared->settings) {
        mp_runtime_config_unref(shared->settings);
        shared->settings = settings;
        use_shared_settings(reload, settings);
    }
    mp_handover_begin(reload->handover, vms, settings, ++reload->generation, next->asked, plan, lists);
}

static void keep_good(const mp_reload *reload)
{
    if (atomic_load(&reload->shared->is_on_trial) || !mp_processes_is_newest(reload->shared->processes))
        return;
    mp_last_good_writer_keep(reload->writer, reload->generation, reload->serving, reload->shared->settings->config);
}

/* Every worker serves the new scripts, or has had time enough to switch to them. `late` names the workers that serve
 * earlier ones, for people; empty: none. */
static void on_handed_over(void *ctx, const mp_handed_over *done, mp_str late)
{
    mp_reload *reload = ctx;
    mp_scoped_buf shown = {0};
    mp_buf_put(&shown, done->plan);
    if (late.len > 0)
        mp_buf_printf(&shown, "\nnot everywhere yet: %.*s", MP_STR_ARG(late));
    mp_reload_status_keep(&reload->outcome, done->generation, done->plan);
    keep_good(reload);
    mp_log(MP_INFO, "reloaded", mp_log_int("generation", done->generation), mp_log_str("changes", done->plan));
    print_text(reload, mp_buf_str(&shown));
    mp_reload_status_answer(&reload->outcome, admin_loop(reload), done->asked, late.len > 0 ? 202 : 200,
                            mp_buf_str(&shown));
}

/* Called on any thread: a worker has switched to the new scripts. */
static void on_taken(void *ctx)
{
    wake_reload(ctx);
}

/* Ends a reload that changes nothing: the files equal the serving ones again, or the change needs a restart. */
static void leave_in_place(mp_reload *reload, const attempt *next)
{
    mp_scoped_buf plan = {0};
    put_parts(&plan, next);
    mp_reload_status_keep(&reload->outcome, reload->generation, mp_buf_str(&plan));
    mp_reload_status_answer_again(&reload->outcome, admin_loop(reload), next->asked);
    if (plan.len > 0) {
        mp_log(MP_WARN, "not reloaded", mp_log_int("generation", reload->generation),
               mp_log_str("why", mp_buf_str(&plan)));
        print_text(reload, mp_buf_str(&plan));
    } else {
        mp_log(MP_INFO, "change reverted", mp_log_int("generation", reload->generation),
               mp_log_str("why", MP_STR("the files equal what is served")));
        print_text(reload, MP_STR("change reverted: the files equal what is served"));
    }
}

static bool leaves_open(const mp_reload *reload, const mp_config *config, const mp_vm *vm, mp_buf *report)
{
    if (reload->options->on_stdio)
        return false;
    return mp_open_relay_check(config, reload->shared->process_state.passed, vm, report) != 0 ||
           (reload->has_auth && mp_open_relay_check_loss(config, vm, report) != 0);
}

/* Frees Lua states that are not used. */
static void drop_all(const mp_reload *reload, mp_vm **vms)
{
    for (int i = 0; i < reload->count; i++)
        mp_lib_free(vms[i]);
    free(vms);
}

/* Lets the recorded calls be replayed against the scripts. False if the reload does not go on now: either it waits, or
 * `report` says why it is refused. */
static bool passes_gate(mp_reload *reload, attempt *next, const mp_config *config, bool *waits)
{
    mp_scoped_buf found = {0};
    mp_gate_state state = mp_gate_judge(reload->gate, config, next->source, reload->options->file, &found);
    *waits = state == MP_GATE_WAITS;
    mp_buf_put(state == MP_GATE_SHUT ? &next->report : &next->replayed, mp_buf_str(&found));
    return state == MP_GATE_OPEN;
}

static void try_attempt(mp_reload *reload, attempt *next)
{
    mp_runtime_config *serving = reload->shared->settings, *settings = serving;
    bool is_same = mp_source_is_same(reload->serving, next->source, &next->files);
    bool has_changes = next->keys.len > 0 || next->upstreams.len > 0 || next->has_lock;
    if (is_same && !has_changes) {
        leave_in_place(reload, next);
        return;
    }
    if (has_changes) {
        settings = mp_runtime_config_new(MP_NEVER_NULL(next->config), &reload->shared->process_state);
        next->config = NULL;
    }
    if (!mp_handover_has_room(reload->handover))
        mp_buf_put(&next->report,
                   MP_STR("many changed configurations wait for a worker whose event loop does not run\n"
                          "  hint: restart the gateway; the log line 'thread stuck' names the worker\n"));
    mp_vm **vms = next->report.len > 0 ? NULL : make_all(reload, next->source, &settings->lib, &next->report);
    bool waits = false;
    if (vms != NULL && (leaves_open(reload, settings->config, vms[0], &next->report) ||
                        !passes_gate(reload, next, settings->config, &waits))) {
        drop_all(reload, vms);
        vms = NULL;
    }
    if (waits) {
        if (settings != serving)
            mp_runtime_config_unref(settings);
    } else if (vms != NULL) {
        mp_declared_serve();
        put_in_place(reload, next, vms, settings);
    } else {
        if (atomic_load(&reload->shared->draining))
            mp_reload_status_answer(&reload->outcome, admin_loop(reload), next->asked, 503,
                                    MP_STR("the gateway is stopping"));
        else
            refuse_reload(reload, "script refused", next->asked, mp_buf_str(&next->report));
        if (settings != serving)
            mp_runtime_config_unref(settings);
    }
}

/* Reports the configuration's errors, unless they were reported before. */
static void refuse_config(mp_reload *reload, attempt *next)
{
    mp_str report = mp_buf_str(&next->report);
    bool is_known = reload->tried_config.len == 0 && mp_str_eq(report, mp_buf_str(&reload->config_report));
    reload->tried_config.len = reload->config_report.len = 0;
    mp_buf_put(&reload->config_report, report);
    if (is_known && !mp_reload_status_is_starved(report))
        mp_reload_status_answer_again(&reload->outcome, admin_loop(reload), next->asked);
    else
        refuse_reload(reload, "config refused", next->asked, report);
}

/* Reports why the scripts cannot be read, unless it was reported before. */
static void refuse_unread(mp_reload *reload, attempt *next, const mp_err *err)
{
    mp_buf_printf(&next->report, "%s\n  hint: %s\n", err->text, err->hint);
    mp_str report = mp_buf_str(&next->report);
    bool is_known = mp_str_eq(report, mp_buf_str(&reload->unread));
    reload->unread.len = 0;
    mp_buf_put(&reload->unread, report);
    if (is_known && !mp_reload_status_is_starved(report))
        mp_reload_status_answer_again(&reload->outcome, admin_loop(reload), next->asked);
    else
        refuse_reload(reload, "script refused", next->asked, report);
}

/* Reads the configuration again, where possible. Returns false if it has errors. */
static bool read_config(const mp_reload *reload, attempt *next)
{
    if (reload->options->file == NULL)
        return true;
    mp_config *config = reload->options->read(reload->options->ctx, &next->report);
    next->config = config;
    return config != NULL;
}

/* True if the configuration is the same as when it was read last. */
static bool compare_config(mp_reload *reload, attempt *next)
{
    const mp_config *serving = reload->shared->settings->config;
    mp_config *config = next->config;
    if (config == NULL)
        return true;
    mp_buf values = {0};
    mp_config_put_all(&values, config);
    bool is_same = mp_str_eq(mp_buf_str(&values), mp_buf_str(&reload->tried_config));
    mp_buf_clear(&reload->tried_config);
    reload->tried_config = values;
    mp_config_compare(serving, config, true, &next->restart);
    mp_config_compare(serving, config, false, &next->keys);
    mp_config_compare_upstreams(serving, config, &next->upstreams);
    next->has_lock = !mp_config_has_lock_of(serving, config);
    if (reload->listeners != NULL)
        /* stores the addresses of `listen` in the new file: the next process reads that file */
        mp_listeners_store(reload->listeners, config);
    mp_config_carry(config, serving);
    mp_reload_status_keep_restart(&reload->outcome, mp_buf_str(&next->restart));
    return is_same;
}

/* Called at every poll until watching works; the same failure is logged once. */
static void watch_scripts(mp_reload *reload)
{
    mp_err err = {0};
    bool failed = reload->watcher != NULL && mp_inotify_renew(reload->watcher, &err) != 0;
    if (failed && !reload->is_unwatched)
        mp_log(MP_WARN, "files not watched", mp_log_str("why", mp_str_of(err.text)),
               mp_log_str("hint", mp_str_of(err.hint)));
    reload->is_unwatched = failed;
}

/* Reloads the scripts and the configuration. With `may_wait`, files that change while they are read are left to another
 * reload, which is due soon. */
static void reload_all(mp_reload *reload, bool may_wait)
{
    attempt next = {.asked = mp_reload_status_waiting(&reload->outcome)};
    mp_err err = {0};
    watch_scripts(reload);
    bool has_config = read_config(reload, &next);
    const mp_config *config = next.config == NULL ? reload->shared->settings->config : next.config;
    mp_source *source = has_config ? mp_source_read(config->scripts_path, config->scripts_rocks, &err) : NULL;
    bool is_emptied = source != NULL && mp_source_is_emptied(reload->tried, source);
    if (may_wait && mp_inotify_is_torn(reload->watcher, is_emptied, mp_monotonic_ms()))
        goto done;
    if (!has_config) {
        refuse_config(reload, &next);
        goto done;
    }
    bool is_same = compare_config(reload, &next);
    if (source == NULL) {
        refuse_unread(reload, &next, &err);
    } else if (mp_source_is_same(reload->tried, source, &next.files) && is_same && !reload->is_retry &&
               reload->unread.len == 0 && !mp_gate_is_due(reload->gate)) {
        mp_reload_status_answer_again(&reload->outcome, admin_loop(reload), next.asked);
    } else {
        next.files.len = reload->unread.len = 0;
        mp_source_unref(reload->tried);
        reload->tried = mp_source_ref(source);
        next.source = source;
        try_attempt(reload, &next);
    }
    if (mp_gate_is_due(reload->gate))
        mp_gate_stop(reload->gate); /* the replayed scripts are not those that would serve now */
done:
    mp_config_free(next.config);
    mp_source_unref(source);
    mp_buf_clear(&next.keys);
    mp_buf_clear(&next.upstreams);
    mp_buf_clear(&next.restart);
    mp_buf_clear(&next.replayed);
    mp_buf_clear(&next.files);
    mp_buf_clear(&next.report);
}

/* -- main thread --------------------------------------------------------------------------------------------------- */

/* The files on the disk serve and are kept, or have errors, which stay in /status until they are corrected. */
static void report_start(mp_reload *reload, const mp_start *start)
{
    reload->shared->serves_kept = start->serves_kept;
    if (start->report.len == 0 || start->serves_kept)
        keep_good(reload);
    if (start->report.len == 0)
        return;
    mp_reload_status_begin(&reload->outcome, "start");
    mp_reload_status_keep_errors(&reload->outcome, mp_buf_str(&start->report));
    mp_start_describe(start, &reload->outcome.start);
}

void mp_reload_start(mp_reload *reload, const mp_start *start, mp_worker **workers, int count,
                     mp_admin *MP_NULLABLE admin, mp_listeners *listeners)
{
    const mp_config *config = reload->shared->settings->config;
    reload->workers = workers;
    reload->count = count;
    reload->admin = admin;
    reload->listeners = listeners;
    reload->handover = mp_handover_new(workers, count, admin, reload->shared->watchdog, &reload->outcome,
                                       on_handed_over, on_taken, reload);
    report_start(reload, start);
    if (config->scripts_watch != MP_WATCH_TRUE)
        return;
    reload->watcher = new_watcher(reload, config);
    reload_all(reload, false); /* handles files that were saved since the scripts were read */
}

void mp_reload_commit(mp_reload *reload)
{
    if (mp_source_left_out(reload->serving).len == 0)
        keep_good(reload);
}

void mp_reload_now(mp_reload *reload, const char *by)
{
    atomic_store(&reload->asked_by, by);
    wake_reload(reload);
}

mp_reload_wait mp_reload_next(mp_reload *reload)
{
    int fd = reload->watcher == NULL ? -1 : mp_inotify_fd(reload->watcher);
    mp_reload_wait wait = {{reload->wake_fd, fd, -1}, -1};
    uint64_t now = mp_monotonic_ms();
    wait.fds[2] = mp_gate_next(reload->gate, &wait.wait_ms, now);
    if (wait.fds[2] >= 0 || mp_handover_is_running(reload->handover, &wait.wait_ms, now))
        return wait;
    uint64_t due = mp_inotify_due(reload->watcher);
    if (due != 0) {
        wait.wait_ms = due > now ? (int)(due - now) : 0;
    } else if (reload->watcher != NULL && fd < 0) {
        wait.wait_ms = LOOK_MS;
    }
    if (reload->retry_at != 0 && (wait.wait_ms < 0 || wait.wait_ms > RETRY_MS))
        wait.wait_ms = RETRY_MS;
    return wait;
}

void mp_reload_run(mp_reload *reload, bool may_reload)
{
    uint64_t count, now = mp_monotonic_ms();
    bool looks = reload->watcher != NULL && mp_inotify_fd(reload->watcher) < 0;
    if (reload->watcher != NULL)
        mp_inotify_take(reload->watcher, now);
    while (read(reload->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    bool is_running = mp_handover_run(reload->handover, now);
    free_ended_vms(reload);
    if (!may_reload)
        mp_inotify_begin(reload->watcher);
    if (!may_reload && mp_gate_next(reload->gate, &(int){-1}, now) >= 0) {
        mp_gate_stop(reload->gate);
        mp_reload_status_answer(&reload->outcome, admin_loop(reload), mp_reload_status_waiting(&reload->outcome), 503,
                                MP_STR("the gateway is stopping"));
    }
    if (mp_gate_run(reload->gate, now) || is_running || !may_reload)
        return; /* the end of the handover, or of the replay, wakes the main thread */
    const char *by = atomic_exchange(&reload->asked_by, NULL);
    reload->is_retry = by == NULL && reload->retry_at != 0 && now >= reload->retry_at;
    uint64_t due = mp_inotify_due(reload->watcher);
    if (by == NULL && !looks && !reload->is_retry && (due == 0 || now < due) && !mp_gate_is_due(reload->gate))
        return;
    reload->retry_at = 0;
    mp_inotify_begin(reload->watcher);
    /* without a new cause, only a reload that waited for its replay goes on */
    if (by != NULL || !mp_gate_is_due(reload->gate))
        mp_reload_status_begin(&reload->outcome, by == NULL ? changed : by);
    reload_all(reload, by == NULL && !reload->is_retry);
}
