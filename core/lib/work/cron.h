/* cron.h: scheduled jobs: a VM starts each job once per interval, a listening job for each message. Of all workers of
 * the process one runs it. */
#ifndef MP_LIB_WORK_CRON_H
#define MP_LIB_WORK_CRON_H

#include "lib/state.h"
#include "lib/work/listening.h"

typedef struct mp_cron {
    struct mp_cron *next; /* the next job in lib->schedule */
    mp_lib *lib;
    mp_timer timer;
    char *name;
    char *MP_NULLABLE
    when;              /* the interval for people: "every 5 min"; NULL: the job is not a script's, and is not shown */
    uint64_t first_ms; /* the first start after loading, in ms since 1970; 0: soon */
    uint64_t every_ms, limit_ms; /* interval between two starts, of a listening job between two runs without a message,
                                    0: it has none; time limit of one run */
    uint64_t ticked_ms;          /* when a listening job last had a run without a message */
    mp_listening *MP_NULLABLE source; /* of a listening job: a userdata that the registry holds; else NULL */
    bool is_claimed;                  /* no other VM listens, or runs the job */
    bool is_listening, is_running;
} mp_cron;

/* True if jobs of this process start: of the processes of a gateway the newest one starts them. */
bool mp_cron_is_allowed(void);
/* Starts the timers of the VM's jobs on `loop`, to which the VM is attached. */
void mp_cron_start(mp_lib *lib, mp_loop *loop);
/* Stops the timers: no job starts any more. A job that runs is not cancelled. */
void mp_cron_stop(mp_lib *lib);
/* True if a listening job is due for a run without a message, which it has now. */
bool mp_cron_take_tick(mp_cron *job);
/* A run of the job has ended. */
void mp_cron_ended(mp_cron *job);
/* Frees the VM's jobs. */
void mp_cron_free(mp_lib *lib);

#endif
