/* query_slots.h: how many requests to the admin listener wait for workers, whose answers may not come: at most 16, each
 * for MP_QUESTION_MS; and the answer that refuses a request. Belongs to the admin thread. */
#ifndef MP_ADMIN_QUERY_SLOTS_H
#define MP_ADMIN_QUERY_SLOTS_H

#include "net/net.h"

typedef struct mp_admin_query_slots {
    int64_t waiting; /* requests */
} mp_admin_query_slots;

extern const mp_stat mp_stat_admin_unanswered; /* questions that a worker did not answer in time */

/* How long a request waits for a worker, which may be stuck: as long as an operator waits for a page. */
#define MP_QUESTION_MS ((uint64_t)MP_LIMIT(admin_question_ms, 2000))

/* Takes a place. False: there is none, and the request was answered with 503. */
bool mp_admin_query_slots_take(mp_admin_query_slots *places, mp_stream *stream);
/* Gives it back. `unanswered`: workers that have not answered in time. */
void mp_admin_query_slots_give(mp_admin_query_slots *places, unsigned unanswered);
/* Answers {"error":WHY}. */
void mp_admin_refuse(mp_stream *stream, int status, mp_str why);

#endif
