/* topics.h: what is published reaches whom it concerns, on whatever worker.
 *
 *   topic        any name; it exists while somebody follows it or listens to it
 *   follower     a session: gets messages on its own stream
 *   listener     a call that waits for nothing else (subscriptions/listen): gets them on its stream
 *   publication  two forms of one message, for the two of them
 *
 * The index from topics to followers, and to the rpcs with listeners, is the process's, under a lock of its own, taken before
 * a session's. The rest belongs to an rpc's thread. The rpc that publishes sends to followers, each rpc to its listeners. */
#ifndef MP_RPC_TOPICS_H
#define MP_RPC_TOPICS_H

#include "house.h"

typedef struct {
    atomic_int refs;
    mp_str topic, plain, before, after; /* ptr == NULL: not in this form */
    char bytes[];
} mp_publication;

void mp_publication_unref(mp_publication *what);

/* Publications that wait. */
typedef struct {
    mp_link ring;
    mp_map by_topic; /* the last of each */
    size_t count, bytes;
    size_t patience; /* where so many wait, one takes the place of another of its topic */
} mp_lane;

void mp_lane_init(mp_lane *lane, size_t patience);
void mp_lane_clear(mp_lane *lane);
/* Takes the reference over. Drops and counts what is too much. */
void mp_lane_put(mp_lane *lane, mp_publication *what);
mp_publication *mp_lane_take(mp_lane *lane); /* NULL when it is empty */

/* What an rpc has to do with topics. */
struct mp_publisher {
    mp_lane pending; /* published in this turn */

    mp_lane to_followers;
    mp_publication *sending; /* to `followers` from `next` on, which are counted */
    mp_session **followers;
    size_t follower_count, next;

    mp_lane to_listeners;
    mp_publication *telling; /* listeners whose `heard` is not this number */
    uint64_t number;
    mp_map topics; /* that calls of this rpc listen to */
};

/* -- topics.c, for listeners.c -- */

/* Whether calls of this rpc listen to the topic, for those who publish. */
void mp_topic_set_heard(mp_rpc *rpc, mp_str topic, bool is_heard);

/* -- listeners.c, for topics.c -- */

/* Sends what waits for listeners, at most `budget` messages. */
void mp_listeners_tell(mp_rpc *rpc, int budget);

#endif
