/* processes.h: the processes that one gateway consists of; part of the public header rpc.h. There is one, until an
 * upgrade: then the newest, and older ones that serve the sessions which they opened until these have ended. Each has a
 * number, which the ids of its sessions and tasks carry: 36 hex digits, of which 32 are random and 4 are the number,
 * masked by a keyed hash of the others, so that an id tells nothing to those who do not have the key.
 *
 * All functions may be called on any thread but for new, join, and free. */
#ifndef MP_RPC_PROCESSES_H
#define MP_RPC_PROCESSES_H

#include "places.h"

#define MP_OLDER_MOST 32 /* older processes that may live at once */
#define MP_ID 36         /* hex digits of the id of a session or task */
#define MP_ID_RANDOM 32  /* of them are random, and come first: 128 bits */
#define MP_PROCESS_KEY 16
#define MP_PROCESS_PATH 108 /* bytes of the path of a Unix socket, with its zero byte */

typedef struct {
    uint16_t number;
    int pid;
    char version[64]; /* longer ones are cut */
    int64_t since;    /* Unix seconds when it began */
} mp_process_facts;

typedef struct mp_processes mp_processes;

mp_processes *mp_processes_new(void); /* This process alone, with a random number and a random key. */
void mp_processes_free(mp_processes *processes);
/* At the start of a process that an upgrade has begun: the key, the folder and the living processes come from the one
 * before it. Takes another random number. Before other threads use `processes`. */
void mp_processes_join(mp_processes *processes, const unsigned char key[MP_PROCESS_KEY], const char *folder,
                       const mp_process_facts *others, int count);
mp_places *mp_processes_places(const mp_processes *processes); /* The places that these processes count together. */
uint16_t mp_processes_number(const mp_processes *processes);
const unsigned char *mp_processes_key(const mp_processes *processes);
/* The folder of the sockets by which processes reach each other: at the first upgrade, by the older one. Once. */
void mp_processes_set_folder(mp_processes *processes, const char *folder);
/* NULL: there was no upgrade. Valid as long as `processes`. */
const char *MP_NULLABLE mp_processes_folder(const mp_processes *processes);
/* A process that starts, and is added once it serves: its ids are its own from now on. One at a time; adding or
 * removing it ends that. */
void mp_processes_expect(mp_processes *processes, uint16_t number);
/* Another process lives, or has ended. Adding one above MP_OLDER_MOST, or one that is known, does nothing. */
void mp_processes_add(mp_processes *processes, const mp_process_facts *other);
void mp_processes_remove(mp_processes *processes, uint16_t number);
/* All living others. Returns their number. */
int mp_processes_list(const mp_processes *processes, mp_process_facts others[MP_OLDER_MOST + 1]);
/* The number of the living other process that began first; 0: there is none. It may have sessions of processes before
 * it, whose ids carry other numbers, masked by other keys. */
uint16_t mp_processes_oldest(const mp_processes *processes);
/* True if another process with this number lives, or is expected. */
bool mp_processes_has(const mp_processes *processes, uint16_t number);
/* Records the answer to the question whether the process with this number is alive, which was asked at `asked_ms`
 * (mp_monotonic_ms); all workers share it. A missing answer is ignored if a later question was answered. True if the
 * process has just become silent. */
bool mp_processes_note_heard(mp_processes *processes, uint16_t number, uint64_t asked_ms, bool has_answered);
/* When the process with this number last answered that question, or 0; `*is_silent`: it did not answer the last one. */
uint64_t mp_processes_heard(const mp_processes *processes, uint16_t number, bool *is_silent);
/* False while there is no other process, and none is expected: two loads. */
bool mp_processes_are_several(const mp_processes *processes);
/* The process to which new sessions go: after the commit of an upgrade. At first its own number. */
void mp_processes_set_newest(mp_processes *processes, uint16_t number);
uint16_t mp_processes_newest(const mp_processes *processes);
bool mp_processes_is_newest(const mp_processes *processes);
/* FOLDER/NUMBER.KIND.sock, where `kind` is "mcp", "store" or "admin". False if there is no folder, or a Unix socket
 * cannot have a path that long. */
bool mp_processes_path(const mp_processes *processes, uint16_t number, const char *kind, char path[MP_PROCESS_PATH]);

/* Writes a new id of a session or task of this process. With an owner (ptr is not NULL), 8 of its digits say who that
 * is: the store counts by them what an owner has (store_rooms.c). 96 bits are random still. */
void mp_id_make(const mp_processes *processes, mp_str owner, char id[MP_ID + 1]);
bool mp_id_is(mp_str id); /* True if `id` is 36 hex digits in lower case. */
/* The number of the process that made the id; mp_id_is() must be true for it. For an id that no process made, any
 * number. */
uint16_t mp_id_number(const mp_processes *processes, mp_str id);

#endif
