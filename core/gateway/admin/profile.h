/* profile.h: POST /api/profile of the admin listener: an event stream that has the stacks of a profile of the workers once it is over. One
 * profile runs at a time. Belongs to the admin thread. */
#ifndef MP_GATEWAY_ADMIN_PROFILE_H
#define MP_GATEWAY_ADMIN_PROFILE_H

#include "admin.h"

typedef struct mp_admin_profile mp_admin_profile;

mp_admin_profile *mp_admin_profile_new(mp_admin *admin);
/* After the thread has ended, and before its loop and the workers are freed. */
void mp_admin_profile_free(mp_admin_profile *profile);
/* The configuration has changed: ends a profile whose caller has lost the role. */
void mp_admin_profile_configure(mp_admin_profile *profile);
/* The gateway stops: a profile that runs ends now, and its reader gets what there is. */
void mp_admin_profile_stop(mp_admin_profile *profile);

/* Ends a profile, and stops the loop once its reader has everything, or soon. */
void mp_admin_profile_await(mp_admin_profile *profile, mp_loop *loop);

void mp_api_profile(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* Ends the profile that runs: its reader gets what there is. */
void mp_api_end_profile(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
