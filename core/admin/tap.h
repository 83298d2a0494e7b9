/* tap.h: GET /api/tap of the admin listener: an event stream of calls as they begin and end, of sessions and of
 * refusals. Belongs to the admin thread. */
#ifndef MP_ADMIN_TAP_H
#define MP_ADMIN_TAP_H

#include "admin.h"

typedef struct mp_admin_taps mp_admin_taps;

mp_admin_taps *mp_admin_taps_new(mp_admin *admin);
/* After the thread has ended, and before its loop is freed. */
void mp_admin_taps_free(mp_admin_taps *MP_NULLABLE taps);
/* The configuration has changed, or another process is the newest: ends taps whose callers have lost their role, that
 * show more than the new configuration allows, or that another process is to serve. */
void mp_admin_taps_configure(mp_admin_taps *taps);

void mp_api_tap(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
