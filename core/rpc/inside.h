/* inside.h: what only the folders of this module ask of its processes and their ids. */
#ifndef MP_RPC_INSIDE_H
#define MP_RPC_INSIDE_H

#include "base/base.h"

typedef struct mp_processes mp_processes;

/* The number of the first process, which no upgrade has begun; 0: it has ended, or is this one. Only it may have
 * revived sessions, whose ids carry other numbers, masked by other keys. */
uint16_t mp_processes_first(const mp_processes *processes);
/* Records the answer to the question whether the process with this number is alive, which was asked at `asked_ms`
 * (mp_monotonic_ms); all workers share it. A missing answer is ignored if a later question was answered. True if the
 * process has just become silent. */
bool mp_processes_note_heard(mp_processes *processes, uint16_t number, uint64_t asked_ms, bool has_answered);
/* When the process with this number last answered that question, or 0; `*is_silent`: it did not answer the last one. */
uint64_t mp_processes_heard(const mp_processes *processes, uint16_t number, bool *is_silent);

#define MP_ID_RANDOM 32 /* of the 36 digits of an id are random, and come first: 128 bits */

/* Writes a new id of a session or task of this process. With an owner (ptr is not NULL), 8 of its digits say who that
 * is: the store counts by them what an owner has (store_rooms.c). 96 bits are random still. `id`: MP_ID bytes and a
 * zero byte. */
void mp_id_make(const mp_processes *processes, mp_str owner, char id[37]);
/* True if `id` is 36 hex digits in lower case. */
bool mp_id_is(mp_str id);
/* The number of the process that made the id; mp_id_is() must be true for it. For an id that no process made, any
 * number. Of several keys the first counts by which the id has the number of a process that is known. */
uint16_t mp_id_number(const mp_processes *processes, mp_str id);
/* The numbers that an id of another node may have, by each of the seal keys. Returns how many. */
int mp_id_numbers(const mp_processes *processes, mp_str id, uint16_t numbers[MP_SEAL_KEYS]);

#endif
