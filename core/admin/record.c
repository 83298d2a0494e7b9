/* record.c: /api/record of the admin listener: begins and stops a recording of calls, and answers with the recorded
 * calls. */
#include "record.h"
#include "query_slots.h"
#include "json/json.h"
#include "rpc/observe.h"

#define MAX_PATTERN 256
#define MAX_SECONDS 86400
#define MAX_CALLS 1000000
#define PAGE_BYTES ((size_t)256 << 10)

static void audit_action(mp_stream *stream, const char *event, const mp_admin_caller *caller, mp_str why)
{
    mp_audit_request(stream, &(mp_decision){.event = event, .caller = mp_str_of(caller->name), .why = why});
}

/* -- begin and stop ------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_buf tool;
    int64_t seconds, most;
    const char *MP_NULLABLE wrong; /* why the request makes no sense; NULL: it does */
} request;

static bool is_number(mp_json_type type, mp_str value, int64_t most, int64_t *to)
{
    return type == MP_JSON_NUMBER && mp_json_int(value, to) && *to >= 1 && *to <= most;
}

static int see_member(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    request *asked = ctx;
    if (depth > 1)
        return 0;
    if (mp_str_is(key, "tool")) {
        asked->tool.len = 0;
        if (type == MP_JSON_STRING && value.len <= MAX_PATTERN)
            mp_json_unescape(&asked->tool, value);
        if (asked->tool.len == 0 || memchr(asked->tool.ptr, '\0', asked->tool.len) != NULL)
            asked->wrong = "tool is the name of a tool, of at most 256 bytes, in which * stands for any text";
    } else if (mp_str_is(key, "seconds")) {
        if (!is_number(type, value, MAX_SECONDS, &asked->seconds))
            asked->wrong = "seconds is a number from 1 to 86400";
    } else if (mp_str_is(key, "most")) {
        if (!is_number(type, value, MAX_CALLS, &asked->most))
            asked->wrong = "most is a number from 1 to 1000000";
    } else {
        asked->wrong = "the members are tool, seconds and most";
    }
    return 0;
}

void mp_api_record(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)rest;
    request asked = {.seconds = 3600, .most = 1000};
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf out = {0};
    if (mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_member, .ctx = &asked}, &type,
                     NULL) != MP_JSON_OK ||
        type != MP_JSON_OBJECT || (asked.wrong == NULL && asked.tool.len == 0))
        asked.wrong = "send an object, as in {\"tool\":\"refund\",\"seconds\":600,\"most\":100}";
    if (asked.wrong != NULL) {
        mp_admin_refuse(stream, 400, mp_str_of(asked.wrong));
        mp_buf_clear(&asked.tool);
        return;
    }
    char *pattern = mp_dup(mp_buf_str(&asked.tool));
    mp_record_page page = mp_record_read(UINT64_MAX, 0, 0, &out);
    if (!mp_record_begin(pattern, (uint64_t)asked.seconds * 1000, (uint64_t)asked.most)) {
        mp_admin_refuse(stream, 409, MP_STR("calls are being recorded already: POST /api/record/stop ends that"));
    } else {
        audit_action(stream, "recording begun", caller, mp_str_of(pattern));
        mp_log(MP_INFO, "recording begun", mp_log_str("caller", mp_str_of(caller->name)),
               mp_log_str("tools", mp_str_of(pattern)), mp_log_int("seconds", asked.seconds));
        mp_buf_printf(&out, "{\"recording\":true,\"after\":%llu}\n", (unsigned long long)page.last);
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    }
    free(pattern);
    mp_buf_clear(&asked.tool);
}

void mp_api_record_stop(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)rest;
    bool was_on = mp_record_end();
    if (was_on) {
        audit_action(stream, "recording ended", caller, MP_STR_NONE);
        mp_log(MP_INFO, "recording ended", mp_log_str("caller", mp_str_of(caller->name)));
    }
    mp_str answer = was_on ? MP_STR("{\"ended\":true}\n") : MP_STR("{\"ended\":false}\n");
    mp_stream_answer(stream, 200, "application/json", answer, NULL, 0);
}

/* -- what is recorded ---------------------------------------------------------------------------------------------- */

static bool read_number(mp_str text, uint64_t *to)
{
    int64_t number;
    if (text.len == 0 || text.ptr[0] == '-' || !mp_json_int(text, &number))
        return false;
    *to = (uint64_t)number;
    return true;
}

void mp_api_records(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)rest;
    mp_str query = mp_stream_request(stream)->query;
    uint64_t after = 0, last = UINT64_MAX;
    bool is_first = query.len == 0;
    while (query.len > 0) {
        mp_str value = mp_str_cut(&query, '&'), key = mp_str_cut(&value, '=');
        if (!(mp_str_is(key, "after") && read_number(value, &after)) &&
            !(mp_str_is(key, "last") && read_number(value, &last))) {
            mp_admin_refuse(stream, 400,
                            MP_STR("the query may have after=N, a number of an earlier answer, and last=N"));
            return;
        }
        is_first = is_first || mp_str_is(key, "last");
    }
    if (is_first)
        audit_action(stream, "records read", caller, MP_STR_NONE);
    mp_scoped_buf lines = {0}, out = {0};
    mp_record_page page = mp_record_read(after, last, PAGE_BYTES, &lines);
    mp_buf_printf(&out, "{\"next\":%llu,\"lost\":%llu,\"more\":%s,\"on\":%s,\"asked\":%s}\n",
                  (unsigned long long)page.next, (unsigned long long)page.lost, page.has_more ? "true" : "false",
                  page.is_on ? "true" : "false", page.is_asked ? "true" : "false");
    mp_buf_put(&out, mp_buf_str(&lines));
    mp_stream_answer(stream, 200, "application/x-ndjson", mp_buf_str(&out), NULL, 0);
}
