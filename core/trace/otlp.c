/* otlp.c: traces as OTLP's JSON (opentelemetry-proto 1.x, ExportTraceServiceRequest): ids in hexadecimal, 64-bit
 * numbers as texts. */
#include "state.h"
#include "json/json.h"
#include <moonpool/version.h>
#include <unistd.h>

/* flags of a span: bit 8 says that bit 9 is set where the parent is in another process */
#define HAS_REMOTE_KNOWN 0x100
#define HAS_REMOTE_PARENT 0x200
#define SAMPLED 1

static void put_hex(mp_buf *out, const char *key, const uint8_t *bytes, size_t count)
{
    mp_buf_put(out, mp_str_of(key));
    mp_buf_putc(out, '"');
    mp_hex_put(mp_buf_room(out, 2 * count), bytes, count);
    out->len += 2 * count;
    mp_buf_putc(out, '"');
}

static void put_time(mp_buf *out, const char *key, uint64_t us)
{
    mp_buf_printf(out, "%s\"%llu000\"", key, (unsigned long long)us);
}

static void put_key(mp_buf *out, mp_str key, const char *type)
{
    mp_buf_put(out, MP_STR("{\"key\":"));
    mp_json_put_string(out, key);
    mp_buf_printf(out, ",\"value\":{\"%s\":", type);
}

static void put_attribute(mp_buf *out, mp_fact_type type, mp_str key, mp_str value)
{
    int64_t integer = 0;
    double number = 0;
    switch (type) {
    case MP_FACT_INT:
        memcpy(&integer, value.ptr, sizeof integer);
        put_key(out, key, "intValue");
        mp_buf_printf(out, "\"%lld\"", (long long)integer);
        break;
    case MP_FACT_DOUBLE:
        memcpy(&number, value.ptr, sizeof number);
        put_key(out, key, "doubleValue");
        if (mp_json_put_double(out, number) != 0) /* no JSON for it: the protocol has texts for these */
            mp_buf_put(out, number > 0   ? MP_STR("\"Infinity\"")
                            : number < 0 ? MP_STR("\"-Infinity\"")
                                         : MP_STR("\"NaN\""));
        break;
    case MP_FACT_BOOL:
        put_key(out, key, "boolValue");
        mp_buf_put(out, value.ptr[0] != 0 ? MP_STR("true") : MP_STR("false"));
        break;
    default:
        put_key(out, key, "stringValue");
        mp_json_put_string(out, value);
    }
    mp_buf_put(out, MP_STR("}}"));
}

static void put_text_attribute(mp_buf *out, const char *key, mp_str value)
{
    if (out->ptr[out->len - 1] != '[')
        mp_buf_putc(out, ',');
    put_attribute(out, MP_FACT_TEXT, mp_str_of(key), value);
}

void mp_otlp_put_resource(mp_buf *out, const mp_trace_config *config, const char *instance)
{
    char name[65] = "";
    gethostname(name, sizeof name - 1);
    mp_buf_put(out, MP_STR("{\"attributes\":["));
    put_text_attribute(out, "service.name", mp_str_of(config->service));
    put_text_attribute(out, "service.version", MP_STR(MOONPOOL_VERSION));
    put_text_attribute(out, "service.instance.id", mp_str_of(instance));
    if (*name != '\0')
        put_text_attribute(out, "host.name", mp_str_of(name));
    mp_buf_put(out, MP_STR(","));
    int64_t number = getpid();
    put_attribute(out, MP_FACT_INT, MP_STR("process.pid"), (mp_str){(const char *)&number, sizeof number});
    put_text_attribute(out, "telemetry.sdk.name", MP_STR("moonpool"));
    put_text_attribute(out, "telemetry.sdk.language", MP_STR("c"));
    put_text_attribute(out, "telemetry.sdk.version", MP_STR(MOONPOOL_VERSION));
    for (const char *const *pair = config->attributes; pair != NULL && *pair != NULL; pair += 2)
        put_text_attribute(out, pair[0], mp_str_of(pair[1]));
    mp_buf_put(out, MP_STR("]}"));
}

void mp_otlp_begin(mp_buf *out, mp_str resource)
{
    mp_buf_put(out, MP_STR("{\"resourceSpans\":[{\"resource\":"));
    mp_buf_put(out, resource);
    mp_buf_put(out, MP_STR(",\"scopeSpans\":[{\"scope\":{\"name\":\"moonpool\",\"version\":\"" MOONPOOL_VERSION
                           "\"},\"spans\":["));
}

void mp_otlp_end(mp_buf *out)
{
    mp_buf_put(out, MP_STR("]}]}]}"));
}

/* -- a span -------------------------------------------------------------------------------------------------------- */

/* The facts of a span of one kind, as the elements of an array. */
static void put_facts(mp_buf *out, const mp_trace *trace, mp_span span, bool are_events, uint64_t offset_us)
{
    mp_fact fact;
    mp_str key, value, text = mp_buf_str(&trace->text);
    bool is_first = true;
    for (size_t at = 0; mp_fact_next(text, &at, &fact, &key, &value);) {
        if (fact.span != span || fact.type <= MP_FACT_FAILURE || (fact.type == MP_FACT_EVENT) != are_events)
            continue;
        if (is_first)
            mp_buf_put(out, are_events ? MP_STR(",\"events\":[") : MP_STR(",\"attributes\":["));
        else
            mp_buf_putc(out, ',');
        is_first = false;
        if (!are_events) {
            put_attribute(out, (mp_fact_type)fact.type, key, value);
            continue;
        }
        uint64_t at_us;
        memcpy(&at_us, value.ptr, sizeof at_us);
        put_time(out, "{\"timeUnixNano\":", at_us + offset_us);
        mp_buf_put(out, MP_STR(",\"name\":"));
        mp_json_put_string(out, key);
        mp_buf_putc(out, '}');
    }
    if (!is_first)
        mp_buf_putc(out, ']');
}

static void put_links(mp_buf *out, const mp_trace *trace)
{
    put_hex(out, ",\"links\":[{\"traceId\":", trace->cause.trace, sizeof trace->cause.trace);
    put_hex(out, ",\"spanId\":", trace->cause.span, sizeof trace->cause.span);
    mp_buf_put(out, MP_STR("}]"));
}

static void put_span(mp_buf *out, const mp_trace *trace, mp_span span, uint64_t offset_us)
{
    const mp_span_record *record = &trace->spans[span];
    bool is_root = span == MP_ROOT_SPAN;
    put_hex(out, "{\"traceId\":", trace->id, sizeof trace->id);
    put_hex(out, ",\"spanId\":", record->id, sizeof record->id);
    if (!is_root)
        put_hex(out, ",\"parentSpanId\":", trace->spans[record->parent].id, sizeof record->id);
    else if (trace->has_parent)
        put_hex(out, ",\"parentSpanId\":", trace->parent.span, sizeof trace->parent.span);
    if (trace->state.len > 0) {
        mp_buf_put(out, MP_STR(",\"traceState\":"));
        mp_json_put_string(out, mp_buf_str(&trace->state));
    }
    mp_buf_printf(out, ",\"flags\":%d,\"name\":",
                  SAMPLED | HAS_REMOTE_KNOWN | (is_root && trace->has_parent ? HAS_REMOTE_PARENT : 0));
    mp_json_put_string(out, mp_fact_last(trace, span, MP_FACT_NAME));
    mp_buf_printf(out, ",\"kind\":%d", record->kind);
    put_time(out, ",\"startTimeUnixNano\":", record->began_us + offset_us);
    put_time(out, ",\"endTimeUnixNano\":", record->ended_us + offset_us);
    put_facts(out, trace, span, false, offset_us);
    if (record->cut > 0)
        mp_buf_printf(out, ",\"droppedAttributesCount\":%d", record->cut);
    put_facts(out, trace, span, true, offset_us);
    if (is_root && trace->has_cause)
        put_links(out, trace);
    if (record->has_failed) {
        mp_str message = mp_fact_last(trace, span, MP_FACT_FAILURE);
        mp_buf_put(out, MP_STR(",\"status\":{\"code\":2"));
        if (message.len > 0) {
            mp_buf_put(out, MP_STR(",\"message\":"));
            mp_json_put_string(out, message);
        }
        mp_buf_putc(out, '}');
    }
    mp_buf_putc(out, '}');
}

void mp_otlp_put_trace(mp_buf *out, const mp_trace *trace, uint64_t offset_us)
{
    for (mp_span span = 0; span < trace->count; span++) {
        if (span > 0)
            mp_buf_putc(out, ',');
        put_span(out, trace, span, offset_us);
    }
}

/* -- the collector's answer ---------------------------------------------------------------------------------------- */

static bool enter_partial(MP_UNUSED void *ctx, unsigned level, mp_str key)
{
    return level == 1 && mp_str_is(key, "partialSuccess");
}

/* rejectedSpans is a 64-bit number: a text, but some write a number. */
static int see_partial(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    if (level != 2 || !mp_str_is(key, "rejectedSpans"))
        return 0;
    if (type == MP_JSON_STRING && value.len > 2)
        value = (mp_str){value.ptr + 1, value.len - 2};
    int64_t count = 0;
    bool is_number = value.len > 0 && value.len < 19;
    for (size_t i = 0; i < value.len && is_number; i++) {
        is_number = value.ptr[i] >= '0' && value.ptr[i] <= '9';
        count = count * 10 + (value.ptr[i] - '0');
    }
    if (is_number)
        *(int64_t *)ctx = count;
    return 0;
}

int64_t mp_otlp_rejected(mp_str answer)
{
    int64_t rejected = 0;
    mp_json_visitor visitor = {enter_partial, see_partial, &rejected, NULL};
    return mp_json_scan(answer, &visitor, NULL, NULL) == MP_JSON_OK ? rejected : 0;
}
