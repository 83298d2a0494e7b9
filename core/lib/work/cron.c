/* cron.c: starts scheduled jobs. Keys in the store of the process record when a job last started and that it runs: so
 * one worker starts it, the first to check, and the VM of a new generation continues the schedule of the old one. */
#include "lib/work/cron.h"
#include "lib/work/job_log.h"
#include "data/data.h"
#include "vm/engine.h"

#define MIN_TICK_MS 20
#define MAX_TICK_MS 1000
#define CLEANUP_MS 5000 /* time for `<close>` handlers after the job's time limit */

static atomic_bool is_paused; /* no job of this process starts: another process of the gateway starts them */

void mp_lib_allow_schedules(bool are_allowed)
{
    atomic_store(&is_paused, !are_allowed);
}

/* The store's key for `what` of a job. Written to `to`. */
static mp_str put_key(mp_buf *to, const char *what, const mp_cron *job)
{
    to->len = 0;
    mp_buf_printf(to, "job:%s:%s", what, job->name);
    return mp_buf_str(to);
}

/* Claims the next run of the job for this worker. False if the job is not due yet, or is running. */
static bool claim_run(mp_cron *job)
{
    mp_store *store = job->lib->store;
    mp_scoped_buf name = {0}, text = {0};
    bool is_idle = mp_store_get(store, put_key(&name, "running", job), &text) == MP_STORE_NONE;
    bool due =
        is_idle && mp_store_set(store, put_key(&name, "last", job), MP_STR(""), job->every_ms, true) == MP_STORE_DONE;
    if (due && mp_store_set(store, put_key(&name, "running", job), MP_STR(""), job->limit_ms + CLEANUP_MS, true) !=
                   MP_STORE_DONE)
        due = false;
    return due;
}

static void begin_job(mp_cron *job, mp_rpc *rpc)
{
    mp_scoped_buf name = {0}, principal = {0};
    mp_buf_printf(&principal, "job:%s", job->name);
    mp_principal *itself = mp_principal_new(mp_buf_str(&principal), mp_buf_str(&principal), 0);
    mp_call *call = mp_call_spawn_alone(rpc, itself, job->limit_ms);
    mp_principal_unref(itself);
    if (call != NULL) {
        mp_lib_task_start(job->lib->vm, &mp_cron_work, call)->scheduled = job;
    } else {
        mp_store_delete(job->lib->store, put_key(&name, "running", job));
        mp_log(MP_WARN, "job not started", mp_log_str("name", mp_str_of(job->name)),
               mp_log_str("why", MP_STR("too many background tasks (1,024)")));
    }
}

static void on_tick(mp_timer *timer);

static void start_timer(mp_cron *job, mp_loop *loop)
{
    uint64_t tick = job->every_ms / 10;
    tick = tick < MIN_TICK_MS ? MIN_TICK_MS : tick > MAX_TICK_MS ? MAX_TICK_MS : tick;
    mp_timer_start(loop, &job->timer, tick, on_tick);
}

static void on_tick(mp_timer *timer)
{
    mp_cron *job = mp_container(timer, mp_cron, timer);
    mp_loop *loop = mp_state_of(job->lib->vm)->loop;
    mp_rpc *rpc = job->lib->rpc;
    if (loop == NULL || rpc == NULL || mp_rpc_is_draining(rpc))
        return;
    start_timer(job, loop);
    if (!atomic_load(&is_paused) && claim_run(job))
        begin_job(job, rpc);
}

void mp_cron_start(mp_lib *lib, mp_loop *loop)
{
    lib->runs_schedule = true;
    mp_job_log_list(lib->schedule);
    for (mp_cron *job = lib->schedule; job != NULL; job = job->next)
        start_timer(job, loop);
}

void mp_cron_stop(mp_lib *lib)
{
    mp_loop *loop = mp_state_of(lib->vm)->loop;
    if (loop == NULL || !lib->runs_schedule)
        return;
    lib->runs_schedule = false;
    for (mp_cron *job = lib->schedule; job != NULL; job = job->next)
        mp_timer_stop(loop, &job->timer);
}

void mp_cron_free(mp_lib *lib)
{
    while (lib->schedule != NULL) {
        mp_cron *job = lib->schedule;
        lib->schedule = job->next;
        free(job->name);
        free(job->when);
        free(job);
    }
}
