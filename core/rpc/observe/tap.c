/* tap.c: the taps of the process. A thread that has an event asks its own list of all taps, without a lock: the filter
 * of each, then its rate, which all threads count together. What is over the rate ends there. The thread then formats
 * the event once for each form of arguments that is wanted, and holds the lock while it appends these texts to the
 * queues. */
#include "tap.h"

MP_COUNTER(tap_sent, "tap_events", "result", "sent", "events of calls that a tap has queued for its reader")
MP_COUNTER(tap_dropped, "tap_events", "result", "dropped", "events of calls over the rate or the queue of a tap")
MP_GAUGE(taps, "taps", "", "", "open taps of the admin listener")

#define MAX_EVENTS MP_LIMIT(tap_events, 1000)  /* events a second of one tap: more than a person reads */
#define MAX_BYTES MP_LIMIT(tap_bytes, 4 << 20) /* bytes of events that wait for the reader of one tap */
/* the reader is woken again when a quarter of the queue is taken */
#define LONG_PART 4
#define KEPT_CAP ((size_t)256 << 10) /* memory of a queue that is kept when it is empty */
#define TELL_MS 1000                 /* ms between two events that say how many were dropped */

struct mp_tap {
    mp_tap_filter filter;
    mp_tap_hooks hooks;
    _Atomic uint64_t
        rate; /* a second of the monotonic clock in the upper half; below it the events admitted in this second */
    _Atomic uint64_t dropped; /* events dropped since the tap was opened */
    atomic_bool is_awake;     /* `wake` was called, and the reader asks by itself until mp_tap_rest */
    atomic_size_t unread;     /* bytes of `taken` that wait */
    /* guarded by `lock` */
    int refs; /* one of each list that has the tap, one of the reader */
    bool is_closed;
    mp_buf queue; /* complete events of an event stream */
    uint64_t sent;
    /* of the reader's thread */
    mp_buf taken; /* an earlier `queue`, of which the reader has the bytes before `from` */
    size_t from;
    uint64_t reported; /* the value of `dropped` that was last sent to the reader */
    uint64_t told_ms;  /* when the reader was last sent the number of dropped events; by mp_monotonic_ms */
};

/* All open taps. A list is not changed; a thread has a reference to one, which it changes for the newest one when that
 * has another number. A tap that was closed stays until no list has it. The filters are copies, since threads write
 * next to those of the taps. */
typedef struct {
    unsigned number;
    int refs; /* guarded by `lock`: one of `newest`, one of each thread */
    int count;
    mp_tap_filter filters[MP_TAPS]; /* their patterns belong to the taps */
    mp_tap *taps[MP_TAPS];
} tap_list;

atomic_uint mp_tap_count;
static atomic_uint newest_number;
static _Thread_local tap_list *MP_NULLABLE own; /* NULL: none yet, or its thread ends */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static mp_tap *taps[MP_TAPS];
static tap_list *MP_NULLABLE newest;
static pthread_key_t at_thread_end; /* drops the thread's reference to a list; created with the first list */

/* -- filters ------------------------------------------------------------------------------------------------------- */

static bool admits_text(const char *MP_NULLABLE pattern, mp_str text)
{
    return pattern == NULL || mp_pattern_matches(pattern, mp_tap_cut(text));
}

/* True if the filter admits only events of calls that have ended. */
static bool wants_ends(const mp_tap_filter *filter)
{
    return filter->outcome != NULL || filter->slower_us > 0;
}

/* The form in which the tap gets the arguments of this event. Those of a call are in the event of its beginning, if the
 * tap has that. */
static mp_tap_arguments form_of(const mp_tap_filter *filter, const mp_tap_event *event)
{
    return event->outcome.len == 0 || wants_ends(filter) ? filter->arguments : MP_TAP_NONE;
}

/* True if the call is one of the sample. Both events of a call have its number, so both are in the sample, or neither.
 * Events without a call are always in it. */
static bool is_sampled(uint32_t sample, const mp_tap_event *event)
{
    if (sample == 0 || event->serial == 0)
        return true;
    uint64_t hash = event->serial + ((uint64_t)event->worker << 48);
    for (int i = 0; i < 2; i++) { /* numbers that follow each other differ in a few bits alone */
        hash ^= hash >> 32;
        hash *= 0x9e3779b97f4a7c15u;
    }
    return (hash >> 32) % 1000000 < sample;
}

static bool is_slow(uint64_t slower_us, mp_tap_event *event)
{
    if (slower_us > 0 && event->us == 0 && event->began != 0)
        event->us = mp_monotonic_us() - event->began;
    return event->us >= slower_us;
}

/* True if the tap shows the event. A name that is not known yet counts as a match. The cheap comparisons are first. */
static bool is_admitted(const mp_tap_filter *filter, mp_tap_event *event)
{
    return (!wants_ends(filter) || event->outcome.len > 0) && admits_text(filter->method, event->method) &&
           (event->is_name_unknown || admits_text(filter->tool, event->name)) &&
           admits_text(filter->principal, event->principal) && admits_text(filter->outcome, event->outcome) &&
           is_sampled(filter->sample, event) && is_slow(filter->slower_us, event) &&
           (filter->session == NULL || admits_text(filter->session, mp_tap_mark(event)));
}

/* -- the list of taps ---------------------------------------------------------------------------------------------- */

/* The caller has the lock of this file. */
static void unref_tap(mp_tap *tap)
{
    if (--tap->refs > 0)
        return;
    const char *patterns[] = {tap->filter.tool, tap->filter.principal, tap->filter.session, tap->filter.method,
                              tap->filter.outcome};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        free((char *)patterns[i]);
    free(tap);
}

/* The caller has the lock of this file. */
static void unref_list(tap_list *MP_NULLABLE list)
{
    if (list == NULL || --list->refs > 0)
        return;
    for (int i = 0; i < list->count; i++)
        unref_tap(list->taps[i]);
    free(list);
}

static void leave_thread(void *list)
{
    MP_LOCKED(&lock);
    own = NULL;
    unref_list(list);
}

/* Makes the list of taps again after one was opened or closed. The caller has the lock. */
static void publish_taps(void)
{
    if (newest == NULL)
        pthread_key_create(&at_thread_end, leave_thread);
    tap_list *made = mp_new(sizeof *made);
    for (int i = 0; i < MP_TAPS; i++)
        if (taps[i] != NULL) {
            made->filters[made->count] = taps[i]->filter;
            made->taps[made->count++] = taps[i];
            taps[i]->refs++;
        }
    made->refs = 1;
    made->number = atomic_load_explicit(&newest_number, memory_order_relaxed) + 1;
    unref_list(newest);
    newest = made;
    atomic_store_explicit(&newest_number, made->number, memory_order_release);
}

/* Takes the newest list of taps. Not inlined: it runs once after each change. */
static __attribute__((noinline)) void take_newest(void)
{
    MP_LOCKED(&lock);
    tap_list *list = newest;
    if (list != NULL) {
        unref_list(own);
        own = list;
        list->refs++;
        pthread_setspecific(at_thread_end, list);
    }
}

/* -- events -------------------------------------------------------------------------------------------------------- */

/* The caller has the lock of this file. */
static void wake_tap(mp_tap *tap)
{
    atomic_store(&tap->is_awake, true);
    tap->hooks.wake(tap->hooks.ctx);
}

static void drop_event(mp_tap *tap)
{
    atomic_fetch_add(&tap->dropped, 1);
    mp_stat_add(&mp_stat_tap_dropped, 1);
}

/* A reader that rests is to learn of the dropped event. Not inlined: readers are awake where taps are above their
 * rate. */
static __attribute__((noinline)) void wake_for_dropped(mp_tap *tap)
{
    MP_LOCKED(&lock);
    if (!tap->is_closed && !atomic_load(&tap->is_awake))
        wake_tap(tap);
}

/* True if the tap takes one more event in this second; then it is counted. A thread whose clock is behind counts in the
 * second of the others. */
static bool take_rate(mp_tap *tap, uint32_t second)
{
    uint64_t was = atomic_load_explicit(&tap->rate, memory_order_relaxed), next;
    do {
        bool is_new = (int32_t)(second - (uint32_t)(was >> 32)) > 0;
        if (!is_new && (uint32_t)was >= MAX_EVENTS)
            return false;
        next = is_new ? (uint64_t)second << 32 | 1 : was + 1;
    } while (
        !atomic_compare_exchange_weak_explicit(&tap->rate, &was, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* The tap at `index` of the thread's list admits the event: takes it, or drops it. */
static void take_event(mp_tap_event *event, int index, uint32_t second)
{
    mp_tap *tap = own->taps[index];
    if (take_rate(tap, second)) {
        event->takers |= 1u << index;
        return;
    }
    drop_event(tap);
    if (!atomic_load(&tap->is_awake)) /* mp_tap_rest clears it and then looks at `dropped`: one thread sees the other */
        wake_for_dropped(tap);
}

static uint32_t second_now(void)
{
    return (uint32_t)(mp_clock_ms(CLOCK_MONOTONIC_COARSE) / 1000);
}

bool mp_tap_wants(mp_tap_event *event)
{
    uint32_t second = 0;
    if (own == NULL || own->number != atomic_load_explicit(&newest_number, memory_order_acquire))
        take_newest();
    event->was_asked = true;
    for (int i = 0; own != NULL && i < own->count; i++) {
        const mp_tap_filter *filter = &own->filters[i];
        if (!is_admitted(filter, event))
            continue;
        if (event->is_name_unknown && filter->tool != NULL) {
            event->undecided |= 1u << i;
            continue;
        }
        if (second == 0)
            second = second_now();
        take_event(event, i, second);
    }
    return (event->takers | event->undecided) != 0;
}

/* Decides for the taps that needed the name of the event, which is known now. */
static void decide_by_name(mp_tap_event *event)
{
    for (int i = 0; event->undecided >> i != 0; i++)
        if ((event->undecided >> i & 1) != 0 && admits_text(own->filters[i].tool, event->name))
            take_event(event, i, second_now());
    event->undecided = 0;
}

/* Wakes the reader if it rests, or if the queue has become long. The caller has the lock. */
static void queue_event(mp_tap *tap, mp_str text)
{
    size_t before = tap->queue.len, most = (size_t)MAX_BYTES, many = most / LONG_PART;
    if (before + atomic_load_explicit(&tap->unread, memory_order_relaxed) + text.len > most) {
        drop_event(tap);
    } else {
        mp_buf_put(&tap->queue, text);
        tap->sent++;
        mp_stat_add(&mp_stat_tap_sent, 1);
    }
    if (!atomic_load(&tap->is_awake) || (before < many && tap->queue.len >= many))
        wake_tap(tap);
}

void mp_tap_put(mp_tap_event *event)
{
    mp_str texts[MP_TAP_FORMS];
    mp_scoped_buf memory = {0};
    unsigned forms = 0;
    if (!event->was_asked)
        mp_tap_wants(event);
    decide_by_name(event);
    if (event->takers == 0)
        return;
    for (int i = 0; event->takers >> i != 0; i++)
        if ((event->takers >> i & 1) != 0)
            forms |= 1u << form_of(&own->filters[i], event);
    mp_tap_put_texts(&memory, event, forms, texts);
    MP_LOCKED(&lock);
    for (int i = 0; event->takers >> i != 0; i++)
        if ((event->takers >> i & 1) != 0 && !own->taps[i]->is_closed)
            queue_event(own->taps[i], texts[form_of(&own->filters[i], event)]);
}

/* -- taps ---------------------------------------------------------------------------------------------------------- */

mp_tap *MP_NULLABLE mp_tap_open(const mp_tap_filter *filter, const mp_tap_hooks *hooks)
{
    mp_tap *tap = NULL;
    MP_LOCKED(&lock);
    for (int i = 0; i < MP_TAPS && tap == NULL; i++)
        if (taps[i] == NULL)
            tap = taps[i] = mp_new(sizeof *tap);
    if (tap != NULL) {
        tap->hooks = *hooks;
        tap->filter = *filter;
        tap->filter.tool = mp_dup_text(filter->tool);
        tap->filter.principal = mp_dup_text(filter->principal);
        tap->filter.session = mp_dup_text(filter->session);
        tap->filter.method = mp_dup_text(filter->method);
        tap->filter.outcome = mp_dup_text(filter->outcome);
        tap->refs = 1;
        publish_taps();
        atomic_fetch_add(&mp_tap_count, 1);
        mp_stat_add(&mp_stat_taps, 1);
    }
    return tap;
}

mp_tap_totals mp_tap_close(mp_tap *tap)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MP_TAPS; i++)
        if (taps[i] == tap)
            taps[i] = NULL;
    tap->is_closed = true;
    publish_taps();
    atomic_fetch_sub(&mp_tap_count, 1);
    mp_tap_totals totals = {tap->sent, atomic_load(&tap->dropped)};
    mp_buf_clear(&tap->queue);
    mp_buf_clear(&tap->taken);
    unref_tap(tap);
    pthread_mutex_unlock(&lock);
    mp_stat_add(&mp_stat_taps, -1);
    return totals;
}

/* The bytes of the first whole events of a text, at most `most`. */
static size_t whole_events(mp_str text, size_t most)
{
    if (text.len <= most)
        return text.len;
    while (most > 1 && !(text.ptr[most - 1] == '\n' && text.ptr[most - 2] == '\n'))
        most--;
    return most > 1 ? most : 0;
}

/* Moves events of `taken` to `out`, at most `most` bytes. True if none are left. */
static bool move_taken(mp_tap *tap, size_t most, mp_buf *out)
{
    mp_str left = mp_str_from(mp_buf_str(&tap->taken), tap->from);
    left.len = whole_events(left, most);
    mp_buf_put(out, left);
    tap->from += left.len;
    atomic_store_explicit(&tap->unread, tap->taken.len - tap->from, memory_order_relaxed);
    return tap->from == tap->taken.len;
}

bool mp_tap_take(mp_tap *tap, size_t most, mp_buf *out)
{
    size_t start = out->len;
    if (!move_taken(tap, most, out))
        return true;
    if (tap->taken.cap > KEPT_CAP)
        mp_buf_clear(&tap->taken);
    tap->taken.len = tap->from = 0;
    pthread_mutex_lock(&lock);
    mp_buf empty = tap->taken;
    tap->taken = tap->queue;
    tap->queue = empty;
    atomic_store_explicit(&tap->unread, tap->taken.len, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    if (!move_taken(tap, most - (out->len - start), out))
        return true;
    uint64_t dropped = atomic_load(&tap->dropped), now = mp_monotonic_ms();
    if (dropped > tap->reported && now - tap->told_ms >= TELL_MS) {
        mp_buf_printf(out, "data: {\"event\":\"dropped\",\"count\":%llu}\n\n",
                      (unsigned long long)(dropped - tap->reported));
        tap->reported = dropped;
        tap->told_ms = now;
    }
    return false;
}

bool mp_tap_rest(mp_tap *tap)
{
    MP_LOCKED(&lock);
    atomic_store(&tap->is_awake, false);
    bool has_news = tap->queue.len > 0 || tap->from < tap->taken.len || atomic_load(&tap->dropped) > tap->reported;
    if (has_news)
        atomic_store(&tap->is_awake, true);
    return !has_news;
}
