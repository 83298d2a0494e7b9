/* lookup.h: the addresses of host names, for all workers together; for transfer.c.
 *
 *   lookup  one request's wait for the addresses of a name; requests for the same name wait for the same answer
 *
 * Addresses are a text for CURLOPT_RESOLVE: "192.0.2.1,[2001:db8::1]". */
#ifndef MP_NET_LOOKUP_H
#define MP_NET_LOOKUP_H

#include "net/net.h"

typedef struct mp_lookup mp_lookup;

/* Appends the addresses of `host` if they are known: for a minute after the lookup, unless nothing asks for `idle_ms`;
 * and for an hour while no name server answers. Then lookups go on meanwhile, unless `most` are in progress. */
bool mp_lookup_known(mp_str host, uint64_t idle_ms, int64_t most, mp_buf *addresses);
/* Called on the loop, once, at the end of the lookup. `addresses` is NULL if the name has none. Old addresses of the
 * name are given if no name server answers in time. */
typedef void mp_lookup_done(void *ctx, const char *MP_NULLABLE addresses);

/* Begins a lookup, or joins one. NULL if `most` are in progress in this process, or no thread can be started, or no
 * descriptor is left for `holder` (mp_outgoing_take). */
mp_lookup *MP_NULLABLE mp_lookup_start(mp_loop *loop, mp_str host, int64_t most, unsigned holder, mp_lookup_done *done,
                                       void *ctx);
/* Cancels a lookup: `done` will not be called. Call it on the loop's thread before the loop is freed. The thread of the
 * lookup continues, and its answer serves other lookups. `lookup` may be NULL. */
void mp_lookup_cancel(mp_lookup *MP_NULLABLE lookup);

#endif
