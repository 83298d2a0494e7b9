/* reload.h: replaces scripts and configuration while the gateway serves. The main thread reads and checks them and
 * makes a Lua state for every worker; the workers only switch to it. If anything is wrong, nothing changes. */
#ifndef MP_GATEWAY_RELOAD_RELOAD_H
#define MP_GATEWAY_RELOAD_RELOAD_H

#include "admin/admin.h"
#include "gateway/listeners/listeners.h"
#include "gateway/start/start.h"

/* `first` is a VM of the serving scripts that no worker uses yet. `start` is borrowed until mp_reload_start has
 * returned. */
mp_reload *mp_reload_new(const mp_start *start, mp_vm *first);
/* Call it when the workers serve. `admin` may be NULL; `listeners` outlive the reload. */
void mp_reload_start(mp_reload *reload, const mp_start *start, mp_worker **workers, int count,
                     mp_admin *MP_NULLABLE admin, mp_listeners *listeners);
void mp_reload_free(mp_reload *MP_NULLABLE reload);

/* -- the main thread -- */

typedef struct {
    int fds[3];  /* readable when mp_reload_run has work to do; -1: none */
    int wait_ms; /* call mp_reload_run after this time at the latest; -1: no limit */
} mp_reload_wait;

mp_reload_wait mp_reload_next(mp_reload *reload);
/* Does what is due. `may_reload` false: everything except reloading. */
void mp_reload_run(mp_reload *reload, bool may_reload);
/* From the commit of an upgrade on: saves the generation that serves without errors. Before it,
 * mp_worker_shared.is_on_trial forbids that. */
void mp_reload_commit(mp_reload *reload);
/* Requests a reload at the next run, even if no file seems to have changed. `by` names the cause in the log and must
 * be a literal. Any thread. */
void mp_reload_now(mp_reload *reload, const char *by);

/* -- a worker's thread -- */

/* -- the admin's thread -- */

/* Requests a reload. Answers `stream` when it is done: 200 with the changes, 202 with the changes and the workers that
 * do not serve them yet, or 422 with the errors. */
void mp_reload_ask(mp_reload *reload, mp_stream *stream);
/* Appends a JSON object: the generation and the result of the last reload. */
void mp_reload_describe(mp_reload *reload, mp_buf *out);
/* Appends the same in Prometheus's text format. */
void mp_reload_put_metrics(mp_reload *reload, mp_buf *out);

#endif
