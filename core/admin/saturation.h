/* saturation.h: how much of each limit is used, and whether the gateway should get traffic. Called on the admin
 * thread. */
#ifndef MP_ADMIN_SATURATION_H
#define MP_ADMIN_SATURATION_H

#include "config/config.h"

/* In the order of the label `resource` of moonpool_saturation_ratio. */
typedef enum {
    MP_USE_CALLS,
    MP_USE_CONNECTIONS,
    MP_USE_FDS,
    MP_USE_LISTENERS,
    MP_USE_LOOP, /* share of the last second that the workers' loops spent in turns */
    MP_USE_LUA_MEMORY,
    MP_USE_POOL,
    MP_USE_REPLAY,
    MP_USE_SESSIONS,
    MP_USE_STORE,
    MP_USE_STREAM_BYTES,
    MP_USE_TASKS,
    MP_USES
} mp_use;

extern const char *const mp_use_names[MP_USES];

/* A value that has to be across a line for MP_HYSTERESIS_MS before it counts: above the limit, and then below four
 * fifths of it. */
#define MP_HYSTERESIS_MS 5000
typedef struct {
    bool is_over, is_across;
    uint64_t since_ms; /* time in ms at which the value crossed the line, if is_across */
} mp_hysteresis;
/* Takes a sample of the value. `now_ms`: of the monotonic clock. Returns is_over. */
bool mp_hysteresis_step(mp_hysteresis *hysteresis, double value, double limit, uint64_t now_ms);

#define MP_READY_CAUSES 4 /* calls, loop, open files, and the overload of a worker */

/* State of the readiness check. All members but the first two are 0 at the start. */
typedef struct mp_readiness {
    const mp_places *places;           /* counts that all processes of the gateway share */
    const mp_nodes *MP_NULLABLE nodes; /* NULL: there is no cluster */
    uint64_t at_us, loop_us;           /* time and loop time of the last sample */
    double loop;                       /* share of the last second that loops spent in turns (MP_USE_LOOP) */
    mp_hysteresis hysteresis[MP_READY_CAUSES];
    double values[MP_READY_CAUSES];
} mp_readiness;

/* Takes a sample, once a second. */
void mp_readiness_sample(mp_readiness *readiness, const mp_runtime_config *settings);
/* True if all is below the limits. Else appends why not, as a text for people. */
bool mp_readiness_is_good(const mp_readiness *readiness, mp_buf *why);
/* The seconds after which all can be below the limits at the earliest, at least 1: for Retry-After. */
unsigned mp_readiness_wait_s(const mp_readiness *readiness);
/* Computes the used share of each limit, from 0 to 1. Limits that all processes of the gateway share count the use by
 * all of them. */
void mp_saturation_read(const mp_readiness *readiness, const mp_runtime_config *settings, double uses[MP_USES]);
/* Processor time of the process, and its resident memory; 0: not known. */
uint64_t mp_process_us(void);
int64_t mp_resident_bytes(void);
/* Open descriptors of the process. */
int64_t mp_count_fds(void);

#endif
