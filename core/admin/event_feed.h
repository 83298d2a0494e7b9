/* event_feed.h: GET /api/history and GET /api/live: the numbers of the gateway over time, for charts. The admin thread
 * measures each 5 s, and each second while a reader of /api/live is there. */
#ifndef MP_ADMIN_EVENT_FEED_H
#define MP_ADMIN_EVENT_FEED_H

#include "admin.h"

extern const mp_stat mp_stat_refused_readers; /* requests for /api/live, /api/history, taps */

typedef struct mp_admin_live mp_admin_live;

mp_admin_live *mp_admin_live_new(mp_loop *loop);
/* After the thread has ended, before its loop is freed. */
void mp_admin_live_free(mp_admin_live *MP_NULLABLE live);
/* Begins to measure. On the admin thread, as what follows. */
void mp_admin_live_start(mp_admin_live *live);
/* The configuration has changed: ends the streams of /api/live, so that readers open them again with the permissions
 * that the new configuration demands. */
void mp_admin_live_configure(mp_admin_live *live);

/* Several processes: as the functions of history.h with these names. */
void mp_admin_live_put_numbers(const mp_admin_live *live, mp_buf *out);
void mp_admin_live_take_numbers(mp_admin_live *live, uint16_t number, mp_str text);
void mp_admin_live_settle(mp_admin_live *live, const mp_processes *processes);
void mp_admin_live_take_rows(mp_admin_live *live, mp_str json);

void mp_api_history(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_live(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
