/* preempt.c: a timer for each thread and its signal handler. limits.c has the count hook that the handler sets. */
#define _GNU_SOURCE
#include "vm/preempt.h"
#include "vm/schedule.h"
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id /* older versions of glibc do not define it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* timers of processor time fire once in a tick of the kernel, which are 250 a second in most */
#define MAX_TICKS_HZ 250
#define SHORT_TURN_US 300
#define TURN_US 1000 /* time that a stretch of Lua may run before the first check, and between further checks */
/* us of a time slice while no second check was needed: an alarm costs some microseconds on a physical machine, tens on
 * a virtual one. */
#define CALM_TURN_US 4000
#define LOST_ALARMS 8
#define CALM_AFTER_US 10000000 /* time without a second check after which CALM_TURN_US is used */

/* Per thread: the signal handler and the code that it interrupts use these variables. */
typedef struct {
    timer_t timer;
    volatile bool has_timer, is_set;
    lua_State *volatile MP_NULLABLE running;
    volatile uint64_t due; /* when the time slice of the running stretch ends: us of CLOCK_MONOTONIC */
    /* The running stretch has used up one time slice already. The first alarm alone proves little: the thread may have
     * waited for its processor. A second one shows that
     * Lua runs for long; it moves calm_from. */
    volatile bool had_turn;
    volatile uint64_t calm_from;
    volatile unsigned unheard;                     /* alarms since the hook was set, which has not run */
    timer_t sampler;                               /* the timer of the profiler */
    volatile bool has_sampler, is_fast, is_armed;  /* is_fast: the sampler's clock is not that of processor time */
    volatile uint64_t period_ns, seen_ns, owed_ns; /* for a sampler that does not measure processor time: the processor
                                                      time at the last tick, and the part of it without a sample */
    void (*volatile MP_NULLABLE on_long_call)(void);
    void (*volatile tick)(lua_State *MP_NULLABLE running);
} alarm_clock;

static __thread alarm_clock here;
static pthread_key_t at_thread_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char sampling; /* the value of signals of the profiler's timers: only its address is used */

void mp_preempt_on_long_call(void (*MP_NULLABLE run)(void))
{
    here.on_long_call = run;
}

static void set_alarm(uint64_t at)
{
    struct itimerspec when = {.it_value = {(time_t)(at / 1000000), (long)(at % 1000000) * 1000}};
    here.is_set = timer_settime(here.timer, TIMER_ABSTIME, &when, NULL) == 0;
}

/* A hook may be set and yet not run: the alarm came while Lua or mp_task_hook took an earlier one away, in which case
 * its mask is 0, or a frame no longer looks for hooks. True if it is to be set again. Setting a hook visits every frame
 * of the stack: with a deep stack that takes longer than a turn, and the code would never reach its next instruction.
 * So it is set again after 8 alarms, 16, 32. */
static bool is_lost(lua_State *running)
{
    if (lua_gethookmask(running) == 0)
        return true;
    unsigned alarms = here.unheard + 1;
    here.unheard = alarms;
    return alarms >= LOST_ALARMS && (alarms & (alarms - 1)) == 0;
}

/* Ends the time slice of the code that runs, at its next instruction. */
static void on_alarm(void)
{
    lua_State *running = here.running;
    uint64_t at = mp_clock_us(CLOCK_MONOTONIC);
    here.is_set = false; /* no Lua runs: the next mp_preempt_enter sets the timer */
    if (running != NULL && at < here.due) {
        set_alarm(here.due);
    } else if (running != NULL) {
        lua_Hook hook = mp_vm_of(running)->hook;
        if (lua_gethook(running) != hook) { /* none is set, or the profiler's */
            here.unheard = 0;
            lua_sethook(running, hook, LUA_MASKCOUNT, 1);
        } else if (is_lost(running)) {
            lua_sethook(running, hook, LUA_MASKCOUNT, 1);
        }
        if (here.unheard > LOST_ALARMS && here.on_long_call != NULL)
            here.on_long_call();
        if (here.had_turn)
            here.calm_from = at + CALM_AFTER_US;
        here.had_turn = true;
        set_alarm(mp_clock_us(CLOCK_MONOTONIC) + TURN_US);
    }
}

/* -- samples ------------------------------------------------------------------------------------------------------- */

static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool set_sampler(uint64_t ns)
{
    struct itimerspec each = {{0, (long)ns}, {0, (long)ns}};
    return timer_settime(here.sampler, 0, &each, NULL) == 0;
}

/* `is_armed` is true before a tick can come, which may make it false again. */
static bool arm_sampler(void)
{
    here.seen_ns = processor_ns();
    here.is_armed = true;
    return set_sampler(here.period_ns);
}

/* The clock of processor time ticks with the kernel. A fast timer counts the time that passes for all: a tick is a
 * sample if the thread has used the processor for that long, and an idle thread stops the timer, which would wake it,
 * until it runs Lua again. */
static void on_sample(void)
{
    if (!here.is_fast) {
        here.tick(here.running);
        return;
    }
    uint64_t now = processor_ns(), moved = now - here.seen_ns, period = here.period_ns;
    here.seen_ns = now;
    here.owed_ns += moved;
    if (here.running == NULL && moved < period / 4) {
        here.is_armed = false;
        set_sampler(0);
    } else if (here.owed_ns >= period) {
        here.owed_ns -= period;
        if (here.owed_ns > 2 * period)
            here.owed_ns = 2 * period;
        here.tick(here.running);
    }
}

/* Each timer queues a signal of its own, also while one of the other timer is pending. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    int error = errno;
    bool is_sample = info->si_code == SI_TIMER && info->si_value.sival_ptr == &sampling;
    if (is_sample && here.has_sampler)
        on_sample();
    else if (!is_sample)
        on_alarm();
    errno = error;
}

static void leave_thread(MP_UNUSED void *unused)
{
    here.has_timer = false;
    timer_delete(here.timer);
}

static void start_timer(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGURG, &action, NULL);
    pthread_key_create(&at_thread_end, leave_thread);
}

bool mp_preempt_sample(unsigned hz, void (*tick)(lua_State *MP_NULLABLE running))
{
    if (here.has_sampler)
        timer_delete(here.sampler);
    here.has_sampler = here.is_fast = here.is_armed = false;
    if (hz == 0)
        return false;
    pthread_once(&once, start_timer);
    struct sigevent to_me = {
        .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG, .sigev_value.sival_ptr = (void *)&sampling};
    to_me.sigev_notify_thread_id = gettid();
    if (timer_create(hz > MAX_TICKS_HZ ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &to_me, &here.sampler) != 0)
        return false;
    here.tick = tick;
    here.period_ns = 1000000000 / hz;
    here.owed_ns = 0;
    here.has_sampler = true;
    if (hz <= MAX_TICKS_HZ)
        return set_sampler(here.period_ns);
    here.is_fast = true;
    return arm_sampler();
}

lua_State *MP_NULLABLE mp_preempt_running(void)
{
    return here.running;
}

static void make_timer(void)
{
    pthread_once(&once, start_timer);
    struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    to_me.sigev_notify_thread_id = gettid();
    if (timer_create(CLOCK_MONOTONIC, &to_me, &here.timer) == 0) {
        here.has_timer = true;
        pthread_setspecific(at_thread_end, &here);
    } else {
        mp_log(
            MP_ERROR, "no timer", mp_log_str("why", mp_str_of(strerror(errno))),
            mp_log_str("hint", MP_STR("endless loops will not end: raise the limit of pending signals (ulimit -i)")));
    }
}

lua_State *MP_NULLABLE mp_preempt_enter(lua_State *L)
{
    return mp_preempt_enter_at(L, here.running == NULL ? mp_clock_us(CLOCK_MONOTONIC) : 0);
}

lua_State *MP_NULLABLE mp_preempt_enter_at(lua_State *L, uint64_t at)
{
    if (!MP_PREEMPT)
        return NULL;
    if (!here.has_timer)
        make_timer();
    lua_State *before = here.running;
    if (before == NULL) {
        here.due = at + (at < here.calm_from ? TURN_US : CALM_TURN_US);
        here.had_turn = false;
    }
    if (here.is_fast && !here.is_armed)
        arm_sampler();
    here.running = L; /* the first alarm: the signal that is sent now sets the next timer */
    if (!here.is_set && here.has_timer)
        set_alarm(here.due);
    return before;
}

void mp_preempt_leave(lua_State *MP_NULLABLE before)
{
    if (MP_PREEMPT)
        here.running = before;
}

void mp_preempt_slice(bool is_short)
{
    if (!MP_PREEMPT || !here.has_timer)
        return;
    here.due = mp_clock_us(CLOCK_MONOTONIC) + (is_short ? SHORT_TURN_US : TURN_US);
    here.had_turn = !is_short;
    set_alarm(here.due);
}

mp_task *MP_NULLABLE mp_task_running_here(void)
{
    lua_State *running = here.running;
    return running == NULL ? NULL : mp_vm_of(running)->state.running;
}

void mp_preempt_arm_running(void)
{
    lua_State *running = here.running;
    if (running != NULL)
        mp_preempt_arm(running, 1);
}

void mp_preempt_arm(lua_State *L, int instructions)
{
    lua_sethook(L, mp_vm_of(L)->hook, LUA_MASKCOUNT, instructions);
}
