/* overload.c: a worker that has more to do than it can: which requests it refuses, and when it stops refusing.
 *
 * A worker is overloaded from the moment at which a request had waited for overload.wait before it began, and others
 * waited behind it; or at which preempted tasks need that long until each of them has gone on once, and most new tasks
 * are preempted. From then on the wait of a new request is estimated when it arrives, from the number of tasks that
 * begin before it and the rate at which they do; and, as far as tasks are preempted, from the number of preempted tasks
 * that go on before it. Callers begin in turns (engine.h), so that number is small for those who ask for little. Where
 * the estimate is above an eighth of overload.wait, requests that open sessions and list things are refused; above a
 * quarter, calls; above a half, calls of those who have used fewer turns than they could. So what is served is served
 * soon, and what is refused is refused at once. The worker is no longer overloaded when nothing was refused for a
 * second and the estimate is below a quarter of overload.wait. While it is, no connection is accepted above nine tenths
 * of limits.connections. */
#include "request.h"

MP_GAUGE(workers_overloaded, "workers_overloaded", "", "",
         "workers that refuse requests because requests wait too long")
MP_REFUSED(refused_overload, "overload", MP_LIMIT_REACHED, "requests that waited, or would have, for overload.wait")

#define WINDOW_US 50000 /* time in which the rate is measured */
#define ROUND_US 2000   /* time from the slice of one preempted task to that of the next */
#define PART_WINDOWS 4  /* windows that the part of preempted tasks is about */
#define CALM_US 1000000 /* time without refusals after which an overload is over */
#define LISTS_PART 8    /* overload.wait is divided by this: the longest expected wait of a list */
#define CALLS_PART 4    /* overload.wait is divided by this: the longest expected wait of other requests */
#define CREDIT_PART 2   /* the same of requests that make up for turns that their callers did not use */

const char mp_overloaded[] = "the gateway is overloaded: requests wait longer than overload.wait. Try again later";

void mp_pressure_configure(mp_rpc *rpc)
{
    rpc->pressure.late_us = rpc->config->overload_ms > 0 ? rpc->config->overload_ms * 1000 : UINT64_MAX;
}

void mp_pressure_begin(mp_rpc *rpc)
{
    mp_pace_init(&rpc->pressure.pace);
    mp_pressure_configure(rpc);
}

bool mp_method_may_be_shed(mp_str method)
{
    return !mp_str_is(method, "ping") && !mp_str_is(method, "tasks/cancel") && !mp_str_is(method, "logging/setLevel") &&
           !mp_str_is(method, "resources/unsubscribe");
}

/* True for requests that are refused before calls: those by which clients begin. */
static bool is_of_beginning(mp_str method)
{
    mp_str end = MP_STR("/list");
    return mp_str_is(method, "initialize") || mp_str_is(method, "server/discover") ||
           mp_str_is(method, "resources/templates/list") ||
           (method.len > end.len && mp_str_eq(mp_str_from(method, method.len - end.len), end));
}

/* How long the request that is being served would wait. */
static uint64_t estimate_us(mp_rpc *rpc, bool *has_credit)
{
    bool is_alone;
    mp_pressure *pressure = &rpc->pressure;
    pressure->ahead = rpc->hooks->ahead(rpc->ctx, rpc->share, &is_alone, has_credit);
    return mp_pace_time_us(&pressure->pace, pressure->ahead) + (is_alone ? 0 : pressure->round_us);
}

bool mp_request_is_shed(mp_rpc *rpc)
{
    return rpc->pressure.is_overloaded &&
           mp_method_is_shed(rpc, rpc->envelope.kind == MP_KIND_REQUEST ? rpc->envelope.method : MP_STR(""));
}

bool mp_method_is_shed(mp_rpc *rpc, mp_str method)
{
    const mp_pressure *pressure = &rpc->pressure;
    if (!pressure->is_overloaded || pressure->late_us == UINT64_MAX || !mp_method_may_be_shed(method))
        return false;
    bool has_credit;
    uint64_t us = estimate_us(rpc, &has_credit);
    return us > pressure->late_us / (is_of_beginning(method) ? LISTS_PART : has_credit ? CREDIT_PART : CALLS_PART);
}

unsigned mp_pressure_refuse(mp_rpc *rpc, size_t ahead)
{
    mp_stat_add(&mp_stat_refused_overload, 1);
    rpc->pressure.refused_us = mp_monotonic_us();
    return mp_pace_refuse(&rpc->pressure.pace, rpc->pressure.refused_us, ahead, 1);
}

static void set_overloaded(mp_rpc *rpc, bool is_overloaded)
{
    if (rpc->pressure.is_overloaded == is_overloaded)
        return;
    rpc->pressure.is_overloaded = is_overloaded;
    mp_stat_add(&mp_stat_workers_overloaded, is_overloaded ? 1 : -1);
    mp_servers_press(is_overloaded ? 1 : -1);
    if (is_overloaded)
        mp_log(MP_WARN, "worker overloaded", mp_log_int("worker", rpc->index),
               mp_log_int("waiting", (int64_t)rpc->pressure.waiting),
               mp_log_str("hint",
                          MP_STR("requests wait longer than overload.wait, so some are refused: add workers, or limit "
                                 "callers by a policy")));
    else
        mp_log(MP_INFO, "worker no longer overloaded", mp_log_int("worker", rpc->index));
}

void mp_pressure_rise(mp_rpc *rpc)
{
    rpc->pressure.late++;
    rpc->pressure.is_watched = true;
    set_overloaded(rpc, true);
}

/* Learns how long a task takes that others wait for. */
static void measure_pressure(mp_pressure *pressure, size_t waiting, uint64_t begun, uint64_t now_us)
{
    begun -= pressure->late;
    if (waiting == 0) {
        pressure->since_us = 0;
    } else if (pressure->since_us == 0 || begun < pressure->begun) {
        /* the counter is of another Lua state, after a reload */
        pressure->since_us = now_us;
        pressure->begun = begun;
    } else if (now_us - pressure->since_us >= WINDOW_US && begun > pressure->begun) {
        mp_pace_learn(&pressure->pace, begun - pressure->begun, now_us - pressure->since_us);
        pressure->since_us = now_us;
        pressure->begun = begun;
    }
}

/* Preempted tasks go on one after another, each in a turn that it shares with tasks that begin. How long that takes
 * concerns a new task only if it will be preempted, so it counts by the part of the tasks that are. Where nothing
 * begins, because all is refused, that part is taken to be smaller and smaller: else tasks that do not end would keep
 * the worker overloaded. */
static void count_round(mp_pressure *pressure, const mp_load *load, uint64_t now_us)
{
    if (now_us - pressure->part_us >= WINDOW_US) {
        uint64_t count = load->begun - pressure->part_begun, interrupted = load->interrupted - pressure->interrupted;
        bool is_other = load->begun < pressure->part_begun || load->interrupted < pressure->interrupted;
        double part = count == 0 || is_other ? 0 : (double)interrupted / (double)count;
        pressure->preempted_part += ((part > 1 ? 1 : part) - pressure->preempted_part) / PART_WINDOWS;
        pressure->part_us = now_us;
        pressure->part_begun = load->begun;
        pressure->interrupted = load->interrupted;
    }
    pressure->round_us = (uint64_t)(pressure->preempted_part * (double)load->preempted * ROUND_US);
}

void mp_rpc_press(mp_rpc *rpc, const mp_load *load)
{
    mp_pressure *pressure = &rpc->pressure;
    size_t waiting = load->waiting;
    if (waiting == 0 && load->preempted == 0 && !pressure->is_watched)
        return;
    uint64_t now_us = mp_monotonic_us();
    measure_pressure(pressure, waiting, load->begun, now_us);
    count_round(pressure, load, now_us);
    pressure->waiting = waiting;
    if (pressure->is_overloaded && now_us - pressure->refused_us >= CALM_US &&
        (pressure->late_us == UINT64_MAX ||
         mp_pace_time_us(&pressure->pace, waiting) + pressure->round_us <= pressure->late_us / CALLS_PART))
        set_overloaded(rpc, false);
    if (!pressure->is_overloaded && pressure->round_us > pressure->late_us) {
        pressure->refused_us = now_us;
        set_overloaded(rpc, true);
    }
    pressure->is_watched = waiting > 0 || load->preempted > 0 || pressure->is_overloaded;
}

void mp_pressure_end(mp_rpc *rpc)
{
    set_overloaded(rpc, false);
    pthread_mutex_destroy(&rpc->pressure.pace.lock);
}
