/* listen_stream.h: listen streams and the observations on them, for the files of this module only. */
#ifndef MP_UPSTREAM_STANDING_H
#define MP_UPSTREAM_STANDING_H

#include "upstream/transport.h"

/* -- listen_stream.c: on the worker's thread ----------------------------------------------------------------------- */

/* At the bottom of each turn of a host. True if it did something. */
bool mp_listen_streams_turn(mp_upstream_host *host);
/* True if mp_listen_streams_turn has something to do at once. */
static inline bool mp_listen_streams_has_work(const mp_upstream_host *host)
{
    return !mp_link_is_alone(&host->hot_listen_streams);
}
/* Ends the listen streams of a channel that has ended. */
void mp_listen_streams_close(mp_channel *channel);
/* Ends the listen streams of a worker that ends. */
void mp_listen_streams_end(mp_upstream_host *host);

/* -- observer.c: on the worker's thread ---------------------------------------------------------------------------- */

/* Keeps a message that belongs to no exchange for Lua. Over MP_UPSTREAM_QUEUE it is dropped and counted, and Lua learns
 * that there is a gap. */
void mp_observe_message(mp_channel *channel, const mp_envelope *envelope, mp_str bytes);
void mp_observe_event(mp_channel *channel, mp_observation_kind kind);
/* The listen stream with this id has ended; `status` is that of mp_observation. */
void mp_observe_end(mp_channel *channel, int64_t id, int status);
/* Frees the observations that were not taken. */
void mp_observed_clear(mp_upstream_host *host);

#endif
