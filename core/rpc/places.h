/* places.h: how many things of a kind all processes of one gateway have together, where their number is limited. The
 * counts are in memory that these processes share, a row for each: a place is taken and given back without asking
 * another process, so nothing waits for one that stands still, and the places of a process that has ended are free once
 * the newest process has removed its row. No limit is exceeded. Of two processes that take the last place at the same
 * moment, both may be refused. Any thread. */
#ifndef MP_RPC_PLACES_H
#define MP_RPC_PLACES_H

#include "base/base.h"

#define MP_OLDER_MOST 32 /* older processes that may live at once */

/* The numbers are part of what processes of different versions share: new ones go to the end. */
typedef enum {
    MP_PLACE_CALLS,     /* limits.calls_in_flight */
    MP_PLACE_LISTENERS, /* subscriptions/listen calls: limits.connections */
    MP_PLACE_TASKS,     /* MP_MAX_TASKS */
    MP_PLACE_AUTHN,     /* requests whose authentication is pending */
    MP_PLACE_SESSIONS,  /* sessions.max */
    MP_PLACES
} mp_place;

typedef struct mp_places mp_places;

/* Makes the counts, in which only this process has a row. If the system has no memory that processes can share, each
 * process of the gateway counts alone. */
mp_places *mp_places_new(void);
void mp_places_free(mp_places *places);
/* The memory, for the process that an upgrade begins; -1: it cannot be shared. Stays owned by `places`. */
int mp_places_fd(const mp_places *places);
/* The process `pid`, which shares the memory or is about to, has a row. False: there are too many processes. */
bool mp_places_add(mp_places *places, int pid);
/* Removes a process that has ended: its places are free. */
void mp_places_remove(mp_places *places, int pid);
/* In a process for which another one has added a row: counts there from now on. Takes ownership of `fd`. Before other
 * threads use the counts. False: it is no memory of this format with a row of this process, and it counts alone. */
bool mp_places_join(mp_places *places, int fd);

/* False: all processes together have `most` already, and nothing was taken. */
bool mp_places_take(mp_places *places, mp_place kind, int64_t most);
void mp_places_give(mp_places *places, mp_place kind);
/* The number of places that all processes have taken. */
int64_t mp_places_used(const mp_places *places, mp_place kind);

#endif
