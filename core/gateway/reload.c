#define _GNU_SOURCE /* memmem */
#include "reload.h"
#include "exposure.h"
#include "outcome.h"
#include "watcher.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define QUIET_MS 100     /* after the last change: editors and checkouts make several */
#define PATIENCE_MS 1000 /* after the first, however restless it is */
#define LOOK_MS 1000     /* where the system tells of no changes */

/* A VM that has ended its calls. */
typedef struct grave {
    struct grave *next;
    mp_vm *vm;
} grave;

struct mp_reload {
    mp_shared *shared;
    const mp_gateway_options *options;
    mp_worker **workers;
    int count;
    mp_watcher *watcher; /* NULL: only who asks is served */
    bool is_unwatched;   /* it cannot watch, which has been told */
    int wake_fd;
    uint64_t first_at, last_at;     /* of changes not looked at yet; 0: none */
    _Atomic(const char *) asked_by; /* last; NULL: nobody asks */
    atomic_bool is_swapping;        /* the workers have not all taken over: two generations are enough */
    _Atomic(grave *) graves;
    int64_t generation;
    mp_source *serving;
    mp_source *tried;         /* these three read last, good or bad */
    mp_buf tried_config;      /* its values; empty: it could not be read */
    mp_buf config_report;     /* what was wrong in it */
    mp_buf summary;           /* of what serves */
    bool asks;                /* who comes in: what serves does */
    mp_settings *first;       /* listeners and certificates point into it */
    mp_settings *outlived[8]; /* those that a worker still has that ended before it got others */
    size_t outlived_count;
    mp_outcome outcome;
};

static const char changed[] = "files"; /* what asks for a reload when nobody does */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

mp_reload *mp_reload_new(mp_shared *shared, const mp_gateway_options *options, mp_vm *first)
{
    mp_reload *reload = mp_new(sizeof *reload);
    reload->shared = shared;
    reload->options = options;
    reload->first = shared->settings;
    reload->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    reload->serving = mp_source_ref(shared->source);
    reload->tried = mp_source_ref(shared->source);
    reload->generation = 1;
    mp_config_put_all(&reload->tried_config, shared->settings->config);
    mp_outcome_init(&reload->outcome);
    mp_vm_summary(first, &reload->summary);
    reload->asks = mp_vm_has_auth(first);
    return reload;
}

static void clear_graves(mp_reload *reload)
{
    for (grave *one = atomic_exchange(&reload->graves, NULL), *next; one != NULL; one = next) {
        next = one->next;
        mp_vm_free(one->vm);
        free(one);
    }
}

void mp_reload_free(mp_reload *reload)
{
    if (reload == NULL)
        return;
    clear_graves(reload);
    mp_watcher_free(reload->watcher);
    while (reload->outlived_count > 0)
        mp_settings_free(reload->outlived[--reload->outlived_count]);
    if (reload->first != reload->shared->settings)
        mp_settings_free(reload->first);
    mp_outcome_clear(&reload->outcome);
    close(reload->wake_fd);
    mp_source_unref(reload->serving);
    mp_source_unref(reload->tried);
    mp_buf_clear(&reload->tried_config);
    mp_buf_clear(&reload->config_report);
    mp_buf_clear(&reload->summary);
    free(reload);
}

/* The admin's listener is the first worker's. */
static mp_loop *admin_loop(const mp_reload *reload)
{
    return mp_worker_loop(reload->workers[0]);
}

void mp_reload_ask(mp_reload *reload, mp_stream *stream)
{
    if (mp_outcome_wait(&reload->outcome, stream))
        mp_reload_now(reload, "admin");
    else
        mp_stream_answer(stream, 503, "text/plain", MP_STR("too many wait for a reload already\n"), NULL, 0);
}

void mp_reload_describe(mp_reload *reload, mp_buf *out)
{
    mp_outcome_describe(&reload->outcome, out);
}

static void wake(mp_reload *reload)
{
    uint64_t one = 1;
    while (write(reload->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

void mp_reload_bury(mp_reload *reload, mp_vm *vm)
{
    grave *one = mp_new(sizeof *one);
    one->vm = vm;
    one->next = atomic_load(&reload->graves);
    while (!atomic_compare_exchange_weak(&reload->graves, &one->next, one))
        continue;
    wake(reload);
}

/* -- who watches at a terminal ------------------------------------------------------------------------------------ */

/* Nobody is waited for: who does not read gets no more. */
static void print(const mp_reload *reload, mp_str text)
{
    if (!reload->options->prints)
        return;
    char at[16];
    struct tm parts;
    time_t now = time(NULL);
    mp_buf line = {0};
    strftime(at, sizeof at, "%H:%M:%S", localtime_r(&now, &parts));
    mp_buf_printf(&line, "%s  ", at);
    mp_buf_put(&line, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(&line, '\n');
    mp_str left = mp_buf_str(&line);
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    while (left.len > 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT)) {
        ssize_t written = write(STDOUT_FILENO, left.ptr, left.len < 4096 ? left.len : 4096);
        if (written <= 0)
            break;
        left = mp_str_from(left, (size_t)written);
    }
    mp_buf_clear(&line);
}

/* -- how it went --------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_swap super;
    mp_reload *reload;
    mp_settings *before; /* NULL: they stay */
    int64_t generation;
    size_t asked;
    mp_buf plan, lists;
} change;

/* Every worker serves the new scripts. */
static void on_swapped(mp_swap *super, mp_vm *vm)
{
    change *made = mp_container(super, change, super);
    mp_reload *reload = made->reload;
    mp_str plan = mp_buf_str(&made->plan);
    if (vm != NULL && made->lists.len > 0)
        mp_vm_hear_of(vm, MP_STR("reloaded"), mp_buf_str(&made->lists));
    mp_outcome_keep(&reload->outcome, made->generation, plan);
    mp_log(MP_INFO, "reloaded", mp_log_int("generation", made->generation), mp_log_str("changes", plan));
    print(reload, plan);
    mp_outcome_answer(&reload->outcome, admin_loop(reload), made->asked, true, plan);
    if (atomic_load(&super->is_missed) && made->before != NULL && made->before != reload->first)
        reload->outlived[reload->outlived_count++] = made->before; /* the last: the gateway stops */
    else if (made->before != reload->first)
        mp_settings_free(made->before);
    mp_buf_clear(&made->plan);
    mp_buf_clear(&made->lists);
    free(made);
    atomic_store(&reload->is_swapping, false);
    wake(reload);
}

/* Each error is told by itself: they are a blank line apart, and end with a line's end. */
static void log_errors(const char *event, mp_str report)
{
    while (report.len > 0) {
        const char *end = memmem(report.ptr, report.len, "\n\n", 2);
        mp_str one = {report.ptr, end == NULL ? report.len : (size_t)(end - report.ptr)};
        report = end == NULL ? MP_STR_NONE : mp_str_from(report, one.len + 2);
        if (one.len > 0 && one.ptr[one.len - 1] == '\n')
            one.len--;
        mp_log(MP_ERROR, event, mp_log_str("error", one));
    }
}

static void refuse(mp_reload *reload, const char *event, size_t asked, mp_str report)
{
    mp_buf shown = {0};
    log_errors(event, report);
    mp_log(MP_WARN, "not reloaded", mp_log_int("generation", reload->generation),
           mp_log_str("why", MP_STR("there are errors: what served before serves on")));
    mp_buf_printf(&shown, "not reloaded:\n%.*s", MP_STR_ARG(report));
    print(reload, mp_buf_str(&shown));
    mp_buf_clear(&shown);
    mp_outcome_keep_errors(&reload->outcome, report);
    mp_outcome_answer(&reload->outcome, admin_loop(reload), asked, false, report);
}

/* -- reloading ------------------------------------------------------------------------------------------------------ */

/* What a reload is made of, as far as it is not what serves. */
typedef struct {
    size_t asked; /* so many waited when it began */
    mp_config *config;
    mp_source *source;
    mp_buf keys, restart, files, report; /* of the configuration; the paths of scripts; what is wrong */
} attempt;

/* A VM for every worker, or none and what is wrong. */
static mp_vm **make_all(mp_reload *reload, mp_source *source, const mp_vm_config *how, mp_buf *report)
{
    mp_vm **vms = mp_new((size_t)reload->count * sizeof *vms);
    for (int i = 0; i < reload->count; i++) {
        vms[i] = mp_vm_new(source, how, report);
        if (vms[i] != NULL)
            continue;
        while (i > 0)
            mp_vm_free(vms[--i]);
        free(vms);
        return NULL;
    }
    return vms;
}

static void use_shared_settings(mp_reload *reload, const mp_settings *settings)
{
    const mp_config *config = settings->config;
    mp_table_configure(reload->shared->table, &settings->rpc);
    mp_store_limit(reload->shared->commons.store, config->store_entries, config->store_bytes);
    mp_log_from(config->log_level);
    mp_watcher_free(reload->watcher);
    reload->watcher = NULL;
    if (config->scripts_watch == MP_WATCH_TRUE) {
        reload->watcher = mp_watcher_new(config->scripts_path, reload->options->file);
        mp_reload_now(reload, changed); /* what changes until it is watched */
    }
}

static void put_parts(mp_buf *plan, const attempt *next)
{
    if (next->keys.len > 0)
        mp_buf_printf(plan, "%s~ moonpool.yaml (%.*s)", plan->len == 0 ? "" : "  ",
                      MP_STR_ARG(mp_buf_str(&next->keys)));
    if (next->restart.len > 0)
        mp_buf_printf(plan, "%sneeds a restart: %.*s", plan->len == 0 ? "" : "  ",
                      MP_STR_ARG(mp_buf_str(&next->restart)));
}

static void put_in_place(mp_reload *reload, attempt *next, mp_vm **vms, mp_settings *settings)
{
    mp_shared *shared = reload->shared;
    change *made = mp_new(sizeof *made);
    *made = (change){.reload = reload, .generation = ++reload->generation, .asked = next->asked};
    mp_vm_difference(vms[0], mp_buf_str(&reload->summary), mp_buf_str(&next->files), &made->plan, &made->lists);
    put_parts(&made->plan, next);
    reload->summary.len = 0;
    mp_vm_summary(vms[0], &reload->summary);
    reload->asks = mp_vm_has_auth(vms[0]);
    mp_source_unref(reload->serving);
    reload->serving = mp_source_ref(next->source);
    if (settings != shared->settings) {
        made->before = shared->settings;
        shared->settings = settings;
        use_shared_settings(reload, settings);
    }
    made->super.settings = settings;
    made->super.done = on_swapped;
    atomic_init(&made->super.left, reload->count);
    atomic_init(&made->super.is_missed, false);
    atomic_store(&reload->is_swapping, true);
    for (int i = 0; i < reload->count; i++)
        mp_worker_swap(reload->workers[i], vms[i], &made->super);
}

/* What was tried is taken back, or needs a restart. */
static void leave_in_place(mp_reload *reload, const attempt *next)
{
    mp_buf plan = {0};
    put_parts(&plan, next);
    mp_outcome_keep(&reload->outcome, reload->generation, mp_buf_str(&plan));
    mp_outcome_answer_again(&reload->outcome, admin_loop(reload), next->asked);
    if (plan.len > 0) {
        mp_log(MP_WARN, "not reloaded", mp_log_int("generation", reload->generation),
               mp_log_str("why", mp_buf_str(&plan)));
        print(reload, mp_buf_str(&plan));
    } else {
        mp_log(MP_INFO, "taken back", mp_log_int("generation", reload->generation),
               mp_log_str("why", MP_STR("the files are as they were when they were last served")));
        print(reload, MP_STR("taken back: what is saved is what serves"));
    }
    mp_buf_clear(&plan);
}

static bool leaves_open(const mp_reload *reload, const mp_config *config, const mp_vm *vm, mp_buf *report)
{
    if (reload->options->on_stdio)
        return false;
    return mp_exposure_check(config, vm, report) != 0 ||
           (reload->asks && mp_exposure_check_loss(config, vm, report) != 0);
}

static void try(mp_reload *reload, attempt *next)
{
    mp_settings *serving = reload->shared->settings, *settings = serving;
    bool is_same = mp_source_is_same(reload->serving, next->source, &next->files);
    if (is_same && next->keys.len == 0) {
        leave_in_place(reload, next);
        return;
    }
    if (next->keys.len > 0) {
        settings = mp_settings_new(next->config, &reload->shared->commons);
        next->config = NULL;
    }
    mp_vm **vms = make_all(reload, next->source, &settings->vm, &next->report);
    if (vms != NULL && leaves_open(reload, settings->config, vms[0], &next->report)) {
        for (int i = 0; i < reload->count; i++)
            mp_vm_free(vms[i]);
        free(vms);
        vms = NULL;
    }
    if (vms != NULL) {
        put_in_place(reload, next, vms, settings);
    } else {
        refuse(reload, "script refused", next->asked, mp_buf_str(&next->report));
        if (settings != serving)
            mp_settings_free(settings);
    }
    free(vms);
}

/* What is wrong in the configuration, unless that has been said. */
static void refuse_config(mp_reload *reload, attempt *next)
{
    mp_str report = mp_buf_str(&next->report);
    bool is_known = reload->tried_config.len == 0 && mp_str_eq(report, mp_buf_str(&reload->config_report));
    reload->tried_config.len = reload->config_report.len = 0;
    mp_buf_put(&reload->config_report, report);
    if (is_known)
        mp_outcome_answer_again(&reload->outcome, admin_loop(reload), next->asked);
    else
        refuse(reload, "config refused", next->asked, report);
}

/* Reads the configuration, where it can be read again. False when it is wrong; `is_same` as the last time. */
static bool read_config(mp_reload *reload, attempt *next, bool *is_same)
{
    const mp_config *serving = reload->shared->settings->config;
    *is_same = true;
    if (reload->options->file == NULL)
        return true;
    next->config = reload->options->read(reload->options->ctx, &next->report);
    if (next->config == NULL)
        return false;
    mp_buf values = {0};
    mp_config_put_all(&values, next->config);
    *is_same = mp_str_eq(mp_buf_str(&values), mp_buf_str(&reload->tried_config));
    mp_buf_clear(&reload->tried_config);
    reload->tried_config = values;
    mp_config_compare(serving, next->config, true, &next->restart);
    mp_config_compare(serving, next->config, false, &next->keys);
    mp_config_carry(next->config, serving);
    mp_outcome_keep_restart(&reload->outcome, mp_buf_str(&next->restart));
    return true;
}

/* It is tried again at every look: the same trouble is told once. */
static void watch(mp_reload *reload)
{
    mp_err err = {0};
    bool failed = reload->watcher != NULL && mp_watcher_renew(reload->watcher, &err) != 0;
    if (failed && !reload->is_unwatched)
        mp_log(MP_WARN, "not watched", mp_log_str("why", mp_str_of(err.text)), mp_log_str("hint", mp_str_of(err.hint)));
    reload->is_unwatched = failed;
}

static void reload_all(mp_reload *reload)
{
    attempt next = {.asked = mp_outcome_waiting(&reload->outcome)};
    mp_err err = {0};
    bool is_same;
    watch(reload);
    if (!read_config(reload, &next, &is_same)) {
        refuse_config(reload, &next);
        goto done;
    }
    const mp_config *config = next.config == NULL ? reload->shared->settings->config : next.config;
    next.source = mp_source_read(config->scripts_path, &err);
    if (next.source == NULL) {
        mp_buf_printf(&next.report, "%s\n  hint: %s\n", err.text, err.hint);
        refuse(reload, "script refused", next.asked, mp_buf_str(&next.report));
    } else if (mp_source_is_same(reload->tried, next.source, &next.files) && is_same) {
        mp_outcome_answer_again(&reload->outcome, admin_loop(reload), next.asked);
    } else {
        next.files.len = 0;
        mp_source_unref(reload->tried);
        reload->tried = mp_source_ref(next.source);
        try(reload, &next);
    }
done:
    mp_config_free(next.config);
    mp_source_unref(next.source);
    mp_buf_clear(&next.keys);
    mp_buf_clear(&next.restart);
    mp_buf_clear(&next.files);
    mp_buf_clear(&next.report);
}

/* -- the main thread ------------------------------------------------------------------------------------------------ */

void mp_reload_start(mp_reload *reload, mp_worker **workers, int count)
{
    const mp_config *config = reload->shared->settings->config;
    reload->workers = workers;
    reload->count = count;
    if (config->scripts_watch != MP_WATCH_TRUE)
        return;
    reload->watcher = mp_watcher_new(config->scripts_path, reload->options->file);
    reload_all(reload); /* what was saved since they were read */
}

void mp_reload_now(mp_reload *reload, const char *by)
{
    atomic_store(&reload->asked_by, by);
    wake(reload);
}

static uint64_t due_at(const mp_reload *reload)
{
    uint64_t quiet = reload->last_at + QUIET_MS, patience = reload->first_at + PATIENCE_MS;
    return quiet < patience ? quiet : patience;
}

mp_reload_wait mp_reload_next(mp_reload *reload)
{
    int fd = reload->watcher == NULL ? -1 : mp_watcher_fd(reload->watcher);
    mp_reload_wait wait = {{reload->wake_fd, fd}, -1};
    if (atomic_load(&reload->is_swapping))
        return wait;
    if (reload->first_at != 0) {
        uint64_t now = now_ms(), due = due_at(reload);
        wait.wait_ms = due > now ? (int)(due - now) : 0;
    } else if (reload->watcher != NULL && fd < 0) {
        wait.wait_ms = LOOK_MS;
    }
    return wait;
}

void mp_reload_run(mp_reload *reload, bool may_reload)
{
    uint64_t count, now = now_ms();
    bool looks = reload->watcher != NULL && mp_watcher_fd(reload->watcher) < 0;
    if (reload->watcher != NULL && mp_watcher_take(reload->watcher)) {
        if (reload->first_at == 0)
            reload->first_at = now;
        reload->last_at = now;
    }
    while (read(reload->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    clear_graves(reload);
    if (!may_reload)
        reload->first_at = 0;
    if (!may_reload || atomic_load(&reload->is_swapping))
        return; /* whoever ends that wakes us */
    const char *by = atomic_exchange(&reload->asked_by, NULL);
    if (by == NULL && !looks && (reload->first_at == 0 || now < due_at(reload)))
        return;
    reload->first_at = 0;
    mp_outcome_begin(&reload->outcome, by == NULL ? changed : by);
    reload_all(reload);
}
