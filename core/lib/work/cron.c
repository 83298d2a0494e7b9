/* cron.c: starts scheduled jobs, and those that listen. Keys in the store of the process record when a job last started
 * and that it runs: so one worker starts it, the first to check, and the VM of a new generation continues the schedule
 * of the old one. */
#include "lib/work/cron.h"
#include "lib/work/job_log.h"
#include "data/data.h"
#include "vm/engine.h"

#define MIN_TICK_MS 20
#define MAX_TICK_MS 1000
#define CLEANUP_MS 5000 /* time for `<close>` handlers after the job's time limit */
#define LISTEN_MS 250   /* between two looks whether a job may listen, or has to stop */

/* The listening jobs that a VM of this process has claimed. */
typedef struct claim {
    struct claim *next;
    char *name;
} claim;
static pthread_mutex_t claims_lock = PTHREAD_MUTEX_INITIALIZER;
static claim *MP_NULLABLE claims;

static atomic_bool is_paused; /* no job of this process starts: another process of the gateway starts them */

void mp_lib_allow_schedules(bool are_allowed)
{
    atomic_store(&is_paused, !are_allowed);
}

bool mp_cron_is_allowed(void)
{
    return !atomic_load(&is_paused);
}

/* The store's key for `what` of a job. Written to `to`. */
static mp_str put_key(mp_buf *to, const char *what, const mp_cron *job)
{
    to->len = 0;
    mp_buf_printf(to, "job:%s:%s", what, job->name);
    return mp_buf_str(to);
}

/* Does an operation on `what` of a job, if this process owns the store; else the process that does starts jobs. */
static mp_store_result ask_store(const mp_cron *job, const char *what, mp_store_operation it)
{
    mp_scoped_buf name = {0}, text = {0};
    int64_t n;
    it.key = put_key(&name, what, job);
    return mp_store_run(job->lib->store, &it, &text, &n);
}

/* Sets the mark `what` of a job for `life_ms`. True if the job did not have it. */
static bool set_mark(const mp_cron *job, const char *what, uint64_t life_ms)
{
    mp_store_operation it = {.kind = MP_STORE_SET, .text = MP_STR(""), .number = life_ms, .n = true};
    return ask_store(job, what, it) == MP_STORE_DONE;
}

/* Claims the next run of the job for this worker. False if the job is not due yet, or is running. */
static bool claim_run(const mp_cron *job)
{
    bool is_idle = ask_store(job, "running", (mp_store_operation){.kind = MP_STORE_GET}) == MP_STORE_NONE;
    return is_idle && set_mark(job, "last", job->every_ms) && set_mark(job, "running", job->limit_ms + CLEANUP_MS);
}

/* False: the job has not begun, which was logged. */
static bool begin_job(mp_cron *job, mp_rpc *rpc)
{
    mp_scoped_buf name = {0}, principal = {0};
    mp_buf_printf(&principal, "job:%s", job->name);
    mp_principal *itself = mp_principal_new(mp_buf_str(&principal), mp_buf_str(&principal), 0);
    mp_call *call =
        mp_call_spawn_alone(rpc, itself, job->when == NULL, job->limit_ms); /* not shown: the gateway's own */
    mp_principal_unref(itself);
    if (call != NULL) {
        mp_lib_task_start(job->lib->vm, &mp_cron_work, call)->scheduled = job;
    } else {
        if (job->source == NULL)
            mp_store_post(job->lib->store, put_key(&name, "running", job), MP_STR_NONE, 0);
        mp_log(MP_WARN, "job not started", mp_log_str("name", mp_str_of(job->name)),
               mp_log_str("why", MP_STR("too many background tasks (1,024)")));
    }
    return call != NULL;
}

/* -- listening jobs ------------------------------------------------------------------------------------------------ */

static bool claim_job(const char *name)
{
    MP_LOCKED(&claims_lock);
    for (const claim *one = claims; one != NULL; one = one->next)
        if (strcmp(one->name, name) == 0)
            return false;
    claim *own = mp_new(sizeof *own);
    *own = (claim){claims, mp_dup(mp_str_of(name))};
    claims = own;
    return true;
}

static void give_claim(mp_cron *job)
{
    if (!job->is_claimed)
        return;
    job->is_claimed = false;
    MP_LOCKED(&claims_lock);
    for (claim **at = &claims; *at != NULL; at = &(*at)->next) {
        claim *one = *at;
        if (strcmp(one->name, job->name) != 0)
            continue;
        *at = one->next;
        free(one->name);
        free(one);
        return;
    }
}

/* The job listens no more. Another VM may, once no run is left. */
static void stop_listening(mp_cron *job)
{
    if (job->is_listening)
        mp_listening_close(MP_NEVER_NULL(job->source)); /* only a listening job listens */
    job->is_listening = false;
    if (!job->is_running)
        give_claim(job);
}

static void on_tick(mp_timer *timer);

static void on_ready(void *ctx)
{
    mp_cron *job = ctx;
    mp_loop *loop = mp_state_of(job->lib->vm)->loop;
    if (loop != NULL)
        mp_timer_start(loop, &job->timer, 0, on_tick);
}

static bool is_tick_due(const mp_cron *job, mp_loop *loop)
{
    return job->every_ms > 0 && mp_loop_now(loop) - job->ticked_ms >= job->every_ms;
}

bool mp_cron_take_tick(mp_cron *job)
{
    mp_loop *loop = mp_state_of(job->lib->vm)->loop;
    bool is_due = job->is_listening && loop != NULL && is_tick_due(job, loop);
    if (is_due)
        job->ticked_ms = mp_loop_now(loop);
    return is_due;
}

/* Listens if no other VM does, and begins a run if there is a message, or one is due, and none runs. */
static void listen_on(mp_cron *job, mp_listening *source, mp_loop *loop, mp_rpc *rpc)
{
    if (!job->is_claimed)
        job->is_claimed = claim_job(job->name);
    if (job->is_claimed && !job->is_listening)
        job->is_listening = mp_listening_open(source, loop, on_ready, job);
    if (!job->is_listening && !job->is_running)
        give_claim(job); /* there is no connection left for this VM: another one may have one */
    if (job->is_listening && !job->is_running && (mp_listening_has_message(source) || is_tick_due(job, loop)))
        job->is_running = begin_job(job, rpc);
}

void mp_cron_ended(mp_cron *job)
{
    if (job->source == NULL)
        return;
    job->is_running = false;
    if (job->is_listening)
        on_ready(job);
    else
        give_claim(job);
}

/* -- timers -------------------------------------------------------------------------------------------------------- */

static void start_timer(mp_cron *job, mp_loop *loop)
{
    uint64_t tick = job->source != NULL ? LISTEN_MS : job->every_ms / 10;
    tick = tick < MIN_TICK_MS ? MIN_TICK_MS : tick > MAX_TICK_MS ? MAX_TICK_MS : tick;
    mp_timer_start(loop, &job->timer, tick, on_tick);
}

static void on_tick(mp_timer *timer)
{
    mp_cron *job = mp_container(timer, mp_cron, timer);
    mp_loop *loop = mp_state_of(job->lib->vm)->loop;
    mp_rpc *rpc = job->lib->rpc;
    if (loop == NULL || rpc == NULL || mp_rpc_is_draining(rpc)) {
        stop_listening(job);
        return;
    }
    start_timer(job, loop);
    if (atomic_load(&is_paused))
        stop_listening(job);
    else if (job->source != NULL)
        listen_on(job, MP_NEVER_NULL(job->source), loop, rpc);
    else if (claim_run(job))
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
    for (mp_cron *job = lib->schedule; job != NULL; job = job->next) {
        mp_timer_stop(loop, &job->timer);
        stop_listening(job);
    }
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
