/* revive.c: at the start of a gateway, the sessions of the processes before it are in the store (kept.c). They go on,
 * with their events, in this process. */
#include "state.h"

MP_COUNTER(kept_broken, "kept_sessions_dropped", "reason", "broken",
           "records of sessions that could not be read when the gateway started")
MP_COUNTER(kept_refused, "kept_sessions_dropped", "reason", "limit",
           "records of sessions over sessions.max or sessions.per_principal when the gateway started")

#define KEYS_AT_ONCE 1000

/* The texts of a record. */
typedef struct {
    mp_str user, peer, revision, client, capabilities, topics;
} texts;

static bool read_record(mp_str bytes, mp_kept_head *head, texts *it)
{
    unsigned char sum[MP_SHA256_BYTES];
    if (bytes.len < sizeof *head)
        return false;
    memcpy(head, bytes.ptr, sizeof *head);
    mp_sha256(mp_str_from(bytes, sizeof sum), sum);
    it->topics = mp_str_from(bytes, sizeof *head);
    return head->format == MP_KEPT_FORMAT && memcmp(sum, head->sum, sizeof sum) == 0 &&
           mp_kept_take(&it->topics, &it->user) && mp_kept_take(&it->topics, &it->peer) &&
           mp_kept_take(&it->topics, &it->revision) && mp_kept_take(&it->topics, &it->client) &&
           mp_kept_take(&it->topics, &it->capabilities);
}

/* When the session was used last, at the latest, on the loops' clock: before the machine's start it is below 0, modulo
 * 2^64, with which sums and differences are right. */
static uint64_t last_use(const mp_kept_head *head)
{
    uint64_t now = mp_monotonic_ms(), used_at = head->used_at - mp_kept_ahead();
    return (int64_t)(used_at - now) > 0 ? now : used_at;
}

/* `name`: the session's id, and its owner's digits. */
static const mp_stat *MP_NULLABLE revive(mp_session_table *table, const mp_transport *transport, mp_str name,
                                         mp_str bytes)
{
    mp_kept_head head;
    texts it;
    char room[MP_COUNTED_TEXT];
    mp_str id = {name.ptr, name.len < MP_ID ? name.len : MP_ID}, digits = mp_str_from(name, id.len);
    if (!mp_id_is(id) || digits.len != MP_KEPT_OWNER || !read_record(bytes, &head, &it))
        return &mp_stat_kept_broken;
    const mp_era *era = mp_era_find(it.revision);
    if (era == NULL || !era->has_sessions)
        return &mp_stat_kept_broken;
    uint64_t used_at = last_use(&head);
    if ((int64_t)(used_at + mp_session_table_config(table)->idle_ms - mp_monotonic_ms()) < 0)
        return &mp_stat_closed_idle;
    mp_str owner = head.has_user ? (mp_str){(const char *)head.principal, sizeof head.principal}
                                 : mp_address_counted(it.peer, room);
    mp_owner *counted = mp_session_count(table, owner, false);
    if (counted == NULL)
        return &mp_stat_kept_refused;
    mp_session *session = mp_session_add(table, &(mp_session_facts){.id = id,
                                                                    .digits = digits,
                                                                    .owner = counted,
                                                                    .transport = transport,
                                                                    .principal = head.principal,
                                                                    .user = head.has_user ? it.user : MP_STR_NONE,
                                                                    .peer = it.peer,
                                                                    .opened_at = head.opened_at - mp_kept_ahead(),
                                                                    .used_at = used_at});
    mp_session_set_client(session, era, it.client, it.capabilities);
    mp_session_set_log_level(session, head.log_level);
    mp_session_table_hooks(table)->take_topics(session, it.topics);
    session->was_revived = true;
    session->highest = head.highest;
    mp_kept_note_state(session, MP_KEPT_STORED);
    atomic_store(&session->is_revived, true);
    mp_session_unref(session);
    return NULL;
}

typedef struct {
    mp_session_table *table;
    const mp_transport *MP_NULLABLE transport; /* NULL: nothing is revived */
    mp_store *store;
    int64_t kept, broken, refused;
} revival;

static void take_record(revival *it, mp_str key)
{
    mp_scoped_buf text = {0};
    const mp_transport *transport = it->transport;
    const mp_stat *dropped = NULL;
    bool is_there = mp_store_get(it->store, key, &text) == MP_STORE_DONE;
    if (transport != NULL && is_there)
        dropped = revive(it->table, transport, mp_str_from(key, MP_KEPT_SESSION.len), mp_buf_str(&text));
    if (transport == NULL || dropped != NULL)
        mp_store_delete(it->store, key);
    if (dropped != NULL && dropped != &mp_stat_closed_idle)
        mp_stat_add(dropped, 1);
    it->kept += is_there && dropped == NULL;
    it->broken += dropped == &mp_stat_kept_broken;
    it->refused += dropped == &mp_stat_kept_refused;
}

static bool read_digits(mp_str text, uint64_t *number)
{
    char digits[MP_KEPT_DIGITS + 1] = "", *end = digits;
    if (text.len == MP_KEPT_DIGITS)
        memcpy(digits, text.ptr, MP_KEPT_DIGITS);
    *number = strtoull(digits, &end, 16);
    return end == digits + MP_KEPT_DIGITS;
}

static void take_event(revival *it, mp_str key)
{
    mp_scoped_buf text = {0};
    uint64_t feed, seq;
    mp_str rest = mp_str_from(key, MP_KEPT_EVENT.len), numbers = mp_str_from(rest, MP_ID);
    mp_session *session =
        it->transport == NULL || rest.len < MP_ID ? NULL : mp_session_of_id(it->table, (mp_str){rest.ptr, MP_ID});
    bool is_taken = session != NULL && session->event_log != NULL &&
                    numbers.len == 2 * MP_KEPT_DIGITS + MP_KEPT_OWNER &&
                    read_digits((mp_str){numbers.ptr, MP_KEPT_DIGITS}, &feed) &&
                    read_digits((mp_str){numbers.ptr + MP_KEPT_DIGITS, MP_KEPT_DIGITS}, &seq) &&
                    mp_store_get(it->store, key, &text) == MP_STORE_DONE &&
                    mp_session_table_hooks(it->table)->take_event(session, feed, seq, mp_buf_str(&text));
    if (!is_taken)
        mp_store_delete(it->store, key);
    if (session != NULL)
        mp_session_unref(session);
}

static void drop_key(revival *it, mp_str key)
{
    mp_store_delete(it->store, key);
}

/* Calls `take` for each key of the store that begins so. */
static void each_key(revival *it, mp_str prefix, void (*take)(revival *it, mp_str key))
{
    mp_scoped_buf keys = {0}, after = {0};
    int64_t count;
    do {
        keys.len = 0;
        mp_store_keys(it->store, prefix, mp_buf_str(&after), KEYS_AT_ONCE, &keys, &count);
        mp_str rest = mp_buf_str(&keys), key = MP_STR_NONE;
        while (mp_kept_take(&rest, &key))
            take(it, key);
        after.len = 0;
        mp_buf_put(&after, key);
    } while (count > 0);
}

/* The events of all sessions have been taken: writes their records as they are now. */
static void settle(mp_session_table *table)
{
    for (unsigned shard = 0; shard < MP_SESSION_PAGES; shard++) {
        mp_session_list all = {0};
        mp_session_table_take_shard(table, shard, &all);
        for (size_t i = 0; i < all.count; i++) {
            mp_session_table_hooks(table)->end_events(all.list[i], all.list[i]->highest);
            mp_session_write(all.list[i]);
            mp_session_unref(all.list[i]);
        }
        free(all.list);
    }
}

static void on_refused(void *table, mp_str key, bool is_there)
{
    mp_str id = mp_str_from(key, MP_KEPT_SESSION.len);
    mp_session *session = id.len < MP_ID ? NULL : mp_session_of_id(table, (mp_str){id.ptr, MP_ID});
    if (session == NULL)
        return;
    mp_kept_note_refused(session, key, is_there);
    mp_session_unref(session);
}

void mp_sessions_keep(mp_session_table *table, mp_store *store, const mp_transport *transport, bool keeps,
                      bool is_first)
{
    revival it = {.table = table, .transport = keeps ? transport : NULL, .store = store};
    if (keeps) {
        mp_session_table_set_kept(
            table, mp_kept_new(store, mp_session_table_hooks(table), mp_session_table_config(table)->idle_ms));
        mp_store_on_refused(store, on_refused, table);
    }
    if (is_first) {
        each_key(&it, MP_KEPT_SESSION, take_record);
        each_key(&it, MP_KEPT_EVENT, take_event);
    }
    if (is_first && !keeps) {
        each_key(&it, MP_STR("task:"), drop_key);
        each_key(&it, MP_STR("tasks of "), drop_key);
    }
    if (keeps)
        settle(table);
    /* before a client is served: should this process be killed, the next one numbers events above those of this one */
    if (it.kept > 0 && keeps)
        mp_store_await_saved(store);
    if (it.broken + it.refused > 0)
        mp_log(MP_WARN, "sessions dropped", mp_log_int("broken", it.broken), mp_log_int("over_limit", it.refused),
               mp_log_str("hint", MP_STR("records of an earlier process that are broken, or that sessions.max and "
                                         "sessions.per_principal do not allow: their clients initialize again")));
    if (it.kept > 0 && keeps)
        mp_log(MP_INFO, "sessions revived", mp_log_int("sessions", it.kept));
}
