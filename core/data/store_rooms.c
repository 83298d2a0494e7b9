/* store_rooms.c: how a store is divided, and who has which part. What clients or scripts fill never takes the room of
 * what the gateway itself must remember: an order of the operator cannot fail for what others use up. */
#include "data/store_rooms.h"

/* -- the table ----------------------------------------------------------------------------------------------------- */

#define PREFIX(text, room, saved) {{text, sizeof(text) - 1}, MP_ROOM_##room, MP_##saved}

static const mp_store_prefix prefixes[] = {
    PREFIX("s:", SCRIPTS, SAVED),      /* the library `store`: keys belong to all scripts, without shares */
    PREFIX("lock:", SCRIPTS, UNSAVED), /* locks of scripts, which end with the processes */
    PREFIX("near ", NEAR, UNSAVED),    /* the library `store.near`, in a store of its own (mp_store_near) */
    PREFIX("l:", LIMITS, UNSAVED),     /* policies `limit`, and other rates, of principals */
    PREFIX("q:", QUOTAS, SAVED),       /* policies `quota` of principals */
    PREFIX("visitor l:", VISITOR_LIMITS,
           UNSAVED), /* rates of callers without a name, and by keys that callers choose */
    PREFIX("visitor q:", VISITOR_QUOTAS, SAVED),
    PREFIX("task:", TASKS, SAVED_WITH_SESSIONS),     /* followed by the id of a task */
    PREFIX("tasks of ", TASKS, SAVED_WITH_SESSIONS), /* followed by the owner of a task, and its id */
    PREFIX("session:", SESSIONS,
           SAVED_WITH_SESSIONS), /* followed by the id of a session, and the digits of its owner */
    /* followed by the id of a session, the numbers of an event, and the digits of the session's owner */
    PREFIX("event:", EVENTS, SAVED_WITH_SESSIONS),
    PREFIX("callers:", CALLERS, UNSAVED),  /* facts about upstreams that grow with each client, session or list */
    PREFIX("upstream:", GATEWAY, UNSAVED), /* facts about upstreams whose number the configuration bounds */
    PREFIX("job:", GATEWAY, UNSAVED),
    PREFIX("fanout:", GATEWAY, UNSAVED), /* what the messages between gateways of a cluster have said */
    PREFIX("jwt ", GATEWAY, UNSAVED),
    PREFIX("place:", GATEWAY, UNSAVED),  /* places of semaphores */
    PREFIX("switch:", GATEWAY, UNSAVED), /* switches of scripts */
    PREFIX("fence:", GATEWAY, SAVED),    /* the last fence of a lock */
    PREFIX("kept:", OPERATOR, SAVED),
    /* codes, sign-ins with the hashes of their refresh tokens, endings, waiting times */
    PREFIX("signin:", SIGN_IN, SAVED),
};

typedef struct {
    const char *name;
    int percent_entries, percent_bytes; /* of store.entries and store.bytes */
    int64_t least_entries;              /* minimum, also if the percentage of store.entries is less */
    size_t least_bytes;
    bool evicts, ranks_by_number;
    int after_owner; /* digits of a key behind those of its owner; NO_SHARES: owners have no shares of the room */
    const mp_stat *entries, *bytes, *refused;
} rule;

#define MP_ROOM_STATS(room)                                                                                            \
    MP_GAUGE(store_room_entries_##room, "store_room_entries", "room", #room, "entries in this room of the store")      \
    MP_GAUGE(store_room_bytes_##room, "store_room_bytes", "room", #room, "bytes in this room of the store")            \
    MP_COUNTER(store_room_refused_##room, "store_room_refused", "room", #room,                                         \
               "entries that this room of the store had no place for")

MP_ROOM_STATS(scripts)
MP_ROOM_STATS(near)
MP_ROOM_STATS(limits)
MP_ROOM_STATS(quotas)
MP_ROOM_STATS(visitor_limits)
MP_ROOM_STATS(visitor_quotas)
MP_ROOM_STATS(tasks)
MP_ROOM_STATS(sessions)
MP_ROOM_STATS(events)
MP_ROOM_STATS(callers)
MP_ROOM_STATS(gateway)
MP_ROOM_STATS(operator)
MP_ROOM_STATS(sign_in)

MP_COUNTER(evicted_counters, "evicted", "kind", "counters",
           "counters of limits and quotas that a full room of the store has dropped: the least used of those that "
           "expire first")
MP_COUNTER(evicted_remembered, "evicted", "kind", "remembered",
           "facts about callers of upstreams that a full room of the store has dropped: those that expire first")

#define STATS(room)                                                                                                    \
    &mp_stat_store_room_entries_##room, &mp_stat_store_room_bytes_##room, &mp_stat_store_room_refused_##room
#define KIB(n) ((size_t)(n) << 10)

#define NO_SHARES (-1)
#define AFTER_OWNER_OF_TASK 4 /* digits of the process's number, which end the id of a task (mp_id_make) */

/* sessions.max bounds the number of sessions; a client's description of itself has at most 64 KiB. One principal
 * alone may fill half of the room. */
#define SESSIONS_BYTES ((size_t)512 << 20)
/* The half that one principal may fill takes MP_REPLAY_TOTAL bytes of events, and as much for their keys, if the events
 * are short. */
#define EVENTS_BYTES ((size_t)256 << 20)

/* An operator switches off at most 1,000 things (registry.MAX_OFF), and a name and its note have less than 4 KiB. A
 * cluster also notes what was switched off and on last, 2,000 things. */
static const rule rules[MP_ROOMS] = {
    {"scripts", 80, 76, 0, 0, false, false, NO_SHARES, STATS(scripts)},
    {"near", 10, 10, 0, 0, false, false, NO_SHARES, STATS(near)},
    {"limits", 4, 2, 1000, KIB(256), true, false, NO_SHARES, STATS(limits)},
    {"quotas", 4, 2, 1000, KIB(256), true, true, NO_SHARES, STATS(quotas)},
    {"visitor_limits", 3, 1, 1000, KIB(256), true, false, NO_SHARES, STATS(visitor_limits)},
    {"visitor_quotas", 3, 1, 1000, KIB(256), true, true, NO_SHARES, STATS(visitor_quotas)},
    {"tasks", 3, 15, 100, KIB(64), false, false, AFTER_OWNER_OF_TASK, STATS(tasks)},
    {"sessions", 0, 0, 10000000, SESSIONS_BYTES, false, false, 0, STATS(sessions)},
    {"events", 0, 0, 10000000, EVENTS_BYTES, false, false, 0, STATS(events)},
    {"callers", 2, 2, 1000, KIB(256), true, false, NO_SHARES, STATS(callers)},
    {"gateway", 1, 1, 10000, KIB(4096), false, false, NO_SHARES, STATS(gateway)},
    {"operator", 0, 0, 3100, KIB(12288), false, false, NO_SHARES, STATS(operator)},
    {"sign_in", 0, 0, 0, KIB(65536), false, false, NO_SHARES, STATS(sign_in)},
};

const mp_store_prefix *mp_room_prefix(mp_str key)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (mp_str_starts(key, prefixes[i].prefix))
            return &prefixes[i];
    static const mp_store_prefix other = {{"", 0}, MP_ROOM_SCRIPTS, MP_UNSAVED};
    return &other;
}

void mp_rooms_limit(mp_room rooms[MP_ROOMS], int64_t entries, size_t bytes)
{
    for (int i = 0; i < MP_ROOMS; i++) {
        int64_t part = entries * rules[i].percent_entries / 100;
        size_t size = bytes / 100 * (size_t)rules[i].percent_bytes + bytes % 100 * (size_t)rules[i].percent_bytes / 100;
        int64_t least = i == MP_ROOM_SIGN_IN ? MP_LIMIT(store_sign_ins, 100000) : rules[i].least_entries;
        rooms[i].most_entries = part > least ? part : least;
        rooms[i].most_bytes = size > rules[i].least_bytes ? size : rules[i].least_bytes;
    }
}

double mp_rooms_fullest(const mp_room rooms[MP_ROOMS])
{
    double most = 0;
    for (int i = 0; i < MP_ROOMS; i++) {
        double by_entries = (double)rooms[i].entries / (double)(rooms[i].most_entries + 1);
        double by_bytes = (double)rooms[i].bytes / (double)(rooms[i].most_bytes + 1);
        double part = by_entries > by_bytes ? by_entries : by_bytes;
        if (!rules[i].evicts && part > most)
            most = part;
    }
    return most;
}

/* -- eviction ------------------------------------------------------------------------------------------------------ */

bool mp_room_evicts(mp_room_id id)
{
    return rules[id].evicts;
}

#define PERIOD_BITS 22 /* quotas that end within 2^22 ms of each other, 70 minutes, are ranked by their numbers */

uint64_t mp_room_rank(mp_room_id id, uint64_t until, const char *text)
{
    if (!rules[id].ranks_by_number)
        return until;
    uint64_t used = strtoull(text, NULL, 10);
    return (until >> PERIOD_BITS) << 32 | (used > UINT32_MAX ? UINT32_MAX : used);
}

void mp_room_note_evicted(mp_room_id id)
{
    mp_stat_add(id == MP_ROOM_CALLERS ? &mp_stat_evicted_remembered : &mp_stat_evicted_counters, 1);
}

/* -- shares -------------------------------------------------------------------------------------------------------- */

#define OWNER 8 /* digits of the principal in a key; `after_owner` digits of a rule follow them */

typedef struct {
    mp_node node;
    int64_t entries, bytes;
} share;

static mp_str owner_of(mp_room_id id, mp_str key)
{
    size_t last = OWNER + (size_t)rules[id].after_owner;
    return key.len < last ? key : (mp_str){key.ptr + key.len - last, OWNER};
}

/* What ends a sign-in has the last tenth of its room alone: whoever fills the rest keeps none alive. */
#define ENDINGS MP_STR("signin:ended:")
#define KEPT_FOR_ENDINGS 10

/* A principal may have at most as much as is free for all others: one alone half of the room, the next a quarter. So
 * no number of principals takes all of it. What does not grow always fits. */
bool mp_room_takes(const mp_room *room, mp_room_id id, mp_str key, int64_t entries, int64_t bytes)
{
    if (entries <= 0 && bytes <= 0)
        return true;
    int64_t most_bytes = (int64_t)room->most_bytes, free_entries = room->most_entries - room->entries - entries;
    int64_t free_bytes = most_bytes - (int64_t)room->bytes - bytes;
    if (id == MP_ROOM_SIGN_IN && !mp_str_starts(key, ENDINGS)) {
        free_entries -= room->most_entries / KEPT_FOR_ENDINGS;
        free_bytes -= most_bytes / KEPT_FOR_ENDINGS;
    }
    if ((entries > 0 && free_entries < 0) || (bytes > 0 && free_bytes < 0))
        return false;
    if (rules[id].after_owner == NO_SHARES)
        return true;
    const mp_node *node = mp_map_is_made(&room->shares) ? mp_map_find(&room->shares, owner_of(id, key)) : NULL;
    const share *own = node == NULL ? &(share){0} : mp_container(node, share, node);
    return (entries <= 0 || own->entries + entries <= free_entries) && (bytes <= 0 || own->bytes + bytes <= free_bytes);
}

static void free_share(mp_node *node, void *arg)
{
    mp_map_drop(arg, node);
    free(mp_container(node, share, node));
}

void mp_room_count(mp_room *room, mp_room_id id, mp_str key, int64_t entries, int64_t bytes)
{
    bool is_new;
    room->entries += entries;
    room->bytes += (size_t)bytes;
    mp_stat_add(rules[id].entries, entries);
    mp_stat_add(rules[id].bytes, bytes);
    if (rules[id].after_owner == NO_SHARES)
        return;
    if (!mp_map_is_made(&room->shares))
        mp_map_init(&room->shares);
    share *own = mp_map_need(&room->shares, owner_of(id, key), sizeof *own, &is_new);
    own->entries += entries;
    own->bytes += bytes;
    if (own->entries == 0)
        free_share(&own->node, &room->shares);
}

void mp_rooms_clear(mp_room rooms[MP_ROOMS])
{
    for (int i = 0; i < MP_ROOMS; i++) {
        mp_stat_add(rules[i].entries, -rooms[i].entries);
        mp_stat_add(rules[i].bytes, -(int64_t)rooms[i].bytes);
        rooms[i].entries = 0;
        rooms[i].bytes = 0;
        rooms[i].heap = MP_UNSET;
        rooms[i].heap_count = rooms[i].heap_cap = 0;
        if (!mp_map_is_made(&rooms[i].shares))
            continue;
        mp_map_each(&rooms[i].shares, free_share, &rooms[i].shares);
        mp_map_clear(&rooms[i].shares);
    }
}

/* -- events of a session ------------------------------------------------------------------------------------------- */

#define SESSION 36 /* digits of its id (MP_ID) */

mp_str mp_room_events_of(mp_room_id id, mp_str key, char to[MP_ROOM_EVENTS_OF])
{
    static const mp_str event = {"event:", sizeof "event:" - 1};
    size_t before = sizeof "session:" - 1;
    if (id != MP_ROOM_SESSIONS || key.len < before + SESSION)
        return MP_STR_NONE;
    memcpy(to, event.ptr, event.len);
    memcpy(to + event.len, key.ptr + before, SESSION);
    return (mp_str){to, event.len + SESSION};
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */

#define SAY_AGAIN_MS 60000

void mp_room_refuse(mp_room *room, mp_room_id id, uint64_t now_ms)
{
    mp_stat_add(rules[id].refused, 1);
    if (room->said_ms != 0 && now_ms - room->said_ms < SAY_AGAIN_MS)
        return;
    room->said_ms = now_ms;
    mp_log(MP_WARN, "store full", mp_log_str("room", mp_str_of(rules[id].name)), mp_log_int("entries", room->entries),
           mp_log_int("bytes", (int64_t)room->bytes), mp_log_int("most_entries", room->most_entries),
           mp_log_int("most_bytes", (int64_t)room->most_bytes),
           mp_log_str("hint", MP_STR("store.entries and store.bytes bound it: see docs/reference/limits.md")));
}
