/* seat.h: the places that the scripts of a worker share, for connections to servers of one kind. In the last eighth
 * a script gets a place only while it has fewer than are free. */
#ifndef MP_LIB_SEAT_H
#define MP_LIB_SEAT_H

#include "telemetry/telemetry.h"

typedef struct {
    mp_link link;    /* in the list of taken places; dropped to give the place back */
    unsigned holder; /* number of the script, as of mp_holder_number; 0: the gateway, whose places are not counted */
} mp_seat;

/* Takes one of `most` places. False, which `refused` counts: there are too many, or too many of this script. */
bool mp_seat_take(mp_link *taken, mp_seat *seat, unsigned holder, int64_t most, const mp_stat *refused);

#endif
