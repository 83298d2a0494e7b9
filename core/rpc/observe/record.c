/* record.c: the recorded calls of the process, the latest ones only: a list that drops its oldest lines where it is
 * over its count or its bytes. A file may have them, too (telemetry/record_file.h). The library in Lua makes the lines
 * (lua/moonpool/replay/recorder.lua). */
#include "rpc/role.h"
#include "json/json.h"
#include "telemetry/telemetry.h"

MP_COUNTER(records_kept, "records", "result", "kept", "calls that were recorded")
MP_COUNTER(records_dropped, "records", "result", "dropped", "recorded calls that made room for later ones")
MP_COUNTER(records_large, "records", "result", "large",
           "calls that are over 256 KiB, of which only the beginning was recorded")
MP_COUNTER(records_refused, "records", "result", "refused", "recorded calls that alone are larger than 8 MiB")
MP_COUNTER(records_skipped, "records", "result", "skipped", "calls that cannot be replayed: a line says why")
MP_COUNTER(records_torn, "records", "result", "torn",
           "lines of record.file that are no whole record, as after a full disk")
MP_ACCOUNT(record_bytes, "record_bytes", "", "", "bytes of the recorded calls in memory")

#define MAX_CALLS ((size_t)MP_LIMIT(record_calls, 200)) /* calls that are kept */
/* bytes of the entries in memory, and of record.file */
#define MAX_BYTES ((size_t)MP_LIMIT(record_bytes, 8 << 20))
#define MAX_CALL ((size_t)MP_LIMIT(record_call, 256 << 10)) /* bytes of one call */

typedef struct {
    mp_link link;
    uint64_t serial;
    mp_buf line;
} entry;

atomic_bool mp_record_on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static mp_link entries;                                  /* the oldest first */
static mp_record_limits limits;                          /* limits of the configuration, whose patterns are copied */
static char *MP_NULLABLE asked; /* the pattern of the recording that an operator has begun; NULL: none */
static uint64_t asked_until;    /* when that recording ends, by mp_monotonic_ms */
static uint64_t asked_left;     /* how many calls it may still record */
static uint64_t serial;         /* number of the last entry */
static size_t count;

static void update_state(void)
{
    atomic_store_explicit(&mp_record_on, asked != NULL || limits.tools != NULL, memory_order_relaxed);
}

static void drop_oldest(void)
{
    entry *oldest = mp_container(mp_link_take(&entries), entry, link);
    count--;
    mp_account_give(&mp_account_record_bytes, (int64_t)oldest->line.len);
    mp_buf_clear(&oldest->line);
    free(oldest);
}

static void end_asked(void)
{
    free(asked);
    asked = NULL;
    update_state();
}

/* Drops the oldest calls until at most `most` are left and MAX_BYTES has room for `more` bytes. */
static void shrink_to(size_t most, size_t more)
{
    while (count > 0 &&
           (count > most || mp_account_used(&mp_account_record_bytes) + (int64_t)more > (int64_t)MAX_BYTES)) {
        drop_oldest();
        mp_stat_add(&mp_stat_records_dropped, 1);
    }
}

void mp_record_configure(const mp_record_limits *wanted)
{
    MP_LOCKED(&lock);
    for (size_t i = 0; limits.tools != NULL && limits.tools[i] != NULL; i++)
        free(limits.tools[i]);
    free(limits.tools);
    limits = *wanted;
    limits.tools = NULL;
    size_t patterns = 0;
    char **from = wanted->tools;
    while (from != NULL && from[patterns] != NULL)
        patterns++;
    if (from != NULL && patterns > 0) {
        char **tools = mp_new((patterns + 1) * sizeof *tools);
        for (size_t i = 0; i < patterns; i++)
            tools[i] = mp_dup(mp_str_of(from[i]));
        limits.tools = tools;
    }
    shrink_to(MAX_CALLS, 0);
    mp_record_file_limit(MAX_BYTES);
    update_state();
}

bool mp_record_begin(const char *pattern, uint64_t ms, uint64_t most)
{
    MP_LOCKED(&lock);
    bool is_free = asked == NULL || mp_monotonic_ms() >= asked_until;
    if (is_free) {
        free(asked);
        asked = mp_dup(mp_str_of(pattern));
        asked_until = mp_monotonic_ms() + ms;
        asked_left = most;
        update_state();
    }
    return is_free;
}

bool mp_record_end(void)
{
    MP_LOCKED(&lock);
    bool was_on = asked != NULL;
    if (was_on)
        end_asked();
    return was_on;
}

/* True if `record` of the configuration names the tool. With the lock. */
static bool is_configured(mp_str tool)
{
    for (size_t i = 0; limits.tools != NULL && limits.tools[i] != NULL; i++)
        if (mp_pattern_matches(limits.tools[i], tool))
            return true;
    return false;
}

/* True if the recording of mp_record_begin takes the tool. With the lock. */
static bool is_asked_for(mp_str tool)
{
    if (asked != NULL && (asked_left == 0 || mp_monotonic_ms() >= asked_until))
        end_asked();
    return asked != NULL && mp_pattern_matches(asked, tool);
}

bool mp_record_wants(mp_str tool)
{
    MP_LOCKED(&lock);
    return is_asked_for(tool) || is_configured(tool);
}

bool mp_record_claim(mp_str tool)
{
    MP_LOCKED(&lock);
    bool is_asked = is_asked_for(tool);
    if (is_asked)
        asked_left--;
    return is_asked || is_configured(tool);
}

size_t mp_record_call_bytes(void)
{
    return MAX_CALL;
}

/* Keeps a line, in place of as many of the oldest ones as it needs. NULL: it alone is larger than MAX_BYTES. The caller
 * has the lock. */
static const entry *MP_NULLABLE keep_line(mp_str line)
{
    bool is_whole = line.len > 0 && line.ptr[line.len - 1] == '\n';
    size_t size = line.len + !is_whole;
    if (size <= MAX_BYTES)
        shrink_to(MAX_CALLS - 1, size);
    if (!mp_account_take(&mp_account_record_bytes, (int64_t)size, (int64_t)MAX_BYTES)) {
        mp_stat_add(&mp_stat_records_refused, 1);
        return NULL;
    }
    entry *made = mp_new(sizeof *made);
    mp_buf_put(&made->line, line);
    if (!is_whole)
        mp_buf_putc(&made->line, '\n');
    made->serial = ++serial;
    mp_link_put(&entries, &made->link);
    count++;
    return made;
}

/* A line of the file of an earlier process. */
static void take_line(mp_str line)
{
    static const char begins[] = "{\"moonpool\":\"record 1\",";
    mp_json_type type = MP_JSON_NULL;
    mp_str text = {line.ptr, line.len - (line.ptr[line.len - 1] == '\n')};
    if (text.len < sizeof begins || memcmp(text.ptr, begins, sizeof begins - 1) != 0 ||
        mp_json_scan(text, &(mp_json_visitor){0}, &type, NULL) != MP_JSON_OK) {
        mp_stat_add(&mp_stat_records_torn, text.len > 0);
        return;
    }
    MP_LOCKED(&lock);
    keep_line(line);
}

int mp_record_open(const char *path, mp_err *err)
{
    return mp_record_file_open(path, MAX_BYTES, take_line, err);
}

void mp_record_put(mp_str line, mp_record_kind kind)
{
    static const mp_stat *const counters[] = {[MP_RECORD_WHOLE] = &mp_stat_records_kept,
                                              [MP_RECORD_CUT] = &mp_stat_records_large,
                                              [MP_RECORD_SKIPPED] = &mp_stat_records_skipped};
    MP_LOCKED(&lock);
    const entry *made = keep_line(line);
    if (made != NULL) {
        mp_record_file_put(mp_buf_str(&made->line));
        mp_stat_add(counters[kind], 1);
    }
}

mp_record_page mp_record_read(uint64_t after, size_t last, size_t most, mp_buf *out)
{
    MP_LOCKED(&lock);
    mp_record_page page = {
        .last = serial, .next = after, .is_on = atomic_load_explicit(&mp_record_on, memory_order_relaxed)};
    uint64_t oldest = serial - count; /* the serial before that of the oldest entry: serials have no gaps */
    if (last < count && after < serial - last)
        page.next = after = serial - last;
    if (after < oldest) {
        page.lost = oldest - after;
        page.next = oldest;
    }
    if (asked != NULL && asked_left > 0 && mp_monotonic_ms() < asked_until)
        page.is_asked = true;
    MP_EACH(const entry, one, &entries, link) {
        if (one->serial <= page.next)
            continue;
        if (out->len > 0 && out->len + one->line.len > most) {
            page.has_more = true;
            break;
        }
        mp_buf_put(out, mp_buf_str(&one->line));
        page.next = one->serial;
    }
    return page;
}

size_t mp_record_count(void)
{
    MP_LOCKED(&lock);
    return count;
}
