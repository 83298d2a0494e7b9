/* event_log.c: events kept for Streamable HTTP clients that lost a connection and resume with Last-Event-ID (S-27 to
 * S-31). One lock guards the events of all sessions, so that a new event can replace the oldest event of the
 * process. The lock is taken last, and for a short time. */
#include "stream.h"

/* bytes of the stored events of one session; above them the oldest events are dropped */
#define MAX_BYTES MP_LIMIT(replay_bytes, 1 << 20)

MP_GAUGE(replay_bytes, "replay_bytes", "", "",
         "bytes of events stored for clients that resume a stream, and of the ids of their calls")
MP_COUNTER(dropped_replay, "dropped", "reason", "replay",
           "events not stored for resuming: too large, or over the total")

struct mp_event_log {
    const mp_rpc_config *_Atomic config;
    pthread_mutex_t lock;
    mp_link events; /* events of all sessions, oldest first */
    size_t bytes;
};

typedef struct {
    mp_link in_all, in_session;
    mp_feed *feed;
    uint64_t seq;
    size_t len;
    char json[];
} event;

mp_event_log *MP_NULLABLE mp_event_log_new(const mp_rpc_config *config)
{
    if (config->replay_events == 0)
        return NULL;
    mp_event_log *log = mp_new(sizeof *log);
    atomic_init(&log->config, config);
    pthread_mutex_init(&log->lock, NULL);
    return log;
}

void mp_event_log_configure(mp_event_log *MP_NULLABLE log, const mp_rpc_config *config)
{
    if (log != NULL)
        atomic_store(&log->config, config);
}

void mp_event_log_free(mp_event_log *MP_NULLABLE log)
{
    if (log == NULL)
        return;
    pthread_mutex_destroy(&log->lock);
    free(log);
}

/* What the store has of a feed, as its event 0. The id of its call follows. */
typedef struct {
    uint64_t lost, base;
    uint64_t is_over;
} head;

static void raise_to(uint64_t *number, uint64_t least)
{
    if (*number < least)
        *number = least;
}

static void save_feed(const mp_feed *feed)
{
    mp_scoped_buf text = {0};
    const head it = {feed->lost, feed->base, feed->is_over};
    if (!mp_kept_has_events(feed->session))
        return;
    mp_buf_put(&text, (mp_str){(const char *)&it, sizeof it});
    mp_buf_put(&text, (mp_str){feed->call, feed->call_len});
    mp_kept_set_event(feed->session, feed->number, 0, mp_buf_str(&text));
}

static void free_if_done(mp_feed *feed)
{
    if (feed->refs > 0 || feed->events > 0)
        return;
    mp_kept_drop_event(feed->session, feed->number, 0);
    mp_link_drop(&feed->link);
    mp_stat_add(&mp_stat_replay_bytes, -(int64_t)feed->call_len);
    mp_slab_free(feed, sizeof *feed + feed->call_len);
}

/* Notes that a feed, or an event of the session's own feed, got this number. The caller has the log's lock. */
static void note_number(mp_session_log *log, uint64_t number)
{
    if (number > atomic_load_explicit(&log->highest, memory_order_relaxed))
        atomic_store_explicit(&log->highest, number, memory_order_relaxed);
}

/* `call`: the id of its call; kept for a process that revives the session. */
static mp_feed *add_feed(mp_session *session, mp_event_log *log, mp_str call)
{
    size_t len = mp_kept_has_events(session) ? call.len : 0;
    mp_feed *feed = mp_slab_new(sizeof *feed + len);
    feed->session = session;
    feed->log = log;
    feed->refs = 1;
    feed->call_len = len;
    if (len > 0)
        memcpy(feed->call, call.ptr, len);
    mp_stat_add(&mp_stat_replay_bytes, (int64_t)len);
    mp_link_put(&session->log.feeds, &feed->link);
    return feed;
}

mp_feed *mp_feed_new(mp_session *session, mp_event_log *log)
{
    MP_LOCKED(&log->lock);
    mp_feed *feed = add_feed(session, log, MP_STR_NONE);
    feed->last = feed->base = feed->lost = session->log.base; /* those of an earlier process may be lost */
    save_feed(feed);
    return feed;
}

mp_feed *mp_feed_new_of_call(mp_session *session, mp_event_log *log, const mp_feed_call *call)
{
    MP_LOCKED(&log->lock);
    mp_feed *feed = add_feed(session, log, call->id);
    feed->number = ++session->log.last_number;
    note_number(&session->log, feed->number);
    feed->rpc = call->rpc;
    feed->serial = call->serial;
    feed->on_resumed = call->on_resumed;
    save_feed(feed);
    return feed;
}

void mp_feed_end(mp_feed *feed)
{
    MP_LOCKED(&feed->log->lock);
    feed->is_over = true;
    save_feed(feed);
}

void mp_feed_ref(mp_feed *feed)
{
    MP_LOCKED(&feed->log->lock);
    feed->refs++;
}

void mp_feed_unref(mp_feed *feed)
{
    mp_event_log *log = feed->log;
    MP_LOCKED(&log->lock);
    feed->refs--;
    free_if_done(feed);
}

static size_t size_of_event(const event *it)
{
    return sizeof *it + it->len;
}

static void drop_event(mp_event_log *log, event *it)
{
    mp_feed *feed = it->feed;
    mp_session_log *own = &feed->session->log;
    mp_link_drop(&it->in_all);
    mp_link_drop(&it->in_session);
    log->bytes -= size_of_event(it);
    own->bytes -= size_of_event(it);
    own->count--;
    mp_stat_add(&mp_stat_replay_bytes, -(int64_t)size_of_event(it));
    raise_to(&feed->lost, it->seq);
    feed->events--;
    mp_kept_drop_event(feed->session, feed->number, it->seq);
    save_feed(feed);
    free_if_done(feed);
    mp_slab_free(it, size_of_event(it));
}

static event *first_of(mp_session *session)
{
    return mp_container(session->log.events.next, event, in_session);
}

static event *make_event(mp_feed *feed, uint64_t seq, mp_str json)
{
    event *it = mp_slab_new(sizeof *it + json.len);
    it->feed = feed;
    it->seq = seq;
    it->len = json.len;
    memcpy(it->json, json.ptr, json.len);
    return it;
}

/* The caller has the log's lock, and a reference to the feed. */
static void add_event(mp_feed *feed, event *it)
{
    mp_session *session = feed->session;
    mp_event_log *log = feed->log;
    mp_session_log *own = &session->log;
    const mp_rpc_config *config = atomic_load(&log->config);
    size_t size = size_of_event(it), most = (size_t)MAX_BYTES;
    while (own->count >= config->replay_events || own->bytes + size > most)
        drop_event(log, first_of(session));
    while (log->bytes + size > (size_t)MP_REPLAY_TOTAL) {
        drop_event(log, mp_container(log->events.next, event, in_all));
        mp_stat_add(&mp_stat_dropped_replay, 1);
    }
    mp_link_put(&log->events, &it->in_all);
    mp_link_put(&own->events, &it->in_session);
    feed->events++;
    own->count++;
    own->bytes += size;
    log->bytes += size;
    mp_stat_add(&mp_stat_replay_bytes, (int64_t)size);
}

bool mp_feed_put(mp_feed *feed, mp_str json)
{
    const mp_session *session = feed->session;
    uint64_t seq = ++feed->last;
    size_t size = sizeof(event) + json.len;
    bool is_kept = !session->closed && size <= (size_t)MAX_BYTES && size <= (size_t)MP_REPLAY_TOTAL;
    event *it = is_kept ? make_event(feed, seq, json) : NULL;
    MP_LOCKED(&feed->log->lock);
    if (feed->number == 0)
        note_number(&feed->session->log, seq);
    if (it != NULL) {
        add_event(feed, it);
        mp_kept_set_event(session, feed->number, seq, json);
    } else {
        feed->lost = seq;
        save_feed(feed);
        mp_stat_add(&mp_stat_dropped_replay, session->closed ? 0 : 1);
    }
    return is_kept;
}

/* Reads a number as mp_put_event_id writes it: no sign, no leading zero. */
static bool read_number(mp_str text, uint64_t *number)
{
    *number = 0;
    if (text.len == 0 || text.len > 19 || (text.len > 1 && text.ptr[0] == '0'))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        *number = *number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return true;
}

mp_feed *MP_NULLABLE mp_feed_find(mp_session *session, mp_str id, uint64_t *seq)
{
    uint64_t number;
    mp_event_log *log = session->event_log;
    if (log == NULL || session->closed || !read_number(mp_str_cut(&id, '-'), &number) || !read_number(id, seq))
        return NULL;
    mp_feed *found = NULL;
    MP_LOCKED(&log->lock);
    MP_EACH(mp_feed, feed, &session->log.feeds, link) {
        if (feed->number == number && *seq >= feed->lost && *seq <= feed->last) {
            found = feed;
            found->refs++;
            break;
        }
    }
    return found;
}

mp_feed_rest mp_feed_read(mp_feed *feed, uint64_t *seq, size_t room, mp_buf *out)
{
    mp_session *session = feed->session;
    mp_feed_rest rest = MP_FEED_ALL;
    MP_LOCKED(&feed->log->lock);
    if (*seq < feed->lost)
        rest = MP_FEED_GAP;
    for (mp_link *link = mp_link_first(&session->log.events); rest == MP_FEED_ALL && link != &session->log.events;
         link = link->next) {
        const event *it = mp_container(link, event, in_session);
        if (it->feed != feed || it->seq <= *seq)
            continue;
        if (it->len + MP_EVENT_FRAME > room) {
            rest = MP_FEED_MORE;
        } else {
            mp_put_event_id(out, feed->number, it->seq);
            mp_put_event(out, (mp_str){it->json, it->len});
            room -= it->len + MP_EVENT_FRAME;
            *seq = it->seq;
        }
    }
    return rest;
}

void mp_event_log_forget(mp_session *session)
{
    mp_event_log *log = session->event_log;
    if (log == NULL)
        return;
    MP_LOCKED(&log->lock);
    session->log.is_unsaved = true;
    while (session->log.count > 0)
        drop_event(log, first_of(session));
}

/* -- sessions of earlier processes --------------------------------------------------------------------------------- */

static mp_feed *MP_NULLABLE feed_of(mp_session *session, uint64_t number)
{
    MP_EACH(mp_feed, feed, &session->log.feeds, link) {
        if (feed->number == number)
            return feed;
    }
    return NULL;
}

/* The last event of the feed that is kept, or that is known to be dropped. Events of a feed are revived one after
 * another. */
static uint64_t last_kept(const mp_feed *feed)
{
    if (feed->events == 0)
        return feed->lost;
    const event *last = mp_container(feed->session->log.events.prev, event, in_session);
    return last->feed == feed && last->seq > feed->lost ? last->seq : feed->lost;
}

/* Event 0 of a feed comes first, then its events in their order. */
bool mp_feed_revive(mp_session *session, uint64_t number, uint64_t seq, mp_str text)
{
    mp_event_log *log = session->event_log;
    head it;
    if (log == NULL || (seq == 0 && text.len < sizeof it))
        return false;
    bool is_taken = true;
    MP_LOCKED(&log->lock);
    mp_feed *feed = feed_of(session, number);
    if (seq == 0 && feed == NULL) {
        memcpy(&it, text.ptr, sizeof it);
        feed = add_feed(session, log, mp_str_from(text, sizeof it));
        feed->number = number;
        feed->lost = it.lost;
        feed->is_over = it.is_over != 0;
        feed->last = it.base;
        raise_to(&feed->last, it.lost);
        if (number > session->log.last_number)
            session->log.last_number = number;
    } else if (feed != NULL && text.len + sizeof(event) <= (size_t)MAX_BYTES) {
        uint64_t step = seq - last_kept(feed);
        if (step > 1 && step < MP_KEPT_JUMP) /* one between was not saved */
            raise_to(&feed->lost, seq - 1);
        add_event(feed, make_event(feed, seq, text));
        raise_to(&feed->last, seq);
    } else {
        is_taken = false;
    }
    return is_taken;
}

/* A call that ran when its process ended gets an error in the place of its answer. */
static void end_revived(mp_feed *feed)
{
    mp_scoped_buf error = {0};
    mp_put_error(&error, (mp_str){feed->call, feed->call_len}, MP_CODE_INTERNAL,
                 MP_STR("the gateway was restarted; the call may have run"), MP_STR_NONE);
    add_event(feed, make_event(feed, feed->last, mp_buf_str(&error)));
    mp_kept_set_event(feed->session, feed->number, feed->last, mp_buf_str(&error));
    feed->is_over = true;
}

void mp_feeds_revived(mp_session *session, uint64_t highest)
{
    mp_event_log *log = session->event_log;
    if (log == NULL) { /* a later process may keep events again */
        atomic_store(&session->log.highest, highest);
        return;
    }
    MP_LOCKED(&log->lock);
    MP_EACH(const mp_feed, feed, &session->log.feeds, link) {
        if (feed->number == 0)
            raise_to(&highest, feed->last);
    }
    raise_to(&highest, session->log.last_number);
    session->log.base = session->log.last_number = highest + MP_KEPT_JUMP;
    note_number(&session->log, session->log.base);
    MP_EACH(mp_feed, feed, &session->log.feeds, link) {
        feed->last = feed->base = feed->number == 0 ? session->log.base : feed->last + MP_KEPT_JUMP;
        if (feed->number == 0)
            session->feed = feed; /* with the reference that add_feed has counted */
        else if (!feed->is_over)
            end_revived(feed);
        save_feed(feed);
        if (feed->number != 0) {
            feed->refs--;
            free_if_done(feed);
        }
    }
}
