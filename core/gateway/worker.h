/* worker.h: one serving thread of the gateway. The main thread makes and frees it; in between its own thread uses
 * it. */
#ifndef MP_GATEWAY_WORKER_H
#define MP_GATEWAY_WORKER_H

#include "reload_past.h"
#include "config/config.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct mp_worker mp_worker;
typedef struct mp_reload mp_reload;
typedef struct mp_watchdog mp_watchdog;
typedef struct mp_certificates mp_certificates;

/* How the process ends after a signal, in ms. MP_ENDING_MS before shared->end_at calls are cancelled, and their <close>
 * handlers run. MP_CUT_MS before it the workers' loops stop, so no handler waits any longer. MP_LEAVE_MS before it each
 * handler that is left is ended at its first instruction. MP_FORCE_MS before it the watchdog ends the process,
 * which moves the end while the whole process stands still. */
#define MP_ENDING_MS 1000
#define MP_CUT_MS 500
#define MP_LEAVE_MS 350
#define MP_FORCE_MS 200

/* Shared by all workers. */
typedef struct {
    /* owned by the main thread; each worker has a pointer to the settings that it currently uses */
    mp_runtime_config *settings;
    mp_process_state process_state;
    mp_processes *processes; /* the processes of the gateway; made at the start */
    mp_session_table *table;
    mp_source *source; /* the source of the workers' first VMs */
    mp_reload *reload;
    mp_reload_past *past; /* results of reloads; belongs to mp_reload */
    mp_certificates *certificates;
    struct mp_upgrade *upgrade;
    mp_watchdog *watchdog;
    atomic_bool leaving;          /* the process leaves its cluster, or drains */
    atomic_bool draining, failed; /* failed: writing an answer on stdio failed for a reason other than a closed pipe */
    _Atomic uint64_t end_at;      /* ms of the monotonic clock at which the process ends; 0: it serves */
    /* Frees a VM that has ended: on the main thread, later. Any thread. */
    void (*free_vm)(mp_reload *reload, mp_vm *vm);
    mp_worker *const *workers; /* they begin to serve before the admin listener does, and end before it */
    int worker_count;
    /* the memory file of the admin listener's token, from the process before this one: it is used instead of a new
     * token; -1: none */
    int admin_token;
    mp_buf handed_tickets;    /* mp_certificates_hand of the process before this one; secret */
    atomic_bool is_on_trial;  /* an upgrade has started this process and is not committed yet: the process changes
                                 nothing that outlives it */
    uint16_t handed_by;       /* during its start, the number of the process before it, which owns the store */
    bool may_be_empty;        /* during such a start: the process before this one serves an empty configuration file */
    bool serves_kept;         /* the last good generation serves since the start; main thread, as is `serving` */
    const mp_source *serving; /* the scripts that serve */
    bool may_be_kept; /* during such a start: it serves the last good generation, since the files on the disk have
                         errors */
    mp_buf
        may_lack; /* during such a start: it serves without these scripts, which have errors; paths, each with a NUL */
    int ended_fd; /* an eventfd, incremented by each worker that has ended */
    uint64_t started_at;
    mp_log_level own_level; /* log level of lines about the gateway's own start and end */
} mp_worker_shared;

/* Takes ownership of `vm`, also on failure. NULL: the worker's thread makes a VM. `number`: its name in /metrics. */
mp_worker *MP_NULLABLE mp_worker_new(mp_worker_shared *shared, mp_vm *MP_NULLABLE vm, int number, mp_err *err);
/* Listens at `fd` and takes ownership of it. `endpoint` is copied; the worker fills in on_request, ctx and the trusted
 * proxies of the copy; the limits, too, if other processes connect (is_inner). */
int mp_worker_listen(mp_worker *worker, int fd, const mp_endpoint *endpoint, mp_err *err);
/* Serves other processes of the gateway by `fd`, which the worker owns from now on. Any thread, while the loop runs or
 * before. */
void mp_worker_listen_hop(mp_worker *worker, int fd);
/* mp_server_sockets of the worker's server. */
int mp_worker_sockets(mp_worker *worker, int address, int *fds, int most);
/* As the functions of mp_server with these names, at an upgrade. Any thread. */
void mp_worker_share(mp_worker *worker, int address);
void mp_worker_hold(mp_worker *worker, int address, bool is_held);
void mp_worker_leave(mp_worker *worker);
/* Takes no connections of clients any more, and serves its sessions by way of other nodes. Any thread. */
void mp_worker_leave_cluster(mp_worker *worker);
/* All workers listen on the same addresses now: they share connections evenly. Before any is released. */
void mp_workers_balance(mp_worker *const *workers, int count);
/* Serves one client on two descriptors instead of listeners, and takes ownership of both. The worker ends with the
 * client. */
int mp_worker_serve_pipe(mp_worker *worker, int in, int out, mp_err *err);
/* Starts the thread, which loads the scripts. `mp_worker_await` waits for that; it returns -1 with a report on
 * errors. Then the thread waits for mp_worker_release, to serve or to end. Add listeners before the release. It returns
 * once the worker is in the table that the admin listener asks. */
int mp_worker_start(mp_worker *worker, mp_err *err);
int mp_worker_await(mp_worker *worker, mp_buf *report);
void mp_worker_release(mp_worker *worker, bool serves);
/* A new generation that all workers switch to; embedded in its owner, who frees it once `left` is 0. */
typedef struct mp_swap {
    mp_runtime_config *settings; /* a reference that belongs to the swap */
    int64_t generation;
    atomic_int left; /* workers that have not ended and serve neither this generation nor a later one */
    /* A worker has switched or has ended, or a later generation took this one's place. Counts `left` down: the swap may
     * be freed then. On any thread. */
    void (*taken)(struct mp_swap *swap);
} mp_swap;

/* From the worker's next turn on, new calls use `vm`; running calls finish on the old VM. A VM that the worker has not
 * taken yet is freed unused, so a worker that does not turn holds up nothing. One thread at a time. */
void mp_worker_swap(mp_worker *worker, mp_vm *vm, mp_swap *swap);
/* The generation that the worker serves. Any thread. */
int64_t mp_worker_generation(const mp_worker *worker);
/* The VM that serves new calls. On the worker's thread. */
mp_vm *mp_worker_vm(const mp_worker *worker);
mp_loop *mp_worker_loop(mp_worker *worker);
/* mp_profile_begin() for all VMs of the worker. On the worker's thread; its end is mp_profile_end(). */
bool mp_worker_profile(mp_worker *worker, mp_profile *profile);
/* Accepts no new connections; running calls may finish until MP_ENDING_MS before shared->end_at. Any thread. */
void mp_worker_drain(mp_worker *worker);
/* Cancels all calls and ends the loop. Any thread. */
void mp_worker_stop(mp_worker *worker);
void mp_worker_join(mp_worker *worker);
/* Call these when all workers have ended: mp_worker_unwind for every worker ends the tasks in its VMs; then
 * mp_worker_free_vms for every worker; then free the session table; then mp_worker_free for every worker. */
void mp_worker_unwind(mp_worker *worker);
void mp_worker_free_vms(mp_worker *worker);
void mp_worker_free(mp_worker *worker);

/* -- for the watchdog, any thread -- */

/* See mp_loop_turns, mp_loop_wake, mp_server_suspend and mp_server_recover. */
uint64_t mp_worker_turns(const mp_worker *worker);
void mp_worker_wake(mp_worker *worker);
void mp_worker_suspend(mp_worker *worker, mp_worker *MP_NULLABLE to);
void mp_worker_recover(mp_worker *worker);
/* True if the thread has nothing left to do. */
bool mp_worker_has_ended(const mp_worker *worker);
mp_where *mp_worker_where(mp_worker *worker);

/* The process drains from now on. True if it did already. Any thread. */
bool mp_begin_drain(mp_worker_shared *shared);
/* True if this process serves no session, call, stream or task, keeps nothing for a client's retry or for the owner of
 * the store, and no client has a connection to it that it has kept: those are closed by their client, or after the time
 * that a kept connection has, so that no request meets a connection which is being closed. */
bool mp_serves_nothing(void);

#endif
