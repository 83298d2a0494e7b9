/* places.h: how many requests to the admin listener wait for workers, whose answers may not come: at most admin.questions. Belongs to the admin
 * thread. */
#ifndef MP_ADMIN_PLACES_H
#define MP_ADMIN_PLACES_H

#include "net/net.h"

typedef struct mp_admin_places {
    int64_t waiting; /* requests */
} mp_admin_places;

extern const mp_stat mp_stat_admin_unanswered; /* questions that a worker did not answer within admin.question_time */

/* Takes a place of `most`. False: there is none, and the request was answered with 503. */
bool mp_admin_places_take(mp_admin_places *places, int64_t most, mp_stream *stream);
/* Gives it back. `unanswered`: workers that have not answered in time. */
void mp_admin_places_give(mp_admin_places *places, unsigned unanswered);

#endif
