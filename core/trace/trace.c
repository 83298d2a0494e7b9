/* trace.c: which calls are recorded, and their spans. */
#include "state.h"
#include <sys/random.h>

MP_COUNTER(traces_recorded, "traces", "result", "recorded", "calls whose spans were recorded")
MP_COUNTER(traces_discarded, "traces", "result", "discarded",
           "calls that were recorded, and neither failed nor were slow (traces.sample)")
MP_COUNTER(traces_throttled, "traces", "result", "throttled",
           "calls not recorded although their parent was: above 50 a second")
MP_COUNTER(trace_contexts, "trace_contexts", "result", "malformed", "contexts of clients that are not valid")
MP_COUNTER(spans_cut, "spans", "result", "cut", "spans of a call above 64, and attributes over their limits")

atomic_bool mp_traces_on;

#define MAX_SPANS MP_LIMIT(trace_spans, 64) /* spans of one call: a tree that a person reads */
/* calls a second that are recorded because a client's context says so */
#define MAX_PARENTS MP_LIMIT(trace_parents, 50)

/* The parts of the configuration that decide about a call. */
static struct {
    _Atomic uint64_t threshold; /* a call without a parent is recorded if a random number is below */
    atomic_bool takes_errors, accepts_parents, hides_addresses;
    _Atomic uint64_t slower_us;
} rules;

static _Atomic uint64_t parents_second; /* the second that `parents_taken` counts */
static _Atomic int64_t parents_taken;

void mp_trace_rules(const mp_trace_config *config, bool is_on)
{
    uint64_t threshold = config->ratio >= 1   ? UINT64_MAX
                         : config->ratio <= 0 ? 0
                                              : (uint64_t)(config->ratio * 18446744073709551616.0);
    atomic_store(&rules.threshold, threshold);
    atomic_store(&rules.takes_errors, config->takes_errors);
    atomic_store(&rules.accepts_parents, config->accepts_parents);
    atomic_store(&rules.hides_addresses, config->hides_addresses);
    atomic_store(&rules.slower_us, config->slower_ms * 1000);
    atomic_store(&mp_traces_on, is_on);
}

bool mp_traces_show_addresses(void)
{
    return !atomic_load_explicit(&rules.hides_addresses, memory_order_relaxed);
}

/* -- random numbers ------------------------------------------------------------------------------------------------ */

static _Thread_local struct {
    uint64_t chance; /* 0: not seeded yet */
    uint8_t bytes[256];
    size_t left;
} dice;

/* Random bytes for ids: an id that another process could have is no id. */
static void put_random(uint8_t *to, size_t count)
{
    if (dice.left < count) {
        if (getrandom(dice.bytes, sizeof dice.bytes, 0) != (ssize_t)sizeof dice.bytes)
            memset(dice.bytes, (int)mp_monotonic_us() | 1, sizeof dice.bytes);
        dice.left = sizeof dice.bytes;
    }
    memcpy(to, dice.bytes + sizeof dice.bytes - dice.left, count);
    dice.left -= count;
    to[0] |= count == 8 && to[0] == 0; /* an id is not all zeros */
}

/* A number for the choice of calls, which need not be secret. */
static uint64_t random_chance(void)
{
    if (dice.chance == 0) {
        uint8_t seed[8];
        put_random(seed, sizeof seed);
        memcpy(&dice.chance, seed, sizeof seed);
        dice.chance |= 1;
    }
    dice.chance ^= dice.chance << 13;
    dice.chance ^= dice.chance >> 7;
    dice.chance ^= dice.chance << 17;
    return dice.chance * UINT64_C(0x2545f4914f6cdd1d);
}

/* -- which calls --------------------------------------------------------------------------------------------------- */

/* True if one more call of this second may be recorded because its parent is. */
static bool take_parent(uint64_t now_us)
{
    uint64_t second = now_us / 1000000;
    if (atomic_load_explicit(&parents_second, memory_order_relaxed) != second) {
        atomic_store_explicit(&parents_second, second, memory_order_relaxed);
        atomic_store_explicit(&parents_taken, 0, memory_order_relaxed);
    }
    if (atomic_fetch_add_explicit(&parents_taken, 1, memory_order_relaxed) < MAX_PARENTS)
        return true;
    mp_stat_add(&mp_stat_traces_throttled, 1);
    return false;
}

static bool read_context(mp_trace_context *context, mp_str text)
{
    if (text.len == 0)
        return false;
    if (mp_trace_context_read(context, text))
        return true;
    mp_stat_add(&mp_stat_trace_contexts, 1);
    return false;
}

static mp_trace *new_trace(bool is_private)
{
    mp_trace *trace = mp_new(sizeof *trace);
    trace->most = (int)MAX_SPANS;
    trace->is_private = is_private;
    mp_stat_add(&mp_stat_traces_recorded, !is_private);
    return trace;
}

static void set_parent(mp_trace *trace, const mp_trace_context *parent, mp_str state)
{
    trace->parent = *parent;
    trace->has_parent = true;
    memcpy(trace->id, parent->trace, sizeof trace->id);
    if (mp_trace_state_is_valid(state))
        mp_buf_put(&trace->state, state);
}

static void set_cause(mp_trace *trace, const mp_trace_context *cause)
{
    trace->cause = *cause;
    trace->has_cause = true;
}

static bool has_tail_rule(void)
{
    return atomic_load_explicit(&rules.takes_errors, memory_order_relaxed) ||
           atomic_load_explicit(&rules.slower_us, memory_order_relaxed) != 0;
}

static bool takes_ratio(void)
{
    return random_chance() < atomic_load_explicit(&rules.threshold, memory_order_relaxed);
}

mp_trace *MP_NULLABLE mp_trace_begin(const mp_trace_origin *origin)
{
    mp_trace_context inner, outer;
    bool has_inner = read_context(&inner, origin->parent), has_outer = read_context(&outer, origin->header_parent);
    const mp_trace_context *parent = has_inner ? &inner : has_outer ? &outer : NULL;
    bool accepts = parent != NULL && atomic_load_explicit(&rules.accepts_parents, memory_order_relaxed);
    bool is_recorded = accepts ? parent->is_sampled && take_parent(origin->began_us) : takes_ratio();
    bool is_private = (!is_recorded && !has_tail_rule()) || !mp_traces_are_on();
    if (is_private && !origin->is_shown)
        return NULL;
    mp_trace *trace = new_trace(is_private);
    trace->is_tentative = is_private || !is_recorded;
    if (accepts)
        set_parent(trace, parent, has_inner ? origin->state : origin->header_state);
    else
        put_random(trace->id, sizeof trace->id);
    if (!accepts && parent != NULL)
        set_cause(trace, parent);
    else if (has_inner && has_outer)
        set_cause(trace, &outer);
    mp_span_begin_at(trace, MP_NO_SPAN, MP_SPAN_SERVER, MP_STR(""), origin->began_us);
    return trace;
}

mp_trace *MP_NULLABLE mp_trace_begin_alone(void)
{
    bool is_recorded = takes_ratio();
    if (!is_recorded && !has_tail_rule())
        return NULL;
    mp_trace *trace = new_trace(false);
    trace->is_tentative = !is_recorded;
    put_random(trace->id, sizeof trace->id);
    mp_span_begin(trace, MP_NO_SPAN, MP_SPAN_INTERNAL, MP_STR(""));
    return trace;
}

void mp_trace_mark(mp_trace *trace, uint64_t mark)
{
    uint8_t *id = trace->spans[MP_ROOT_SPAN].id;
    for (int i = 0; i < 8; i++)
        id[i] = (uint8_t)(mark >> (56 - 8 * i));
}

void mp_trace_put_id(const mp_trace *MP_NULLABLE trace, char room[MP_TRACE_ID_DIGITS + 1])
{
    if (trace == NULL)
        *room = '\0';
    else
        *mp_hex_put(room, trace->id, trace->is_tentative ? 0 : sizeof trace->id) = '\0';
}

mp_trace *MP_NULLABLE mp_trace_begin_linked(const mp_trace *MP_NULLABLE cause, mp_span span)
{
    if (cause == NULL || cause->is_private)
        return NULL;
    mp_trace *trace = new_trace(false);
    trace->is_tentative = cause->is_tentative;
    put_random(trace->id, sizeof trace->id);
    mp_trace_context context = mp_span_context(cause, span);
    set_cause(trace, &context);
    mp_span_begin(trace, MP_NO_SPAN, MP_SPAN_INTERNAL, MP_STR(""));
    return trace;
}

void mp_trace_free(mp_trace *trace)
{
    mp_buf_clear(&trace->state);
    mp_buf_clear(&trace->text);
    free(trace->spans);
    free(trace);
}

size_t mp_trace_bytes(const mp_trace *trace)
{
    return sizeof *trace + (size_t)trace->count * sizeof *trace->spans + trace->state.cap + trace->text.cap;
}

void mp_trace_end(mp_trace *MP_NULLABLE trace, bool has_failed)
{
    if (trace == NULL)
        return;
    if (trace->is_private) {
        mp_trace_free(trace);
        return;
    }
    for (mp_span span = 0; span < trace->count; span++)
        mp_span_end(trace, span);
    const mp_span_record *root = &trace->spans[MP_ROOT_SPAN];
    uint64_t slower_us = atomic_load_explicit(&rules.slower_us, memory_order_relaxed);
    bool is_slow = slower_us != 0 && root->ended_us - root->began_us >= slower_us;
    if (trace->is_tentative && !is_slow &&
        !((has_failed || root->has_failed) && atomic_load_explicit(&rules.takes_errors, memory_order_relaxed))) {
        mp_stat_add(&mp_stat_traces_discarded, 1);
        mp_trace_free(trace);
        return;
    }
    mp_export(trace);
}

/* -- spans --------------------------------------------------------------------------------------------------------- */

static mp_span_record *MP_NULLABLE record_of(const mp_trace *MP_NULLABLE trace, mp_span span)
{
    return trace == NULL || span < 0 || span >= trace->count ? NULL : &trace->spans[span];
}

/* At most `most` bytes of a text, up to the end of a character. */
static mp_str cut_text(mp_str text, size_t most)
{
    if (text.len <= most)
        return text;
    while (most > 0 && ((unsigned char)text.ptr[most] & 0xc0) == 0x80)
        most--;
    return (mp_str){text.ptr, most};
}

static void add_fact(mp_trace *trace, mp_span span, mp_fact_type type, mp_str key, mp_str value)
{
    mp_span_record *record = record_of(trace, span);
    if (record == NULL || record->has_ended)
        return;
    bool is_counted = type != MP_FACT_NAME && type != MP_FACT_FAILURE;
    mp_fact fact = {(uint16_t)span, (uint16_t)type, (uint32_t)key.len, (uint32_t)value.len};
    if ((is_counted && record->facts == MP_SPAN_ATTRIBUTES) ||
        trace->text.len + sizeof fact + key.len + value.len > MP_TRACE_BYTES) {
        record->cut++;
        mp_stat_add(&mp_stat_spans_cut, 1);
        return;
    }
    record->facts = (uint16_t)(record->facts + is_counted);
    mp_buf_put(&trace->text, (mp_str){(const char *)&fact, sizeof fact});
    mp_buf_put(&trace->text, key);
    mp_buf_put(&trace->text, value);
}

mp_span mp_span_begin_at(mp_trace *MP_NULLABLE trace, mp_span parent, mp_span_kind kind, mp_str name, uint64_t began_us)
{
    if (trace == NULL)
        return MP_NO_SPAN;
    if (trace->count >= trace->most) {
        mp_stat_add(&mp_stat_spans_cut, 1);
        return MP_NO_SPAN;
    }
    if ((trace->count & 7) == 0)
        trace->spans = mp_resize(trace->spans, (size_t)(trace->count + 8) * sizeof *trace->spans);
    mp_span span = trace->count++;
    mp_span_record *record = &trace->spans[span];
    *record = (mp_span_record){.parent = (int16_t)(span == MP_ROOT_SPAN   ? MP_NO_SPAN
                                                   : parent == MP_NO_SPAN ? MP_ROOT_SPAN
                                                                          : parent),
                               .kind = (uint8_t)kind,
                               .began_us = began_us};
    put_random(record->id, sizeof record->id);
    mp_span_name(trace, span, name);
    return span;
}

mp_span mp_span_begin(mp_trace *MP_NULLABLE trace, mp_span parent, mp_span_kind kind, mp_str name)
{
    return trace == NULL ? MP_NO_SPAN : mp_span_begin_at(trace, parent, kind, name, mp_monotonic_us());
}

void mp_span_end(mp_trace *MP_NULLABLE trace, mp_span span)
{
    mp_span_record *record = record_of(trace, span);
    if (record == NULL || record->has_ended)
        return;
    record->has_ended = true;
    record->ended_us = mp_monotonic_us();
}

void mp_span_name(mp_trace *trace, mp_span span, mp_str name)
{
    if (name.len > 0)
        add_fact(trace, span, MP_FACT_NAME, MP_STR_NONE, cut_text(name, MP_SPAN_NAME_BYTES));
}

void mp_span_text(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, mp_str value)
{
    if (trace != NULL && value.len > 0)
        add_fact(trace, span, MP_FACT_TEXT, mp_str_of(key), cut_text(value, MP_SPAN_VALUE_BYTES));
}

void mp_span_int(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, int64_t value)
{
    if (trace != NULL)
        add_fact(trace, span, MP_FACT_INT, mp_str_of(key), (mp_str){(const char *)&value, sizeof value});
}

void mp_span_double(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, double value)
{
    if (trace != NULL)
        add_fact(trace, span, MP_FACT_DOUBLE, mp_str_of(key), (mp_str){(const char *)&value, sizeof value});
}

void mp_span_bool(mp_trace *MP_NULLABLE trace, mp_span span, const char *key, bool value)
{
    char byte = value;
    if (trace != NULL)
        add_fact(trace, span, MP_FACT_BOOL, mp_str_of(key), (mp_str){&byte, 1});
}

void mp_span_event(mp_trace *MP_NULLABLE trace, mp_span span, mp_str name)
{
    uint64_t at_us = trace == NULL ? 0 : mp_monotonic_us();
    if (trace != NULL)
        add_fact(trace, span, MP_FACT_EVENT, cut_text(name, MP_SPAN_NAME_BYTES),
                 (mp_str){(const char *)&at_us, sizeof at_us});
}

void mp_span_fail(mp_trace *MP_NULLABLE trace, mp_span span, mp_str message)
{
    mp_span_record *record = record_of(trace, span);
    if (trace == NULL || record == NULL || record->has_ended)
        return;
    record->has_failed = true;
    add_fact(trace, span, MP_FACT_FAILURE, MP_STR_NONE, cut_text(message, MP_SPAN_VALUE_BYTES));
}

mp_trace_context mp_span_context(const mp_trace *MP_NULLABLE trace, mp_span span)
{
    if (trace == NULL)
        return (mp_trace_context){0};
    mp_trace_context context = {.is_sampled = !trace->is_tentative};
    const mp_span_record *record = record_of(trace, span);
    memcpy(context.trace, trace->id, sizeof context.trace);
    memcpy(context.span, (record == NULL ? &trace->spans[MP_ROOT_SPAN] : record)->id, sizeof context.span);
    return context;
}

bool mp_trace_goes_on(const mp_trace *MP_NULLABLE trace)
{
    return trace != NULL && !trace->is_private;
}

mp_str mp_trace_state(const mp_trace *MP_NULLABLE trace)
{
    return trace == NULL ? MP_STR_NONE : mp_buf_str(&trace->state);
}
