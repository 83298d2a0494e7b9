/* steps.c: reads the attributes of spans, and lists the spans of a call for the operator who has run it. */
#include "state.h"
#include "json/json.h"

bool mp_fact_next(mp_str text, size_t *at, mp_fact *fact, mp_str *key, mp_str *value)
{
    if (*at >= text.len)
        return false;
    memcpy(fact, text.ptr + *at, sizeof *fact);
    *key = (mp_str){text.ptr + *at + sizeof *fact, fact->key_bytes};
    *value = (mp_str){key->ptr + key->len, fact->value_bytes};
    *at += sizeof *fact + key->len + value->len;
    return true;
}

mp_str mp_fact_last(const mp_trace *trace, mp_span span, mp_fact_type type)
{
    mp_fact fact;
    mp_str key, value, last = MP_STR_NONE;
    for (size_t at = 0; mp_fact_next(mp_buf_str(&trace->text), &at, &fact, &key, &value);)
        if (fact.span == span && fact.type == type)
            last = value;
    return last;
}

/* The object of a step for an operator: a name, path or address. None of these attributes has a value of an argument.
 */
static mp_str object_of(const mp_trace *trace, mp_span span)
{
    static const char *const keys[] = {"url.full", "db.query.text", "moonpool.upstream"};
    mp_fact fact;
    mp_str key, value;
    for (size_t at = 0; mp_fact_next(mp_buf_str(&trace->text), &at, &fact, &key, &value);)
        for (size_t i = 0; fact.span == span && fact.type == MP_FACT_TEXT && i < sizeof keys / sizeof *keys; i++)
            if (mp_str_is(key, keys[i]))
                return value;
    return MP_STR_NONE;
}

void mp_trace_put_steps(const mp_trace *trace, mp_buf *out)
{
    uint64_t now_us = mp_monotonic_us(), began_us = trace->spans[MP_ROOT_SPAN].began_us;
    mp_buf_putc(out, '[');
    for (mp_span span = 0; span < trace->count; span++) {
        const mp_span_record *record = &trace->spans[span];
        uint64_t ended_us = record->has_ended ? record->ended_us : now_us;
        mp_str object = object_of(trace, span);
        mp_buf_put(out, span == MP_ROOT_SPAN ? MP_STR("{\"name\":") : MP_STR(",{\"name\":"));
        mp_json_put_string(out, mp_fact_last(trace, span, MP_FACT_NAME));
        mp_buf_printf(out, ",\"below\":%d,\"began_us\":%llu,\"took_us\":%llu,\"failed\":%s", record->parent,
                      (unsigned long long)(record->began_us > began_us ? record->began_us - began_us : 0),
                      (unsigned long long)(ended_us > record->began_us ? ended_us - record->began_us : 0),
                      record->has_failed ? "true" : "false");
        if (object.len > 0) {
            mp_buf_put(out, MP_STR(",\"object\":"));
            mp_json_put_string(out, object);
        }
        mp_buf_putc(out, '}');
    }
    mp_buf_putc(out, ']');
}
