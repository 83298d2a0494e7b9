/* worker.h: one thread of the gateway. Made and freed by main's thread, used by its own in between. */
#ifndef MP_GATEWAY_WORKER_H
#define MP_GATEWAY_WORKER_H

#include "certificates.h"
#include "settings.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct mp_worker mp_worker;
typedef struct mp_reload mp_reload;

/* What all workers share. */
typedef struct {
    mp_settings *settings; /* the main thread's; each worker has those it serves by */
    mp_commons commons;
    mp_table *table;
    mp_source *source; /* of the workers' first VMs */
    mp_reload *reload;
    mp_certificates *certificates;
    atomic_bool draining,
        failed;   /* failed: an answer could not be written, for another reason than that its reader left */
    int ended_fd; /* an eventfd: one more for each worker that has ended */
    uint64_t started_at;
    mp_log_level own_level; /* of the lines about the gateway's own life */
} mp_shared;

/* `vm` is taken over, and freed where this fails; NULL makes one in the worker's thread. */
mp_worker *mp_worker_new(mp_shared *shared, mp_vm *vm, mp_err *err);
/* `tls`: NULL, none. */
int mp_worker_listen(mp_worker *worker, int fd, mp_tls_slot *tls, mp_err *err);
int mp_worker_listen_admin(mp_worker *worker, int fd, mp_tls_slot *tls, mp_err *err);
/* One client on two descriptors, which are taken over, in place of listeners; with it the worker ends. */
int mp_worker_serve_pipe(mp_worker *worker, int in, int out, mp_err *err);
/* Starts the thread; `mp_worker_await` says when it serves, -1 with a report when it never will. */
int mp_worker_start(mp_worker *worker, mp_err *err);
int mp_worker_await(mp_worker *worker, mp_buf *report);
/* A generation that takes over from another: embedded in its owner. `done` runs once all have, in the last worker's thread;
 * `vm` is its VM, or NULL when that worker has ended. */
typedef struct mp_swap {
    const mp_settings *settings;
    atomic_int left;
    atomic_bool is_missed; /* a worker had ended */
    void (*done)(struct mp_swap *swap, mp_vm *vm);
} mp_swap;

/* New calls go to `vm` from the worker's next turn on; those that run end where they are. From any thread. */
void mp_worker_swap(mp_worker *worker, mp_vm *vm, mp_swap *swap);
mp_loop *mp_worker_loop(mp_worker *worker);
/* No new connections; what runs may end within limits.drain. From any thread. */
void mp_worker_drain(mp_worker *worker);
/* Calls everything off and ends the loop. From any thread. */
void mp_worker_stop(mp_worker *worker);
void mp_worker_join(mp_worker *worker);
/* After all workers have ended: first every one unwinds, then, once the table is gone, every one is freed. */
void mp_worker_unwind(mp_worker *worker);
void mp_worker_free(mp_worker *worker);

/* What it serves by now. On its thread. */
const mp_settings *mp_worker_settings(const mp_worker *worker);
mp_shared *mp_worker_shared(mp_worker *worker);

/* admin.c: a listener's on_request; ctx is the worker. */
void mp_admin_serve(void *worker, mp_stream *stream);

#endif
