/* record.h: /api/record of the admin listener. */
#ifndef MP_ADMIN_RECORD_H
#define MP_ADMIN_RECORD_H

#include "admin.h"

/* POST /api/record: begins a recording of calls. */
void mp_api_record(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* POST /api/record/stop: ends it. */
void mp_api_record_stop(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);
/* GET /api/records: a line of facts, then the recorded calls as lines of JSON. */
void mp_api_records(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
