/* handover.h: gives every worker the VM of a new generation, and knows the workers that have not switched to theirs.
 * A worker that runs a long C function, or Lua that does not turn, serves its earlier scripts until it turns; the
 * others serve the new ones at once. The reload waits for such a worker for two seconds, or not at all if the
 * watchdog has found it stuck. The main thread calls all functions. */
#ifndef MP_GATEWAY_RELOAD_HANDOVER_H
#define MP_GATEWAY_RELOAD_HANDOVER_H

#include "admin/admin.h"
#include "status.h"

typedef struct mp_handover mp_handover;

/* The data that is handed over. */
typedef struct {
    int64_t generation;
    size_t asked; /* number of requests that wait for the reload */
    mp_str plan;  /* text of the changes, for people */
} mp_handed_over;

/* `ended` runs on the main thread, once for each handover; see mp_handover_run. `taken` runs on any thread: call
 * mp_handover_run soon. All arguments are borrowed; `admin` may be NULL. */
mp_handover *mp_handover_new(mp_worker **workers, int count, mp_admin *MP_NULLABLE admin, mp_watchdog *watchdog,
                             mp_reload_status *status,
                             void (*ended)(void *ctx, const mp_handed_over *done, mp_str late),
                             void (*taken)(void *ctx), void *ctx);
/* Call it when all workers are freed. NULL is allowed. */
void mp_handover_free(mp_handover *MP_NULLABLE handover);
/* Must not be called while a handover runs. Takes ownership of `vms`, one for each worker, and of the buffers;
 * `lists` names the lists that changed for clients. */
void mp_handover_begin(mp_handover *handover, mp_vm **vms, mp_runtime_config *settings, int64_t generation,
                       size_t asked, mp_buf plan, mp_buf lists);
/* False if many changed configurations are kept because a worker has not switched to them: hand no other over. */
bool mp_handover_has_room(const mp_handover *handover);
/* True while some worker has not switched and may still do so in time; then `*wait_ms` is the time left. */
bool mp_handover_is_running(const mp_handover *MP_NULLABLE handover, int *wait_ms, uint64_t now);
/* Ends the handover if it is time, and logs workers that have switched late. True while it is running. */
bool mp_handover_run(mp_handover *MP_NULLABLE handover, uint64_t now);

#endif
