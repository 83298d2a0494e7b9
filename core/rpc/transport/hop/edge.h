/* edge.h: what a worker has sent on to other processes, of this node or of others; for the files of this folder.
 *
 *   passage   a request of a client that another process serves
 *   errand    a request of the gateway's own to another process: a message about a task, or the question whether it
 *             lives
 *   peer      another process that was asked whether it lives. What one of this node has answered is in `processes`,
 *             for all workers */
#ifndef MP_RPC_TRANSPORT_HOP_EDGE_H
#define MP_RPC_TRANSPORT_HOP_EDGE_H

#include "rpc/transport/transport.h"

#define MP_HOPS_MOST 4096               /* requests that one worker sends on at once: each takes two descriptors */
#define MP_ERRANDS_MOST ((int64_t)1024) /* messages of one worker to other processes at once: more are refused */

/* How a passage has ended. */
typedef enum {
    MP_FORWARD_LEFT,
    MP_FORWARD_ANSWERED,
    MP_FORWARD_UNREACHED,
    MP_FORWARD_LOST,
    MP_FORWARD_OVER,
    MP_FORWARDS
} mp_forward_end;

typedef struct {
    mp_link link; /* in hops->all */
    mp_link due;  /* in hops->due */
    mp_rpc *rpc;
    mp_stream *stream;                 /* counted reference */
    mp_transfer *MP_NULLABLE transfer; /* NULL: the client has left, or the answer is complete */
    mp_hop_endpoint endpoint;
    uint16_t to;
    uint64_t heard_ms;              /* when the last byte came, or the request was sent; by mp_monotonic_ms */
    uint64_t began_us, answered_us; /* when it was sent, and its first byte came; 0: none has */
    bool is_get;
    bool has_begun; /* the answer to the client has begun */
    /* both owned, for a process of another node; NULL: it is one of this node */
    mp_node_record *MP_NULLABLE receiver;
    mp_principal *MP_NULLABLE principal;
    mp_forward_end end;
} mp_passage;

typedef struct {
    uint16_t number; /* 0: the place is free */
    bool is_asked;   /* an errand of this worker asks whether the process lives */
} mp_hop_peer;

/* What this worker knows of a number of other nodes. Times are of mp_monotonic_ms; 0: never. */
typedef struct {
    uint16_t number;
    char uid[MP_NODE_UID + 1]; /* of the process; empty: no record has the number */
    bool is_asked;             /* an errand of this worker asks whether the process lives */
    bool is_unreached;         /* the last request was not sent: it could not be reached */
    bool is_over;              /* another process has its address: it has ended */
    bool has_left;             /* is_over since nothing listens at its address: it may still run what has begun */
    uint64_t used_ms;          /* when it was last looked for */
    /* when it last answered a question or sent a byte of another answer; and when a question was last not answered */
    uint64_t heard_ms, silent_ms;
    mp_series forwards[MP_FORWARDS], duration;
} mp_node_peer;

struct mp_hops {
    mp_rpc *rpc;
    void (*serve)(mp_rpc *rpc, mp_stream *stream, mp_principal *principal);
    mp_client *client;
    mp_seal_key keys[2]; /* not set before the first hop */
    mp_link all, due, errands;
    int64_t count;
    mp_timer look;
    mp_hop_peer peers[MP_OLDER_MOST + 1];
    mp_node_peer *MP_NULLABLE node_peers; /* NULL before the first request for another node */
    int node_peer_count;
    mp_link waiting;  /* requests for numbers of which it has to be found out whether a process has them */
    mp_timer peek;    /* looks at these */
    mp_link switches; /* requests of other nodes that wait for what Lua decides about what an operator has switched */
    uint64_t last_switch;
    bool has_news; /* the transfer of an errand has something new */
};

extern const mp_stat mp_stat_hops, mp_stat_refused_hops;

/* -- route.c --------------------------------------------------------------------------------------------------- */

/* The number of the process that is to serve the request, or that may be of another node; 0: this one. `session` gets
 * the id of its session. */
uint16_t mp_hop_find_process(mp_rpc *rpc, const mp_stream *stream, mp_hop_endpoint endpoint, mp_str *session);
/* The number of another process that made this id; 0: none that is known. Foreign, unknown and ended ids of one number
 * take the same way. */
uint16_t mp_hop_other_of(const mp_rpc *rpc, mp_str id);
/* The number in an id that is of no known process, if another node may have such a process, which no read of the
 * records has shown; else 0. By each of the seal keys an id has another number: the first one that may be. */
uint16_t mp_hop_unseen_of(const mp_rpc *rpc, mp_str id);

/* -- edge.c ---------------------------------------------------------------------------------------------------- */

/* Ends a request that was sent on: with an error, or in the middle of its answer. */
void mp_passage_end(mp_passage *passage);

/* How requests reach a process. */
typedef struct {
    char base[MP_NODE_ADDRESS + 16]; /* the begin of their URLs */
    char path[MP_PROCESS_PATH];      /* of its Unix socket, if it is one of this node */
    mp_tls *MP_NULLABLE tls;         /* a reference, which the caller drops once the request was started */
} mp_hop_way;
/* Says in `outgoing`, but for its URL, how to reach a process of this node, or `receiver`; it points to `way` and
 * `receiver` then. False if there is no way. `way` is filled in both cases. */
bool mp_hop_find_way(const mp_rpc *rpc, uint16_t to, const mp_node_record *MP_NULLABLE receiver, mp_hop_way *way,
                     mp_outgoing *outgoing);
/* The keys that seal headers for a process of this node, or for another node. */
const mp_seal_key *mp_hop_keys_for(mp_rpc *rpc, bool is_node);

/* -- errands.c ------------------------------------------------------------------------------------------------- */

/* From now on, until no request is under way, asks processes that let requests wait whether they are alive. */
void mp_hops_watch(mp_rpc *rpc);
/* True if the process with this number does not answer: no request should be sent to it. Asks the process again in that
 * case. */
bool mp_hops_are_silent(mp_rpc *rpc, uint16_t number);
/* Asks a process of another node whether it lives, once more if the first question gets no answer; not while a question
 * waits. False if that cannot be. */
bool mp_hops_ask_node(mp_rpc *rpc, const mp_node_record *node);
/* Sends a message about a task to a process, of this node or `receiver`. */
bool mp_hops_send_message(mp_rpc *rpc, uint16_t to, const mp_node_record *MP_NULLABLE receiver, mp_str text);
/* Goes on with errands whose transfers have something new. */
void mp_hops_turn_errands(mp_rpc *rpc);
/* Cancels all errands that are under way. */
void mp_hops_end_errands(mp_rpc *rpc);

/* -- switches.c ------------------------------------------------------------------------------------------------ */

/* Answers the request once Lua has decided. */
void mp_hop_obey_switch(mp_rpc *rpc, mp_stream *stream);
/* Ends the requests that wait for what Lua decides about a switch: `with_answer` they are refused. */
void mp_hops_end_switches(mp_rpc *rpc, bool with_answer);

/* -- nodes.c --------------------------------------------------------------------------------------------------- */

typedef enum {
    MP_NODE_HERE, /* no process of another node has the number: the request is served here */
    MP_NODE_SEND, /* it is to be sent to the process in `record` */
    MP_NODE_WAITS /* it was refused, or is served later as if it had just come */
} mp_node_way;

/* What becomes of a request for a number that no process of this node has. */
mp_node_way mp_hop_choose_node(mp_rpc *rpc, mp_stream *stream, uint16_t number, mp_node_record *record);
/* The peer of a number, which is new if it was not known with this uid. */
mp_node_peer *mp_node_peer_of(mp_hops *hops, uint16_t number, const char *uid);
bool mp_node_peer_is_silent(const mp_node_peer *peer);
/* True if a process of another node has the number, as far as is known. */
bool mp_hop_finds_node(const mp_rpc *rpc, uint16_t number, mp_node_record *record);
/* Logs why a passage to another node was not sent, unless the one before it was not, either. */
void mp_hop_report_unreached(const mp_passage *passage);
/* Counts a passage to another node that is over. */
void mp_hop_count_forward(const mp_passage *passage);
/* Refuses a request that another process should serve: its client may try again after some seconds. */
void mp_hop_refuse_later(mp_rpc *rpc, mp_stream *stream, unsigned seconds, const char *why);
/* The seconds for a process of another node: 1 to 3, so that clients do not all come back at once. */
unsigned mp_hop_retry_s(void);
/* True if no other node has the process that made the id and, if it is not empty, this uid: no record has it, and what
 * is not there is known (mp_nodes_are_sure), or its record is stale and it does not answer. What has to be found out
 * for that is asked for: a later call knows. */
bool mp_hop_is_gone(mp_rpc *rpc, mp_str id, mp_str uid);
/* True if no other node has a process with this number, which no read of the records has shown. False where that is
 * not known: the server is asked. */
bool mp_hop_has_no_node(const mp_rpc *rpc, uint16_t number);
/* Ends the requests that wait until it is known whether a node has their number: `with_answer` they are refused. */
void mp_hops_end_waiting(mp_rpc *rpc, bool with_answer);

#endif
