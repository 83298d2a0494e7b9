#define _GNU_SOURCE /* memmem */
#include "reload.h"
#include "exposure.h"
#include "json/json.h"
#include "watcher.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define QUIET_MS 100     /* after the last change: editors and checkouts make several */
#define PATIENCE_MS 1000 /* after the first, however restless it is */
#define LOOK_MS 1000     /* where the system tells of no changes */
#define MOST_ASKED 64

struct mp_reload {
    mp_shared *shared;
    mp_worker **workers;
    int count;
    mp_watcher *watcher; /* NULL: only who asks is served */
    bool listens;
    int wake_fd;
    uint64_t first_at, last_at; /* of changes not looked at yet; 0: none */
    atomic_bool is_asked;
    mp_source *serving, *tried; /* tried: read last, good or bad */
    mp_buf summary;

    pthread_mutex_t lock; /* guards what follows */
    int64_t generation;
    bool is_ok;
    time_t at; /* of the last one that changed or refused something; 0: none */
    mp_buf text;
    mp_stream *waiting[MOST_ASKED]; /* the admin's thread alone takes them out */
    size_t waiting_count;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

mp_reload *mp_reload_new(mp_shared *shared, mp_vm *first, bool listens)
{
    mp_reload *reload = mp_new(sizeof *reload);
    reload->listens = listens;
    reload->shared = shared;
    reload->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    reload->serving = mp_source_ref(shared->source);
    reload->tried = mp_source_ref(shared->source);
    reload->generation = 1;
    reload->is_ok = true;
    pthread_mutex_init(&reload->lock, NULL);
    mp_vm_summary(first, &reload->summary);
    return reload;
}

static void renew(mp_reload *reload)
{
    mp_err err = {0};
    if (reload->watcher != NULL && mp_watcher_renew(reload->watcher, &err) != 0)
        mp_log(MP_WARN, "not watched", mp_log_str("why", mp_str_of(err.text)), mp_log_str("hint", mp_str_of(err.hint)));
}

void mp_reload_free(mp_reload *reload)
{
    if (reload == NULL)
        return;
    mp_watcher_free(reload->watcher);
    for (size_t i = 0; i < reload->waiting_count; i++)
        mp_stream_unref(reload->waiting[i]);
    close(reload->wake_fd);
    mp_source_unref(reload->serving);
    mp_source_unref(reload->tried);
    mp_buf_clear(&reload->summary);
    mp_buf_clear(&reload->text);
    pthread_mutex_destroy(&reload->lock);
    free(reload);
}

/* -- answers to who asked ------------------------------------------------------------------------------------------ */

typedef struct {
    mp_message super;
    mp_reload *reload;
    bool is_ok;
    size_t asked; /* that many of those who wait did so before it began */
    mp_buf text;
} outcome;

static void deliver_outcome(mp_message *message, mp_loop *loop)
{
    outcome *news = mp_container(message, outcome, super);
    mp_reload *reload = news->reload;
    mp_stream *streams[MOST_ASKED];
    size_t count = 0;
    if (loop != NULL) {
        pthread_mutex_lock(&reload->lock);
        count = news->asked;
        memcpy(streams, reload->waiting, count * sizeof *streams);
        reload->waiting_count -= count;
        memmove(reload->waiting, reload->waiting + count, reload->waiting_count * sizeof *streams);
        pthread_mutex_unlock(&reload->lock);
    }
    for (size_t i = 0; i < count; i++) {
        mp_stream_answer(streams[i], news->is_ok ? 200 : 422, "text/plain; charset=utf-8", mp_buf_str(&news->text),
                         NULL, 0);
        mp_stream_unref(streams[i]);
    }
    mp_buf_clear(&news->text);
    free(news);
}

/* The admin's listener is the first worker's. */
static void answer(mp_reload *reload, size_t asked, bool is_ok, mp_str text)
{
    outcome *news = mp_new(sizeof *news);
    *news = (outcome){{.deliver = deliver_outcome}, reload, is_ok, asked, {0}};
    mp_buf_put(&news->text, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(&news->text, '\n');
    mp_loop_post(mp_worker_loop(reload->workers[0]), &news->super);
}

static size_t asked_so_far(mp_reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    size_t asked = reload->waiting_count;
    pthread_mutex_unlock(&reload->lock);
    return asked;
}

static void keep_outcome(mp_reload *reload, bool is_ok, mp_str text)
{
    pthread_mutex_lock(&reload->lock);
    reload->is_ok = is_ok;
    reload->at = time(NULL);
    reload->text.len = 0;
    mp_buf_put(&reload->text, text);
    pthread_mutex_unlock(&reload->lock);
}

void mp_reload_ask(mp_reload *reload, mp_stream *stream)
{
    pthread_mutex_lock(&reload->lock);
    bool has_room = reload->waiting_count < MOST_ASKED;
    if (has_room)
        reload->waiting[reload->waiting_count++] = mp_stream_ref(stream);
    pthread_mutex_unlock(&reload->lock);
    if (!has_room)
        mp_stream_answer(stream, 503, "text/plain", MP_STR("too many wait for a reload already\n"), NULL, 0);
    else
        mp_reload_now(reload);
}

void mp_reload_describe(mp_reload *reload, mp_buf *out)
{
    pthread_mutex_lock(&reload->lock);
    mp_buf_printf(out, "{\"generation\":%lld", (long long)reload->generation);
    if (reload->at != 0) {
        char when[32];
        struct tm parts;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&reload->at, &parts));
        mp_buf_printf(out, ",\"at\":\"%s\",\"ok\":%s,\"%s\":", when, reload->is_ok ? "true" : "false",
                      reload->is_ok ? "changes" : "errors");
        mp_json_put_string(out, mp_buf_str(&reload->text));
    }
    mp_buf_putc(out, '}');
    pthread_mutex_unlock(&reload->lock);
}

/* -- reloading ------------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_swap super;
    mp_reload *reload;
    int64_t generation;
    size_t asked;
    mp_buf plan, lists;
} change;

/* Every worker serves the new scripts. */
static void on_swapped(mp_swap *super, mp_vm *vm)
{
    change *made = mp_container(super, change, super);
    if (vm != NULL && made->lists.len > 0)
        mp_vm_hear_of(vm, MP_STR("reloaded"), mp_buf_str(&made->lists));
    keep_outcome(made->reload, true, mp_buf_str(&made->plan));
    mp_log(MP_INFO, "reloaded", mp_log_int("generation", made->generation),
           mp_log_str("changes", mp_buf_str(&made->plan)));
    answer(made->reload, made->asked, true, mp_buf_str(&made->plan));
    mp_buf_clear(&made->plan);
    mp_buf_clear(&made->lists);
    free(made);
}

/* Each error is told by itself: they are a blank line apart, and end with a line's end. */
static void log_errors(mp_str report)
{
    while (report.len > 0) {
        const char *end = memmem(report.ptr, report.len, "\n\n", 2);
        mp_str one = {report.ptr, end == NULL ? report.len : (size_t)(end - report.ptr)};
        report = end == NULL ? MP_STR_NONE : mp_str_from(report, one.len + 2);
        if (one.len > 0 && one.ptr[one.len - 1] == '\n')
            one.len--;
        mp_log(MP_ERROR, "script refused", mp_log_str("error", one));
    }
}

static void refuse(mp_reload *reload, size_t asked, mp_str report)
{
    log_errors(report);
    mp_log(MP_WARN, "not reloaded", mp_log_int("generation", reload->generation),
           mp_log_str("why", MP_STR("the scripts have errors: those before serve on")));
    keep_outcome(reload, false, report);
    answer(reload, asked, false, report);
}

/* A VM for every worker, or none and what is wrong. */
static mp_vm **make_all(mp_reload *reload, mp_source *source, mp_buf *report)
{
    mp_vm **vms = mp_new((size_t)reload->count * sizeof *vms);
    for (int i = 0; i < reload->count; i++) {
        vms[i] = mp_vm_new(source, &reload->shared->vm, report);
        if (vms[i] != NULL)
            continue;
        while (i > 0)
            mp_vm_free(vms[--i]);
        free(vms);
        return NULL;
    }
    return vms;
}

static void put_in_place(mp_reload *reload, mp_vm **vms, mp_str files, size_t asked)
{
    change *made = mp_new(sizeof *made);
    *made = (change){.reload = reload, .generation = reload->generation + 1, .asked = asked};
    made->super.done = on_swapped;
    atomic_init(&made->super.left, reload->count);
    mp_vm_difference(vms[0], mp_buf_str(&reload->summary), files, &made->plan, &made->lists);
    reload->summary.len = 0;
    mp_vm_summary(vms[0], &reload->summary);
    pthread_mutex_lock(&reload->lock);
    reload->generation++;
    pthread_mutex_unlock(&reload->lock);
    for (int i = 0; i < reload->count; i++)
        mp_worker_swap(reload->workers[i], vms[i], &made->super);
}

/* What was read last is what is there still: as it went then. */
static void answer_as_before(mp_reload *reload, size_t asked)
{
    mp_buf text = {0};
    pthread_mutex_lock(&reload->lock);
    bool is_ok = reload->is_ok;
    if (!is_ok)
        mp_buf_put(&text, mp_buf_str(&reload->text));
    pthread_mutex_unlock(&reload->lock);
    answer(reload, asked, is_ok, is_ok ? MP_STR("nothing changed") : mp_buf_str(&text));
    mp_buf_clear(&text);
}

static void try(mp_reload *reload, mp_source *source, size_t asked)
{
    mp_buf report = {0}, files = {0};
    if (mp_source_is_same(reload->serving, source, &files)) { /* what was wrong is taken back */
        keep_outcome(reload, true, MP_STR(""));
        answer(reload, asked, true, MP_STR("nothing changed"));
        goto done;
    }
    mp_vm **vms = make_all(reload, source, &report);
    if (vms != NULL && reload->listens && mp_exposure_check(reload->shared->config, vms[0], &report) != 0) {
        for (int i = 0; i < reload->count; i++)
            mp_vm_free(vms[i]);
        free(vms);
        vms = NULL;
    }
    if (vms == NULL) {
        refuse(reload, asked, mp_buf_str(&report));
        goto done;
    }
    mp_source_unref(reload->serving);
    reload->serving = mp_source_ref(source);
    put_in_place(reload, vms, mp_buf_str(&files), asked);
    free(vms);
done:
    mp_buf_clear(&report);
    mp_buf_clear(&files);
}

static void reload_all(mp_reload *reload)
{
    size_t asked = asked_so_far(reload);
    mp_err err = {0};
    mp_buf text = {0};
    renew(reload);
    mp_source *source = mp_source_read(reload->shared->config->scripts_path, &err);
    if (source == NULL) {
        mp_buf_printf(&text, "%s\n  hint: %s\n", err.text, err.hint);
        refuse(reload, asked, mp_buf_str(&text));
    } else if (mp_source_is_same(reload->tried, source, &text)) {
        answer_as_before(reload, asked);
        mp_source_unref(source);
    } else {
        mp_source_unref(reload->tried);
        reload->tried = source;
        try(reload, source, asked);
    }
    mp_buf_clear(&text);
}

/* -- the main thread ------------------------------------------------------------------------------------------------ */

void mp_reload_start(mp_reload *reload, mp_worker **workers, int count, bool watches)
{
    reload->workers = workers;
    reload->count = count;
    if (!watches)
        return;
    reload->watcher = mp_watcher_new(reload->shared->config->scripts_path);
    reload_all(reload); /* what was saved since they were read */
}

void mp_reload_now(mp_reload *reload)
{
    uint64_t one = 1;
    atomic_store(&reload->is_asked, true);
    while (write(reload->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
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
    if (reload->first_at != 0) {
        uint64_t now = now_ms(), due = due_at(reload);
        wait.wait_ms = due > now ? (int)(due - now) : 0;
    } else if (reload->watcher != NULL && fd < 0) {
        wait.wait_ms = LOOK_MS;
    }
    return wait;
}

void mp_reload_run(mp_reload *reload)
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
    bool is_asked = atomic_exchange(&reload->is_asked, false);
    if (!is_asked && !looks && (reload->first_at == 0 || now < due_at(reload)))
        return;
    reload->first_at = 0;
    reload_all(reload);
}
