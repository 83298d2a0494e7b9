#include "lib/work/job_log.h"
#include "json/json.h"
#include "lib/lib.h"

typedef struct record {
    struct record *next;
    char *name, *when;
    uint64_t every_ms, last_ms, next_ms, took_ms; /* times since 1970; 0: none */
    const char *MP_NULLABLE outcome;              /* outcome of the last run; NULL: no run has ended */
    bool is_running, is_listed;
    bool is_elsewhere; /* another process of the gateway runs the job */
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `records` */
static record *records;

static record **place_of(const char *name)
{
    record **at = &records;
    while (*at != NULL && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void drop_unlisted(void)
{
    for (record **at = &records; *at != NULL;) {
        record *one = *at;
        if (one->is_listed) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one->name);
        free(one->when);
        free(one);
    }
}

void mp_job_log_list(const mp_cron *MP_NULLABLE first)
{
    MP_LOCKED(&lock);
    for (record *one = records; one != NULL; one = one->next)
        one->is_listed = false;
    for (const mp_cron *job = first; job != NULL; job = job->next) {
        if (job->when == NULL)
            continue;
        record **at = place_of(job->name);
        if (*at == NULL) {
            *at = mp_new(sizeof **at);
            (*at)->name = mp_dup(mp_str_of(job->name));
        }
        if ((*at)->when == NULL || strcmp((*at)->when, job->when) != 0 || (*at)->next_ms == 0)
            (*at)->next_ms = job->first_ms;
        free((*at)->when);
        (*at)->when = mp_dup(mp_str_of(job->when));
        (*at)->every_ms = job->every_ms;
        (*at)->is_listed = true;
    }
    drop_unlisted();
}

void mp_job_log_began(const char *name)
{
    MP_LOCKED(&lock);
    record *one = *place_of(name);
    if (one != NULL) {
        one->last_ms = mp_clock_ms(CLOCK_REALTIME);
        one->is_running = true;
    }
}

void mp_job_log_ended(const char *name, const char *outcome, int64_t next_s)
{
    MP_LOCKED(&lock);
    record *one = *place_of(name);
    if (one != NULL) {
        uint64_t now = mp_clock_ms(CLOCK_REALTIME);
        one->took_ms = now > one->last_ms ? now - one->last_ms : 0;
        one->next_ms = next_s > 0 ? (uint64_t)next_s * 1000 : one->every_ms > 0 ? one->last_ms + one->every_ms : 0;
        one->outcome = outcome;
        one->is_running = false;
    }
}

static void put_time(mp_buf *out, const char *name, uint64_t ms)
{
    char when[32];
    struct tm parts;
    time_t seconds = (time_t)(ms / 1000);
    if (ms == 0)
        return;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    mp_buf_printf(out, ",\"%s\":\"%s\"", name, when);
}

void mp_lib_put_jobs(mp_buf *out, bool is_joined)
{
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&lock);
    for (const record *one = records; one != NULL; one = one->next) {
        mp_buf_put(out, one == records ? MP_STR("{\"name\":") : MP_STR(",{\"name\":"));
        mp_json_put_string(out, mp_str_of(one->name));
        mp_buf_put(out, MP_STR(",\"when\":"));
        mp_json_put_string(out, mp_str_of(one->when));
        mp_buf_put(out, one->is_running || (is_joined && one->is_elsewhere) ? MP_STR(",\"running\":true")
                                                                            : MP_STR(",\"running\":false"));
        put_time(out, "last", one->last_ms);
        put_time(out, "next", one->next_ms);
        if (one->outcome != NULL)
            mp_buf_printf(out, ",\"outcome\":\"%s\",\"took_ms\":%llu", one->outcome, (unsigned long long)one->took_ms);
        mp_buf_putc(out, '}');
    }
    pthread_mutex_unlock(&lock);
    mp_buf_putc(out, ']');
}

/* -- other processes of the gateway -------------------------------------------------------------------------------- */

static const char *const outcomes[] = {"ok", "failed", "cancelled"}; /* names of outcomes as host.job.note takes them */

void mp_lib_put_jobs_text(mp_buf *out)
{
    MP_LOCKED(&lock);
    for (const record *one = records; one != NULL; one = one->next)
        mp_buf_printf(out, "%llu %llu %d %s %s\n", (unsigned long long)one->last_ms, (unsigned long long)one->took_ms,
                      one->is_running, one->outcome == NULL ? "none" : one->outcome, one->name);
}

static void take_job(mp_str line)
{
    int64_t last_ms, took_ms;
    mp_str last = mp_str_cut(&line, ' '), took = mp_str_cut(&line, ' '), running = mp_str_cut(&line, ' ');
    mp_str outcome = mp_str_cut(&line, ' ');
    if (!mp_json_int(last, &last_ms) || !mp_json_int(took, &took_ms) || line.len == 0)
        return;
    char *name = mp_dup(line);
    record *one = *place_of(name);
    free(name);
    if (one == NULL)
        return;
    one->is_elsewhere = one->is_elsewhere || mp_str_is(running, "1");
    if (one->is_running || (uint64_t)last_ms <= one->last_ms)
        return;
    one->last_ms = (uint64_t)last_ms;
    one->took_ms = (uint64_t)took_ms;
    one->outcome = NULL;
    for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++)
        if (mp_str_is(outcome, outcomes[i]))
            one->outcome = outcomes[i];
}

void mp_lib_take_jobs(mp_str text)
{
    MP_LOCKED(&lock);
    while (text.len > 0)
        take_job(mp_str_cut(&text, '\n'));
}

void mp_lib_forget_jobs_elsewhere(void)
{
    MP_LOCKED(&lock);
    for (record *one = records; one != NULL; one = one->next)
        one->is_elsewhere = false;
}
