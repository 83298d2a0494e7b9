/* admin.c: the operator's HTTP endpoints, and who may use them. No answer contains a session id, token or key. */
#include "conditions.h"
#include "admin.h"
#include "api.h"
#include "pages.h"
#include "event_feed.h"
#include "others.h"
#include "profile.h"
#include "record.h"
#include "run.h"
#include "tap.h"
#include "ui.h"
#include "upstreams.h"
#include "json/json.h"
#include "metrics.h"
#include <moonpool/version.h>
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

static void put_status(mp_admin *admin, mp_buf *out)
{
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    mp_scoped_buf stuck = {0}, scripts = {0}, certificates = {0};
    mp_buf_put(out, MP_STR("{\"version\":\"" MOONPOOL_VERSION "\",\"pid\":"));
    mp_json_put_int(out, getpid());
    mp_buf_put(out, MP_STR(",\"uptime_ms\":"));
    mp_json_put_int(out, (int64_t)(mp_loop_now(mp_admin_loop(admin)) - gateway->started_at));
    mp_buf_put(out, MP_STR(",\"workers\":"));
    mp_json_put_int(out, mp_admin_settings(admin)->config->workers);
    mp_buf_put(out, atomic_load(gateway->draining) ? MP_STR(",\"draining\":true") : MP_STR(",\"draining\":false"));
    /* the member `upgrade` is filled by others.h after an upgrade */
    mp_buf_put(out, MP_STR(",\"upgrade\":[],\"conditions\":"));
    gateway->put_stuck(gateway->self, &stuck);
    gateway->describe_reload(gateway->self, &scripts);
    gateway->describe_certificates(gateway->self, false, &certificates);
    mp_conditions_put(mp_admin_conditions(admin), mp_admin_readiness(admin), gateway->upstreams, mp_buf_str(&stuck),
                      mp_buf_str(&scripts), mp_buf_str(&certificates), out);
    mp_buf_put(out, MP_STR(",\"stuck\":"));
    gateway->describe_stuck(gateway->self, out);
    mp_buf_put(out, MP_STR(",\"scripts\":"));
    mp_buf_put(out, mp_buf_str(&scripts));
    mp_buf_put(out, MP_STR(",\"certificates\":"));
    mp_buf_put(out, mp_buf_str(&certificates));
    const mp_nodes *nodes = mp_processes_nodes(gateway->processes);
    const char *cluster = mp_admin_settings(admin)->config->lib.cluster.name;
    if (nodes != NULL && cluster != NULL) {
        mp_buf_put(out, MP_STR(",\"cluster\":{\"name\":"));
        mp_json_put_string(out, mp_str_of(cluster));
        mp_buf_putc(out, ',');
        mp_nodes_put(nodes, mp_processes_number(gateway->processes), out);
        mp_buf_putc(out, '}');
    }
    mp_buf_put(out, MP_STR(",\"upstreams\":"));
    mp_admin_put_upstreams(out, gateway->upstreams);
    size_t count;
    const mp_stat *const *list = mp_stat_list(&count);
    mp_buf_put(out, MP_STR(",\"gauges\":"));
    put_stats(out, list, count, MP_STAT_GAUGE);
    mp_buf_put(out, MP_STR(",\"counters\":"));
    put_stats(out, list, count, MP_STAT_COUNTER);
    mp_buf_put(out, MP_STR("}\n"));
}

static void serve_status(mp_admin *admin, mp_stream *stream)
{
    mp_scoped_buf out = {0};
    put_status(admin, &out);
    if (mp_others_is_other(admin, stream))
        mp_others_put_status(admin, &out);
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
}

/* -- Host and Origin ----------------------------------------------------------------------------------------------- */

/* True for the names by which a browser on this machine, or one that uses the address of the listener, finds it, and
 * for admin.hosts: the guard against DNS rebinding (Z-1). A page that rebinds its own name to this machine has that
 * name in Host. */
static bool is_own_host(mp_admin *admin, const mp_stream *stream, mp_str host)
{
    const mp_config *config = mp_admin_settings(admin)->config;
    char listen[256] = ""; /* the configured name or address of the listener */
    bool is_address = config->admin_listen != NULL && mp_systemd_name(mp_str_of(config->admin_listen)).ptr == NULL;
    mp_str written = mp_host_name(mp_str_of(is_address ? config->admin_listen : ""));
    if (written.len > 0 && written.len < sizeof listen)
        memcpy(listen, written.ptr, written.len);
    const char *const own[] = {"localhost", "127.0.0.1", "[::1]", listen, NULL};
    return mp_hosts_have(own, host) || mp_hosts_have((const char *const *)config->admin_hosts, host) ||
           mp_stream_reached(stream, mp_host_name(host));
}

static bool has_own_host(mp_admin *admin, const mp_stream *stream)
{
    return is_own_host(admin, stream, mp_stream_request(stream)->host);
}

/* True if Origin is absent or of the listener itself. */
static bool has_own_origin(mp_admin *admin, const mp_stream *stream)
{
    int count;
    mp_str origin = mp_stream_known_header(stream, MP_HEADER_ORIGIN, &count);
    return count == 0 || (count == 1 && is_own_host(admin, stream, mp_origin_host(origin)));
}

static void refuse_request(mp_stream *stream, int status, const char *text, const mp_header *MP_NULLABLE header)
{
    mp_scoped_buf line = {0};
    mp_buf_printf(&line, "%s\n", text);
    mp_stream_answer(stream, status, "text/plain", mp_buf_str(&line), header, header == NULL ? 0 : 1);
}

/* True if the gateway should get requests now; else appends why not. */
static bool is_ready(mp_admin *admin, mp_buf *why)
{
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    if (!atomic_load(gateway->leaving))
        return mp_readiness_is_good(mp_admin_readiness(admin), why);
    mp_buf_put(why, atomic_load(gateway->draining) ? MP_STR("draining") : MP_STR("leaving"));
    return false;
}

static const mp_runtime_config *read_settings(void *ctx)
{
    return mp_admin_settings(ctx);
}

static void put_metrics(void *ctx, mp_buf *out)
{
    mp_admin *admin = ctx;
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    mp_scoped_buf why = {0};
    mp_metrics_put_gauge(out, "moonpool_ready", "1 while the gateway accepts requests", is_ready(admin, &why) ? 1 : 0);
    mp_metrics_put_gauge(out, "moonpool_overloaded", "1 while a worker refuses requests because they wait too long",
                         mp_stat_read(&mp_stat_workers_overloaded) > 0 ? 1 : 0);
    gateway->put_metrics(gateway->self, out);
    mp_admin_put_upstream_metrics(out, gateway->upstreams);
}

static void put_left(void *ctx, const mp_stream *stream, mp_buf *out)
{
    if (mp_others_is_other(ctx, stream))
        mp_others_put_metrics(ctx, out);
}

static mp_metrics_facts facts_of(mp_admin *admin)
{
    return (mp_metrics_facts){
        read_settings, mp_admin_readiness(admin), mp_admin_gateway_of(admin)->started_at, put_metrics, put_left, admin};
}

static void put_own_metrics(mp_admin *admin, mp_buf *out)
{
    mp_metrics_facts facts = facts_of(admin);
    mp_metrics_put(&facts, out);
    mp_others_put_metrics(admin, out);
}

/* Answers 200 while all workers make progress. The reason why they do not names scripts: a request with a foreign Host
 * does not get it. */
static void serve_health(mp_admin *admin, mp_stream *stream)
{
    mp_scoped_buf stuck = {0};
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    gateway->put_stuck(gateway->self, &stuck);
    mp_buf_putc(&stuck, '\0');
    const char *why = has_own_host(admin, stream) ? stuck.ptr : "stuck";
    refuse_request(stream, stuck.len == 1 ? 200 : 503, stuck.len == 1 ? "ok" : why, NULL);
}

/* True if a web page of another origin sent the request: it may neither read nor change anything here. Programs other
 * than browsers send neither header. */
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

/* -- endpoints ----------------------------------------------------------------------------------------------------- */

static void on_health(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    if (atomic_load(mp_admin_gateway_of(admin)->draining))
        refuse_request(stream, 503, "draining", NULL);
    else
        serve_health(admin, stream);
}

static void on_ready(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_scoped_buf why = {0};
    bool is_good = is_ready(admin, &why), is_draining = atomic_load(mp_admin_gateway_of(admin)->leaving);
    char seconds[16]; /* a process that drains does not become ready again; one that takes its place may be soon */
    snprintf(seconds, sizeof seconds, "%u",
             is_draining ? MP_HYSTERESIS_MS / 1000 : mp_readiness_wait_s(mp_admin_readiness(admin)));
    if (!has_own_host(admin, stream) && !is_draining)
        why.len = 0; /* the limits that were reached are for operators */
    mp_buf_put(&why, is_good ? MP_STR("ready\n") : why.len == 0 ? MP_STR("not ready\n") : MP_STR("\n"));
    mp_stream_answer(stream, is_good ? 200 : 503, "text/plain", mp_buf_str(&why),
                     &(mp_header){"retry-after", mp_str_of(seconds)}, is_good ? 0 : 1);
}

static void on_metrics(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_metrics_facts facts = facts_of(admin);
    mp_metrics_serve(mp_admin_metrics(admin), &facts, stream);
}

static void on_status(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    serve_status(admin, stream);
}

static void on_reload(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    if (atomic_load(gateway->draining)) {
        refuse_request(stream, 503, "draining", NULL);
        return;
    }
    mp_audit_request(stream, &(mp_decision){.event = "reload requested", .caller = mp_str_of(caller->name)});
    gateway->ask_reload(gateway->self, stream);
}

static void on_upgrade(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_audit_request(stream, &(mp_decision){.event = "upgrade requested", .caller = mp_str_of(caller->name)});
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    gateway->ask_upgrade(gateway->self, stream);
}

/* "process=PID": a profile of another process of the gateway. */
static void on_profile(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    int64_t pid = getpid();
    mp_str query = mp_stream_request(stream)->query, name = MP_STR("process=");
    if (query.len > 0 && (!mp_str_starts(query, name) || !mp_json_int(mp_str_from(query, name.len), &pid)))
        mp_admin_refuse(stream, 400, MP_STR("the query is process=PID"));
    else if (pid != getpid() && (caller->is_process || !mp_others_open_process(admin, stream, caller, pid)))
        mp_admin_refuse(stream, 404, MP_STR("no process of this gateway has this number: see upgrade in /status"));
    else if (pid == getpid())
        mp_admin_profile_serve(mp_admin_profile_of(admin), mp_admin_settings(admin), stream, caller);
}

static void on_profile_end(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_admin_profile_serve_end(mp_admin_profile_of(admin), stream, caller);
}

/* One path of the admin listener; a path that ends in '/' serves all paths that begin with it. */
typedef struct {
    const char *path, *method;
    mp_admin_role role;
    bool is_open_near; /* needs no role where only this machine can reach the listener */
    void (*serve)(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
    mp_admin_view view; /* which processes answer, if the gateway consists of several */
} endpoint;

static const endpoint endpoints[] = {
    {"/", "GET", MP_ROLE_NONE, true, mp_admin_ui, MP_VIEW_OWN},
    {"/ui/", "GET", MP_ROLE_NONE, true, mp_admin_ui, MP_VIEW_OWN},
    {"/healthz", "GET", MP_ROLE_NONE, true, on_health, MP_VIEW_OWN},
    {"/readyz", "GET", MP_ROLE_NONE, true, on_ready, MP_VIEW_OWN},
    {"/metrics", "GET", MP_ROLE_METRICS, true, on_metrics, MP_VIEW_METRICS},
    {"/status", "GET", MP_ROLE_VIEW, true, on_status, MP_VIEW_STATUS},
    {"/reload", "POST", MP_ROLE_OPERATE, true, on_reload, MP_VIEW_OWN},
    {"/api/sessions", "GET", MP_ROLE_VIEW, false, mp_api_sessions, MP_VIEW_LIST},
    {"/api/session/", "DELETE", MP_ROLE_OPERATE, false, mp_api_end_session, MP_VIEW_ONE},
    {"/api/calls", "GET", MP_ROLE_VIEW, false, mp_api_calls, MP_VIEW_LIST},
    {"/api/call/", "DELETE", MP_ROLE_OPERATE, false, mp_api_end_call, MP_VIEW_ONE},
    {"/api/overview", "GET", MP_ROLE_VIEW, false, on_status, MP_VIEW_STATUS},
    {"/api/scripts", "GET", MP_ROLE_VIEW, false, mp_api_scripts, MP_VIEW_OWN},
    {"/api/jobs", "GET", MP_ROLE_VIEW, false, mp_api_jobs, MP_VIEW_JOBS},
    {"/api/reloads", "GET", MP_ROLE_VIEW, false, mp_api_reloads, MP_VIEW_OWN},
    {"/api/certificates", "GET", MP_ROLE_VIEW, false, mp_api_certificates, MP_VIEW_OWN},
    {"/api/config", "GET", MP_ROLE_OPERATE, false, mp_api_config, MP_VIEW_OWN},
    {"/api/history", "GET", MP_ROLE_VIEW, false, mp_api_history, MP_VIEW_NEWEST},
    {"/api/live", "GET", MP_ROLE_VIEW, false, mp_api_live, MP_VIEW_FOLLOWED},
    {"/api/call", "POST", MP_ROLE_OPERATE, false, mp_api_call, MP_VIEW_OWN},
    {"/api/answer/", "POST", MP_ROLE_OPERATE, false, mp_api_answer, MP_VIEW_OWN},
    {"/api/tools", "GET", MP_ROLE_VIEW, false, mp_api_tools, MP_VIEW_OWN},
    {"/api/tool/", "GET", MP_ROLE_VIEW, false, mp_api_tool, MP_VIEW_OWN},
    {"/api/prompts", "GET", MP_ROLE_VIEW, false, mp_api_prompts, MP_VIEW_OWN},
    {"/api/prompt/", "GET", MP_ROLE_VIEW, false, mp_api_prompt, MP_VIEW_OWN},
    {"/api/resources", "GET", MP_ROLE_VIEW, false, mp_api_resources, MP_VIEW_OWN},
    {"/api/resource", "GET", MP_ROLE_VIEW, false, mp_api_resource, MP_VIEW_OWN},
    {"/api/tasks", "GET", MP_ROLE_VIEW, false, mp_api_tasks, MP_VIEW_OWN},
    {"/api/task/", "DELETE", MP_ROLE_OPERATE, false, mp_api_end_task, MP_VIEW_ALL},
    {"/api/sign-ins", "GET", MP_ROLE_VIEW, false, mp_api_sign_ins, MP_VIEW_OWN},
    {"/api/sign-ins/end", "POST", MP_ROLE_OPERATE, false, mp_api_end_sign_ins, MP_VIEW_OWN},
    {"/api/sign-in/", "DELETE", MP_ROLE_OPERATE, false, mp_api_end_sign_in, MP_VIEW_OWN},
    {"/api/streams", "GET", MP_ROLE_VIEW, false, mp_api_streams, MP_VIEW_LIST},
    {"/api/stream/", "DELETE", MP_ROLE_OPERATE, false, mp_api_end_stream, MP_VIEW_ONE},
    {"/session", "POST", MP_ROLE_NONE, true, mp_api_open_dashboard, MP_VIEW_NEWEST},
    {"/api/code", "POST", MP_ROLE_OPERATE, false, mp_api_code, MP_VIEW_NEWEST},
    {"/api/switch", "GET", MP_ROLE_VIEW, false, mp_api_switches, MP_VIEW_OWN},
    {"/api/switch", "POST", MP_ROLE_OPERATE, false, mp_api_switch, MP_VIEW_ALL},
    {"/api/approve", "POST", MP_ROLE_OPERATE, false, mp_api_approve, MP_VIEW_OWN},
    {"/api/cluster/drain", "POST", MP_ROLE_OPERATE, false, mp_api_drain_node, MP_VIEW_OWN},
    {"/api/cluster/forget", "POST", MP_ROLE_OPERATE, false, mp_api_forget_node, MP_VIEW_OWN},
    {"/api/tap", "GET", MP_ROLE_OPERATE, false, mp_api_tap, MP_VIEW_EVENTS},
    {"/api/profile", "POST", MP_ROLE_OPERATE, false, on_profile, MP_VIEW_FOLLOWED},
    {"/api/profile/end", "POST", MP_ROLE_OPERATE, false, on_profile_end, MP_VIEW_ONE},
    {"/api/record", "POST", MP_ROLE_OPERATE, false, mp_api_record, MP_VIEW_OWN},
    {"/api/record/stop", "POST", MP_ROLE_OPERATE, false, mp_api_record_stop, MP_VIEW_OWN},
    {"/api/records", "GET", MP_ROLE_OPERATE, false, mp_api_records, MP_VIEW_OWN},
    {"/api/log", "POST", MP_ROLE_OPERATE, false, mp_api_log, MP_VIEW_ALL},
    {"/api/log/reopen", "POST", MP_ROLE_OPERATE, false, mp_api_reopen, MP_VIEW_ALL},
    {"/api/drain", "POST", MP_ROLE_OPERATE, false, mp_api_drain, MP_VIEW_OWN},
    {"/api/upgrade", "POST", MP_ROLE_OPERATE, false, on_upgrade, MP_VIEW_OWN},
};

/* True for the endpoints that probes and collectors ask, by the pod's address or any other name. Those that need a role
 * need a token then. */
static bool takes_any_host(const endpoint *MP_NULLABLE at)
{
    return at != NULL && (at->serve == on_health || at->serve == on_ready || at->serve == on_metrics);
}

static bool is_get(const endpoint *at)
{
    return strcmp(at->method, "GET") == 0;
}

static bool is_method(const endpoint *at, mp_str method)
{
    return mp_str_is(method, at->method) || (is_get(at) && mp_str_is(method, "HEAD"));
}

/* The endpoint of a path and method, or another one of the path; and what follows the endpoint's own path. */
static const endpoint *find_endpoint(mp_str path, mp_str method, mp_str *rest)
{
    const endpoint *found = NULL;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
        mp_str own = mp_str_of(endpoints[i].path);
        bool has_rest = own.ptr[own.len - 1] == '/';
        mp_str more = mp_str_from(path, own.len < path.len ? own.len : path.len);
        bool fits = own.len > 1 && has_rest ? mp_str_starts(path, own) && more.len > 0 : mp_str_eq(path, own);
        if (!fits || (found != NULL && !is_method(&endpoints[i], method)))
            continue;
        found = &endpoints[i];
        *rest = more;
        if (is_method(found, method))
            break;
    }
    return found;
}

/* Refuses a method that the path does not have. */
static void refuse_method(mp_stream *stream, const endpoint *at)
{
    char allow[64];
    size_t len = 0;
    for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++)
        if (strcmp(endpoints[i].path, at->path) == 0 && len < sizeof allow)
            len += (size_t)snprintf(allow + len, sizeof allow - len, "%s%s%s", len == 0 ? "" : ", ",
                                    endpoints[i].method, is_get(&endpoints[i]) ? ", HEAD" : "");
    refuse_request(stream, 405, "method not allowed", &(mp_header){"allow", mp_str_of(allow)});
}

/* True if web pages of other origins may not even send such a request: it changes something, or is below /api. They can
 * read no answer in any case. */
static bool is_guarded(const endpoint *at)
{
    return !is_get(at) || mp_str_starts(mp_str_of(at->path), MP_STR("/api/"));
}

/* Refuses requests that a form of a web page could send: one that changes something must have the header and a JSON
 * body, neither of which a form can have. POST /reload needs neither, since it only serves the files on the disk. */
static const char *MP_NULLABLE wrong_form(const endpoint *at, const mp_stream *stream)
{
    if (is_get(at) || strcmp(at->path, "/reload") == 0)
        return NULL;
    if (!mp_str_is(mp_stream_header(stream, "moonpool-admin", NULL), "1"))
        return "the header 'moonpool-admin: 1' is needed";
    mp_str type = mp_stream_header(stream, "content-type", NULL);
    bool is_json = mp_str_is_nocase(mp_str_trim(mp_str_cut(&type, ';')), "application/json");
    return is_json || mp_stream_request(stream)->body.len == 0 ? NULL : "the body must be application/json";
}

/* -- who may use it ------------------------------------------------------------------------------------------------ */

static void refuse_place(mp_stream *stream, mp_cause cause, const char *why)
{
    mp_stat_add(&mp_stat_refused_origin, 1);
    mp_audit_request(stream, &mp_host_refused);
    mp_log_refused(stream, cause, 403, mp_str_of(why));
    refuse_request(stream, 403, why, NULL);
}

static void refuse_host(mp_stream *stream)
{
    refuse_place(stream, MP_CAUSE_ADMIN_HOST,
                 "the admin listener does not serve this Host: see \"admin.hosts\" in the configuration");
}

static void refuse_page(mp_stream *stream)
{
    refuse_place(stream, MP_CAUSE_ADMIN_HOST, "web pages of other origins may not use the admin listener");
}

/* Refuses a caller without the role. Those whose credentials are missing or wrong get no further explanation. */
static void refuse_caller(mp_stream *stream, const mp_admin_caller *caller, mp_admin_role role)
{
    char text[160], wait[24];
    mp_header header = {"www-authenticate", MP_STR("Bearer realm=\"moonpool admin\"")};
    int status = 401;
    snprintf(text, sizeof text, "a token is needed: Authorization: Bearer");
    if (caller->wait_s > 0) {
        status = 429;
        header = (mp_header){"retry-after",
                             {wait, (size_t)snprintf(wait, sizeof wait, "%llu", (unsigned long long)caller->wait_s)}};
        snprintf(text, sizeof text, "too many wrong tokens from this address");
    } else if (!caller->has_wrong_token && *caller->name != '\0') {
        status = 403;
        snprintf(text, sizeof text, "this needs the role %s, and yours is %s", mp_admin_role_name(role),
                 mp_admin_role_name(caller->role));
    }
    mp_admin_count_refused();
    mp_audit_request(stream,
                     &(mp_decision){.event = "admin refused", .status = status, .caller = mp_str_of(caller->name)});
    mp_log_refused(stream, MP_CAUSE_ADMIN, status, mp_str_of(text));
    refuse_request(stream, status, text, status == 403 ? NULL : &header);
}

/* True if the caller may use the endpoint; else it is refused. A request with a foreign Host has only the role of its
 * token: a browser sends certificates for any page. */
static bool admit_caller(mp_admin *admin, mp_stream *stream, const endpoint *at, mp_admin_caller *caller)
{
    mp_admin_access *access = mp_admin_access_of(admin);
    *caller = (mp_admin_caller){.role = MP_ROLE_NONE};
    bool needs_token = at->role != MP_ROLE_NONE && !has_own_host(admin, stream);
    bool is_open = at->role == MP_ROLE_NONE || (at->is_open_near && !needs_token && mp_admin_is_near(access));
    if (is_open && !mp_stream_is_unix(stream))
        return true;
    *caller = mp_admin_caller_of(access, stream);
    if (caller->role >= at->role && (!needs_token || caller->has_bearer))
        return true;
    if (needs_token && !caller->has_wrong_token && caller->wait_s == 0)
        refuse_host(stream);
    else
        refuse_caller(stream, caller, at->role);
    return false;
}

void mp_admin_serve(void *ctx, mp_stream *stream)
{
    mp_admin *admin = ctx;
    const mp_request *request = mp_stream_request(stream);
    mp_str rest;
    const endpoint *at = find_endpoint(request->path, request->method, &rest);
    mp_admin_caller caller;
    const char *wrong;
    mp_loop_measure(mp_stream_loop(stream), MP_MEASURE_ADMIN);
    if (!takes_any_host(at) && !has_own_host(admin, stream))
        refuse_host(stream);
    else if (!has_own_origin(admin, stream))
        refuse_page(stream);
    else if (at == NULL)
        refuse_request(stream, 404,
                       "not found: use / for the dashboard, /healthz, /readyz, /status, /metrics, /reload or /api/…",
                       NULL);
    else if (!is_method(at, request->method))
        refuse_method(stream, at);
    else if (is_guarded(at) && is_foreign_page(stream))
        refuse_page(stream);
    else if (!admit_caller(admin, stream, at, &caller))
        return;
    else if ((wrong = wrong_form(at, stream)) != NULL)
        refuse_request(stream, 400, wrong, NULL);
    else if (!mp_others_answer(admin, stream, &caller, at->view, rest))
        at->serve(admin, stream, &caller, rest);
}

/* -- other processes of this gateway ------------------------------------------------------------------------------- */

/* The name of the caller that another process has admitted, for the audit. */
static mp_admin_caller caller_there(mp_admin *admin, const mp_stream *stream)
{
    mp_admin_caller caller = {.role = MP_ROLE_OPERATE};
    /* a request that another process has passed on is not passed on again */
    caller.is_process = mp_stream_header(stream, MP_OTHERS_ASKER, NULL).ptr != NULL ||
                        !mp_processes_is_newest(mp_admin_gateway_of(admin)->processes);
    mp_str name = mp_stream_header(stream, "moonpool-caller", NULL);
    snprintf(caller.name, sizeof caller.name, "%.*s", MP_STR_ARG(name));
    return caller;
}

/* Answers with a text for the newest process, which adds it to its own charts or to its list of jobs. */
static void serve_text(mp_admin *admin, mp_stream *stream)
{
    mp_scoped_buf out = {0};
    if (mp_str_is(mp_stream_request(stream)->path, "/process/numbers"))
        mp_admin_live_put_numbers(mp_admin_live_of(admin), &out);
    else
        mp_lib_put_jobs_text(&out);
    mp_stream_answer(stream, 200, "text/plain", mp_buf_str(&out), NULL, 0);
}

static void serve_door(void *ctx, mp_stream *stream)
{
    mp_admin *admin = ctx;
    const mp_request *request = mp_stream_request(stream);
    uint32_t uid;
    mp_str rest;
    const endpoint *at = find_endpoint(request->path, request->method, &rest);
    mp_admin_caller caller = caller_there(admin, stream);
    mp_loop_measure(mp_stream_loop(stream), MP_MEASURE_ADMIN);
    if (!mp_stream_unix_user(stream, &uid) || uid != geteuid())
        refuse_request(stream, 403, "only processes of this gateway are served here", NULL);
    else if (mp_str_is(request->path, "/process/end"))
        mp_others_take_end(admin, stream);
    else if (mp_str_is(request->path, "/process/numbers") || mp_str_is(request->path, "/process/jobs"))
        serve_text(admin, stream);
    else if (at == NULL || !is_method(at, request->method))
        refuse_request(stream, 404, "not found", NULL);
    else if (!mp_others_answer(admin, stream, &caller, at->view, rest))
        at->serve(admin, stream, &caller, rest);
}

const mp_admin_door mp_admin_own_door = {serve_door, put_status, put_own_metrics, mp_others_leave};
