/* profile.h: POST /api/profile of the admin listener: an event stream that has the stacks of a profile of the workers
 * once it is over. One profile runs at a time. Belongs to the admin thread. */
#ifndef MP_ADMIN_PROFILE_H
#define MP_ADMIN_PROFILE_H

#include "admin.h"

typedef struct mp_admin_profile mp_admin_profile;

/* `gateway` is borrowed. */
mp_admin_profile *mp_admin_profile_new(const mp_admin_gateway *gateway, mp_admin_access *access);
/* After the thread has ended, and before its loop and the workers are freed. */
void mp_admin_profile_free(mp_admin_profile *MP_NULLABLE profile);
/* The configuration has changed: ends a profile whose caller has lost the role. */
void mp_admin_profile_configure(mp_admin_profile *profile);
/* The gateway stops: ends a running profile, whose reader gets the samples so far. */
void mp_admin_profile_stop(mp_admin_profile *profile);

/* Ends a profile, and stops the loop once its reader has everything, or soon. */
void mp_admin_profile_await(mp_admin_profile *profile, mp_loop *loop);

/* Answers POST /api/profile: begins a profile, or refuses to. */
void mp_admin_profile_serve(mp_admin_profile *profile, const mp_runtime_config *settings, mp_stream *stream,
                            const mp_admin_caller *caller);
/* Answers POST /api/profile/end: ends the running profile, whose reader gets the samples so far. */
void mp_admin_profile_serve_end(mp_admin_profile *profile, mp_stream *stream, const mp_admin_caller *caller);

#endif
