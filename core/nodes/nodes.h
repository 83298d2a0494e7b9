/* nodes.h: the processes of a cluster: this one, and those of other nodes, as their records in Redis say.
 *
 *   record   what a process says of itself: see mp_node_record. It writes its record anew every 2 s
 *   read     one look at all records
 *   turn     a process writes its record and reads the others: lua/moonpool/lib/cluster_nodes.lua, in one worker at a
 *            time. Nothing here asks Redis
 *   stale    a record that has not changed for MP_NODE_STALE_MS, over MP_NODE_STALE_READS reads. Its process is asked
 *            whether it lives before anything is decided: a Redis that was emptied or is away says nothing about those
 *            who live
 *
 * All functions may be called on any thread but for new and free. Times are of CLOCK_BOOTTIME, which goes on while a
 * machine sleeps. */
#ifndef MP_NODES_H
#define MP_NODES_H

#include "base/base.h"
#include <stdatomic.h>

#define MP_NODES_MOST 256 /* processes of a cluster; further records are not taken */
#define MP_NODE_UID 32    /* hex digits */
#define MP_NODE_NAME 64
#define MP_NODE_ADDRESS 272
#define MP_NODE_STALE_MS ((uint64_t)MP_LIMIT(node_stale_ms, 10000))
#define MP_NODE_OVER_MS ((uint64_t)MP_LIMIT(node_over_ms, 60000)) /* a record that is stale for so long is removed */
#define MP_NODE_STALE_READS 4

typedef struct {
    uint16_t number;               /* that the ids of its sessions and tasks carry; random */
    char uid[MP_NODE_UID + 1];     /* 128 random bits: no two processes have the same */
    char node[MP_NODE_NAME + 1];   /* cluster.node of its configuration */
    char address[MP_NODE_ADDRESS]; /* HOST:PORT or [IPV6]:PORT of its cluster.listen, as others reach it */
    char version[32];              /* of the program; longer ones are cut */
    char scripts[17], config[17];  /* hashes of the scripts that it serves, and of its moonpool.yaml, in hex */
    int64_t renewals;              /* rises each time that the process writes its record */
    int64_t sessions;              /* how many sessions it has open */
    bool is_leaving;               /* it serves the sessions it has, and takes no new ones */
} mp_node_record;

typedef enum {
    MP_NODE_NONE,  /* no read has had a record of this number */
    MP_NODE_FRESH, /* lives, as far as is known */
    MP_NODE_STALE  /* its record has not changed for MP_NODE_STALE_MS */
} mp_node_state;

/* A message to all other nodes whose records are fresh, and which of them have taken it. It is over in a second. */
typedef struct {
    void (*done)(void *ctx);
    void *ctx;
    int count, left; /* left: how many have not answered */
    struct {
        char node[MP_NODE_NAME + 1], address[MP_NODE_ADDRESS];
        bool is_taken;
    } answers[];
} mp_node_round;

typedef struct mp_nodes mp_nodes;

/* No nodes but this process, whose uid it makes. `name` NULL: the host's name. `takes_sessions`: also before it has
 * joined, as at an upgrade the process before it did. `leaving`: see mp_nodes_is_leaving; borrowed. */
mp_nodes *mp_nodes_new(const char *MP_NULLABLE name, bool takes_sessions, const atomic_bool *leaving);
void mp_nodes_free(mp_nodes *MP_NULLABLE nodes);

/* -- other processes ----------------------------------------------------------------------------------------------- */

/* A read that succeeded: all records, that of this process among them. `id` names the data that Redis has: with another
 * one than before, no record becomes stale for MP_NODE_STALE_MS, and those that are not there any more stay until then.
 */
void mp_nodes_take(mp_nodes *nodes, const mp_node_record *records, int count, const char *id);
/* A read that failed: nobody becomes stale until MP_NODE_STALE_MS after the next one that succeeds. */
void mp_nodes_fail(mp_nodes *nodes);
/* What is known of a number. `record` is filled unless the result is NONE. */
mp_node_state mp_nodes_find(const mp_nodes *nodes, uint16_t number, mp_node_record *record);
/* Whether the last request to the process has reached it, for mp_nodes_put, mp_nodes_choose and the metrics. */
void mp_nodes_note_reached(mp_nodes *nodes, uint16_t number, bool is_reached);
/* The records that are fresh, into `records` of MP_NODES_MOST. Returns how many. */
int mp_nodes_list(const mp_nodes *nodes, mp_node_record *records);
/* For how many ms a record that is stale has not changed; 0: it is not stale. */
uint64_t mp_nodes_stale_ms(const mp_nodes *nodes, uint16_t number);
/* How far CLOCK_REALTIME of this machine is ahead of the server's clock, as a read found it; 0 before. */
void mp_nodes_set_ahead(mp_nodes *nodes, int64_t ms);
int64_t mp_nodes_ahead_ms(const mp_nodes *nodes);
/* True if what the records do not show is not there: reads succeed, and have done so from the same data for
 * MP_NODE_STALE_MS. A process that has just begun, or whose Redis was away or emptied, is not sure. */
bool mp_nodes_are_sure(const mp_nodes *nodes);
/* One of the processes that take sessions, at random. False: none is known. */
bool mp_nodes_choose(const mp_nodes *nodes, mp_node_record *record);
/* For how many ms no read has succeeded, since one failed; 0: the last one did. */
uint64_t mp_nodes_away_ms(const mp_nodes *nodes);
/* Has the server asked for the record of a number that mp_nodes_find() does not find. False: too often in a second. */
bool mp_nodes_ask(mp_nodes *nodes, uint16_t number);
bool mp_nodes_has_none(const mp_nodes *nodes, uint16_t number); /* the server said so within the last 2 s */
uint16_t mp_nodes_next_question(mp_nodes *nodes); /* the number for which the caller is to ask it; 0: there is none */
/* What the server has: a record, which mp_nodes_find() finds from now on, or none. */
void mp_nodes_answer(mp_nodes *nodes, uint16_t number, const mp_node_record *MP_NULLABLE record);
void mp_nodes_put_metrics(const mp_nodes *nodes, mp_buf *out); /* in Prometheus's text format; nothing before a read */
/* Appends members of a JSON object for operators: whether this process, of this number, has joined, and all others. */
void mp_nodes_put(const mp_nodes *nodes, uint16_t number, mp_buf *out);

/* -- this process -------------------------------------------------------------------------------------------------- */

/* Valid until the second renewal of the uid from now. */
const char *mp_nodes_uid(const mp_nodes *nodes);
/* Makes another uid: this process has another number from now on, and is another one for all others. */
void mp_nodes_renew_uid(mp_nodes *nodes);
const char *mp_nodes_node(const mp_nodes *nodes);
/* HOST:PORT at which other nodes reach this process, once it listens there. Without one it has no record, and takes
 * sessions as if there were no others; with one it takes none until it has joined. */
void mp_nodes_set_address(mp_nodes *nodes, const char *address);
/* Returns its length: 0 if there is none yet. */
size_t mp_nodes_address(const mp_nodes *nodes, char address[MP_NODE_ADDRESS]);
/* True once the process leaves: others do not send clients to it, and it sends what begins a session to them. */
bool mp_nodes_is_leaving(const mp_nodes *nodes);
/* True if a turn is due: 2 s after the last one. The caller runs it, and mp_nodes_end_turn() follows; without that,
 * another turn begins after MP_NODE_TURN_MS. */
#define MP_NODE_TURN_MS UINT64_C(15000)
bool mp_nodes_begin_turn(mp_nodes *nodes);
void mp_nodes_end_turn(mp_nodes *nodes);
void mp_nodes_hurry(mp_nodes *nodes); /* the next turn is due now */
/* The number of the next renewal. Those before it may have been sent. */
int64_t mp_nodes_renew(mp_nodes *nodes);
/* This process has joined if `why` is empty, and takes sessions; else it takes none, because of `why`. True if that is
 * new. */
bool mp_nodes_settle(mp_nodes *nodes, mp_str why);
bool mp_nodes_is_refused(const mp_nodes *nodes);               /* this process takes no sessions */
void mp_nodes_put_refusal(const mp_nodes *nodes, mp_buf *out); /* why it takes no sessions; nothing if it does */
bool mp_nodes_has_joined(const mp_nodes *nodes);
bool mp_nodes_is_heir(const mp_nodes *nodes); /* `takes_sessions` of mp_nodes_new() */

#endif
