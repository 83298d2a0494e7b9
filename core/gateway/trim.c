/* trim.c: decides when much memory is free and the gateway is quiet. malloc_trim locks one arena after the other,
 * and a worker that allocates waits for its arena, so it runs only while memory use is stable. */
#include "trim.h"
#include "lib/lib.h"
#include "rpc/observe.h"
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

MP_COUNTER(trims_1ms, "trims", "within", "1ms",
           "times that free memory was returned to the system in up to 1 ms of processor time")
MP_COUNTER(trims_5ms, "trims", "within", "5ms", "times that returning free memory took 1 to 5 ms of processor time")
MP_COUNTER(trims_longer, "trims", "within", "longer",
           "times that returning free memory took more than 5 ms of processor time")

#define CONNECTION_BYTES 6000 /* approximate size of an idle connection with an event stream */
#define SESSION_BYTES 1000    /* approximate size of a session */
#define WORTH_BYTES ((int64_t)1 << 20)
#define WORTH_PART 16 /* a trim has to return at least 1/16 of the resident size: many arenas take longer to trim */
#define QUIET_BYTES ((int64_t)1 << 20) /* maximum change of the estimate between two checks */

/* Resident bytes of the process; 0 if they cannot be read. */
static int64_t resident(void)
{
    char text[64];
    long long size, pages;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    return sscanf(text, "%lld %lld", &size, &pages) == 2 ? pages * sysconf(_SC_PAGESIZE) : 0;
}

static int64_t estimate(void)
{
    int64_t sessions = mp_stat_read(&mp_stat_sessions_sse) + mp_stat_read(&mp_stat_sessions_http);
    return mp_stat_read(&mp_stat_connections) * CONNECTION_BYTES + sessions * SESSION_BYTES +
           mp_stat_read(&mp_stat_lua_bytes) + mp_stat_read(&mp_stat_queue_bytes) + mp_stat_read(&mp_stat_replay_bytes) +
           mp_stat_read(&mp_stat_store_bytes) + mp_stat_read(&mp_stat_fs_bytes);
}

/* -- while clients leave ------------------------------------------------------------------------------------------- */

#define MANY_LEFT 500 /* connections of a worker: to trim the memory of 500 takes about a millisecond */
#define SOME_LEFT 256 /* connections that left or came are worth a trim once no other one leaves or comes */
#define QUIET_MS 500
#define FEW_TASKS 16       /* tasks that a quiet worker may begin in QUIET_MS, such as those of jobs */
#define PAGES_AT_ONCE 2048 /* pages returned in one turn, which takes a millisecond */
/* bytes that a VM frees until pages are returned, while it returns memory */
#define FREED_AT_ONCE ((size_t)2 << 20)

static atomic_flag trimming = ATOMIC_FLAG_INIT;

/* Trims all arenas, unless another thread does at this moment: two at once would wait for each other's arenas. False:
 * try again. */
static bool trim_arenas(void)
{
    if (atomic_flag_test_and_set(&trimming))
        return false;
    uint64_t began = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    malloc_trim(0);
    uint64_t took = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - began;
    atomic_flag_clear(&trimming);
    mp_stat_add(took <= 1000 ? &mp_stat_trims_1ms : took <= 5000 ? &mp_stat_trims_5ms : &mp_stat_trims_longer, 1);
    return true;
}

static void on_quiet(mp_timer *timer)
{
    mp_departures *departures = mp_container(timer, mp_departures, timer);
    uint64_t begun = mp_vm_load_of(departures->vm).begun;
    /* clients still come or leave, or call */
    if (departures->now != departures->then || begun > departures->begun_then + FEW_TASKS) {
        departures->then = departures->now;
        departures->begun_then = begun;
        mp_timer_start(departures->loop, timer, QUIET_MS, on_quiet);
        return;
    }
    mp_server_return_memory(departures->server);
    mp_rpc_return_memory(departures->rpc);
    mp_vm_return_memory(departures->vm);
    departures->held = mp_vm_held(departures->vm);
    departures->is_returning = true;
}

/* Returns a part of the free memory to the system: pages while the VM frees memory, since it frees mostly pages; then
 * all other pages; then the arenas of malloc. */
static void return_some(mp_departures *departures)
{
    if (mp_vm_is_returning_memory(departures->vm)) {
        size_t held = mp_vm_held(departures->vm);
        if (held > departures->held)
            departures->held = held;
        if (departures->held - held >= FREED_AT_ONCE) {
            mp_pages_return(PAGES_AT_ONCE);
            departures->held = held;
        }
    } else if (!mp_pages_return(PAGES_AT_ONCE)) {
        departures->is_returning = departures->full_return_due = !trim_arenas();
        if (!departures->full_return_due)
            departures->most = departures->least = departures->now;
    }
}

bool mp_departures_turn(mp_departures *departures, mp_vm *vm)
{
    size_t connections = departures->now = mp_server_connections(departures->server);
    departures->vm = vm;
    if (connections > departures->most)
        departures->most = connections;
    if (connections < departures->least)
        departures->least = connections;
    size_t left = departures->most - connections, came = connections - departures->least;
    if (departures->is_returning) {
        return_some(departures);
    } else if (left >= MANY_LEFT) {
        mp_loop_measure(departures->loop, MP_MEASURE_MEMORY);
        mp_pages_return(PAGES_AT_ONCE);
        if (trim_arenas()) {
            departures->most = connections;
            departures->full_return_due = true;
        }
    }
    if (departures->timer.slot == 0 && !departures->is_returning &&
        (departures->full_return_due || left >= SOME_LEFT || came >= SOME_LEFT || mp_vm_has_had_much(vm))) {
        departures->then = connections;
        departures->begun_then = mp_vm_load_of(vm).begun;
        mp_timer_start(departures->loop, &departures->timer, QUIET_MS, on_quiet);
    }
    return departures->is_returning;
}

/* -- when much is free for another reason -------------------------------------------------------------------------- */

/* Trims if the process is larger than after the last trim by more than its used memory is: the difference is free
 * memory in glibc's arenas. Trims, too, when much that was in use at the last trim is not any more: that trim may have
 * come at a busy moment, and memory that no gauge counts, and that was freed right after it, would count as used for
 * good. */
void mp_trim_look(mp_trim *trim, uint64_t now_ms)
{
    if (now_ms - trim->looked_at < MP_TRIM_EVERY_MS)
        return;
    int64_t used = estimate(), change = used - trim->last, size = resident();
    trim->looked_at = now_ms;
    trim->last = used;
    if (trim->resident != 0) {
        int64_t gone = trim->used - used, free = size - trim->resident + gone;
        int64_t part = size / WORTH_PART, worth = part > WORTH_BYTES ? part : WORTH_BYTES;
        bool is_quiet = change <= QUIET_BYTES && change >= -QUIET_BYTES;
        if (!is_quiet || (free < worth && gone < worth / 2) || !trim_arenas())
            return;
        mp_pages_return(SIZE_MAX);
    }
    trim->resident = resident();
    trim->used = used;
}
