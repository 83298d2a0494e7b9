/* kept.c: sessions of Streamable HTTP that survive a restart. Each has a record in the store, which saves it to its
 * file: what `initialize` agreed, the owner, the log level and the topics. A process that starts revives the sessions
 * that it finds there (revive.c).
 *
 * A record says of its session that it was used a quarter of sessions.idle later than it was: so it is written again
 * only when the session is used after that, and no session ends early. That of a revived session which nobody has used
 * says no such thing: restarts do not prolong it. The sweep writes what has changed, twice a second. */
#include "state.h"

MP_COUNTER(kept_unsaved, "kept_sessions_unsaved", "", "",
           "records of sessions that the store did not take: tried again later")
MP_GAUGE(kept_left_out, "kept_sessions_left_out", "", "",
         "sessions that end with the process, though sessions are kept: the store has no place for their records")
MP_GAUGE(kept_behind, "kept_sessions_behind", "", "", "sessions whose record in the store has older facts")

#define PARTS 4                       /* a record covers the uses in this part of sessions.idle */
#define MAX_BYTES ((size_t)256 << 10) /* of a record: 1,024 topics with usual names. A larger one is not kept */
#define SWEPT_MS 500                  /* ms in which each session is looked at */
#define AGAIN_MS 10000                /* ms until a record is tried again that the store did not take */

mp_kept *mp_kept_new(mp_store *store, const mp_session_hooks *hooks, uint64_t idle_ms)
{
    mp_kept *kept = mp_new(sizeof *kept);
    kept->store = store;
    kept->hooks = hooks;
    atomic_init(&kept->idle_ms, idle_ms);
    pthread_mutex_init(&kept->lock, NULL);
    return kept;
}

void mp_kept_free(mp_kept *MP_NULLABLE kept)
{
    if (kept == NULL)
        return;
    mp_store_on_refused(kept->store, NULL, NULL);
    pthread_mutex_destroy(&kept->lock);
    free(kept);
}

void mp_kept_put(mp_buf *out, mp_str text)
{
    uint32_t len = (uint32_t)text.len;
    mp_buf_put(out, (mp_str){(const char *)&len, sizeof len});
    mp_buf_put(out, text);
}

bool mp_kept_take(mp_str *rest, mp_str *text)
{
    uint32_t len;
    if (rest->len < sizeof len)
        return false;
    memcpy(&len, rest->ptr, sizeof len);
    *rest = mp_str_from(*rest, sizeof len);
    if (len > rest->len)
        return false;
    *text = (mp_str){rest->ptr, len};
    *rest = mp_str_from(*rest, len);
    return true;
}

uint64_t mp_kept_ahead(void)
{
    return mp_clock_ms(CLOCK_REALTIME) - mp_monotonic_ms();
}

static void put_key(mp_buf *out, const mp_session *session)
{
    mp_buf_put(out, MP_KEPT_SESSION);
    mp_buf_put(out, session->node.key);
    mp_buf_put(out, mp_str_of(session->owner_digits));
}

void mp_kept_take_in(mp_session *session, mp_kept *MP_NULLABLE kept, mp_str digits, mp_str owner)
{
    unsigned char hash[MP_SHA256_BYTES];
    session->kept = kept;
    if (kept == NULL)
        return;
    if (digits.len == MP_KEPT_OWNER) {
        memcpy(session->owner_digits, digits.ptr, MP_KEPT_OWNER);
    } else {
        mp_sha256(owner, hash);
        mp_hex_put(session->owner_digits, hash, MP_KEPT_OWNER / 2);
    }
}

/* -- records ------------------------------------------------------------------------------------------------------- */

static void put_record(const mp_kept *kept, mp_session *session, uint64_t used_at, mp_buf *out)
{
    uint64_t ahead = mp_kept_ahead();
    mp_kept_head head = {.opened_at = session->opened_at + ahead,
                         .used_at = used_at + ahead,
                         .highest = atomic_load_explicit(&session->log.highest, memory_order_relaxed),
                         .format = MP_KEPT_FORMAT,
                         .log_level = atomic_load_explicit(&session->log_level, memory_order_relaxed),
                         .has_user = session->user != NULL};
    const mp_client_info *info = atomic_load(&session->client_info);
    atomic_store_explicit(&session->kept_highest, head.highest, memory_order_relaxed);
    memcpy(head.principal, session->principal, sizeof head.principal);
    mp_buf_put(out, (mp_str){(const char *)&head, sizeof head});
    mp_kept_put(out, mp_str_of(session->user == NULL ? "" : session->user));
    mp_kept_put(out, mp_str_of(session->peer));
    mp_kept_put(out, mp_str_of(info == NULL ? "" : info->era->date));
    mp_kept_put(out, info == NULL ? MP_STR_NONE : info->client);
    mp_kept_put(out, info == NULL ? MP_STR_NONE : info->capabilities);
    kept->hooks->put_topics(session, out);
    mp_sha256(mp_str_from(mp_buf_str(out), sizeof head.sum), (unsigned char *)out->ptr);
}

static void set_changed(mp_session *session, bool is_changed)
{
    if (atomic_exchange(&session->is_changed, is_changed) != is_changed)
        mp_stat_add(&mp_stat_kept_behind, is_changed ? 1 : -1);
}

void mp_kept_note_state(mp_session *session, mp_kept_state state)
{
    int before = atomic_exchange(&session->record, (int)state);
    mp_stat_add(&mp_stat_kept_left_out, (state == MP_KEPT_LEFT_OUT) - (before == MP_KEPT_LEFT_OUT));
}

static void try_later(mp_session *session)
{
    atomic_store(&session->kept_again_at, mp_monotonic_ms() + AGAIN_MS);
    mp_session_keep(session);
    mp_stat_add(&mp_stat_kept_unsaved, 1);
}

void mp_kept_note_refused(mp_session *session, mp_str key, bool is_there)
{
    mp_kept *kept = MP_NEVER_NULL(session->kept);
    MP_LOCKED(&kept->lock);
    if (!is_there && atomic_load(&session->record) == MP_KEPT_STORED) {
        mp_kept_note_state(session, MP_KEPT_LEFT_OUT);
        mp_store_post(kept->store, key, MP_STR_NONE, 0); /* deletes its events */
    }
    try_later(session);
}

/* A closed session's record is removed under the same lock. */
static void write_record(mp_kept *kept, mp_session *session)
{
    mp_scoped_buf key = {0}, text = {0};
    uint64_t now = mp_monotonic_ms(), idle_ms = atomic_load(&kept->idle_ms);
    MP_LOCKED(&kept->lock);
    pthread_mutex_lock(&session->lock);
    bool is_closed = session->closed;
    pthread_mutex_unlock(&session->lock);
    uint64_t used_at =
        mp_session_is_in_use(session) ? now : atomic_load_explicit(&session->used_at, memory_order_relaxed);
    uint64_t covered = used_at + (atomic_load(&session->is_revived) ? 0 : idle_ms / PARTS + SWEPT_MS);
    if (is_closed || (int64_t)(used_at + idle_ms - now) < 0)
        return;
    set_changed(session, false); /* before the facts are read */
    put_key(&key, session);
    put_record(kept, session, covered, &text);
    bool fits = text.len <= MAX_BYTES;
    bool is_taken = fits && mp_store_post(kept->store, mp_buf_str(&key), mp_buf_str(&text),
                                          covered + idle_ms - now + 1) == MP_STORE_DONE;
    if (!fits)
        mp_store_post(kept->store, mp_buf_str(&key), MP_STR_NONE, 0);
    atomic_store(&session->covered_until, covered);
    if (is_taken || !fits || atomic_load(&session->record) == MP_KEPT_NONE)
        mp_kept_note_state(session, is_taken ? MP_KEPT_STORED : MP_KEPT_LEFT_OUT);
    if (!is_taken)
        try_later(session);
}

void mp_session_write(mp_session *session)
{
    mp_kept *kept = session->kept;
    if (kept != NULL)
        write_record(kept, session);
}

bool mp_session_is_kept(const mp_session *session)
{
    return session->kept != NULL;
}

void mp_session_settle(mp_session *session, mp_loop *loop, void (*deliver)(void *ctx, mp_loop *MP_NULLABLE), void *ctx)
{
    mp_kept *kept = MP_NEVER_NULL(session->kept);
    write_record(kept, session);
    mp_store_when_saved(kept->store, loop, deliver, ctx);
    mp_store_send_outgoing(kept->store, loop);
}

void mp_session_keep(mp_session *session)
{
    if (atomic_load_explicit(&session->covered_until, memory_order_relaxed) == 0)
        return;
    MP_LOCKED(&session->lock);
    if (!session->closed)
        set_changed(session, true);
}

void mp_session_note_revived(mp_session *session)
{
    if (!atomic_exchange(&session->is_revived, false))
        return;
    mp_session_keep(session);
    mp_log(MP_INFO, "session goes on", mp_log_str("session", mp_str_of(mp_session_mark_of(session->node.key).text)),
           mp_log_str("why", MP_STR("an earlier process opened it; its channels to upstreams are opened anew")));
}

static bool is_after(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) > 0;
}

bool mp_session_is_to_be_kept(mp_session *session, uint64_t now)
{
    uint64_t until = atomic_load_explicit(&session->covered_until, memory_order_relaxed);
    if (until == 0 || is_after(atomic_load_explicit(&session->kept_again_at, memory_order_relaxed), now))
        return false;
    uint64_t highest = atomic_load_explicit(&session->log.highest, memory_order_relaxed);
    if (atomic_load_explicit(&session->is_changed, memory_order_relaxed) ||
        highest - atomic_load_explicit(&session->kept_highest, memory_order_relaxed) >= MP_KEPT_JUMP / 2)
        return true;
    uint64_t used_at = atomic_load_explicit(&session->used_at, memory_order_relaxed);
    return is_after(now + SWEPT_MS, until) && (is_after(used_at + SWEPT_MS, until) || mp_session_is_in_use(session));
}

void mp_session_forget(mp_session *session, bool is_for_good)
{
    mp_scoped_buf key = {0};
    mp_kept *kept = session->kept;
    set_changed(session, false); /* it is closed, and stays so */
    if (kept == NULL)
        return;
    put_key(&key, session);
    MP_LOCKED(&kept->lock);
    if (atomic_load(&session->record) != MP_KEPT_NONE && (is_for_good || atomic_load(&kept->ends_all)))
        mp_store_post(kept->store, mp_buf_str(&key), MP_STR_NONE, 0);
    mp_kept_note_state(session, MP_KEPT_NONE);
}

/* -- events -------------------------------------------------------------------------------------------------------- */

bool mp_kept_has_events(const mp_session *session)
{
    return session->kept != NULL && !session->log.is_unsaved &&
           atomic_load(&((mp_session *)(uintptr_t)session)->record) == MP_KEPT_STORED;
}

static void put_event_key(mp_buf *out, const mp_session *session, uint64_t feed, uint64_t seq)
{
    mp_buf_put(out, MP_KEPT_EVENT);
    mp_buf_put(out, session->node.key);
    mp_buf_printf(out, "%016llx%016llx%s", (unsigned long long)feed, (unsigned long long)seq, session->owner_digits);
}

void mp_kept_set_event(const mp_session *session, uint64_t feed, uint64_t seq, mp_str text)
{
    mp_scoped_buf key = {0};
    if (!mp_kept_has_events(session))
        return;
    put_event_key(&key, session, feed, seq);
    mp_store_post(MP_NEVER_NULL(session->kept)->store, mp_buf_str(&key), text, MP_STORE_FOREVER);
}

void mp_kept_drop_event(const mp_session *session, uint64_t feed, uint64_t seq)
{
    mp_scoped_buf key = {0};
    if (!mp_kept_has_events(session))
        return;
    put_event_key(&key, session, feed, seq);
    mp_store_post(MP_NEVER_NULL(session->kept)->store, mp_buf_str(&key), MP_STR_NONE, 0);
}
