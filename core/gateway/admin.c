/* admin.c: the operator's HTTP endpoints: /healthz, /status and /reload. No answer contains a session id, token or
 * key. */
#include "admin.h"
#include "admin_upstreams.h"
#include "json/json.h"
#include "metrics.h"
#include "reload.h"
#include "watchdog.h"
#include <strings.h>
#include <unistd.h>

static void put_key(mp_buf *out, const char *key)
{
    if (out->ptr[out->len - 1] != '{')
        mp_buf_putc(out, ',');
    mp_json_put_string(out, mp_str_of(key));
    mp_buf_putc(out, ':');
}

/* Appends the families of counters or gauges from `list`: a number for a family without labels, else an object. */
static void put_stats(mp_buf *out, const mp_stat *const *list, size_t count, mp_stat_kind kind)
{
    const mp_stat *last = NULL;
    mp_buf_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        const mp_stat *stat = list[i];
        if (stat->kind != kind)
            continue;
        if (last == NULL || strcmp(last->family, stat->family) != 0) {
            if (last != NULL && *last->label != '\0')
                mp_buf_putc(out, '}');
            put_key(out, stat->family);
            if (*stat->label != '\0')
                mp_buf_putc(out, '{');
        }
        if (*stat->label != '\0')
            put_key(out, stat->value);
        mp_json_put_int(out, mp_stat_read(stat));
        last = stat;
    }
    mp_buf_put(out, last != NULL && *last->label != '\0' ? MP_STR("}}") : MP_STR("}"));
}

static void serve_status(mp_admin *admin, mp_stream *stream)
{
    mp_shared *shared = mp_admin_shared(admin);
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"version\":\"" MOONPOOL_VERSION "\",\"pid\":"));
    mp_json_put_int(&out, getpid());
    mp_buf_put(&out, MP_STR(",\"uptime_ms\":"));
    mp_json_put_int(&out, (int64_t)(mp_loop_now(mp_stream_loop(stream)) - shared->started_at));
    mp_buf_put(&out, MP_STR(",\"workers\":"));
    mp_json_put_int(&out, mp_admin_settings(admin)->config->workers);
    mp_buf_put(&out, atomic_load(&shared->draining) ? MP_STR(",\"draining\":true") : MP_STR(",\"draining\":false"));
    mp_buf_put(&out, MP_STR(",\"stuck\":"));
    mp_watchdog_describe(shared->watchdog, &out);
    mp_buf_put(&out, MP_STR(",\"scripts\":"));
    mp_reload_describe(shared->reload, &out);
    mp_buf_put(&out, MP_STR(",\"certificates\":"));
    mp_certificates_describe(shared->certificates, &out);
    mp_buf_put(&out, MP_STR(",\"upstreams\":"));
    mp_admin_put_upstreams(&out, shared->commons.upstreams);
    size_t count;
    const mp_stat **list = mp_stat_list(&count);
    mp_buf_put(&out, MP_STR(",\"gauges\":"));
    put_stats(&out, list, count, MP_STAT_GAUGE);
    mp_buf_put(&out, MP_STR(",\"counters\":"));
    put_stats(&out, list, count, MP_STAT_COUNTER);
    free(list);
    mp_buf_put(&out, MP_STR("}\n"));
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    mp_buf_clear(&out);
}

static void refuse(mp_stream *stream, int status, const char *text, const mp_header *header)
{
    mp_buf line = {0};
    mp_buf_printf(&line, "%s\n", text);
    mp_stream_answer(stream, status, "text/plain", mp_buf_str(&line), header, header == NULL ? 0 : 1);
    mp_buf_clear(&line);
}

/* Why the gateway does not accept requests now: a text for people; NULL: it does. */
static const char *not_ready(mp_shared *shared)
{
    return atomic_load(&shared->draining) ? "draining" : NULL;
}

/* Answers 200 while the gateway accepts requests. */
static void serve_ready(mp_shared *shared, mp_stream *stream)
{
    const char *why = not_ready(shared);
    refuse(stream, why == NULL ? 200 : 503, why == NULL ? "ready" : why, NULL);
}

static void put_metrics(void *ctx, mp_buf *out)
{
    mp_shared *shared = ctx;
    mp_metrics_put_gauge(out, "moonpool_ready", "1 while the gateway accepts requests",
                         not_ready(shared) == NULL ? 1 : 0);
    mp_reload_put_metrics(shared->reload, out);
    mp_certificates_put_metrics(shared->certificates, out);
}

/* Answers 200 while all workers make progress. */
static void serve_health(mp_shared *shared, mp_stream *stream)
{
    mp_buf stuck = {0};
    mp_watchdog_put_stuck(shared->watchdog, &stuck);
    mp_buf_putc(&stuck, '\0');
    refuse(stream, stuck.len == 1 ? 200 : 503, stuck.len == 1 ? "ok" : stuck.ptr, NULL);
    mp_buf_clear(&stuck);
}

/* True if a web page of another origin sent the request: it may not change anything here. Programs other than
 * browsers send neither header. */
static bool is_foreign_page(const mp_stream *stream)
{
    mp_str origin = mp_stream_header(stream, "origin", NULL), site = mp_stream_header(stream, "sec-fetch-site", NULL);
    if (site.ptr != NULL && !mp_str_is(site, "same-origin") && !mp_str_is(site, "none"))
        return true;
    mp_str scheme = mp_stream_tls(stream) == NULL ? MP_STR("http://") : MP_STR("https://");
    mp_str host = mp_stream_request(stream)->host;
    mp_str own = mp_str_starts(origin, scheme) ? mp_str_from(origin, scheme.len) : MP_STR_NONE;
    return origin.ptr != NULL && (own.len != host.len || strncasecmp(own.ptr, host.ptr, host.len) != 0);
}

void mp_admin_serve(void *ctx, mp_stream *stream)
{
    mp_admin *admin = ctx;
    mp_shared *shared = mp_admin_shared(admin);
    const mp_request *request = mp_stream_request(stream);
    bool is_health = mp_str_is(request->path, "/healthz"), is_ready = mp_str_is(request->path, "/readyz");
    bool is_metrics = mp_str_is(request->path, "/metrics");
    if (!mp_host_is_served(&mp_admin_settings(admin)->rpc, stream)) {
        mp_stat_add(&mp_stat_refused_origin, 1);
        mp_audit_request(stream, &mp_host_refused);
        mp_log_refused(stream, mp_host_cause(&mp_admin_settings(admin)->rpc, stream), 403,
                       mp_str_of(mp_host_refusal(&mp_admin_settings(admin)->rpc, stream)));
        refuse(stream, 403, mp_host_refusal(&mp_admin_settings(admin)->rpc, stream), NULL);
    } else if (mp_str_is(request->path, "/reload")) {
        if (!mp_str_is(request->method, "POST"))
            refuse(stream, 405, "POST it", &(mp_header){"allow", MP_STR("POST")});
        else if (is_foreign_page(stream)) {
            mp_audit_request(stream, &mp_host_refused);
            mp_log_refused(stream, MP_CAUSE_ORIGIN, 403, MP_STR("web pages of other origins may not request a reload"));
            refuse(stream, 403, "web pages of other origins may not request a reload", NULL);
        } else if (atomic_load(&shared->draining))
            refuse(stream, 503, "draining", NULL);
        else {
            mp_audit_request(stream, &(mp_decision){.event = "reload requested"});
            mp_certificates_now(shared->certificates);
            mp_reload_ask(shared->reload, stream);
        }
    } else if (!is_health && !is_ready && !is_metrics && !mp_str_is(request->path, "/status")) {
        refuse(stream, 404, "not found: use /healthz, /readyz, /status, /metrics or /reload", NULL);
    } else if (!mp_str_is(request->method, "GET") && !mp_str_is(request->method, "HEAD")) {
        refuse(stream, 405, "method not allowed", &(mp_header){"allow", MP_STR("GET, HEAD")});
    } else if (is_metrics) {
        mp_metrics_serve(mp_admin_metrics(admin),
                         &(mp_metrics_facts){mp_admin_settings(admin), shared->started_at, put_metrics, shared},
                         stream);
    } else if (is_ready) {
        serve_ready(shared, stream);
    } else if (!is_health) {
        serve_status(admin, stream);
    } else if (atomic_load(&shared->draining)) {
        refuse(stream, 503, "draining", NULL);
    } else {
        serve_health(shared, stream);
    }
}
