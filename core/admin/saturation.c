/* saturation.c: reads the gauges that have limits, once a second and for each text of /metrics. */
#include "saturation.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACK 0.8 /* part of a limit below which the gateway is ready again */

const char *const mp_use_names[MP_USES] = {"calls",    "connections", "fds",          "listeners",
                                           "loop",     "lua_memory",  "pool",         "replay",
                                           "sessions", "store",       "stream_bytes", "tasks"};

uint64_t mp_process_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

int64_t mp_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    long long all = 0, resident = 0;
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lld %lld", &all, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

/* Linux 6.2 and newer tell the number as the size of the folder. */
int64_t mp_count_fds(void)
{
    struct stat folder_state;
    if (stat("/proc/self/fd", &folder_state) == 0 && folder_state.st_size > 0)
        return folder_state.st_size;
    DIR *folder = opendir("/proc/self/fd");
    int64_t count = 0;
    if (folder == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1; /* without the descriptor that reads the folder */
}

static double share(int64_t used, int64_t most)
{
    return most <= 0 || used <= 0 ? 0 : (double)used / (double)most;
}

void mp_saturation_read(const mp_readiness *readiness, const mp_runtime_config *settings, double uses[MP_USES])
{
    const mp_config *config = settings->config;
    struct rlimit fds = {0};
    getrlimit(RLIMIT_NOFILE, &fds);
    uses[MP_USE_CALLS] = share(mp_places_used(readiness->places, MP_PLACE_CALLS), settings->rpc.max_calls);
    uses[MP_USE_CONNECTIONS] = share(mp_stat_sum("connections"), settings->http.connections);
    uses[MP_USE_FDS] = share(mp_count_fds(), (int64_t)fds.rlim_cur);
    uses[MP_USE_LISTENERS] = share(mp_places_used(readiness->places, MP_PLACE_LISTENERS), settings->rpc.max_listeners);
    uses[MP_USE_LOOP] = readiness->loop;
    uses[MP_USE_LUA_MEMORY] =
        share(mp_stat_sum("lua_bytes"), (int64_t)settings->lib.vm.memory * (int64_t)config->workers);
    uses[MP_USE_POOL] = share(mp_stat_sum("pool_jobs"), MP_POOL_THREADS + MP_POOL_QUEUE);
    uses[MP_USE_REPLAY] = share(mp_stat_sum("replay_bytes"), MP_REPLAY_TOTAL);
    uses[MP_USE_SESSIONS] = share(mp_places_used(readiness->places, MP_PLACE_SESSIONS), settings->rpc.max_sessions);
    uses[MP_USE_STORE] = mp_store_fullest(settings->lib.store);
    uses[MP_USE_STREAM_BYTES] = share(mp_stat_sum("queue_bytes"), (int64_t)settings->http.answers);
    uses[MP_USE_TASKS] = share(mp_places_used(readiness->places, MP_PLACE_TASKS), MP_MAX_TASKS);
}

/* -- readiness ----------------------------------------------------------------------------------------------------- */

bool mp_hysteresis_step(mp_hysteresis *hysteresis, double value, double limit, uint64_t now_ms)
{
    bool is_across = hysteresis->is_over ? value < limit * BACK : value >= limit;
    if (is_across && !hysteresis->is_across)
        hysteresis->since_ms = now_ms;
    hysteresis->is_across = is_across;
    if (is_across && now_ms - hysteresis->since_ms >= MP_HYSTERESIS_MS) {
        hysteresis->is_over = !hysteresis->is_over;
        hysteresis->is_across = false;
    }
    return hysteresis->is_over;
}

/* The time after which `is_over` is false at the earliest; 0: it is false. */
static uint64_t hysteresis_left_ms(const mp_hysteresis *hysteresis, uint64_t now_ms)
{
    uint64_t held_ms = hysteresis->is_across ? now_ms - hysteresis->since_ms : 0;
    return !hysteresis->is_over || held_ms >= MP_HYSTERESIS_MS ? 0 : MP_HYSTERESIS_MS - held_ms;
}

unsigned mp_readiness_wait_s(const mp_readiness *readiness)
{
    uint64_t most_ms = 1, now_ms = mp_monotonic_ms();
    for (int i = 0; i < MP_READY_CAUSES; i++) {
        uint64_t left_ms = hysteresis_left_ms(&readiness->hysteresis[i], now_ms);
        most_ms = left_ms > most_ms ? left_ms : most_ms;
    }
    return (unsigned)((most_ms + 999) / 1000);
}

typedef struct {
    const char *name;
    int percent; /* percentage of a limit above which the process reports that it is not ready */
    double value;
} cause;

static void read_causes(const mp_readiness *readiness, cause causes[MP_READY_CAUSES])
{
    causes[0] = (cause){"calls", (int)MP_LIMIT(ready_calls_percent, 95), readiness->values[0]};
    causes[1] = (cause){"loop", 95, readiness->values[1]};
    causes[2] = (cause){"fds", 98, readiness->values[2]};
    causes[3] = (cause){"overload", 100, readiness->values[3]};
}

static void sample_loop(mp_readiness *readiness, const mp_runtime_config *settings, uint64_t now_us)
{
    uint64_t loop_us = (uint64_t)mp_stat_read(&mp_stat_loop_us), passed = now_us - readiness->at_us;
    if (readiness->at_us != 0 && passed > 0 && settings->config->workers > 0) {
        double used = (double)(loop_us - readiness->loop_us) / (double)passed / (double)settings->config->workers;
        readiness->loop = used > 1 ? 1 : used;
    }
    readiness->at_us = now_us;
    readiness->loop_us = loop_us;
}

void mp_readiness_sample(mp_readiness *readiness, const mp_runtime_config *settings)
{
    uint64_t now_us = mp_monotonic_us();
    double uses[MP_USES];
    cause causes[MP_READY_CAUSES];
    sample_loop(readiness, settings, now_us);
    mp_saturation_read(readiness, settings, uses);
    readiness->values[0] = uses[MP_USE_CALLS];
    readiness->values[1] = uses[MP_USE_LOOP];
    readiness->values[2] = uses[MP_USE_FDS];
    readiness->values[3] = mp_stat_read(&mp_stat_workers_overloaded) > 0 ? 1 : 0;
    read_causes(readiness, causes);
    for (int i = 0; i < MP_READY_CAUSES; i++) {
        bool was_over = readiness->hysteresis[i].is_over;
        if (mp_hysteresis_step(&readiness->hysteresis[i], causes[i].value, causes[i].percent / 100.0, now_us / 1000) !=
            was_over)
            mp_log(was_over ? MP_INFO : MP_WARN, was_over ? "ready again" : "not ready",
                   mp_log_str("why", mp_str_of(causes[i].name)), mp_log_int("percent", causes[i].percent));
    }
}

bool mp_readiness_is_good(const mp_readiness *readiness, mp_buf *why)
{
    cause causes[MP_READY_CAUSES];
    bool is_good = mp_stat_sum("auth_files_unread") <= 0;
    read_causes(readiness, causes);
    if (!is_good)
        mp_buf_put(why, MP_STR("not ready: a file that an auth script names cannot be read: the log names it"));
    const mp_nodes *nodes = readiness->nodes;
    if (nodes != NULL && mp_nodes_is_refused(nodes)) {
        mp_buf_put(why, is_good ? MP_STR("not ready: not in the cluster: ") : MP_STR(", not in the cluster: "));
        mp_nodes_put_refusal(nodes, why);
        is_good = false;
    }
    for (int i = 0; i < MP_READY_CAUSES; i++) {
        if (!readiness->hysteresis[i].is_over)
            continue;
        mp_buf_put(why, is_good ? MP_STR("not ready: ") : MP_STR(", "));
        is_good = false;
        if (i == MP_READY_CAUSES - 1)
            mp_buf_put(why, MP_STR("a worker refuses requests, because they wait longer than overload.wait"));
        else
            mp_buf_printf(why, "%s at %.0f %% of the limit, and traffic is wanted below %d %%", causes[i].name,
                          100 * causes[i].value, causes[i].percent);
    }
    return is_good;
}
