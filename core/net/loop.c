/* loop.c: one thread's turns: h2o's events and foreign descriptors first; then, below no frame of h2o, messages,
 * timers, the owner's hook, and the writes that all of these asked for. */
#include "loop.h"
#include "http.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_WAIT_MS 1000
#define DESCRIPTORS 5 /* of a loop and its server */

static uint64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t clock_ms(void)
{
    return clock_us(CLOCK_MONOTONIC) / 1000;
}

/* Where libh2o gets none it ends the process: so they are asked for first. */
static bool has_descriptors(void)
{
    int fds[DESCRIPTORS], count = 0;
    while (count < DESCRIPTORS && (fds[count] = eventfd(0, EFD_CLOEXEC)) >= 0)
        count++;
    int why = errno;
    for (int i = 0; i < count; i++)
        close(fds[i]);
    errno = why;
    return count == DESCRIPTORS;
}

static int refuse(mp_err *err)
{
    mp_err_set(err, "cannot make an event loop: %s", strerror(errno));
    return mp_err_hint(err, "raise the limit of open files (ulimit -n)");
}

mp_loop *mp_loop_new(mp_err *err)
{
    if (!has_descriptors()) {
        refuse(err);
        return NULL;
    }
    signal(SIGPIPE, SIG_IGN); /* h2o writes with plain writev */
    mp_loop *loop = mp_new(sizeof *loop);
    loop->h2o = h2o_evloop_create();
    mp_link_init(&loop->dirty);
    mp_link_init(&loop->servers);
    mp_link_init(&loop->children);
    if (getrandom(&loop->chance, sizeof loop->chance, GRND_NONBLOCK) < 0)
        loop->chance = clock_ms();
    loop->chance |= 1;
    if (mp_mux_open(loop) == 0 && mp_mailbox_open(loop) == 0)
        return loop;
    refuse(err);
    mp_loop_free(loop);
    return NULL;
}

void mp_loop_free(mp_loop *loop)
{
    if (loop == NULL)
        return;
    mp_mailbox_close(loop);
    mp_child_end_all(loop);
    mp_mux_close(loop);
    mp_heap_clear(&loop->timers);
    /* h2o forgets its epoll descriptor, which stands behind the part of the loop that its headers show. */
    int epoll;
    memcpy(&epoll, (char *)loop->h2o + sizeof(h2o_evloop_t), sizeof epoll);
    h2o_evloop_destroy(loop->h2o);
    close(epoll);
    free(loop);
}

/* The clock is read at the first question after a wake-up: what was read before the wait would be up to a second old.
 */
uint64_t mp_loop_now(const mp_loop *loop)
{
    if (loop->now == 0)
        ((mp_loop *)(uintptr_t)loop)->now = clock_ms();
    return loop->now;
}

uint64_t mp_loop_chance(mp_loop *loop, uint64_t range)
{
    loop->chance ^= loop->chance << 13;
    loop->chance ^= loop->chance >> 7;
    loop->chance ^= loop->chance << 17;
    return range == 0 ? 0 : loop->chance % range;
}

void mp_loop_on_turn(mp_loop *loop, bool (*turn)(void *ctx), void *ctx)
{
    loop->turn = turn;
    loop->turn_ctx = ctx;
}

void mp_timer_start(mp_loop *loop, mp_timer *timer, uint64_t after_ms, void (*fire)(mp_timer *timer))
{
    timer->fire = fire;
    uint64_t now = loop->now = clock_ms(); /* the turn may have run for a while: nothing fires early for that */
    mp_heap_put(&loop->timers, timer, after_ms > UINT64_MAX - now ? UINT64_MAX : now + after_ms);
}

void mp_timer_stop(mp_loop *loop, mp_timer *timer)
{
    mp_heap_drop(&loop->timers, timer);
}

/* No more than were there at the start: a timer that restarts itself at once must not hold up the loop. */
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

/* Writes done outside of h2o's own turn complete in a list that it looks at only after waiting. */
static bool has_pending(const mp_loop *loop)
{
    return loop->h2o->_pending_as_server != NULL || loop->h2o->_pending_as_client != NULL;
}

/* `first` is the counter of those within a millisecond; four more follow. */
static void count_turn(mp_stat first, uint64_t us)
{
    unsigned step = us <= 1000 ? 0 : us <= 5000 ? 1 : us <= 20000 ? 2 : us <= 100000 ? 3 : 4;
    mp_stat_add(first + step, 1);
}

void mp_loop_measure(mp_loop *loop)
{
    if (loop->measured_at == 0)
        loop->measured_at = clock_us(CLOCK_THREAD_CPUTIME_ID);
}

static bool run_bottom(mp_loop *loop)
{
    uint64_t began = clock_us(CLOCK_MONOTONIC);
    loop->now = began / 1000;
    mp_mailbox_deliver(loop);
    fire_timers(loop);
    bool more = loop->turn != NULL && loop->turn(loop->turn_ctx);
    mp_stream_flush_dirty(loop);
    uint64_t ended = clock_us(CLOCK_MONOTONIC);
    count_turn(MP_STAT_TURNS_1MS, ended - began);
    loop->now = ended / 1000;
    if (loop->measured_at != 0)
        count_turn(MP_STAT_RELOAD_TURNS_1MS, clock_us(CLOCK_THREAD_CPUTIME_ID) - loop->measured_at);
    loop->measured_at = 0;
    return more;
}

void mp_loop_turn(mp_loop *loop, bool may_wait)
{
    bool is_due = has_pending(loop);
    uint64_t wait = may_wait && !is_due ? mp_heap_wait(&loop->timers, mp_loop_now(loop), LONGEST_WAIT_MS) : 0;
    loop->now = 0;
    /* A write that is complete, and not told yet, h2o would have epoll look for; it never takes that back where epoll does not
     * report the socket in this very turn, which it does not while its buffer is nearly full, and when it reports it later h2o
     * aborts: write_pending asserts that somebody writes. So it is told first, which mostly saves two epoll_ctl a request, too. */
    if (is_due)
        h2o_timeout__do_post_callback(loop->h2o);
    h2o_evloop_run(loop->h2o, (int32_t)wait);
}

void mp_loop_run(mp_loop *loop)
{
    while (!atomic_load_explicit(&loop->stopping, memory_order_acquire))
        mp_loop_turn(loop, !run_bottom(loop));
    run_bottom(loop);
    for (mp_link *link = loop->servers.next; link != &loop->servers; link = link->next)
        mp_server_close(mp_container(link, mp_server, link));
    mp_mailbox_shut(loop);
    mp_child_end_all(loop);
}

void mp_loop_stop(mp_loop *loop)
{
    atomic_store_explicit(&loop->stopping, true, memory_order_release);
    mp_mailbox_wake(loop);
}
