/* places.h: how many requests to the admin listener wait for workers, whose answers may not come: at most 16, each for MP_QUESTION_MS; and the
 * answer that refuses a request. Belongs to the admin thread. */
#ifndef MP_ADMIN_PLACES_H
#define MP_ADMIN_PLACES_H

#include "net/net.h"

typedef struct mp_admin_places {
    int64_t waiting; /* requests */
} mp_admin_places;

extern const mp_stat mp_stat_admin_unanswered; /* questions that a worker did not answer in time */

/* How long a request waits for a worker, which may be stuck: as long as an operator waits for a page. */
#define MP_QUESTION_MS ((uint64_t)MP_LIMIT(admin_question_ms, 2000))

/* Takes a place. False: there is none, and the request was answered with 503. */
bool mp_admin_places_take(mp_admin_places *places, mp_stream *stream);
/* Gives it back. `unanswered`: workers that have not answered in time. */
void mp_admin_places_give(mp_admin_places *places, unsigned unanswered);
/* Answers {"error":WHY}. */
void mp_admin_refuse(mp_stream *stream, int status, mp_str why);

#endif
