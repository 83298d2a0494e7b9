/* api.h: /api of the admin listener: sessions and running calls, their end, the level of the log, draining. Called on
 * the admin thread. Each change is a line of the audit with the name of the caller. */
#ifndef MP_ADMIN_API_H
#define MP_ADMIN_API_H

#include "admin.h"

typedef struct mp_admin_api mp_admin_api;

mp_admin_api *mp_admin_api_new(void);
/* Call it after the admin thread has ended. */
void mp_admin_api_free(mp_admin_api *MP_NULLABLE api, mp_loop *loop);

/* `rest` is what follows the path of the endpoint: the mark of a session, the name of a call. */
void mp_api_sessions(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_end_session(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_calls(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_end_call(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_log(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_reopen(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_drain(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Makes a link with a code for the caller (`moonpool dashboard`); see codes.h. */
void mp_api_code(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* The page that was opened with a code changes it for the token of its session. */
void mp_api_open_dashboard(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Lists the open event streams of all workers, by ?page=N. */
void mp_api_streams(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Ends the event stream that `rest` names. */
void mp_api_end_stream(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
