/* store_rooms.h: the rooms of a store. Each key belongs to one room, by its prefix; what fills one room takes nothing
 * from another. The table in store_rooms.c is the one list of the prefixes that the gateway's keys have. */
#ifndef MP_DATA_STORE_ROOMS_H
#define MP_DATA_STORE_ROOMS_H

#include "telemetry/telemetry.h"

struct entry;

/* The rooms, in the order of the table in store_rooms.c. */
typedef enum {
    MP_ROOM_SCRIPTS,
    MP_ROOM_NEAR,
    MP_ROOM_LIMITS,
    MP_ROOM_QUOTAS,
    MP_ROOM_VISITOR_LIMITS,
    MP_ROOM_VISITOR_QUOTAS,
    MP_ROOM_TASKS,
    MP_ROOM_SESSIONS,
    MP_ROOM_EVENTS,
    MP_ROOM_CALLERS,
    MP_ROOM_GATEWAY,
    MP_ROOM_OPERATOR,
    MP_ROOM_SIGN_IN,
    MP_ROOMS
} mp_room_id;

typedef struct {
    mp_str prefix;
    mp_room_id room;
    enum { MP_UNSAVED, MP_SAVED, MP_SAVED_WITH_SESSIONS } saved; /* whether the store's file has such keys */
} mp_store_prefix;

/* What one room holds. Guarded by the store's lock. */
typedef struct {
    int64_t most_entries, entries;
    size_t most_bytes, bytes;
    struct entry **heap; /* the entries that expire, by their rank */
    size_t heap_count, heap_cap;
    mp_map shares;    /* of a room with shares: what each principal has in it */
    uint64_t said_ms; /* when a refusal was last logged; 0: never */
} mp_room;

/* The row of the table for a key; keys of no listed prefix are treated as scripts' data. */
const mp_store_prefix *mp_room_prefix(mp_str key);
/* Sets the limits of all rooms, from those of the whole store. */
void mp_rooms_limit(mp_room rooms[MP_ROOMS], int64_t entries, size_t bytes);
/* The part that is in use of the fullest room that drops nothing. */
double mp_rooms_fullest(const mp_room rooms[MP_ROOMS]);
/* True if a full room drops the entry of the lowest rank to take a new one. */
bool mp_room_evicts(mp_room_id id);
/* The order in which a room drops entries, lowest first, of an entry that expires at `until`. Of counters of quotas
 * those go first that expire first, and among them the least used. */
uint64_t mp_room_rank(mp_room_id id, uint64_t until, const char *text);
/* True if the room, and in it the share of the key's principal, takes so much more. */
bool mp_room_takes(const mp_room *room, mp_room_id id, mp_str key, int64_t entries, int64_t bytes);
/* Counts what an entry with this key adds to the room. */
void mp_room_count(mp_room *room, mp_room_id id, mp_str key, int64_t entries, int64_t bytes);
/* Counts and logs that the room was full and has refused an entry. */
void mp_room_refuse(mp_room *room, mp_room_id id, uint64_t now_ms);
void mp_room_note_evicted(mp_room_id id);
/* If the key is that of a session's record, what the keys of its events begin with, written to `to`; else empty. Events
 * are deleted with the record. */
#define MP_ROOM_EVENTS_OF 64
mp_str mp_room_events_of(mp_room_id id, mp_str key, char to[MP_ROOM_EVENTS_OF]);
/* The rooms are empty: returns the memory of their shares. The heaps are the caller's. */
void mp_rooms_clear(mp_room rooms[MP_ROOMS]);

#endif
