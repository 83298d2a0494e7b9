/* loop.c: the turns of one thread's event loop. First libh2o's events and watched descriptors; then, outside libh2o,
 * messages, timers, the owner's turn hook, and the writes that all of these requested. */
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* Defines five counters of a family, for turns of up to 1, 5, 20 and 100 ms and for longer ones, and the list of them.
 * `what` names the kind of turns in the text of /metrics; `time` names the clock: "" is wall-clock time. */
#define TURN_COUNTERS(family, what, time)                                                                              \
    MP_COUNTER(family##_1ms, #family, "within", "1ms", what " that took up to 1 ms" time)                              \
    MP_COUNTER(family##_5ms, #family, "within", "5ms", what " that took up to 5 ms" time)                              \
    MP_COUNTER(family##_20ms, #family, "within", "20ms", what " that took up to 20 ms" time)                           \
    MP_COUNTER(family##_100ms, #family, "within", "100ms", what " that took up to 100 ms" time)                        \
    MP_COUNTER(family##_longer, #family, "within", "longer", what " that took more than 100 ms" time)                  \
    static const mp_stat *const family##_counters[] = {&mp_stat_##family##_1ms, &mp_stat_##family##_5ms,               \
                                                       &mp_stat_##family##_20ms, &mp_stat_##family##_100ms,            \
                                                       &mp_stat_##family##_longer};
#define OF_PROCESSOR_TIME " of processor time"

TURN_COUNTERS(turns, "turns of workers' event loops", "")
TURN_COUNTERS(reload_turns, "turns with work of a reload", OF_PROCESSOR_TIME)
TURN_COUNTERS(memory_turns, "turns that returned the memory of clients that have left", OF_PROCESSOR_TIME)
TURN_COUNTERS(asked_turns, "turns of workers with an answer for the admin listener", OF_PROCESSOR_TIME)
TURN_COUNTERS(admin_turns, "turns of the admin thread with a request", OF_PROCESSOR_TIME)

MP_COUNTER(loop_us, "loop_us", "", "", "time that event loops spent in turns", MP_SHOWN_IN_SECONDS)
MP_HISTOGRAM(turn_times, "moonpool_loop_turn_seconds", mp_bounds_call, 64,
             "time of a turn of a worker's event loop, in which no other work of the worker goes on", "worker")

static const mp_stat *const *const measured_turns[MP_MEASURES] = {
    [MP_MEASURE_RELOAD] = reload_turns_counters,
    [MP_MEASURE_MEMORY] = memory_turns_counters,
    [MP_MEASURE_ASKED] = asked_turns_counters,
    [MP_MEASURE_ADMIN] = admin_turns_counters,
};

#define MAX_WAIT_MS 1000
/* Requests of one turn are read one after the other, and then answered one after the other. What one of them has
 * touched must still be in the processor's cache by then: with 256 at once a call costs half as much again as with 32.
 */
#define FEW_EVENTS 32
/* A turn of more time is slow if each of its events took more than SLOW_EVENT_US, or if work is left. After slow turns
 * as many events are taken as there are: requests have to be read to be counted as waiting, by which an overload is
 * noticed. Where work may be left only because so many events are taken, few are tried again after MANY_TURNS. */
#define SLOW_TURN_US 1000
#define SLOW_EVENT_US 50
#define SLOW_TURNS 2 /* one alone may have waited for a processor */
#define MANY_TURNS 16
#define LOOP_DESCRIPTORS 3 /* descriptors that a loop needs: libh2o's epoll, the second epoll, and the mailbox's */
/* descriptors that mp_spares_give closes: for a connection, a file that its answer writes, and one more beside it */
#define FOR_ONE 3
#define MOST_ASKED 3 /* limit of `count` of mp_loop_has_descriptors */

bool mp_loop_has_descriptors(int count)
{
    int fds[MOST_ASKED], opened = 0;
    while (opened < count && opened < MOST_ASKED && (fds[opened] = eventfd(0, EFD_CLOEXEC)) >= 0)
        opened++;
    int why = errno;
    for (int i = 0; i < opened; i++)
        close(fds[i]);
    errno = why;
    return opened == count;
}

void mp_spares_fill(mp_spares *spares)
{
    while (spares->count < MP_SPARES) {
        int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        if (fd < 0)
            return;
        spares->descriptors[spares->count++] = fd;
    }
}

bool mp_spares_give(mp_spares *spares)
{
    size_t count = spares->count < FOR_ONE ? spares->count : FOR_ONE;
    for (size_t i = 0; i < count; i++)
        close(spares->descriptors[--spares->count]);
    return count > 0;
}

void mp_spares_end(mp_spares *spares)
{
    while (mp_spares_give(spares))
        ;
}

static int refuse_loop(mp_err *err)
{
    mp_err_set(err, "cannot create an event loop: %s", strerror(errno));
    return mp_err_hint(err, "raise the limit of open files (ulimit -n)");
}

mp_loop *MP_NULLABLE mp_loop_new(mp_err *err)
{
    if (!mp_loop_has_descriptors(LOOP_DESCRIPTORS)) {
        refuse_loop(err);
        return NULL;
    }
    signal(SIGPIPE, SIG_IGN); /* libh2o writes with plain writev */
    mp_loop *loop = mp_new(sizeof *loop);
    loop->h2o = h2o_evloop_create();
    loop->h2o->max_events = FEW_EVENTS;
    if (getrandom(&loop->chance, sizeof loop->chance, GRND_NONBLOCK) < 0)
        loop->chance = mp_monotonic_ms();
    loop->chance |= 1;
    if (mp_mux_open(loop) == 0 && mp_mailbox_open(loop) == 0)
        return loop;
    refuse_loop(err);
    mp_loop_free(loop);
    return NULL;
}

void mp_loop_free(mp_loop *MP_NULLABLE loop)
{
    if (loop == NULL)
        return;
    mp_mailbox_close(loop);
    if (loop->end_programs != NULL)
        loop->end_programs(loop);
    mp_mux_close(loop);
    mp_heap_clear(&loop->timers);
    /* libh2o never closes its epoll descriptor. The descriptor follows the part of the loop struct that libh2o's
     * headers declare. */
    int epoll;
    memcpy(&epoll, (char *)loop->h2o + sizeof(h2o_evloop_t), sizeof epoll);
    h2o_evloop_destroy(loop->h2o);
    close(epoll);
    free(loop);
}

/* The clock is read at the first call after a wake-up: a time read before the wait could be a second old. */
uint64_t mp_loop_now_us(const mp_loop *loop)
{
    if (loop->now_us == 0)
        ((mp_loop *)(uintptr_t)loop)->now_us = mp_monotonic_us();
    return loop->now_us;
}

uint64_t mp_loop_now(const mp_loop *loop)
{
    return mp_loop_now_us(loop) / 1000;
}

uint64_t mp_loop_chance(mp_loop *loop, uint64_t range)
{
    loop->chance ^= loop->chance << 13;
    loop->chance ^= loop->chance >> 7;
    loop->chance ^= loop->chance << 17;
    return range == 0 ? 0 : loop->chance % range;
}

void mp_loop_name(mp_loop *loop, unsigned number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    mp_str value = mp_str_of(text);
    loop->turn_times = mp_series_of(&mp_family_turn_times, &value);
}

void mp_loop_on_turn(mp_loop *loop, bool (*turn)(void *ctx), bool (*MP_NULLABLE has_work)(void *ctx), void *ctx)
{
    loop->turn = turn;
    loop->has_work = has_work;
    loop->turn_ctx = ctx;
}

void mp_timer_start(mp_loop *loop, mp_timer *timer, uint64_t after_ms, void (*fire)(mp_timer *timer))
{
    timer->fire = fire;
    /* read again, since the turn may have taken long: timers must not fire early */
    loop->now_us = mp_monotonic_us();
    uint64_t now = mp_loop_now(loop);
    mp_heap_put(&loop->timers, timer, after_ms > UINT64_MAX - now ? UINT64_MAX : now + after_ms);
}

void mp_timer_stop(mp_loop *loop, mp_timer *timer)
{
    mp_heap_drop(&loop->timers, timer);
}

/* Fires at most as many timers as there were at the start, so that a timer that restarts itself immediately cannot
 * block the loop. */
static void fire_timers(mp_loop *loop)
{
    uint64_t now = mp_loop_now(loop);
    for (uint32_t most = loop->timers.count; most > 0; most--) {
        mp_timer *timer = mp_heap_take(&loop->timers, now);
        if (timer == NULL)
            break;
        timer->fire(timer);
    }
}

/* Writes that were started outside libh2o's turn complete in a list that libh2o checks only after waiting for
 * events. */
static bool has_pending(const mp_loop *loop)
{
    return loop->h2o->_pending_as_server != NULL || loop->h2o->_pending_as_client != NULL;
}

/* `counters`: a list that TURN_COUNTERS has made. */
static void count_turn(const mp_stat *const *counters, uint64_t us)
{
    unsigned step = us <= 1000 ? 0 : us <= 5000 ? 1 : us <= 20000 ? 2 : us <= 100000 ? 3 : 4;
    mp_stat_add(counters[step], 1);
}

void mp_loop_measure(mp_loop *loop, mp_measure kind)
{
    if (loop->measured_at[kind] == 0)
        loop->measured_at[kind] = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
}

int mp_loop_most_events(unsigned *slow, uint64_t us, unsigned events, bool has_left)
{
    bool is_dear = us > (uint64_t)SLOW_EVENT_US * events;
    bool is_slow = us > SLOW_TURN_US && (is_dear || has_left);
    *slow = is_slow && (is_dear || *slow < MANY_TURNS) ? *slow + 1 : 0;
    return *slow >= SLOW_TURNS ? H2O_EVLOOP_MAX_EVENTS : FEW_EVENTS;
}

/* True if the bottom of a turn has something to do. Where no turn hook says so, it may have. */
static bool has_work(const mp_loop *loop)
{
    return !mp_link_is_alone(&loop->dirty) || loop->has_work == NULL || loop->has_work(loop->turn_ctx);
}

/* True if the bottom has more to do at once. */
static bool run_bottom(mp_loop *loop)
{
    uint64_t began = mp_monotonic_us(), woke = loop->now_us == 0 ? began : loop->now_us;
    loop->now_us = began;
    atomic_fetch_add_explicit(&loop->turns, 1, memory_order_relaxed);
    /* Events are left: what has begun, such as requests to upstreams, is ended before more requests of clients are
     * read. Else a busy worker sends the requests of all its clients before it reads the first answer, and what each of
     * them has touched has left the processor's caches by then. */
    if (loop->h2o->num_events >= loop->h2o->max_events || loop->mux.has_more)
        mp_mux_serve(loop);
    mp_mailbox_deliver(loop);
    fire_timers(loop);
    bool has_more = loop->turn != NULL && loop->turn(loop->turn_ctx);
    if (loop->flush != NULL)
        loop->flush(loop);
    /* if the callback was not called here, mp_loop_turn calls it */
    if (!has_more && loop->has_work != NULL && !has_pending(loop))
        has_more = has_work(loop);
    uint64_t ended = mp_monotonic_us();
    count_turn(turns_counters, ended - began);
    unsigned events = (unsigned)loop->h2o->num_events + loop->mux.events;
    loop->h2o->max_events = mp_loop_most_events(&loop->slow, ended - woke, events, has_more && has_work(loop));
    if (loop->turn_times != 0) {
        mp_stat_add(&mp_stat_loop_us, (int64_t)(ended - woke));
        if (mp_series_is_on())
            mp_series_observe(loop->turn_times, &mp_bounds_call, (double)(ended - began));
    }
    loop->now_us = ended;
    for (mp_measure kind = 0; kind < MP_MEASURES; kind++) {
        if (loop->measured_at[kind] != 0)
            count_turn(measured_turns[kind], mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - loop->measured_at[kind]);
        loop->measured_at[kind] = 0;
    }
    return has_more;
}

void mp_loop_turn(mp_loop *loop, bool may_wait)
{
    /* Runs the callbacks of completed writes before libh2o looks at their sockets: without this, `./dev bench` has
     * ended in an assertion of write_pending. It also saves two calls of epoll_ctl for most requests. The callbacks
     * usually leave nothing to do, so the loop waits in the turn of the answer: a turn less for each request. */
    if (has_pending(loop)) {
        h2o_timeout__do_post_callback(loop->h2o);
        may_wait = may_wait && !has_pending(loop) && !has_work(loop);
    }
    uint64_t wait = may_wait ? mp_heap_wait(&loop->timers, mp_loop_now(loop), MAX_WAIT_MS) : 0;
    loop->now_us = 0;
    loop->mux.events = 0;
    h2o_evloop_run(loop->h2o, (int32_t)wait);
}

void mp_loop_run(mp_loop *loop)
{
    while (!atomic_load_explicit(&loop->stopping, memory_order_acquire))
        mp_loop_turn(loop, !run_bottom(loop));
    run_bottom(loop);
    void (*MP_NULLABLE close_server)(mp_link *) = loop->close_server;
    for (mp_link *link = mp_link_first(&loop->servers); link != &loop->servers && close_server != NULL;
         link = link->next)
        close_server(link);
    mp_mailbox_shut(loop);
    if (loop->end_programs != NULL)
        loop->end_programs(loop);
}

uint64_t mp_loop_turns(const mp_loop *loop)
{
    return atomic_load_explicit(&loop->turns, memory_order_relaxed);
}

void mp_loop_wake(mp_loop *loop)
{
    mp_mailbox_wake(loop);
}

void mp_loop_stop(mp_loop *loop)
{
    atomic_store_explicit(&loop->stopping, true, memory_order_release);
    mp_mailbox_wake(loop);
}
