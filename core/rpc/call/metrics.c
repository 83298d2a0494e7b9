/* metrics.c: the histograms of requests and of tools, which each call enters when it ends; and the last calls that have
 * ended, for operators. */
#include "state.h"

/* tools with times and counts of their own: half of 8 MiB of text. Further tools are counted as one: _other */
#define MAX_TOOLS MP_LIMIT(metrics_tools, 500)
#define MAX_OTHER_THINGS 500 /* prompts, and resources, that have counters of their own */

MP_HISTOGRAM(operation, "mcp_server_operation_duration_seconds", mp_bounds_call, 512,
             "time from a request's last byte to its answer", "mcp_method_name", "mcp_protocol_version",
             "network_transport", "error_type")
MP_HISTOGRAM(tool_duration, "moonpool_tool_duration_seconds", mp_bounds_call, MP_MAX_TOOL_METRICS,
             "time from a tools/call's last byte to its answer, by tool", "gen_ai_tool_name")
MP_LABELLED_COUNTER(tool_calls, "moonpool_tool_calls", 6 * MP_MAX_TOOL_METRICS, "calls of tools that have ended",
                    "gen_ai_tool_name", "outcome")

MP_LABELLED_COUNTER(prompt_gets, "moonpool_prompt_gets", 6 * MAX_OTHER_THINGS, "prompts/get requests that have ended",
                    "gen_ai_prompt_name", "outcome")
MP_LABELLED_COUNTER(resource_reads, "moonpool_resource_reads", 6 * MAX_OTHER_THINGS,
                    "resources/read requests that have ended, by the name of the resource or template", "resource",
                    "outcome")

/* The methods of all revisions; a client's other texts count as _other. The most frequent one is first. */
static const char *const methods[] = {
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "prompts/get",
    "prompts/list",
    "initialize",
    "ping",
    "server/discover",
    "subscriptions/listen",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/result",
    "tasks/list",
    "tasks/cancel",
    "tasks/update",
    "_other",
};
enum { METHODS = sizeof methods / sizeof *methods, ERAS = 16, CODES = 16 };

/* The outcome of a call as `error_type`; the numbers after these are the codes of JSON-RPC errors, and then _OTHER. */
static const char *const causes[] = {"",       "tool_error", "timeout", "cancelled", "disconnected", "refused", "cpu",
                                     "memory", "lua_memory", "output",  "shutdown",  "reload",       "operator"};
enum { OK, TOOL_ERROR, TIMEOUT, CANCELLED, DISCONNECTED, REFUSED, CAUSES = sizeof causes / sizeof *causes };

static const char *const networks[] = {"tcp", "unix", "pipe"};
static const char *const outcomes[] = {"ok", "failed", "denied", "error", "cancelled", "aborted"};
enum { OUTCOMES = sizeof outcomes / sizeof *outcomes };

static _Atomic mp_series operations[METHODS][ERAS + 1][3][CAUSES + CODES + 1];

/* The metrics of a tool, a prompt or a resource. */
struct mp_thing_metrics {
    mp_node node;            /* the key: the thing's name */
    const mp_family *family; /* the family of `calls` */
    mp_series duration;      /* series of the call times of a tool; 0 for prompts and resources */
    /* a ring of MP_FAILURES elements; NULL until a call fails; `failures` and `failed` are guarded by `lock` */
    mp_tool_failure *MP_NULLABLE failures;
    uint64_t failed;
    _Atomic mp_series calls[OUTCOMES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `things` */
static mp_map things[MP_MEASURED_KINDS];                 /* of mp_thing_metrics, which are never freed */

/* -- series -------------------------------------------------------------------------------------------------------- */

static size_t method_of(mp_str method)
{
    size_t i = 0;
    if (mp_str_is(method, "tools/call")) /* tools/call is first in `methods` */
        return i;
    while (i < METHODS - 1 && !mp_str_eq(method, mp_str_of(methods[i])))
        i++;
    return i;
}

static size_t code_of(int code)
{
    size_t i = 0;
    while (i < mp_error_code_count && i < CODES && mp_error_codes[i].code != code)
        i++;
    return i < mp_error_code_count && i < CODES ? CAUSES + i : CAUSES + CODES;
}

static size_t error_of(const mp_call *call)
{
    if (call->outcome == NULL)
        return OK;
    if (call->code != 0)
        return code_of(call->code);
    if (strcmp(call->outcome, "failed") == 0)
        return TOOL_ERROR;
    for (size_t i = TIMEOUT; i < CAUSES; i++)
        if (strcmp(call->outcome, causes[i]) == 0)
            return i;
    return CAUSES + CODES;
}

static size_t network_of(const mp_call *call)
{
    const mp_transport *transport = call->session != NULL ? call->session->transport : call->transport;
    return transport->is_pipe ? 2 : call->is_unix ? 1 : 0;
}

const char *mp_call_error_type(const mp_call *call, char room[16])
{
    size_t error = error_of(call);
    if (error < CAUSES)
        return causes[error];
    snprintf(room, 16, "%d", call->code);
    return call->code == 0 ? "_OTHER" : room;
}

static mp_series make_operation(size_t method, const mp_era *MP_NULLABLE era, size_t network, size_t error)
{
    char code[16] = "_OTHER";
    if (error >= CAUSES && error < CAUSES + CODES)
        snprintf(code, sizeof code, "%d", mp_error_codes[error - CAUSES].code);
    const mp_str values[] = {mp_str_of(methods[method]), mp_str_of(era == NULL ? "" : era->date),
                             mp_str_of(networks[network]), mp_str_of(error < CAUSES ? causes[error] : code)};
    return mp_series_of(&mp_family_operation, values);
}

static mp_series operation_of(const mp_call *call, size_t error)
{
    size_t method = method_of(call->method), network = network_of(call);
    size_t era = call->era == NULL ? ERAS : (size_t)(call->era - mp_eras) % ERAS;
    _Atomic mp_series *known = &operations[method][era][network][error];
    mp_series series = atomic_load_explicit(known, memory_order_relaxed);
    if (series == 0) {
        series = make_operation(method, call->era, network, error);
        atomic_store_explicit(known, series, memory_order_relaxed);
    }
    return series;
}

/* -- things -------------------------------------------------------------------------------------------------------- */

mp_thing_metrics *mp_thing_metrics_of(mp_measured kind, mp_str name)
{
    static const mp_family *const families[] = {&mp_family_tool_calls, &mp_family_prompt_gets,
                                                &mp_family_resource_reads};
    mp_map *map = &things[kind];
    MP_LOCKED(&lock);
    if (!mp_map_is_made(map))
        mp_map_init(map);
    bool is_new = false;
    int64_t most = kind == MP_MEASURED_TOOL ? MAX_TOOLS : MAX_OTHER_THINGS;
    bool is_known = mp_map_find(map, name) != NULL;
    bool is_over = !is_known && (int64_t)map->count >= most;
    mp_stat_add(&mp_stat_left_out_most, is_over && !mp_str_is(name, "_other"));
    if (is_over || (!is_known && kind == MP_MEASURED_TOOL && mp_series_alone(&mp_family_tool_duration, &name) == 0))
        name = MP_STR("_other");
    mp_thing_metrics *found = mp_map_need(map, name, sizeof *found, &is_new);
    if (is_new)
        found->family = families[kind];
    if (is_new && kind == MP_MEASURED_TOOL)
        found->duration = mp_series_of(&mp_family_tool_duration, &name);
    return found;
}

void mp_call_measure(mp_call *call, mp_thing_metrics *thing)
{
    call->thing_metrics = thing;
}

void mp_call_fails(mp_call *call)
{
    call->outcome = "failed";
}

static size_t outcome_of(const mp_call *call, size_t error)
{
    if (error == OK || error == TOOL_ERROR)
        return error;
    if (call->status == 403 || call->status == 429)
        return 2;
    if (error >= CAUSES)
        return 3;
    return error == CANCELLED || error == DISCONNECTED ? 4 : 5;
}

static void count_thing(const mp_call *call, size_t error)
{
    mp_thing_metrics *thing = call->thing_metrics;
    size_t outcome = outcome_of(call, error);
    mp_series series = atomic_load_explicit(&thing->calls[outcome], memory_order_relaxed);
    if (series == 0) {
        const mp_str values[] = {thing->node.key, mp_str_of(outcomes[outcome])};
        series = mp_series_of(thing->family, values);
        atomic_store_explicit(&thing->calls[outcome], series, memory_order_relaxed);
    }
    mp_series_add(series, 1);
}

/* Keeps a failure for operators: which call it was, without texts of its error. */
static void keep_failure(const mp_call *call, mp_thing_metrics *tool, uint64_t us)
{
    MP_LOCKED(&lock);
    mp_tool_failure *failures = tool->failures;
    if (failures == NULL)
        tool->failures = failures = mp_new(MP_FAILURES * sizeof *failures);
    failures[tool->failed++ % MP_FAILURES] =
        (mp_tool_failure){call->mark, (int64_t)time(NULL), us, call->outcome, call->code};
}

void mp_tool_numbers_of(mp_measured kind, mp_str name, mp_tool_numbers *numbers)
{
    *numbers = (mp_tool_numbers){0};
    pthread_mutex_lock(&lock);
    mp_node *node = mp_map_is_made(&things[kind]) ? mp_map_find(&things[kind], name) : NULL;
    mp_thing_metrics *tool = node == NULL ? NULL : mp_container(node, mp_thing_metrics, node);
    const mp_tool_failure *failures = tool == NULL ? NULL : tool->failures;
    if (tool != NULL && failures != NULL)
        for (uint64_t n = tool->failed; n > 0 && numbers->failure_count < MP_FAILURES; n--)
            numbers->failures[numbers->failure_count++] = failures[(n - 1) % MP_FAILURES];
    pthread_mutex_unlock(&lock);
    for (int i = 0; tool != NULL && i < OUTCOMES; i++) {
        int64_t count = (int64_t)mp_series_read(atomic_load_explicit(&tool->calls[i], memory_order_relaxed));
        numbers->calls += count;
        numbers->errors += i == OK ? 0 : count;
    }
    if (tool != NULL && tool->duration != 0) {
        double cells[MP_SERIES_CELLS] = {0};
        mp_series_add_cells(tool->duration, &mp_bounds_call, cells);
        double p50 = mp_series_quantile(&mp_bounds_call, cells, 0.5),
               p99 = mp_series_quantile(&mp_bounds_call, cells, 0.99);
        numbers->p50_us = p50 > 0 ? (uint64_t)p50 : 0;
        numbers->p99_us = p99 > 0 ? (uint64_t)p99 : 0;
    }
}

void mp_call_observe(const mp_call *call, uint64_t us)
{
    if (call->is_detached || call->is_hidden || call->subscriber != NULL || !mp_series_is_on())
        return;
    size_t error = error_of(call);
    mp_series operation = operation_of(call, error);
    if (call->thing_metrics == NULL) {
        mp_series_observe(operation, &mp_bounds_call, (double)us);
        return;
    }
    count_thing(call, error);
    if (error != OK)
        keep_failure(call, call->thing_metrics, us);
    mp_series_observe_both(operation, call->thing_metrics->duration, &mp_bounds_call, (double)us);
}

/* -- calls that have ended ----------------------------------------------------------------------------------------- */

/* Only the worker's thread reads and writes those that it has served, so that a call costs a copy of three short texts,
 * without a lock and without memory of its own. Nothing of arguments, results or credentials is kept. */
#define MAX_ENDED MP_LIMIT(ended_calls, 200) /* calls: a page of them that a person reads, 50 KiB of each worker */
#define METHOD_BYTES 32
#define NAME_BYTES 96
#define PRINCIPAL_BYTES 80

MP_GAUGE(ended_calls, "ended_calls", "", "", "calls that have ended and are still listed for operators")

typedef struct {
    uint64_t serial, mark; /* mark of the call; 0: it has none, so that no line of the log or the audit is of it */
    uint64_t ended, us;    /* end by mp_monotonic_us, and time of the call */
    const char *outcome;   /* a literal */
    int code;              /* of the JSON-RPC error; 0: none */
    unsigned char method_len, name_len, principal_len;
    char method[METHOD_BYTES], name[NAME_BYTES], principal[PRINCIPAL_BYTES];
} ended_call;

/* A ring: `list` has MAX_ENDED places, and the call number n is at n % MAX_ENDED. */
struct mp_ended_calls {
    size_t count, room;
    ended_call list[];
};

/* Copies a text; a long one up to the end of a character. */
static unsigned char keep_text(char *to, size_t room, mp_str text)
{
    size_t len = text.len;
    if (len > room)
        for (len = room; len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80;)
            len--;
    if (len > 0)
        memcpy(to, text.ptr, len);
    return (unsigned char)len;
}

void mp_call_keep_ended(const mp_call *call, uint64_t us)
{
    mp_ended_calls *kept = call->rpc->ended_calls;
    if (call->is_detached || call->is_hidden)
        return;
    if (kept == NULL) {
        size_t room = (size_t)MAX_ENDED;
        call->rpc->ended_calls = kept = mp_new(sizeof *kept + room * sizeof *kept->list);
        kept->room = room;
    }
    if (kept->count < kept->room)
        mp_stat_add(&mp_stat_ended_calls, 1);
    ended_call *to = &kept->list[kept->count++ % kept->room];
    to->ended = call->began + us;
    to->us = us;
    to->serial = call->serial;
    to->mark = call->mark;
    to->outcome = call->outcome == NULL ? "ok" : call->outcome;
    to->code = call->code;
    to->method_len = keep_text(to->method, METHOD_BYTES, call->method);
    to->name_len = keep_text(to->name, NAME_BYTES, mp_shown_name(call->name));
    to->principal_len = keep_text(to->principal, PRINCIPAL_BYTES, mp_principal_id(call->principal));
}

static void put_text(mp_buf *out, const char *member, mp_str text)
{
    if (text.len == 0)
        return;
    mp_buf_printf(out, ",\"%s\":", member);
    mp_json_put_string(out, text);
}

/* The time of day is computed when it is shown, from the time that has passed since the end: a clock that is set later
 * moves all of them alike, and their order and how long they took stay right. */
static void put_ended(const mp_rpc *rpc, const ended_call *one, int64_t began_us, mp_buf *out)
{
    char when[32];
    struct tm parts;
    int64_t at_ms = (began_us + (int64_t)one->ended) / 1000;
    time_t second = (time_t)(at_ms / 1000);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime_r(&second, &parts));
    mp_buf_printf(out, "%s{\"call\":\"%u-%llu\"", out->len == 0 ? "" : ",", rpc->index,
                  (unsigned long long)one->serial);
    if (one->mark != 0)
        mp_buf_printf(out, ",\"id\":\"%s\"", mp_mark_text_of(one->mark).text);
    put_text(out, "method", (mp_str){one->method, one->method_len});
    put_text(out, "name", (mp_str){one->name, one->name_len});
    put_text(out, "principal", (mp_str){one->principal, one->principal_len});
    mp_buf_printf(out, ",\"ended\":\"%s.%03dZ\",\"outcome\":\"%s\"", when, (int)(at_ms % 1000), one->outcome);
    if (one->code != 0)
        mp_buf_printf(out, ",\"code\":%d", one->code);
    mp_buf_printf(out, ",\"took_ms\":%.3f}", (double)one->us / 1000);
}

void mp_ended_calls_put(const mp_rpc *rpc, mp_buf *out)
{
    const mp_ended_calls *kept = rpc->ended_calls;
    if (kept == NULL)
        return;
    int64_t began_us = (int64_t)mp_clock_us(CLOCK_REALTIME) - (int64_t)mp_monotonic_us();
    for (size_t n = kept->count, left = kept->room; n > 0 && left > 0; n--, left--)
        put_ended(rpc, &kept->list[(n - 1) % kept->room], began_us, out);
}

void mp_ended_calls_free(mp_ended_calls *MP_NULLABLE kept)
{
    if (kept != NULL)
        mp_stat_add(&mp_stat_ended_calls, -(int64_t)(kept->count < kept->room ? kept->count : kept->room));
    free(kept);
}
