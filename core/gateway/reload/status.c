#define _GNU_SOURCE /* for memmem */
#include "status.h"
#include "json/json.h"
#include <errno.h>

#define MAX_AUDIT_BYTES 2048 /* maximum bytes of changes or errors in an audit line */

void mp_reload_status_init(mp_reload_status *outcome)
{
    *outcome = (mp_reload_status){.generation = 1, .is_ok = true, .by = "files"};
    pthread_mutex_init(&outcome->lock, NULL);
}

void mp_reload_status_clear(mp_reload_status *outcome)
{
    for (size_t i = 0; i < outcome->waiting_count; i++)
        mp_stream_unref(outcome->waiting[i]);
    mp_buf_clear(&outcome->text);
    mp_buf_clear(&outcome->restart);
    mp_buf_clear(&outcome->start);
    mp_buf_clear(&outcome->behind);
    pthread_mutex_destroy(&outcome->lock);
}

bool mp_reload_status_wait(mp_reload_status *outcome, mp_stream *stream)
{
    MP_LOCKED(&outcome->lock);
    bool has_room = outcome->waiting_count < MP_MAX_RELOAD_REQUESTS;
    if (has_room)
        outcome->waiting[outcome->waiting_count++] = mp_stream_ref(stream);
    return has_room;
}

void mp_reload_status_begin(mp_reload_status *outcome, const char *by)
{
    MP_LOCKED(&outcome->lock);
    outcome->by = by;
    outcome->began_ms = mp_monotonic_ms();
}

size_t mp_reload_status_waiting(mp_reload_status *outcome)
{
    MP_LOCKED(&outcome->lock);
    return outcome->waiting_count - outcome->promised;
}

/* Writes the result of a reload and its cause to the audit log. The errors themselves are in the log. */
static void audit_reload(const mp_reload_status *outcome, mp_str text)
{
    mp_scoped_buf line = {0};
    if (!mp_audit_is_on() || text.len == 0)
        return;
    mp_buf_printf(&line, "\"event\":\"reload\",\"by\":\"%s\",\"outcome\":\"%s\",\"generation\":", outcome->by,
                  outcome->is_ok ? "done" : "refused");
    mp_json_put_int(&line, outcome->generation);
    mp_buf_printf(&line, ",\"%s\":", outcome->is_ok ? "changes" : "why");
    mp_json_put_string(&line, (mp_str){text.ptr, text.len < MAX_AUDIT_BYTES ? text.len : MAX_AUDIT_BYTES});
    mp_audit_write(mp_buf_str(&line));
}

MP_COUNTER(reloads_done, "reloads", "outcome", "done", "reloads")
MP_COUNTER(reloads_refused, "reloads", "outcome", "refused", "reloads that were refused because of errors")

static void keep_outcome(mp_reload_status *outcome, int64_t generation, bool is_ok, mp_str text)
{
    mp_stat_add(is_ok ? &mp_stat_reloads_done : &mp_stat_reloads_refused, 1);
    MP_LOCKED(&outcome->lock);
    if (generation != 0)
        outcome->generation = generation;
    outcome->is_ok = is_ok;
    if (is_ok)
        outcome->start.len = 0;
    outcome->at = time(NULL);
    outcome->text.len = 0;
    mp_buf_put(&outcome->text, text);
    audit_reload(outcome, text);
    uint64_t took_ms = outcome->began_ms == 0 ? 0 : mp_monotonic_ms() - outcome->began_ms;
    mp_reload_past_add(outcome->past, is_ok, outcome->generation, outcome->by, took_ms, text);
}

void mp_reload_status_keep(mp_reload_status *outcome, int64_t generation, mp_str changes)
{
    keep_outcome(outcome, generation, true, changes);
}

void mp_reload_status_keep_errors(mp_reload_status *outcome, mp_str report)
{
    keep_outcome(outcome, 0, false, report);
}

bool mp_reload_status_is_starved(mp_str report)
{
    static const int errors[] = {EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        const char *text = strerror(errors[i]);
        if (report.len > 0 && memmem(report.ptr, report.len, text, strlen(text)) != NULL)
            return true;
    }
    return false;
}

void mp_reload_status_keep_restart(mp_reload_status *outcome, mp_str keys)
{
    MP_LOCKED(&outcome->lock);
    outcome->restart.len = 0;
    mp_buf_put(&outcome->restart, keys);
}

void mp_reload_status_keep_behind(mp_reload_status *outcome, mp_worker *const *workers, int count, int64_t generation)
{
    MP_LOCKED(&outcome->lock);
    outcome->behind.len = 0;
    for (int i = 0; i < count; i++) {
        int64_t now = mp_worker_generation(workers[i]);
        if (now >= generation)
            continue;
        mp_buf_put(&outcome->behind, outcome->behind.len == 0 ? MP_STR(",\"behind\":[") : MP_STR(","));
        mp_buf_printf(&outcome->behind, "{\"worker\":%d,\"generation\":%lld}", i + 1, (long long)now);
    }
    if (outcome->behind.len > 0)
        mp_buf_putc(&outcome->behind, ']');
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_reload_status *outcome;
    int status;
    size_t asked, len;
    char text[];
} answer_message;

static void deliver_outcome(void *content, mp_loop *MP_NULLABLE loop)
{
    const answer_message *given = content;
    mp_reload_status *outcome = given->outcome;
    mp_stream *streams[MP_MAX_RELOAD_REQUESTS];
    size_t count = 0;
    if (loop != NULL) {
        pthread_mutex_lock(&outcome->lock);
        count = given->asked;
        memcpy(streams, outcome->waiting, count * sizeof *streams);
        outcome->waiting_count -= count;
        outcome->promised -= count;
        memmove(outcome->waiting, outcome->waiting + count, outcome->waiting_count * sizeof *streams);
        pthread_mutex_unlock(&outcome->lock);
    }
    for (size_t i = 0; i < count; i++) {
        mp_stream_answer(streams[i], given->status, "text/plain; charset=utf-8", (mp_str){given->text, given->len},
                         NULL, 0);
        mp_stream_unref(streams[i]);
    }
}

void mp_reload_status_answer(mp_reload_status *outcome, mp_loop *loop, size_t asked, int status, mp_str text)
{
    mp_scoped_buf line = {0};
    mp_buf_put(&line, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(&line, '\n');
    pthread_mutex_lock(&outcome->lock);
    outcome->promised += asked;
    pthread_mutex_unlock(&outcome->lock);
    const answer_message message = {outcome, status, asked, line.len};
    mp_loop_send(loop, deliver_outcome, &message, sizeof message, mp_buf_str(&line));
}

void mp_reload_status_answer_again(mp_reload_status *outcome, mp_loop *loop, size_t asked)
{
    mp_scoped_buf text = {0};
    pthread_mutex_lock(&outcome->lock);
    bool is_ok = outcome->is_ok;
    mp_buf_put(&text, is_ok ? MP_STR("nothing changed") : mp_buf_str(&outcome->text));
    if (is_ok && outcome->restart.len > 0)
        mp_buf_printf(&text, "  needs a restart: %.*s", MP_STR_ARG(mp_buf_str(&outcome->restart)));
    pthread_mutex_unlock(&outcome->lock);
    mp_reload_status_answer(outcome, loop, asked, is_ok ? 200 : 422, mp_buf_str(&text));
}

void mp_reload_status_describe(mp_reload_status *outcome, mp_buf *out)
{
    MP_LOCKED(&outcome->lock);
    mp_buf_printf(out, "{\"generation\":%lld", (long long)outcome->generation);
    if (outcome->at != 0) {
        char when[32];
        struct tm parts;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&outcome->at, &parts));
        mp_buf_printf(out, ",\"at\":\"%s\",\"ok\":%s,\"%s\":", when, outcome->is_ok ? "true" : "false",
                      outcome->is_ok ? "changes" : "errors");
        mp_json_put_string(out, mp_buf_str(&outcome->text));
    }
    if (outcome->restart.len > 0) {
        mp_buf_put(out, MP_STR(",\"needs_restart\":"));
        mp_json_put_string(out, mp_buf_str(&outcome->restart));
    }
    mp_buf_put(out, mp_buf_str(&outcome->start));
    mp_buf_put(out, mp_buf_str(&outcome->behind));
    mp_buf_put(out, MP_STR(",\"last_good\":"));
    mp_last_good_writer_describe(outcome->writer, out);
    mp_buf_putc(out, '}');
}

void mp_reload_status_put_metrics(mp_reload_status *outcome, mp_buf *out)
{
    static const char others[] = "\"serves\":\"others\""; /* as mp_start_describe() writes it */
    MP_LOCKED(&outcome->lock);
    mp_metrics_put_gauge(out, "moonpool_generation", "number of the scripts that serve: each reload adds one",
                         (double)outcome->generation);
    mp_metrics_put_gauge(out, "moonpool_config_ok", "0 while the files on the disk are refused",
                         outcome->at == 0 || outcome->is_ok ? 1 : 0);
    bool has_left_out =
        outcome->start.len > 0 && memmem(outcome->start.ptr, outcome->start.len, others, sizeof others - 1) != NULL;
    mp_metrics_put_gauge(out, "moonpool_scripts_left_out", "1 while scripts that had errors at the start are left out",
                         has_left_out ? 1 : 0);
    mp_metrics_put_gauge(out, "moonpool_reload_timestamp_seconds",
                         "time of the last reload that changed or refused anything; 0: none", (double)outcome->at);
}
