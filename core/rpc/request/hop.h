/* hop.h: the facts that one process of the gateway sends another with a request: the header moonpool-hop, which is
 * sealed. The sender, the edge, has read the request and authenticated it; the receiver, the owner, runs it. */
#ifndef MP_RPC_HOP_H
#define MP_RPC_HOP_H

#include "data/data.h"
#include "rpc/role.h"

#define MP_HOP_HEADER "moonpool-hop"
#define MP_HOP_MOST_HEADER ((size_t)120 << 10) /* bytes of the sealed header */
/* a request that is older has long been answered with an error by its edge */
#define MP_HOP_OLDEST_MS ((uint64_t)MP_LIMIT(hop_oldest_ms, 10000))
/* An edge of another node answers with an error a while after that, since clocks of machines differ. */
#define MP_HOP_GIVEN_UP_MS (MP_HOP_OLDEST_MS + 1000)
#define MP_HOP_MOST 2 /* limit of the hops of one request */

typedef enum {
    MP_HOP_MCP,
    MP_HOP_SSE,
    MP_HOP_MESSAGES,
    MP_HOP_TASK_MESSAGES,
    MP_HOP_SWITCH,
    MP_HOP_ENDPOINTS
} mp_hop_endpoint;
#define MP_HOP_ALIVE "/-/alive" /* path at which each process answers at once, if it is alive */
/* The paths at which processes of the gateway serve each other; the endpoints of the configuration do not matter.
 * Requests to TASK_MESSAGES are not from clients: they have messages about tasks. */
extern const char *const mp_hop_paths[MP_HOP_ENDPOINTS];

typedef struct mp_hop {
    uint16_t to;               /* number of the process that is to serve the request */
    char uid[MP_NODE_UID + 1]; /* uid of that process, of another node; empty: it is on this machine */
    mp_hop_endpoint endpoint;
    unsigned hops;    /* hops of the request, this one included */
    uint64_t sent_ms; /* time of sending, by mp_hop_now_ms() */
    uint64_t mark;    /* mark of the request; 0: none */
    uint64_t body;    /* length of the body */
    /* session: its id, or empty; address: of the client; base: scheme and host as it sees them, or empty; principal: as
     * lua/moonpool/access/principal.lua packs it */
    mp_str method, session, address, base, principal;
    mp_str authorization; /* the header of the client's request, for upstreams that get a token of each caller; empty:
                             none */
    mp_buf room;          /* owns the texts of a hop that was read */
} mp_hop;

/* The time by CLOCK_BOOTTIME; with `nodes`, for a hop between nodes, by the clock of the cluster's server, as far as
 * this process knows it. */
uint64_t mp_hop_now_ms(const mp_nodes *MP_NULLABLE nodes);
/* Fills keys[0] with the key by which the processes of this gateway seal headers, derived from the key that they share.
 * keys[1] is zeroed: it ends the list of keys. */
void mp_hop_keys(const mp_processes *processes, mp_seal_key keys[2]);
/* Appends the value of the header; `keys`: those, or mp_processes_node_keys() if the hop has a uid, which then stands
 * before the sealed text. False if OpenSSL fails. */
bool mp_hop_write(const mp_seal_key *keys, const mp_hop *hop, mp_buf *out);
/* False if nobody who has one of the keys has sealed the value. Free the hop in any case. */
bool mp_hop_read(const mp_seal_key *keys, mp_str value, mp_hop *hop);
void mp_hop_free(mp_hop *hop);

#endif
