/* processes.h: the processes that one gateway consists of; part of the public header rpc.h. There is one, until an
 * upgrade: then the newest, and older ones that serve the sessions which they opened until these have ended. Each has a
 * number, which the ids of its sessions and tasks carry: 36 hex digits, of which 32 are random and 4 are the number,
 * masked by a keyed hash of the others, so that an id tells nothing to those who do not have the key.
 * Of a cluster, they are one node. All functions may be called on any thread but for new, join, set_nodes, and free. */
#ifndef MP_RPC_PROCESSES_H
#define MP_RPC_PROCESSES_H

#include "data/data.h"
#include "nodes/nodes.h"
#include "places.h"

#define MP_ID 36 /* hex digits of the id of a session or task */
#define MP_PROCESS_KEY 16
#define MP_PROCESS_PATH 108 /* bytes of the path of a Unix socket, with its zero byte */

typedef struct {
    uint16_t number;
    int pid;
    char version[64]; /* longer ones are cut */
    int64_t since;    /* Unix seconds when it began */
    int64_t order;    /* 1: no upgrade has begun it. Each that an upgrade begins has one more than the one before it */
} mp_process_facts;

typedef struct mp_processes mp_processes;

mp_processes *mp_processes_new(void); /* this process alone, with a random number and a random key */
void mp_processes_free(mp_processes *processes);
/* At the start of a process that an upgrade has begun: the key, the folder and the living processes come from the one
 * before it. Takes another random number. Before other threads use `processes`. */
void mp_processes_join(mp_processes *processes, const unsigned char key[MP_PROCESS_KEY], const char *folder,
                       const mp_process_facts *others, int count);
mp_places *mp_processes_places(const mp_processes *processes);
uint16_t mp_processes_number(const mp_processes *processes);
/* Takes another number. False: other processes of this gateway know this one by its number. */
bool mp_processes_renumber(mp_processes *processes);
/* Owns `nodes` from now on. `tls`: of connections with other nodes; borrowed. */
void mp_processes_set_nodes(mp_processes *processes, mp_nodes *nodes, mp_tls_slot *MP_NULLABLE tls);
mp_tls_slot *MP_NULLABLE mp_processes_tls(const mp_processes *processes);
mp_nodes *MP_NULLABLE mp_processes_nodes(const mp_processes *processes); /* of the cluster; NULL: there is none */
const unsigned char *mp_processes_key(const mp_processes *processes);
/* Ids, and headers between nodes, have keys that follow from these: the first is for new ones. Main thread. */
void mp_processes_use_seal_keys(mp_processes *processes, const mp_seal_key *seal_keys);
const mp_seal_key *MP_NULLABLE mp_processes_node_keys(const mp_processes *processes); /* of those headers; NULL: none */
/* The folder of the sockets by which processes reach each other: at the first upgrade, by the older one. Once. */
void mp_processes_set_folder(mp_processes *processes, const char *folder);
const char *MP_NULLABLE mp_processes_folder(const mp_processes *processes); /* NULL: there was no upgrade */
/* A process that starts, and is added once it serves: its ids are its own from now on. One at a time; adding or
 * removing it ends that. */
void mp_processes_expect(mp_processes *processes, uint16_t number);
/* Another process lives, or has ended. Adding one above MP_OLDER_MOST, or one that is known, does nothing. */
void mp_processes_add(mp_processes *processes, const mp_process_facts *other);
void mp_processes_remove(mp_processes *processes, uint16_t number);
int mp_processes_list(const mp_processes *processes, mp_process_facts others[MP_OLDER_MOST + 1]); /* how many live */
bool mp_processes_has(const mp_processes *processes, uint16_t number); /* another one, which lives or is expected */
bool mp_processes_are_several(const mp_processes *processes);          /* others live, or one is expected: two loads */
/* The process to which new sessions go: after the commit of an upgrade. At first its own number. */
void mp_processes_set_newest(mp_processes *processes, uint16_t number);
uint16_t mp_processes_newest(const mp_processes *processes);
bool mp_processes_is_newest(const mp_processes *processes);
/* FOLDER/NUMBER.KIND.sock, where `kind` is "mcp", "store" or "admin". False if there is no folder, or a Unix socket
 * cannot have a path that long. */
bool mp_processes_path(const mp_processes *processes, uint16_t number, const char *kind, char path[MP_PROCESS_PATH]);

#endif
