/* pages.h: /api of the admin listener, what the dashboard shows of scripts, reloads and certificates. Called on the
 * admin thread. */
#ifndef MP_ADMIN_PAGES_H
#define MP_ADMIN_PAGES_H

#include "admin.h"

void mp_api_scripts(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_reloads(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Appends the answer of GET /api/jobs. `is_joined`: it includes the runs in other processes. */
void mp_api_put_jobs(mp_buf *out, bool is_joined);
void mp_api_jobs(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_certificates(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
void mp_api_config(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
