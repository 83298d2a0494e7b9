/* topics.c: sessions that follow topics, and what is published on them: gathered while a turn lasts, then sent, some in this
 * turn and the rest in the next ones. A topic's name may end in '\0' and its audience: a session has one of these. */
#include "topics.h"
#include <stdlib.h>

#define TURN_SENDS 500 /* to followers, and to listeners */
#define PATIENCE 256   /* publications that wait one behind the other; then only the last of each topic does */
#define MOST_BYTES ((size_t)16 << 20)

/* What topics have in common that differ in their audience. */
typedef struct {
    mp_node node;
    mp_link topics;
} base;

typedef struct {
    mp_node node;
    mp_link in_base;
    base *base;    /* NULL without an audience */
    uint64_t rpcs; /* bit per rpc with calls that listen */
    mp_link follows;
    size_t count;
} topic;

typedef struct {
    mp_link in_topic, in_session;
    topic *topic;
    mp_session *session;
} follow;

struct mp_topics {
    pthread_mutex_t lock; /* guards all of the index, and sessions' ends of it */
    mp_map by_name, bases;
    atomic_size_t most; /* of one session */
};

void mp_topics_configure(mp_topics *topics, const mp_rpc_config *config)
{
    atomic_store(&topics->most, (size_t)config->max_subscriptions);
}

mp_topics *mp_topics_new(const mp_rpc_config *config)
{
    mp_topics *topics = mp_new(sizeof *topics);
    pthread_mutex_init(&topics->lock, NULL);
    mp_map_init(&topics->by_name);
    mp_map_init(&topics->bases);
    mp_topics_configure(topics, config);
    return topics;
}

void mp_topics_free(mp_topics *topics)
{
    mp_map_clear(&topics->by_name);
    mp_map_clear(&topics->bases);
    pthread_mutex_destroy(&topics->lock);
    free(topics);
}

/* -- the index, all under its lock ----------------------------------------------------------------------------- */

static mp_str base_of(mp_str name)
{
    const char *end = memchr(name.ptr, '\0', name.len);
    return end == NULL ? name : (mp_str){name.ptr, (size_t)(end - name.ptr)};
}

static base *need_base(mp_topics *topics, mp_str name)
{
    bool is_new;
    base *made = mp_map_need(&topics->bases, name, sizeof *made, &is_new);
    if (is_new)
        mp_link_init(&made->topics);
    return made;
}

static void leave_base(mp_topics *topics, topic *t)
{
    if (t->base == NULL)
        return;
    mp_link_drop(&t->in_base);
    if (!mp_link_is_alone(&t->base->topics))
        return;
    mp_map_drop(&topics->bases, &t->base->node);
    free(t->base);
}

static topic *find_topic(mp_topics *topics, mp_str name)
{
    mp_node *node = mp_map_find(&topics->by_name, name);
    return node == NULL ? NULL : mp_container(node, topic, node);
}

static topic *need_topic(mp_topics *topics, mp_str name)
{
    bool is_new;
    topic *found = mp_map_need(&topics->by_name, name, sizeof *found, &is_new);
    if (!is_new)
        return found;
    mp_link_init(&found->follows);
    if (base_of(name).len < name.len) {
        found->base = need_base(topics, base_of(name));
        mp_link_put(&found->base->topics, &found->in_base);
    }
    return found;
}

static void drop_if_unused(mp_topics *topics, topic *t)
{
    if (t->rpcs != 0 || t->count > 0)
        return;
    mp_map_drop(&topics->by_name, &t->node);
    leave_base(topics, t);
    free(t);
}

static void drop_follow(mp_topics *topics, follow *f)
{
    topic *t = f->topic;
    mp_link_drop(&f->in_topic);
    mp_link_drop(&f->in_session);
    f->session->follow_count--;
    free(f);
    t->count--;
    drop_if_unused(topics, t);
    mp_stat_add(MP_STAT_SUBSCRIPTIONS, -1);
}

/* What the session has of this topic, whatever the audience; it has few. */
static follow *find_follow(const mp_session *session, mp_str name)
{
    for (mp_link *link = session->follows.next; link != &session->follows; link = link->next) {
        follow *f = mp_container(link, follow, in_session);
        if (mp_str_eq(base_of(f->topic->node.key), base_of(name)))
            return f;
    }
    return NULL;
}

static bool is_closed(mp_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool closed = session->closed;
    pthread_mutex_unlock(&session->lock);
    return closed;
}

mp_follow_result mp_session_follow(mp_session *session, mp_str name)
{
    mp_topics *topics = mp_table_topics(session->table);
    mp_follow_result result = MP_FOLLOW_DONE;
    pthread_mutex_lock(&topics->lock);
    follow *before = find_follow(session, name);
    if (is_closed(session)) { /* asked under our lock: who closes it comes for what it follows afterwards */
        result = MP_FOLLOW_CLOSED;
    } else if (before == NULL && session->follow_count >= topics->most) {
        result = MP_FOLLOW_TOO_MANY;
    } else if (before == NULL || !mp_str_eq(before->topic->node.key, name)) {
        if (before != NULL)
            drop_follow(topics, before);
        follow *f = mp_new(sizeof *f);
        f->session = session;
        f->topic = need_topic(topics, name);
        f->topic->count++;
        session->follow_count++;
        mp_link_put(&f->topic->follows, &f->in_topic);
        mp_link_put(&session->follows, &f->in_session);
        mp_stat_add(MP_STAT_SUBSCRIPTIONS, 1);
    }
    pthread_mutex_unlock(&topics->lock);
    return result;
}

static void move_follow(mp_topics *topics, follow *f, topic *to)
{
    topic *from = f->topic;
    mp_link_drop(&f->in_topic);
    from->count--;
    f->topic = to;
    to->count++;
    mp_link_put(&to->follows, &f->in_topic);
    drop_if_unused(topics, from);
}

void mp_session_follow_as(mp_session *session, mp_str audience)
{
    mp_topics *topics = mp_table_topics(session->table);
    mp_buf name = {0};
    pthread_mutex_lock(&topics->lock);
    for (mp_link *link = session->follows.next; link != &session->follows; link = link->next) {
        follow *f = mp_container(link, follow, in_session);
        mp_str known = f->topic->node.key, about = base_of(known);
        if (f->topic->base == NULL || mp_str_eq(mp_str_from(known, about.len + 1), audience))
            continue;
        name.len = 0;
        mp_buf_put(&name, about);
        mp_buf_putc(&name, '\0');
        mp_buf_put(&name, audience);
        move_follow(topics, f, need_topic(topics, mp_buf_str(&name)));
    }
    pthread_mutex_unlock(&topics->lock);
    mp_buf_clear(&name);
}

void mp_session_unfollow(mp_session *session, mp_str name)
{
    mp_topics *topics = mp_table_topics(session->table);
    pthread_mutex_lock(&topics->lock);
    follow *f = find_follow(session, name);
    if (f != NULL)
        drop_follow(topics, f);
    pthread_mutex_unlock(&topics->lock);
}

void mp_session_unfollow_all(mp_session *session)
{
    mp_topics *topics = mp_table_topics(session->table);
    pthread_mutex_lock(&topics->lock);
    while (!mp_link_is_alone(&session->follows))
        drop_follow(topics, mp_container(session->follows.next, follow, in_session));
    pthread_mutex_unlock(&topics->lock);
}

void mp_topic_set_heard(mp_rpc *rpc, mp_str name, bool is_heard)
{
    mp_topics *topics = mp_table_topics(rpc->table);
    uint64_t bit = UINT64_C(1) << rpc->index;
    pthread_mutex_lock(&topics->lock);
    topic *t = need_topic(topics, name);
    t->rpcs = is_heard ? t->rpcs | bit : t->rpcs & ~bit;
    drop_if_unused(topics, t);
    pthread_mutex_unlock(&topics->lock);
}

void mp_topic_audiences(mp_rpc *rpc, mp_str name, mp_buf *out)
{
    mp_topics *topics = mp_table_topics(rpc->table);
    pthread_mutex_lock(&topics->lock);
    mp_node *node = mp_map_find(&topics->bases, name);
    const base *found = node == NULL ? NULL : mp_container(node, base, node);
    for (mp_link *link = found == NULL ? NULL : found->topics.next; link != NULL && link != &found->topics;
         link = link->next) {
        mp_buf_put(out, mp_str_from(mp_container(link, topic, in_base)->node.key, name.len + 1));
        mp_buf_putc(out, '\n');
    }
    pthread_mutex_unlock(&topics->lock);
}

/* Who follows now, each counted, in memory that is the caller's. */
static mp_session **followers_of(mp_topics *topics, mp_str name, size_t *count)
{
    mp_session **list = NULL;
    *count = 0;
    pthread_mutex_lock(&topics->lock);
    const topic *t = find_topic(topics, name);
    if (t != NULL && t->count > 0) {
        list = mp_new(t->count * sizeof *list);
        for (mp_link *link = t->follows.next; link != &t->follows; link = link->next)
            list[(*count)++] = mp_session_ref(mp_container(link, follow, in_topic)->session);
    }
    pthread_mutex_unlock(&topics->lock);
    return list;
}

/* -- publications ---------------------------------------------------------------------------------------------- */

static char *keep(char *at, mp_str *s)
{
    if (s->ptr == NULL)
        return at;
    memcpy(at, s->ptr, s->len);
    s->ptr = at;
    return at + s->len;
}

static size_t size_of(const mp_publication *what)
{
    return sizeof *what + what->topic.len + what->plain.len + what->before.len + what->after.len;
}

static mp_publication *ref(mp_publication *what)
{
    atomic_fetch_add_explicit(&what->refs, 1, memory_order_relaxed);
    return what;
}

void mp_publication_unref(mp_publication *what)
{
    if (atomic_fetch_sub(&what->refs, 1) == 1)
        free(what);
}

typedef struct {
    mp_link link;
    mp_node node;
    mp_publication *what;
} waiting;

void mp_lane_init(mp_lane *lane, size_t patience)
{
    lane->patience = patience;
    mp_link_init(&lane->ring);
    mp_map_init(&lane->by_topic);
}

static bool has_room(const mp_lane *lane, size_t more)
{
    return lane->bytes <= MOST_BYTES && more <= MOST_BYTES - lane->bytes;
}

void mp_lane_put(mp_lane *lane, mp_publication *what)
{
    mp_node *node = mp_map_find(&lane->by_topic, what->topic);
    waiting *w;
    if (!has_room(lane, size_of(what))) {
        mp_stat_add(MP_STAT_DROPPED_PUBLICATIONS, 1);
        mp_publication_unref(what);
        return;
    }
    if (node != NULL)
        mp_map_drop(&lane->by_topic, node);
    if (node != NULL && lane->count >= lane->patience) {
        w = mp_container(node, waiting, node);
        lane->bytes -= size_of(w->what);
        mp_publication_unref(w->what);
    } else {
        w = mp_new(sizeof *w);
        mp_link_put(&lane->ring, &w->link);
        lane->count++;
        mp_stat_add(MP_STAT_PUBLICATIONS, 1);
    }
    w->what = what;
    w->node.key = what->topic;
    mp_map_put(&lane->by_topic, &w->node);
    lane->bytes += size_of(what);
}

mp_publication *mp_lane_take(mp_lane *lane)
{
    mp_link *link = mp_link_take(&lane->ring);
    if (link == NULL)
        return NULL;
    waiting *w = mp_container(link, waiting, link);
    mp_publication *what = w->what;
    if (mp_map_find(&lane->by_topic, what->topic) == &w->node)
        mp_map_drop(&lane->by_topic, &w->node);
    lane->count--;
    lane->bytes -= size_of(what);
    free(w);
    mp_stat_add(MP_STAT_PUBLICATIONS, -1);
    return what;
}

void mp_lane_clear(mp_lane *lane)
{
    for (mp_publication *what; (what = mp_lane_take(lane)) != NULL;)
        mp_publication_unref(what);
    mp_map_clear(&lane->by_topic);
}

void mp_topic_publish(mp_rpc *rpc, mp_str name, mp_str plain, mp_str before, mp_str after)
{
    mp_publication *what = mp_new(sizeof *what + name.len + plain.len + before.len + after.len);
    atomic_init(&what->refs, 1);
    what->topic = name;
    what->plain = plain;
    what->before = before;
    what->after = after;
    keep(keep(keep(keep(what->bytes, &what->topic), &what->plain), &what->before), &what->after);
    mp_lane_put(&rpc->publisher->pending, what);
}

/* -- sending --------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    mp_publication *what;
} news;

static void deliver_news(mp_message *message, mp_loop *loop)
{
    news *n = mp_container(message, news, super);
    if (loop != NULL)
        mp_lane_put(&n->rpc->publisher->to_listeners, n->what);
    else
        mp_publication_unref(n->what);
    free(n);
}

static void tell_rpc(mp_rpc *from, mp_rpc *to, mp_publication *what)
{
    if (to == from) {
        mp_lane_put(&to->publisher->to_listeners, ref(what));
        return;
    }
    news *n = mp_new(sizeof *n);
    *n = (news){{.deliver = deliver_news}, to, ref(what)};
    mp_loop_post(to->loop, &n->super);
}

/* The turn is over: what it published goes to those who will send it. */
static void pass_on(mp_rpc *rpc)
{
    mp_topics *topics = mp_table_topics(rpc->table);
    for (mp_publication *what; (what = mp_lane_take(&rpc->publisher->pending)) != NULL;) {
        pthread_mutex_lock(&topics->lock);
        const topic *t = find_topic(topics, what->topic);
        bool is_followed = t != NULL && t->count > 0;
        uint64_t rpcs = t == NULL ? 0 : t->rpcs;
        pthread_mutex_unlock(&topics->lock);
        if (is_followed && what->plain.ptr != NULL)
            mp_lane_put(&rpc->publisher->to_followers, ref(what));
        for (unsigned i = 0; what->before.ptr != NULL && i < MP_RPC_MAX; i++)
            if (rpcs & (UINT64_C(1) << i))
                tell_rpc(rpc, mp_table_rpc(rpc->table, i), what);
        mp_publication_unref(what);
    }
}

static void stop_sending(mp_publisher *publisher)
{
    while (publisher->next < publisher->follower_count)
        mp_session_unref(publisher->followers[publisher->next++]);
    free(publisher->followers);
    publisher->followers = NULL;
    publisher->follower_count = publisher->next = 0;
    if (publisher->sending != NULL)
        mp_publication_unref(publisher->sending);
    publisher->sending = NULL;
}

static void send_to_followers(mp_rpc *rpc, int budget)
{
    mp_publisher *publisher = rpc->publisher;
    for (; budget > 0; budget--) {
        if (publisher->sending == NULL) {
            publisher->sending = mp_lane_take(&publisher->to_followers);
            if (publisher->sending == NULL)
                return;
            publisher->followers =
                followers_of(mp_table_topics(rpc->table), publisher->sending->topic, &publisher->follower_count);
        }
        if (publisher->next < publisher->follower_count) {
            mp_session *session = publisher->followers[publisher->next++];
            mp_session_send(rpc, session, publisher->sending->plain);
            mp_session_unref(session);
        }
        if (publisher->next == publisher->follower_count)
            stop_sending(publisher);
    }
}

bool mp_publisher_turn(mp_rpc *rpc)
{
    mp_publisher *publisher = rpc->publisher;
    pass_on(rpc);
    send_to_followers(rpc, TURN_SENDS);
    mp_listeners_tell(rpc, TURN_SENDS);
    return publisher->sending != NULL || publisher->telling != NULL ||
           !mp_link_is_alone(&publisher->to_followers.ring) || !mp_link_is_alone(&publisher->to_listeners.ring);
}

mp_publisher *mp_publisher_new(void)
{
    mp_publisher *publisher = mp_new(sizeof *publisher);
    mp_lane_init(&publisher->pending, 0);
    mp_lane_init(&publisher->to_followers, PATIENCE);
    mp_lane_init(&publisher->to_listeners, PATIENCE);
    mp_map_init(&publisher->topics);
    return publisher;
}

void mp_publisher_free(mp_publisher *publisher)
{
    stop_sending(publisher);
    if (publisher->telling != NULL)
        mp_publication_unref(publisher->telling);
    mp_lane_clear(&publisher->pending);
    mp_lane_clear(&publisher->to_followers);
    mp_lane_clear(&publisher->to_listeners);
    mp_map_clear(&publisher->topics);
    free(publisher);
}
