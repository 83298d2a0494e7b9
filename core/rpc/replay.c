/* replay.c: events kept for Streamable HTTP clients that lost a stream and come back with Last-Event-ID (S-27 to S-31).
 * One lock guards what is kept of all sessions, so that the oldest event of the process can make room for the newest; it
 * is taken last, and for moments. */
#include "house.h"
#include <stdlib.h>

struct mp_replay {
    const mp_rpc_config *_Atomic config;
    pthread_mutex_t lock;
    mp_link events; /* of all sessions, oldest first */
    size_t bytes;
};

typedef struct {
    mp_link in_all, in_session;
    mp_feed *feed;
    uint64_t seq;
    size_t len;
    char json[];
} event;

mp_replay *mp_replay_new(const mp_rpc_config *config)
{
    if (config->replay_events == 0)
        return NULL;
    mp_replay *replay = mp_new(sizeof *replay);
    atomic_init(&replay->config, config);
    pthread_mutex_init(&replay->lock, NULL);
    mp_link_init(&replay->events);
    return replay;
}

void mp_replay_configure(mp_replay *replay, const mp_rpc_config *config)
{
    if (replay != NULL)
        atomic_store(&replay->config, config);
}

void mp_replay_free(mp_replay *replay)
{
    if (replay == NULL)
        return;
    pthread_mutex_destroy(&replay->lock);
    free(replay);
}

static void free_if_done(mp_feed *feed)
{
    if (feed->refs > 0 || feed->events > 0)
        return;
    mp_link_drop(&feed->link);
    free(feed);
}

mp_feed *mp_feed_new(mp_session *session, const mp_call *call)
{
    mp_feed *feed = mp_new(sizeof *feed);
    feed->session = session;
    feed->refs = 1;
    pthread_mutex_lock(&session->replay->lock);
    if (call != NULL) {
        feed->number = ++session->kept.last_number;
        feed->rpc = call->rpc;
        feed->serial = call->serial;
    }
    mp_link_put(&session->kept.feeds, &feed->link);
    pthread_mutex_unlock(&session->replay->lock);
    return feed;
}

void mp_feed_ref(mp_feed *feed)
{
    pthread_mutex_lock(&feed->session->replay->lock);
    feed->refs++;
    pthread_mutex_unlock(&feed->session->replay->lock);
}

void mp_feed_unref(mp_feed *feed)
{
    mp_replay *replay = feed->session->replay;
    pthread_mutex_lock(&replay->lock);
    feed->refs--;
    free_if_done(feed);
    pthread_mutex_unlock(&replay->lock);
}

static size_t size_of(const event *it)
{
    return sizeof *it + it->len;
}

static void drop(mp_replay *replay, event *it)
{
    mp_feed *feed = it->feed;
    mp_kept *kept = &feed->session->kept;
    mp_link_drop(&it->in_all);
    mp_link_drop(&it->in_session);
    replay->bytes -= size_of(it);
    kept->bytes -= size_of(it);
    kept->count--;
    mp_stat_add(MP_STAT_REPLAY_BYTES, -(int64_t)size_of(it));
    feed->lost = it->seq;
    feed->events--;
    free_if_done(feed);
    free(it);
}

static event *first_of(mp_session *session)
{
    return mp_container(session->kept.events.next, event, in_session);
}

bool mp_feed_put(mp_feed *feed, mp_str json)
{
    mp_session *session = feed->session;
    mp_replay *replay = session->replay;
    mp_kept *kept = &session->kept;
    const mp_rpc_config *config = atomic_load(&replay->config);
    uint64_t seq = ++feed->last;
    size_t size = sizeof(event) + json.len;
    if (session->closed || size > config->replay_bytes || size > config->replay_total) {
        pthread_mutex_lock(&replay->lock);
        feed->lost = seq;
        pthread_mutex_unlock(&replay->lock);
        mp_stat_add(MP_STAT_DROPPED_REPLAY, session->closed ? 0 : 1);
        return false;
    }
    event *it = mp_new(size);
    it->feed = feed;
    it->seq = seq;
    it->len = json.len;
    memcpy(it->json, json.ptr, json.len);
    pthread_mutex_lock(&replay->lock);
    while (kept->count >= config->replay_events || kept->bytes + size > config->replay_bytes)
        drop(replay, first_of(session));
    while (replay->bytes + size > config->replay_total) {
        drop(replay, mp_container(replay->events.next, event, in_all));
        mp_stat_add(MP_STAT_DROPPED_REPLAY, 1);
    }
    mp_link_put(&replay->events, &it->in_all);
    mp_link_put(&kept->events, &it->in_session);
    feed->events++;
    kept->count++;
    kept->bytes += size;
    replay->bytes += size;
    mp_stat_add(MP_STAT_REPLAY_BYTES, (int64_t)size);
    pthread_mutex_unlock(&replay->lock);
    return true;
}

/* A number as we write it: no sign, no leading zero. */
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

mp_feed *mp_feed_find(mp_session *session, mp_str id, uint64_t *seq)
{
    uint64_t number;
    if (session->replay == NULL || session->closed || !read_number(mp_str_cut(&id, '-'), &number) ||
        !read_number(id, seq))
        return NULL;
    mp_feed *found = NULL;
    pthread_mutex_lock(&session->replay->lock);
    for (mp_link *link = session->kept.feeds.next; link != &session->kept.feeds; link = link->next) {
        mp_feed *feed = mp_container(link, mp_feed, link);
        if (feed->number == number && *seq >= feed->lost && *seq <= feed->last) {
            found = feed;
            found->refs++;
            break;
        }
    }
    pthread_mutex_unlock(&session->replay->lock);
    return found;
}

mp_feed_rest mp_feed_read(mp_feed *feed, uint64_t *seq, size_t room, mp_buf *out)
{
    mp_session *session = feed->session;
    mp_feed_rest rest = MP_FEED_ALL;
    pthread_mutex_lock(&session->replay->lock);
    if (*seq < feed->lost)
        rest = MP_FEED_GAP;
    for (mp_link *link = session->kept.events.next; rest == MP_FEED_ALL && link != &session->kept.events;
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
    pthread_mutex_unlock(&session->replay->lock);
    return rest;
}

void mp_replay_forget(mp_session *session)
{
    if (session->replay == NULL)
        return;
    pthread_mutex_lock(&session->replay->lock);
    while (session->kept.count > 0)
        drop(session->replay, first_of(session));
    pthread_mutex_unlock(&session->replay->lock);
}
