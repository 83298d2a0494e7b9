/* preempt.c: the watchdog, the alarms, and their signal. What the hook decides is limits.c's. */
#define _GNU_SOURCE
#include "script/preempt.h"
#include "script/task.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id /* which glibc names from 2.36 on only */
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define TICK_NS 1000000
#define IDLE_TICKS 20 /* without any Lua, and the watchdog sleeps until there is some */

/* One a thread that runs Lua; found by the watchdog in a list that only grows. */
typedef struct slot {
    struct slot *next;
    pthread_t thread;
    lua_State *volatile running; /* this thread's alone: the handler reads it on the thread */
    atomic_ulong stretch;        /* odd while Lua runs */
    atomic_bool is_taken;
    unsigned long seen; /* the watchdog's */
    timer_t alarm;      /* of the thread that has the slot */
    bool has_alarm;
} slot;

static _Atomic(slot *) slots;
static __thread slot *here;
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_bool is_asleep;

/* Setting a hook goes through every frame of the stack: in a deep one it takes longer than a tick, and the next signal is here
 * when it is done. So nothing is set that is set already, or the code would never come to its next instruction. */
static void on_signal(int number)
{
    (void)number;
    const slot *at = here;
    if (at != NULL && at->running != NULL && lua_gethook(at->running) == NULL)
        lua_sethook(at->running, mp_task_hook, LUA_MASKCOUNT, 1);
}

/* Whether any thread was in Lua. */
static bool look(void)
{
    bool any = false;
    for (slot *at = atomic_load(&slots); at != NULL; at = at->next) {
        unsigned long stretch = atomic_load_explicit(&at->stretch, memory_order_relaxed);
        bool runs = stretch % 2 == 1 && atomic_load(&at->is_taken);
        if (runs && at->seen == stretch) {
            pthread_mutex_lock(&lock); /* so that the thread does not end meanwhile */
            if (atomic_load(&at->is_taken))
                pthread_kill(at->thread, SIGURG);
            pthread_mutex_unlock(&lock);
        }
        at->seen = stretch;
        any = any || runs;
    }
    return any;
}

static void *watch(void *unused)
{
    (void)unused;
    for (unsigned idle = 0;;) {
        nanosleep(&(struct timespec){0, TICK_NS}, NULL);
        idle = look() ? 0 : idle + 1;
        if (idle < IDLE_TICKS)
            continue;
        pthread_mutex_lock(&lock);
        atomic_store(&is_asleep, true);
        while (!look() && atomic_load(&is_asleep))
            pthread_cond_wait(&wake, &lock);
        atomic_store(&is_asleep, false);
        pthread_mutex_unlock(&lock);
        idle = 0;
    }
    return NULL;
}

static void leave_thread(void *arg)
{
    slot *at = arg;
    if (at->has_alarm)
        timer_delete(at->alarm);
    pthread_mutex_lock(&lock);
    atomic_store(&at->is_taken, false);
    pthread_mutex_unlock(&lock);
}

/* No signal that a process gets is for this thread to take. */
static void start(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGURG, &action, NULL);
    pthread_key_create(&at_thread_end, leave_thread);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, watch, NULL) != 0)
        mp_log(MP_ERROR, "no watchdog",
               mp_log_str("why", MP_STR("a thread cannot be started: endless loops will not end")));
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A slot that a thread left, or a new one. */
static slot *take_slot(void)
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
    slot *at = atomic_load(&slots);
    while (at != NULL && atomic_load(&at->is_taken))
        at = at->next;
    if (at == NULL) {
        at = mp_new(sizeof *at);
        at->next = atomic_load(&slots);
        atomic_store(&slots, at);
    }
    at->thread = pthread_self();
    atomic_store(&at->is_taken, true);
    pthread_mutex_unlock(&lock);
    pthread_setspecific(at_thread_end, at);
    struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    to_me.sigev_notify_thread_id = gettid();
    at->has_alarm = timer_create(CLOCK_MONOTONIC, &to_me, &at->alarm) == 0; /* without: the watchdog alone */
    return at;
}

lua_State *mp_preempt_enter(lua_State *L)
{
    if (!MP_PREEMPT)
        return NULL;
    if (here == NULL)
        here = take_slot();
    lua_State *before = here->running;
    here->running = L;
    if (before != NULL)
        return before;
    atomic_fetch_add(&here->stretch, 1);
    if (atomic_load(&is_asleep)) {
        pthread_mutex_lock(&lock);
        atomic_store(&is_asleep, false);
        pthread_cond_signal(&wake);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

void mp_preempt_leave(lua_State *before)
{
    if (!MP_PREEMPT)
        return;
    here->running = before;
    if (before == NULL)
        atomic_fetch_add_explicit(&here->stretch, 1, memory_order_release);
}

void mp_preempt_alarm(uint64_t us)
{
    if (here == NULL || !here->has_alarm)
        return;
    struct itimerspec at = {.it_value = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000}};
    timer_settime(here->alarm, 0, &at, NULL);
}

void mp_preempt_arm_running(void)
{
    if (here != NULL && here->running != NULL)
        mp_preempt_arm(here->running, 1);
}

void mp_preempt_arm(lua_State *L, int instructions)
{
    lua_sethook(L, mp_task_hook, LUA_MASKCOUNT, instructions);
}
