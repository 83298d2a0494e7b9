/* reload_past.h: what operators see of reloads: the last ones with their changes or errors, the files that serve, and
 * the earlier generations that still finish calls. Any thread. */
#ifndef MP_GATEWAY_RELOAD_PAST_H
#define MP_GATEWAY_RELOAD_PAST_H

#include "data/data.h"

typedef struct mp_reload_past mp_reload_past;

mp_reload_past *mp_reload_past_new(mp_source *serving);
void mp_reload_past_free(mp_reload_past *MP_NULLABLE past);

/* A reload that changed or refused something. Keeps the last 32, and 8 KiB of the text of each. `by` is a literal. */
void mp_reload_past_add(mp_reload_past *past, bool is_ok, int64_t generation, const char *by, uint64_t took_ms,
                        mp_str text);
/* The files that serve from now on; a reference of its own is taken. */
void mp_reload_past_serve(mp_reload_past *past, mp_source *source);
/* Returns a reference to the files that serve. */
mp_source *mp_reload_past_source(mp_reload_past *past);
/* The calls of a worker that began before `at_us` (mp_loop_now_us of the worker) finish on this generation. `worker` is
 * its mp_rpc_index. */
void mp_reload_past_retire(mp_reload_past *past, int64_t generation, unsigned worker, uint64_t at_us);
/* Notes that the generation has ended on the worker. */
void mp_reload_past_end(mp_reload_past *past, int64_t generation, unsigned worker);

/* Append JSON arrays: the reloads, newest first, and the generations that finish calls, oldest first. */
void mp_reload_past_put(mp_reload_past *past, mp_buf *out);
void mp_reload_past_put_generations(mp_reload_past *past, mp_buf *out);

#endif
