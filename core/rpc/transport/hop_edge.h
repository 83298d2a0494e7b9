/* hop_edge.h: what a worker has sent on to other processes of the gateway; for hop_edge.c and hop_errands.c.
 *
 *   passage   a request of a client that another process serves
 *   errand    a request of the gateway's own to another process: a message about a task, or the question whether it
 *             lives
 *   peer      another process that was asked whether it lives; what it has answered is in `processes`, for all workers
 *             */
#ifndef MP_RPC_HOP_EDGE_H
#define MP_RPC_HOP_EDGE_H

#include "transport.h"

#define MP_HOPS_MOST 4096               /* requests that one worker sends on at once: each takes two descriptors */
#define MP_ERRANDS_MOST ((int64_t)1024) /* messages of one worker to other processes at once: more are refused */

typedef struct {
    mp_link link; /* in hops->all */
    mp_link due;  /* in hops->due */
    mp_rpc *rpc;
    mp_stream *stream;                 /* counted reference */
    mp_transfer *MP_NULLABLE transfer; /* NULL: the client has left, or the answer is complete */
    mp_hop_endpoint endpoint;
    uint16_t to;
    uint64_t heard_ms; /* when the last byte came, or the request was sent; by mp_monotonic_ms */
    bool is_get;
    bool has_begun; /* the answer to the client has begun */
} mp_passage;

typedef struct {
    uint16_t number; /* 0: the place is free */
    bool is_asked;   /* an errand of this worker asks whether the process lives */
} mp_hop_peer;

struct mp_hops {
    mp_rpc *rpc;
    mp_client *client;
    mp_seal_key keys[2]; /* not set before the first hop */
    mp_link all, due, errands;
    int64_t count;
    mp_timer look;
    mp_hop_peer peers[MP_OLDER_MOST + 1];
};

/* The number of another process that made this id; 0: none that lives. Foreign, unknown and ended ids of one number
 * take the same way. */
uint16_t mp_hop_other_of(const mp_rpc *rpc, mp_str id);
/* Ends a request that was sent on: with an error, or in the middle of its answer. */
void mp_passage_end(mp_passage *passage);
/* From now on, until no request is under way, asks processes that let requests wait whether they are alive. */
void mp_hops_watch(mp_rpc *rpc);
/* True if the process with this number does not answer: no request should be sent to it. Asks the process again in that
 * case. */
bool mp_hops_are_silent(mp_rpc *rpc, uint16_t number);
/* Cancels all errands that are under way. */
void mp_hops_end_errands(mp_rpc *rpc);

#endif
