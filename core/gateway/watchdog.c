/* watchdog.c: the watchdog's thread: each round waits for a signal or a tick, then checks every other thread. */
#include "watchdog.h"
#include "gateway/listeners/listeners.h"
#include "json/json.h"
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

MP_GAUGE(workers_stuck, "workers_stuck", "", "", "workers whose loop has not run for 5 s")
MP_GAUGE(main_stuck, "main_stuck", "", "", "1 while the main thread, which reloads, has made no progress for 5 s")
MP_COUNTER(worker_stalls, "worker_stalls", "", "", "times that a worker was stuck for 5 s")

#define MAX_TICK_MS 1000
/* Time for which a loop may not turn. Scripts are preempted after milliseconds, so that only a function of C that
 * blocks keeps a loop for so long. */
#define STUCK_MS ((uint64_t)MP_LIMIT(stuck_ms, 5000))
#define MIN_TICK_MS 20    /* also while a worker is stuck: other workers accept its connections then */
#define ENDING_TICK_MS 20 /* true while the process is ending */
/* ms for which a node that leaves has served nothing when it ends: a request that had arrived is counted by then */
#define LEFT_QUIET_MS 500
/* time for a stuck worker's connections to be taken over, and for a stuck main thread to end */
#define GRACE_MS 1000
/* time for the main thread after all workers have ended: it frees memory and writes pending data */
#define CLEAN_UP_MS 5000
/* ms by which a round of the watchdog must be late to show that the machine or the process was suspended */
#define STOOD_MS 250
/* ms by which the deadline of a stop is extended in all because the process was suspended meanwhile */
#define GIVEN_MOST_MS 5000
/* part of MP_FORCE_MS in which the store's thread may save; the rest is for the log */
#define STORE_MS 100
#define EXIT_FORCED 1

/* The state of a watched thread. */
typedef struct {
    uint64_t turns;         /* turns of the thread's loop, when the number last changed */
    uint64_t still_ms;      /* time since `turns` last changed */
    bool is_asked;          /* the watchdog requested the line of Lua that the thread runs */
    bool is_stuck;          /* still_ms has reached STUCK_MS */
    char at[MP_WHERE_TEXT]; /* the line of Lua that the thread runs; "": unknown */
} watched;

struct mp_watchdog {
    mp_worker_shared *shared;
    pthread_t thread;
    bool has_stuck; /* a worker was stuck in the last round; the watchdog's thread only */
    atomic_bool is_ending;
    int fd;
    atomic_bool has_hangup, has_reopen, has_upgrade;
    _Atomic uint64_t drain_ms, linger_ms, leave_ms, main_turns;
    atomic_int spared_code; /* exit code of a process that only frees memory; -1: it has more to do */
    atomic_bool main_waits;
    mp_where main_where;
    pthread_mutex_t lock; /* protects all members below */
    mp_worker **workers;
    int count;
    bool is_released;
    mp_admin *MP_NULLABLE admin;         /* NULL: there is no admin listener */
    mp_listeners *MP_NULLABLE listeners; /* NULL: nothing is served yet, or not any more */
    watched *each;                       /* one element for each worker */
    watched main;
    /* monotonic ms when the last worker was seen to have ended; 0: some run */
    uint64_t all_ended_at;
    uint64_t given_ms;  /* ms by which the deadline was extended so far */
    uint64_t drains_at; /* when the time of limits.linger is over and the drain begins; 0: it is not running */
    /* Of a node that leaves its cluster: when the time of limits.linger is over; then, when that of cluster.leave is,
     * and since when it serves nothing; each 0 before. */
    uint64_t leaves_at, left_until, quiet_since;
    /* The process drains or leaves because of POST /api/drain, and got no SIGTERM or SIGINT since: the next one counts
     * as the first. */
    bool is_asked;
};

static void fill_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
}

/* -- stuck threads ------------------------------------------------------------------------------------------------- */

static mp_str place_of(const watched *one)
{
    return one->at[0] == '\0' ? MP_STR("unknown: a C function, or no script") : mp_str_of(one->at);
}

static void name_worker(char *room, size_t size, int i)
{
    snprintf(room, size, "worker %d", i + 1);
}

/* Suspends the listeners of worker `of` and hands its waiting connections to a worker that makes progress. If there
 * is none, tries again in later rounds for at most a second; then those connections are reset, unless they wait at a
 * socket that is shared. Each round of a stuck worker calls it, since connections go on arriving at shared sockets. */
static void suspend_worker(mp_watchdog *watchdog, int of)
{
    bool may_wait = false;
    for (int k = 1; k < watchdog->count; k++) {
        int i = (of + k) % watchdog->count;
        const watched *one = &watchdog->each[i];
        if (one->is_stuck || mp_worker_has_ended(watchdog->workers[i]))
            continue;
        may_wait = watchdog->each[of].still_ms < STUCK_MS + GRACE_MS;
        /* each round wakes workers that only wait for events */
        if (one->still_ms * 2 > STUCK_MS)
            continue;
        mp_worker_suspend(watchdog->workers[of], watchdog->workers[i]);
        return;
    }
    if (!may_wait)
        mp_worker_suspend(watchdog->workers[of], NULL);
}

static void begin_stuck(watched *one, const char *name, const char *hint)
{
    one->is_stuck = true;
    mp_log(MP_ERROR, "thread stuck", mp_log_str("thread", mp_str_of(name)), mp_log_int("ms", (int64_t)one->still_ms),
           mp_log_str("at", place_of(one)), mp_log_str("hint", mp_str_of(hint)));
}

static void end_stuck(watched *one, const char *name)
{
    one->is_stuck = false;
    one->at[0] = '\0';
    mp_log(MP_WARN, "thread recovered", mp_log_str("thread", mp_str_of(name)),
           mp_log_int("ms", (int64_t)one->still_ms));
}

/* Compares the thread's number of turns with the last check. True while it has not turned for STUCK_MS. */
static bool look_at(watched *one, uint64_t turns, uint64_t elapsed, mp_where *where)
{
    if (turns != one->turns) {
        one->turns = turns;
        return false;
    }
    one->still_ms += elapsed;
    if (one->still_ms * 2 < STUCK_MS)
        return false;
    if (!one->is_asked)
        mp_where_forget(where); /* discards the answer to an earlier request */
    one->is_asked = true;
    mp_vm_where(where, one->at, sizeof one->at);
    return one->still_ms >= STUCK_MS;
}

static void forget_worker(watched *one)
{
    one->still_ms = 0;
    one->is_asked = false;
    one->at[0] = '\0';
}

static void look_at_worker(mp_watchdog *watchdog, int i, uint64_t elapsed)
{
    mp_worker *worker = watchdog->workers[i];
    watched *one = &watchdog->each[i];
    char name[32];
    name_worker(name, sizeof name, i);
    uint64_t before = one->turns;
    bool has_ended = mp_worker_has_ended(worker);
    bool is_stuck = !has_ended && look_at(one, mp_worker_turns(worker), elapsed, mp_worker_where(worker));
    if (is_stuck && !one->is_stuck) {
        begin_stuck(one, name,
                    "the worker takes no connections until its loop runs again; restart the gateway to end the worker");
        mp_stat_add(&mp_stat_workers_stuck, 1);
        mp_stat_add(&mp_stat_worker_stalls, 1);
    } else if (one->is_stuck && (has_ended || one->turns != before)) {
        end_stuck(one, name);
        mp_worker_recover(worker);
        mp_stat_add(&mp_stat_workers_stuck, -1);
    }
    if (is_stuck)
        suspend_worker(watchdog, i);
    watchdog->has_stuck = watchdog->has_stuck || is_stuck;
    if (has_ended || one->turns != before)
        forget_worker(one);
    else
        mp_worker_wake(worker); /* a worker that only waits then turns at once */
}

static void end_stuck_main(watched *one)
{
    end_stuck(one, "main");
    mp_stat_add(&mp_stat_main_stuck, -1);
}

static void look_at_main(mp_watchdog *watchdog, uint64_t elapsed)
{
    watched *one = &watchdog->main;
    uint64_t before = one->turns, turns = atomic_load(&watchdog->main_turns);
    bool waits = atomic_load(&watchdog->main_waits) || watchdog->is_released;
    if (waits) {
        one->turns = before = turns;
        if (one->is_stuck)
            end_stuck_main(one);
        forget_worker(one);
        return;
    }
    bool is_stuck = look_at(one, turns, elapsed, &watchdog->main_where);
    if (is_stuck && !one->is_stuck) {
        begin_stuck(one, "main",
                    "the thread loads scripts or configuration; serving continues, but no reload begins until the "
                    "thread is done");
        mp_stat_add(&mp_stat_main_stuck, 1);
    } else if (one->is_stuck && one->turns != before)
        end_stuck_main(one);
    if (one->turns != before)
        forget_worker(one);
}

/* -- the end of the process ---------------------------------------------------------------------------------------- */

static void nap_briefly(long ms)
{
    struct timespec most = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&most, NULL);
}

/* Logs which threads have not ended. */
static void log_forced(const mp_watchdog *watchdog)
{
    char name[32];
    mp_str hint = MP_STR("the work did not end within limits.drain and is lost");
    for (int i = 0; i < watchdog->count; i++) {
        if (mp_worker_has_ended(watchdog->workers[i]))
            continue;
        name_worker(name, sizeof name, i);
        mp_log(MP_ERROR, "ended by force", mp_log_str("thread", mp_str_of(name)),
               mp_log_str("at", place_of(&watchdog->each[i])), mp_log_str("hint", hint));
    }
    if (!atomic_load(&watchdog->main_waits))
        mp_log(MP_ERROR, "ended by force", mp_log_str("thread", MP_STR("main")),
               mp_log_str("at", place_of(&watchdog->main)), mp_log_str("hint", hint));
}

/* Never returns. Waits at most MP_FORCE_MS for the store, the log and the audit log to be written. */
static void end_by_force(mp_watchdog *watchdog)
{
    for (uint64_t until = mp_monotonic_ms() + STORE_MS;
         mp_stat_read(&mp_stat_store_unsaved) > 0 && mp_monotonic_ms() < until;)
        nap_briefly(5);
    mp_log_hurry((MP_FORCE_MS - STORE_MS) / 2); /* for the log and for the audit log */
    int code = atomic_load(&watchdog->spared_code);
    if (code < 0 || mp_stat_read(&mp_stat_store_unsaved) > 0) {
        log_forced(watchdog);
        code = EXIT_FORCED;
    }
    mp_audit_close();
    mp_record_file_close();
    mp_log_stop();
    _exit(code);
}

static bool all_have_ended(const mp_watchdog *watchdog)
{
    for (int i = 0; i < watchdog->count; i++)
        if (!mp_worker_has_ended(watchdog->workers[i]))
            return false;
    return watchdog->count > 0;
}

/* `now` is the time of the round: a standstill within the round is not seen before the next one, which gives the time
 * back first. */
static void look_at_end(mp_watchdog *watchdog, uint64_t now)
{
    uint64_t end_at = atomic_load(&watchdog->shared->end_at);
    if (end_at == 0)
        return;
    if (watchdog->all_ended_at == 0 && all_have_ended(watchdog))
        watchdog->all_ended_at = now;
    bool is_lost = now + MP_FORCE_MS >= end_at;
    if (watchdog->all_ended_at != 0 && !watchdog->is_released)
        is_lost = is_lost || (now >= watchdog->all_ended_at + GRACE_MS && watchdog->main.still_ms >= GRACE_MS);
    if (is_lost)
        end_by_force(watchdog);
}

/* -- signals ------------------------------------------------------------------------------------------------------- */

static void drain_all(mp_watchdog *watchdog, bool at_once)
{
    watchdog->drains_at = 0;
    mp_listeners *MP_NULLABLE listeners = watchdog->listeners;
    mp_admin *MP_NULLABLE admin = watchdog->admin;
    if (!at_once && listeners != NULL)
        mp_listeners_unlink(listeners, false);
    if (!at_once && admin != NULL)
        mp_admin_stop_profile(admin);
    for (int i = 0; i < watchdog->count; i++)
        (at_once ? mp_worker_stop : mp_worker_drain)(watchdog->workers[i]);
}

static void wake_main(mp_watchdog *watchdog)
{
    uint64_t one = 1;
    while (write(watchdog->fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

/* The process ends within `ms`, or earlier if that was said before. */
static void end_within(mp_watchdog *watchdog, uint64_t ms)
{
    uint64_t end_at = mp_monotonic_ms() + ms, before = atomic_load(&watchdog->shared->end_at);
    while ((before == 0 || end_at < before) &&
           !atomic_compare_exchange_weak(&watchdog->shared->end_at, &before, end_at))
        continue;
}

/* limits.linger is for those who watch /readyz, so not for a gateway on stdio. */
static uint64_t linger_of(const mp_watchdog *watchdog)
{
    const mp_listeners *MP_NULLABLE listeners = watchdog->listeners;
    return listeners != NULL && listeners->count > 0 ? atomic_load(&watchdog->linger_ms) : 0;
}

/* Begins to end the process: lets the workers drain after `linger` ms. `again`: it drains already, so the workers stop
 * now. */
static void begin_end(mp_watchdog *watchdog, uint64_t linger, bool again)
{
    bool serves = !again && watchdog->count > 0;
    mp_vm_stop_loading();
    end_within(watchdog, linger + (serves ? atomic_load(&watchdog->drain_ms) : 0) + MP_ENDING_MS);
    if (linger == 0) {
        drain_all(watchdog, again);
    } else {
        mp_log(watchdog->shared->own_level, "lingering", mp_log_int("ms", (int64_t)linger));
        watchdog->drains_at = mp_monotonic_ms() + linger;
    }
    wake_main(watchdog);
}

/* -- leaving a cluster --------------------------------------------------------------------------------------------- */

/* True if the signal makes a node leave, or belongs to one that leaves already: it does not drain then. */
static bool begin_leave(mp_watchdog *watchdog, int number, bool is_own)
{
    mp_nodes *nodes = mp_processes_nodes(watchdog->shared->processes);
    bool was_asked = watchdog->is_asked;
    if (number != SIGTERM || atomic_load(&watchdog->shared->draining))
        return false;
    if (watchdog->leaves_at != 0) {
        watchdog->is_asked = watchdog->is_asked && is_own;
        return is_own || was_asked;
    }
    uint64_t leave = atomic_load(&watchdog->leave_ms), linger = linger_of(watchdog);
    if (leave == 0 || nodes == NULL || watchdog->count == 0 || !mp_nodes_has_joined(nodes))
        return false;
    watchdog->is_asked = is_own;
    watchdog->leaves_at = mp_monotonic_ms() + linger;
    atomic_store(&watchdog->shared->leaving, true);
    mp_nodes_hurry(nodes);
    mp_log(watchdog->shared->own_level, "leaving", mp_log_int("sessions", mp_stat_sum("sessions")),
           mp_log_int("linger_ms", (int64_t)linger), mp_log_int("most_ms", (int64_t)(linger + leave)));
    wake_main(watchdog);
    return true;
}

/* False if no other node takes clients: nobody could reach the sessions here. */
static bool has_others(const mp_watchdog *watchdog)
{
    mp_node_record other;
    const mp_nodes *nodes = mp_processes_nodes(watchdog->shared->processes);
    return nodes != NULL && (mp_nodes_choose(nodes, &other) || !mp_nodes_are_sure(nodes));
}

static void leave_now(mp_watchdog *watchdog, uint64_t now)
{
    watchdog->left_until = now + atomic_load(&watchdog->leave_ms);
    for (int i = 0; i < watchdog->count; i++)
        mp_worker_leave_cluster(watchdog->workers[i]);
}

static void look_at_leave(mp_watchdog *watchdog, uint64_t now)
{
    if (watchdog->leaves_at == 0 || now < watchdog->leaves_at || atomic_load(&watchdog->shared->draining))
        return;
    if (watchdog->left_until == 0) {
        leave_now(watchdog, now);
        return;
    }
    bool is_quiet = mp_serves_nothing() && !mp_processes_are_several(watchdog->shared->processes);
    watchdog->quiet_since = !is_quiet ? 0 : watchdog->quiet_since == 0 ? now : watchdog->quiet_since;
    bool is_over = now >= watchdog->left_until;
    bool is_done = watchdog->quiet_since != 0 && now - watchdog->quiet_since >= LEFT_QUIET_MS;
    if (!is_over && !is_done && has_others(watchdog))
        return;
    mp_begin_drain(watchdog->shared);
    mp_log(watchdog->shared->own_level, "draining",
           mp_log_str("why", is_done   ? MP_STR("nothing is left to serve")
                             : is_over ? MP_STR("the time of cluster.leave is over")
                                       : MP_STR("no other node takes clients")),
           mp_log_int("sessions", mp_stat_sum("sessions")));
    begin_end(watchdog, 0, false);
}

/* SIGTERM or SIGINT. `is_own`: of mp_watchdog_drain, for POST /api/drain. A hook of Kubernetes posts that before
 * Kubernetes sends SIGTERM, so that a signal after it counts as the first one. */
static void on_end(mp_watchdog *watchdog, int number, bool is_own)
{
    if (begin_leave(watchdog, number, is_own))
        return;
    bool has_begun = mp_begin_drain(watchdog->shared), was_asked = watchdog->is_asked;
    if (has_begun && is_own)
        return; /* a drain has begun already */
    if (watchdog->leaves_at != 0 && watchdog->left_until == 0)
        leave_now(watchdog, mp_monotonic_ms()); /* a second signal within limits.linger: sessions are unknown now */
    watchdog->is_asked = is_own;
    bool again = has_begun && !was_asked;
    mp_log(watchdog->shared->own_level, again ? "stopping now" : "draining",
           is_own ? mp_log_str("why", MP_STR("POST /api/drain")) : mp_log_int("signal", number));
    if (!has_begun || again)
        begin_end(watchdog, !again && number == SIGTERM && watchdog->leaves_at == 0 ? linger_of(watchdog) : 0, again);
    else if (number == SIGINT && watchdog->drains_at != 0)
        begin_end(watchdog, 0, false);
}

static void on_signal(mp_watchdog *watchdog, const siginfo_t *info)
{
    int number = info->si_signo;
    if (number == SIGHUP || number == SIGUSR1 || number == SIGUSR2) {
        atomic_store(number == SIGHUP    ? &watchdog->has_hangup
                     : number == SIGUSR1 ? &watchdog->has_reopen
                                         : &watchdog->has_upgrade,
                     true);
        wake_main(watchdog);
    } else {
        bool is_own =
            info->si_code <= 0 && info->si_pid == getpid(); /* above 0 the kernel sent it, and si_pid is not set */
        on_end(watchdog, number, is_own);
    }
}

static void look_at_linger(mp_watchdog *watchdog, uint64_t now)
{
    if (watchdog->drains_at == 0 || now < watchdog->drains_at)
        return;
    drain_all(watchdog, false);
    wake_main(watchdog);
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static uint64_t tick_of(const mp_watchdog *watchdog)
{
    uint64_t tick = STUCK_MS / 4;
    if (atomic_load(&watchdog->shared->leaving))
        return ENDING_TICK_MS;
    return watchdog->has_stuck || tick < MIN_TICK_MS ? MIN_TICK_MS : tick > MAX_TICK_MS ? MAX_TICK_MS : tick;
}

/* The end of the process moves by the time in which nothing of it ran: nothing is ended by force that had no time to
 * end. */
static void give_back(mp_watchdog *watchdog, uint64_t lost)
{
    uint64_t left = GIVEN_MOST_MS - watchdog->given_ms, given = lost < left ? lost : left;
    uint64_t before = atomic_load(&watchdog->shared->end_at);
    if (lost < STOOD_MS || before == 0)
        return;
    watchdog->given_ms += given;
    while (!atomic_compare_exchange_weak(&watchdog->shared->end_at, &before, before + given))
        continue;
}

static void *MP_NULLABLE run_watchdog(void *ctx)
{
    mp_watchdog *watchdog = ctx;
    sigset_t set;
    mp_crash_thread("watchdog", 0);
    fill_set(&set);
    for (uint64_t looked_at = mp_monotonic_ms(); !atomic_load(&watchdog->is_ending);) {
        uint64_t tick = tick_of(watchdog);
        struct timespec most = {(time_t)(tick / 1000), (long)(tick % 1000) * 1000000L};
        siginfo_t info;
        int number = sigtimedwait(&set, &info, &most);
        uint64_t now = mp_monotonic_ms(), elapsed = now - looked_at;
        looked_at = now;
        if (atomic_load(&watchdog->is_ending))
            break;
        pthread_mutex_lock(&watchdog->lock);
        /* If the whole process or machine was suspended, no thread was stuck. */
        if (elapsed > 2 * tick) {
            give_back(watchdog, elapsed - 2 * tick);
            elapsed = 2 * tick;
        }
        if (number > 0)
            on_signal(watchdog, &info);
        look_at_linger(watchdog, now);
        look_at_leave(watchdog, now);
        watchdog->has_stuck = false;
        for (int i = 0; i < watchdog->count; i++)
            look_at_worker(watchdog, i, elapsed);
        look_at_main(watchdog, elapsed);
        look_at_end(watchdog, now);
        pthread_mutex_unlock(&watchdog->lock);
    }
    return NULL;
}

mp_watchdog *MP_NULLABLE mp_watchdog_start(mp_worker_shared *shared, const mp_config *config, mp_err *err)
{
    mp_watchdog *watchdog = mp_new(sizeof *watchdog);
    sigset_t set;
    fill_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the file size limit then fails instead of ending the process */
    watchdog->shared = shared;
    atomic_init(&watchdog->spared_code, -1);
    pthread_mutex_init(&watchdog->lock, NULL);
    mp_watchdog_configure(watchdog, config);
    watchdog->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = watchdog->fd < 0 ? errno : pthread_create(&watchdog->thread, NULL, run_watchdog, watchdog);
    if (code == 0) {
        mp_where_watch(&watchdog->main_where);
        return watchdog;
    }
    mp_err_set(err, "cannot start the watchdog's thread: %s", strerror(code));
    if (watchdog->fd >= 0)
        close(watchdog->fd);
    pthread_mutex_destroy(&watchdog->lock);
    free(watchdog);
    return NULL;
}

void mp_watchdog_free(mp_watchdog *watchdog)
{
    atomic_store(&watchdog->is_ending, true);
    pthread_kill(watchdog->thread, SIGHUP);
    pthread_join(watchdog->thread, NULL);
    mp_where_watch(NULL);
    close(watchdog->fd);
    pthread_mutex_destroy(&watchdog->lock);
    free(watchdog->each);
    free(watchdog);
}

/* -- the main thread ----------------------------------------------------------------------------------------------- */

void mp_watchdog_watch(mp_watchdog *watchdog, mp_worker **workers, int count, mp_admin *MP_NULLABLE admin,
                       mp_listeners *listeners)
{
    MP_LOCKED(&watchdog->lock);
    watchdog->each = mp_new((size_t)count * sizeof *watchdog->each);
    watchdog->workers = workers;
    watchdog->count = count;
    watchdog->admin = admin;
    watchdog->listeners = listeners;
    if (atomic_load(&watchdog->shared->draining))
        drain_all(watchdog, false);
}

void mp_watchdog_release(mp_watchdog *watchdog)
{
    MP_LOCKED(&watchdog->lock);
    for (int i = 0; i < watchdog->count; i++)
        if (watchdog->each[i].is_stuck)
            mp_stat_add(&mp_stat_workers_stuck, -1);
    watchdog->count = 0;
    watchdog->admin = NULL;
    watchdog->listeners = NULL;
    watchdog->is_released = true;
    end_within(watchdog, CLEAN_UP_MS);
}

bool mp_watchdog_drains(mp_watchdog *watchdog)
{
    MP_LOCKED(&watchdog->lock);
    return atomic_load(&watchdog->shared->draining) && watchdog->drains_at == 0;
}

void mp_watchdog_spare(mp_watchdog *watchdog, int code)
{
    atomic_store(&watchdog->spared_code, code);
}

void mp_watchdog_configure(mp_watchdog *watchdog, const mp_config *config)
{
    atomic_store(&watchdog->drain_ms, config->drain);
    atomic_store(&watchdog->linger_ms, config->linger);
    atomic_store(&watchdog->leave_ms, config->cluster_leave);
}

void mp_watchdog_wait_begins(mp_watchdog *watchdog)
{
    atomic_store(&watchdog->main_waits, true);
}

void mp_watchdog_wait_ends(mp_watchdog *watchdog)
{
    mp_watchdog_beat(watchdog);
    atomic_store(&watchdog->main_waits, false);
}

void mp_watchdog_beat(mp_watchdog *watchdog)
{
    atomic_fetch_add(&watchdog->main_turns, 1);
}

int mp_watchdog_fd(const mp_watchdog *watchdog)
{
    return watchdog->fd;
}

bool mp_watchdog_take_hangup(mp_watchdog *watchdog)
{
    uint64_t count;
    while (read(watchdog->fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    return atomic_exchange(&watchdog->has_hangup, false);
}

bool mp_watchdog_take_reopen(mp_watchdog *watchdog)
{
    return atomic_exchange(&watchdog->has_reopen, false);
}

bool mp_watchdog_take_upgrade(mp_watchdog *watchdog)
{
    return atomic_exchange(&watchdog->has_upgrade, false);
}

void mp_watchdog_end(mp_watchdog *watchdog, const char *why)
{
    MP_LOCKED(&watchdog->lock);
    if (!mp_begin_drain(watchdog->shared)) {
        mp_log(watchdog->shared->own_level, "draining", mp_log_str("why", mp_str_of(why)));
        begin_end(watchdog, 0, false);
    }
}

void mp_watchdog_stop(mp_watchdog *watchdog, const char *why)
{
    MP_LOCKED(&watchdog->lock);
    bool again = mp_begin_drain(watchdog->shared);
    mp_log(watchdog->shared->own_level, "stopping now", mp_log_str("why", mp_str_of(why)));
    begin_end(watchdog, 0, again);
}

/* By a signal for the thread alone: those wait in a queue of their own, so that a SIGTERM from outside that waits as
 * well is not lost. */
void mp_watchdog_drain(mp_watchdog *watchdog)
{
    pthread_kill(watchdog->thread, SIGTERM);
}

/* -- status -------------------------------------------------------------------------------------------------------- */

bool mp_watchdog_is_stuck(mp_watchdog *watchdog, int i)
{
    MP_LOCKED(&watchdog->lock);
    return i < watchdog->count && watchdog->each[i].is_stuck;
}

void mp_watchdog_put_stuck(mp_watchdog *watchdog, mp_buf *out)
{
    char name[32];
    MP_LOCKED(&watchdog->lock);
    for (int i = 0; i < watchdog->count; i++) {
        const watched *one = &watchdog->each[i];
        if (!one->is_stuck)
            continue;
        name_worker(name, sizeof name, i);
        mp_buf_printf(out, "%s%s is stuck: its loop has not run for %llu s, at %.*s", out->len == 0 ? "" : "; ", name,
                      (unsigned long long)(one->still_ms / 1000), MP_STR_ARG(place_of(one)));
    }
}

static void put_one(mp_buf *out, const watched *one, const char *name)
{
    if (!one->is_stuck)
        return;
    if (out->ptr[out->len - 1] != '[')
        mp_buf_putc(out, ',');
    mp_buf_printf(out, "{\"thread\":\"%s\",\"ms\":%llu,\"at\":", name, (unsigned long long)one->still_ms);
    mp_json_put_string(out, place_of(one));
    mp_buf_putc(out, '}');
}

void mp_watchdog_describe(mp_watchdog *watchdog, mp_buf *out)
{
    char name[32];
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&watchdog->lock);
    for (int i = 0; i < watchdog->count; i++) {
        name_worker(name, sizeof name, i);
        put_one(out, &watchdog->each[i], name);
    }
    put_one(out, &watchdog->main, "main");
    pthread_mutex_unlock(&watchdog->lock);
    mp_buf_putc(out, ']');
}
