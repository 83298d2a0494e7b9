#include "reload_past.h"
#include "json/json.h"

#define MAX_RELOADS 32
#define MAX_TEXT 8192

typedef struct {
    time_t at;
    bool is_ok;
    int64_t generation;
    const char *by;
    uint64_t took_ms;
    char *text;
} event;

typedef struct {
    int64_t generation;
    unsigned worker;
    uint64_t at_us;
} retired;

struct mp_reload_past {
    pthread_mutex_t lock; /* guards all members */
    event events[MAX_RELOADS];
    uint64_t count; /* events that ever were */
    mp_source *serving;
    retired *retired;
    size_t retired_count, retired_room;
};

mp_reload_past *mp_reload_past_new(mp_source *serving)
{
    mp_reload_past *past = mp_new(sizeof *past);
    pthread_mutex_init(&past->lock, NULL);
    past->serving = mp_source_ref(serving);
    return past;
}

void mp_reload_past_free(mp_reload_past *MP_NULLABLE past)
{
    if (past == NULL)
        return;
    for (int i = 0; i < MAX_RELOADS; i++)
        free(past->events[i].text);
    mp_source_unref(past->serving);
    free(past->retired);
    pthread_mutex_destroy(&past->lock);
    free(past);
}

void mp_reload_past_add(mp_reload_past *past, bool is_ok, int64_t generation, const char *by, uint64_t took_ms,
                        mp_str text)
{
    char *kept = mp_dup((mp_str){text.ptr, text.len < MAX_TEXT ? text.len : MAX_TEXT});
    MP_LOCKED(&past->lock);
    event *one = &past->events[past->count++ % MAX_RELOADS];
    free(one->text);
    *one = (event){time(NULL), is_ok, generation, by, took_ms, kept};
}

void mp_reload_past_serve(mp_reload_past *past, mp_source *source)
{
    mp_source *own = mp_source_ref(source);
    pthread_mutex_lock(&past->lock);
    mp_source *before = past->serving;
    past->serving = own;
    pthread_mutex_unlock(&past->lock);
    mp_source_unref(before);
}

mp_source *mp_reload_past_source(mp_reload_past *past)
{
    MP_LOCKED(&past->lock);
    return mp_source_ref(past->serving);
}

void mp_reload_past_retire(mp_reload_past *past, int64_t generation, unsigned worker, uint64_t at_us)
{
    MP_LOCKED(&past->lock);
    if (past->retired_count == past->retired_room) {
        past->retired_room = past->retired_room * 2 + 8;
        past->retired = mp_resize(past->retired, past->retired_room * sizeof *past->retired);
    }
    past->retired[past->retired_count++] = (retired){generation, worker, at_us};
}

void mp_reload_past_end(mp_reload_past *past, int64_t generation, unsigned worker)
{
    MP_LOCKED(&past->lock);
    for (size_t i = 0; i < past->retired_count; i++) {
        retired *one = &past->retired[i];
        if (one->generation != generation || one->worker != worker)
            continue;
        past->retired_count--;
        memmove(one, one + 1, (past->retired_count - i) * sizeof *one);
        break;
    }
}

static void put_event(mp_buf *out, const event *one)
{
    char when[32];
    struct tm parts;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&one->at, &parts));
    mp_buf_printf(out, "{\"at\":\"%s\",\"ok\":%s,\"generation\":%lld,\"by\":\"%s\",\"took_ms\":%llu,\"%s\":", when,
                  one->is_ok ? "true" : "false", (long long)one->generation, one->by, (unsigned long long)one->took_ms,
                  one->is_ok ? "changes" : "errors");
    mp_json_put_string(out, mp_str_of(one->text));
    mp_buf_putc(out, '}');
}

void mp_reload_past_put(mp_reload_past *past, mp_buf *out)
{
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&past->lock);
    uint64_t kept = past->count < MAX_RELOADS ? past->count : MAX_RELOADS;
    for (uint64_t i = 0; i < kept; i++) {
        if (i > 0)
            mp_buf_putc(out, ',');
        put_event(out, &past->events[(past->count - 1 - i) % MAX_RELOADS]);
    }
    pthread_mutex_unlock(&past->lock);
    mp_buf_putc(out, ']');
}

void mp_reload_past_put_generations(mp_reload_past *past, mp_buf *out)
{
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&past->lock);
    for (size_t i = 0; i < past->retired_count; i++)
        mp_buf_printf(out, "%s{\"generation\":%lld,\"worker\":%u,\"retired_us\":%llu}", i == 0 ? "" : ",",
                      (long long)past->retired[i].generation, past->retired[i].worker,
                      (unsigned long long)past->retired[i].at_us);
    pthread_mutex_unlock(&past->lock);
    mp_buf_putc(out, ']');
}
