/* conditions.c: looks at each kind of conditions.def in its order. */
#define _GNU_SOURCE /* for strptime */
#include "conditions.h"
#include "json/json.h"
#include "upstreams.h"

#define QUIET_MS ((uint64_t)MP_LIMIT(condition_quiet_ms, 600000)) /* after which a number that grew is fine again */
#define UNSAVED 10000                                             /* changes of the store that may wait for its file */
#define EXPIRES_S (14 * 86400) /* a certificate is renewed before this time is left */

enum {
#define CONDITION(constant, ...) constant,
#include "conditions.def"
#undef CONDITION
    CONDITIONS
};

static const struct {
    const char *name, *severity, *alert, *next;
} kinds[CONDITIONS] = {
#define CONDITION(constant, name, severity, alert, next) [constant] = {#name, #severity, #alert, next},
#include "conditions.def"
#undef CONDITION
};

/* Numbers that grow while something is wrong: those of a family whose label is among `values`; "": the whole family.
 * Refusals for a fault of others are left out. `what` follows the count. */
static const struct {
    int kind;
    const char *family, *values, *what;
} counted[MP_CONDITION_COUNTS] = {
    {AUDIT_LOST, "dropped", "audit", "lines of the audit were lost"},
    {STORE_UNSAVED, "store_failures", "", "writes of the store to its file failed"},
    {JOBS_FAIL, "job_runs", "failed", "runs of jobs failed"},
    {REFUSES, "refused", "", "requests were refused because a limit was reached"},
    {STORE_FULL, "store_room_refused", "", "entries had no place in their room of the store"},
    {TROUBLES, "troubles", "", "lines of the log say that something does not work"},
    {MESSAGES_LOST, "dropped", "bus|news|notes|publications|replies",
     "messages between workers, or processes, were lost"},
    {LOG_LOST, "dropped", "log|records", "lines of the log, or recorded calls, were lost"},
    {SPANS_LOST, "spans", "dropped|failed", "spans of traces were lost"},
};

/* True if `value` is one of the words between the bars, or there are none. */
static bool is_among(const char *words, const char *value)
{
    if (words[0] == '\0')
        return true;
    size_t len = strlen(value);
    for (const char *at = strstr(words, value); at != NULL; at = strstr(at + 1, value))
        if ((at == words || at[-1] == '|') && (at[len] == '\0' || at[len] == '|'))
            return true;
    return false;
}

static int64_t read_count(size_t i)
{
    size_t count;
    int64_t sum = 0;
    const mp_stat *const *list = mp_stat_family(counted[i].family, &count);
    for (size_t k = 0; k < count; k++)
        if (list[k]->refused_for != MP_FAULT && is_among(counted[i].values, list[k]->value))
            sum += mp_stat_read(list[k]);
    return sum;
}

static void note(int64_t *since, bool is_so)
{
    if (!is_so)
        *since = 0;
    else if (*since == 0)
        *since = (int64_t)time(NULL);
}

void mp_conditions_sample(mp_conditions *conditions, const mp_readiness *readiness)
{
    uint64_t now = mp_monotonic_ms();
    for (size_t i = 0; i < MP_CONDITION_COUNTS; i++) {
        int64_t is = read_count(i), was = conditions->counts[i].last;
        conditions->counts[i].last = is;
        if (is > was) {
            if (!conditions->counts[i].is_on) {
                conditions->counts[i].before = was;
                conditions->counts[i].since = (int64_t)time(NULL);
            }
            conditions->counts[i].is_on = true;
            conditions->counts[i].grew_ms = now;
        } else if (now >= conditions->counts[i].grew_ms + QUIET_MS)
            conditions->counts[i].is_on = false;
    }
    mp_scoped_buf why = {0};
    note(&conditions->stuck_since, mp_stat_sum("workers_stuck") > 0);
    note(&conditions->main_since, mp_stat_sum("main_stuck") > 0);
    note(&conditions->unready_since, !mp_readiness_is_good(readiness, &why));
    note(&conditions->unsaved_since, mp_stat_read(&mp_stat_store_unsaved) > UNSAVED);
}

/* -- the list ------------------------------------------------------------------------------------------------------ */

static void put_when(mp_buf *out, int64_t seconds)
{
    char when[32];
    struct tm parts;
    time_t at = (time_t)seconds;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
    mp_buf_printf(out, ",\"since\":\"%s\"", when);
}

/* `since` 0 and `count` 0: not known. */
static void put_condition(mp_buf *out, int kind, mp_str what, int64_t since, int64_t count)
{
    if (out->ptr[out->len - 1] != '[')
        mp_buf_putc(out, ',');
    mp_buf_printf(out, "{\"condition\":\"%s\",\"severity\":\"%s\",\"alert\":\"%s\",\"what\":", kinds[kind].name,
                  kinds[kind].severity, kinds[kind].alert);
    mp_json_put_string(out, what);
    if (since != 0)
        put_when(out, since);
    if (count != 0) {
        mp_buf_put(out, MP_STR(",\"count\":"));
        mp_json_put_int(out, count);
    }
    mp_buf_put(out, MP_STR(",\"next\":"));
    mp_json_put_string(out, mp_str_of(kinds[kind].next));
    mp_buf_putc(out, '}');
}

static void put_upstreams(mp_buf *out, mp_upstreams *table)
{
    size_t count;
    mp_upstream_report *reports = mp_upstreams_report(table, &count);
    for (size_t i = 0; i < count; i++) {
        mp_scoped_buf what = {0};
        bool is_down = reports[i].state == MP_UPSTREAM_DOWN;
        if (!is_down && reports[i].state != MP_UPSTREAM_BARRED)
            continue;
        mp_buf_printf(&what, "the upstream %s %s: %s", reports[i].name, is_down ? "is down" : "refuses the credential",
                      reports[i].error);
        put_condition(out, UPSTREAM_DOWN, mp_buf_str(&what), reports[i].state_since, 0);
    }
    mp_upstream_report_free(reports, count);
}

static void put_withheld(mp_buf *out, mp_upstreams *table)
{
    size_t count;
    mp_upstream_report *reports = mp_upstreams_report(table, &count);
    for (size_t i = 0; i < count; i++) {
        mp_scoped_buf what = {0};
        int64_t withheld = mp_admin_withheld(&reports[i]);
        mp_buf_printf(&what, "definitions of the upstream %s are withheld from clients", reports[i].name);
        if (withheld > 0)
            put_condition(out, UPSTREAM_WITHHELD, mp_buf_str(&what), 0, withheld);
    }
    mp_upstream_report_free(reports, count);
}

/* Appends the strings of an array of JSON, with commas between them. */
static void put_names(mp_buf *out, mp_str array)
{
    mp_json_cursor cursor = {array.ptr + 1, array.ptr + array.len};
    for (mp_json_token token; (token = mp_json_next(&cursor)).type == MP_JSON_T_STRING;) {
        mp_str span = {token.span.ptr - 1, token.span.len + 2};
        if (out->ptr[out->len - 1] != ' ')
            mp_buf_put(out, MP_STR(", "));
        mp_json_unescape(out, span);
    }
}

/* The seconds since 1970 of a time that put_when() wrote; 0: none. */
static int64_t read_time(mp_str text)
{
    char room[32];
    struct tm parts = {0};
    snprintf(room, sizeof room, "%.*s", MP_STR_ARG(text));
    return strptime(room, "%Y-%m-%dT%H:%M:%SZ", &parts) == NULL ? 0 : (int64_t)timegm(&parts);
}

/* `scripts`: that member of /status. */
static void put_scripts(mp_buf *out, mp_str scripts)
{
    mp_json_member ok, at, start, serves, left_out;
    mp_scoped_buf what = {0};
    if (!mp_json_find_member(scripts, MP_STR("ok"), &ok) || ok.value.type != MP_JSON_T_FALSE ||
        !mp_json_find_member(scripts, MP_STR("at"), &at))
        return;
    bool is_start = mp_json_find_member(scripts, MP_STR("start"), &start) &&
                    mp_json_find_member(start.span, MP_STR("serves"), &serves) &&
                    mp_json_find_member(start.span, MP_STR("left_out"), &left_out);
    int kind = is_start && mp_str_is(serves.value.span, "others") ? SCRIPTS_LEFT_OUT : FILES_REFUSED;
    if (kind == SCRIPTS_LEFT_OUT) {
        mp_buf_put(&what, MP_STR("served without scripts that have errors: "));
        put_names(&what, left_out.span);
    } else
        mp_buf_put(&what, is_start ? MP_STR("the last good generation serves: the files on the disk have errors")
                                   : MP_STR("the files on the disk have errors: what was loaded before still serves"));
    put_condition(out, kind, mp_buf_str(&what), read_time(at.value.span), 0);
}

static void put_certificate(mp_buf *out, mp_str one, int kind)
{
    mp_json_member address, expires, at, why, name;
    mp_scoped_buf what = {0};
    if (!mp_json_find_member(one, MP_STR("address"), &address))
        return;
    bool has_end = mp_json_find_member(one, MP_STR("expires"), &expires);
    bool is_refused = mp_json_find_member(one, MP_STR("at"), &at) && mp_json_find_member(one, MP_STR("why"), &why);
    mp_buf_put(&what, kind == CERTIFICATE_REFUSED ? MP_STR("the new files of the certificate of ")
                                                  : MP_STR("the certificate of "));
    if (kind == CERTIFICATE_EXPIRES && mp_json_find_member(one, MP_STR("name"), &name)) {
        mp_json_unescape(&what, name.span);
        mp_buf_put(&what, MP_STR(" at "));
    }
    mp_json_unescape(&what, address.span);
    if (kind == CERTIFICATE_REFUSED && is_refused) {
        mp_buf_put(&what, MP_STR(" are refused: "));
        mp_json_unescape(&what, why.span);
        put_condition(out, kind, mp_buf_str(&what), read_time(at.value.span), 0);
    } else if (kind == CERTIFICATE_EXPIRES && has_end &&
               read_time(expires.value.span) - (int64_t)time(NULL) < EXPIRES_S) {
        mp_buf_printf(&what, " ends at %.*s", MP_STR_ARG(expires.value.span));
        put_condition(out, kind, mp_buf_str(&what), 0, 0);
    }
}

/* `certificates`: that member of /status. */
static void put_certificates(mp_buf *out, mp_str certificates, int kind)
{
    mp_json_cursor cursor = {certificates.ptr + 1, certificates.ptr + certificates.len};
    for (mp_json_token token; (token = mp_json_next(&cursor)).type == MP_JSON_T_OPEN_OBJECT;)
        put_certificate(out, mp_json_skip(&cursor, token), kind);
}

static void put_counted(mp_buf *out, const mp_conditions *conditions, int kind)
{
    for (size_t i = 0; i < MP_CONDITION_COUNTS; i++) {
        int64_t count = conditions->counts[i].last - conditions->counts[i].before;
        if (counted[i].kind == kind && conditions->counts[i].is_on)
            put_condition(out, kind, mp_str_of(counted[i].what), conditions->counts[i].since, count);
    }
}

static void put_since(mp_buf *out, int kind, mp_str what, int64_t since)
{
    if (since != 0)
        put_condition(out, kind, what, since, 0);
}

void mp_conditions_put(mp_conditions *conditions, const mp_readiness *readiness, mp_upstreams *upstreams, mp_str stuck,
                       mp_str scripts, mp_str certificates, mp_buf *out)
{
    mp_scoped_buf why = {0};
    mp_conditions_sample(conditions, readiness);
    mp_readiness_is_good(readiness, &why);
    mp_buf_putc(out, '[');
    put_since(out, WORKER_STUCK, stuck, conditions->stuck_since);
    put_since(out, NOT_READY, mp_buf_str(&why), conditions->unready_since);
    put_upstreams(out, upstreams);
    put_counted(out, conditions, AUDIT_LOST);
    put_counted(out, conditions, STORE_UNSAVED);
    put_since(out, STORE_UNSAVED, MP_STR("changes of the store wait for its file"), conditions->unsaved_since);
    put_scripts(out, scripts);
    put_since(out, MAIN_STUCK, MP_STR("the main thread, which reloads, makes no progress"), conditions->main_since);
    put_certificates(out, certificates, CERTIFICATE_REFUSED);
    put_certificates(out, certificates, CERTIFICATE_EXPIRES);
    put_withheld(out, upstreams);
    for (int kind = JOBS_FAIL; kind < CONDITIONS; kind++)
        put_counted(out, conditions, kind);
    mp_buf_putc(out, ']');
}
