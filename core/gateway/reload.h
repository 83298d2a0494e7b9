/* reload.h: new scripts and another configuration in place of those that serve, while they serve. The main thread reads and
 * proves them and makes a VM for every worker; the workers only take them over. What is wrong in anything changes nothing. */
#ifndef MP_GATEWAY_RELOAD_H
#define MP_GATEWAY_RELOAD_H

#include "gateway.h"
#include "worker.h"

/* `first` is a VM of the scripts that serve, not used by anybody else yet. `options` are borrowed. */
mp_reload *mp_reload_new(mp_shared *shared, const mp_gateway_options *options, mp_vm *first);
/* The workers are there. */
void mp_reload_start(mp_reload *reload, mp_worker **workers, int count);
void mp_reload_free(mp_reload *reload);

/* -- the main thread -- */

typedef struct {
    int fds[2];  /* readable when there is something to do; -1 for none */
    int wait_ms; /* or after so long; -1 never */
} mp_reload_wait;

mp_reload_wait mp_reload_next(mp_reload *reload);
/* Looks what there is to do, and does it; but for a reload, where there may be none. */
void mp_reload_run(mp_reload *reload, bool may_reload);
/* Reads everything at the next run, whether anything seems to have changed or not. Any thread. */
void mp_reload_now(mp_reload *reload);

/* -- a worker's thread -- */

/* Takes over a VM that was detached, to free it. */
void mp_reload_bury(mp_reload *reload, mp_vm *vm);

/* -- the admin's thread -- */

/* Asks for a reload, and answers `stream` with how it went: 200 and what changed, or 422 and what is wrong. */
void mp_reload_ask(mp_reload *reload, mp_stream *stream);
/* Appends a JSON object: the generation, and how the last reload went. */
void mp_reload_describe(mp_reload *reload, mp_buf *out);

#endif
