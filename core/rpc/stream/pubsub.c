/* pubsub.c: sessions that subscribe to topics, and publications. Publications of a turn are queued, and sent at the
 * bottom of this turn and of the next ones. The name of a topic may end in '\0' and its audience: a session
 * subscribes with one audience. */
#include "stream.h"

MP_GAUGE(subscriptions, "subscriptions", "", "", "subscriptions of all sessions")
MP_GAUGE(publications, "publications", "", "", "publications that wait to be sent")
MP_GAUGE(publication_bytes, "publication_bytes", "", "",
         "bytes of publications that wait to be sent, or are being sent")
MP_ACCOUNT(topic_bytes, "topic_bytes", "", "", "bytes that clients' subscriptions to topics may take, with their names")
MP_REFUSED(refused_topics, "topics", MP_LIMIT_REACHED,
           "subscriptions over the memory of all topics, 256 MiB, or over a client's half of it")
MP_COUNTER(dropped_publications, "dropped", "reason", "publications", "publications over the queue of a worker")

/* publications in a queue; above this number, only the last publication of each topic is kept */
#define MERGE_ABOVE 256
#define MAX_QUEUE_BYTES ((size_t)16 << 20) /* bytes of the publications in one queue, whose worker may be stuck */

/* Bytes of the topics that clients subscribe to: a template makes a resource of any URI, which may be as long as a
 * request. As much as limits.bodies has by default, and room for half a million subscriptions with short names. */
#define MAX_TOPIC_BYTES MP_LIMIT(topic_bytes, 256 << 20)
/* bytes of a subscription without the name of its topic, which an index of topics, one of bases and one of a worker
 * have: nodes, links and the allocator's heads */
#define SUBSCRIPTION_BYTES 384

struct mp_topic_holder {
    mp_node node;
    size_t bytes;
};

/* The topics that have one name and different audiences. */
typedef struct {
    mp_node node;
    mp_link topics;
} base;

typedef struct {
    mp_node node;
    mp_link in_base;
    base *MP_NULLABLE base; /* NULL if the topic has no audience */
    uint64_t rpcs;          /* one bit for each rpc that has calls that listen */
    mp_link subscribers;
    size_t count;
} topic;

typedef struct {
    mp_link in_topic, in_session;
    topic *topic;
    mp_session *session;
    mp_topic_holder *MP_NULLABLE holder; /* NULL: no client has asked for it, and it is not counted */
    size_t held_bytes;
} subscription;

struct mp_topics {
    pthread_mutex_t lock; /* guards the index, and the subscriptions of sessions */
    mp_map by_name, bases, holders;
    atomic_bool has_revived; /* there were subscriptions of sessions that an earlier process had opened */
};

mp_topics *mp_topics_new(void)
{
    mp_topics *topics = mp_new(sizeof *topics);
    pthread_mutex_init(&topics->lock, NULL);
    mp_map_init(&topics->by_name);
    mp_map_init(&topics->bases);
    mp_map_init(&topics->holders);
    return topics;
}

void mp_topics_free(mp_topics *topics)
{
    mp_map_clear(&topics->by_name);
    mp_map_clear(&topics->bases);
    mp_map_clear(&topics->holders);
    pthread_mutex_destroy(&topics->lock);
    free(topics);
}

/* -- what topics take, guarded by the lock of the index -------------------------------------------------------- */

size_t mp_topic_weight(mp_str name)
{
    return SUBSCRIPTION_BYTES + 3 * name.len;
}

static mp_topic_holder *MP_NULLABLE hold_bytes(mp_topics *topics, mp_str name, size_t bytes)
{
    bool is_new;
    const mp_node *node = mp_map_find(&topics->holders, name);
    size_t before = node == NULL ? 0 : mp_container(node, const mp_topic_holder, node)->bytes;
    if (before + bytes > (size_t)MAX_TOPIC_BYTES / 2 ||
        !mp_account_take(&mp_account_topic_bytes, (int64_t)bytes, MAX_TOPIC_BYTES)) {
        mp_stat_add(&mp_stat_refused_topics, 1);
        return NULL;
    }
    mp_topic_holder *holder = mp_map_need(&topics->holders, name, sizeof *holder, &is_new);
    holder->bytes += bytes;
    return holder;
}

static void give_bytes(mp_topics *topics, mp_topic_holder *holder, size_t bytes)
{
    mp_account_give(&mp_account_topic_bytes, (int64_t)bytes);
    holder->bytes -= bytes;
    if (holder->bytes > 0)
        return;
    mp_map_drop(&topics->holders, &holder->node);
    free(holder);
}

mp_topic_holder *MP_NULLABLE mp_topics_take(mp_topics *topics, mp_str name, size_t bytes)
{
    MP_LOCKED(&topics->lock);
    return hold_bytes(topics, name, bytes);
}

void mp_topics_give(mp_topics *topics, mp_topic_holder *holder, size_t bytes)
{
    MP_LOCKED(&topics->lock);
    give_bytes(topics, holder, bytes);
}

/* -- the index, guarded by its lock ---------------------------------------------------------------------------- */

static mp_str base_of(mp_str name)
{
    const char *end = memchr(name.ptr, '\0', name.len);
    return end == NULL ? name : (mp_str){name.ptr, (size_t)(end - name.ptr)};
}

static base *need_base(mp_topics *topics, mp_str name)
{
    bool is_new;
    base *made = mp_map_need(&topics->bases, name, sizeof *made, &is_new);
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

static topic *MP_NULLABLE find_topic(mp_topics *topics, mp_str name)
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

static void drop_subscription(mp_topics *topics, subscription *s)
{
    topic *t = s->topic;
    mp_topic_holder *holder = s->holder;
    mp_link_drop(&s->in_topic);
    mp_link_drop(&s->in_session);
    s->session->subscription_count--;
    if (holder != NULL)
        give_bytes(topics, holder, s->held_bytes);
    mp_slab_free(s, sizeof *s);
    t->count--;
    drop_if_unused(topics, t);
    mp_stat_add(&mp_stat_subscriptions, -1);
}

/* The session's subscription to this topic, with any audience. A session has few. */
static subscription *MP_NULLABLE find_subscription(const mp_session *session, mp_str name)
{
    MP_EACH(subscription, s, &session->subscriptions, in_session) {
        if (mp_str_eq(base_of(s->topic->node.key), base_of(name)))
            return s;
    }
    return NULL;
}

static bool is_closed(mp_session *session)
{
    MP_LOCKED(&session->lock);
    return session->closed;
}

static void add_subscription(mp_topics *topics, mp_session *session, mp_str name, mp_topic_holder *MP_NULLABLE holder)
{
    subscription *s = mp_slab_new(sizeof *s);
    s->session = session;
    s->holder = holder;
    s->held_bytes = mp_topic_weight(name);
    s->topic = need_topic(topics, name);
    s->topic->count++;
    session->subscription_count++;
    mp_link_put(&s->topic->subscribers, &s->in_topic);
    mp_link_put(&session->subscriptions, &s->in_session);
    mp_stat_add(&mp_stat_subscriptions, 1);
}

static mp_subscribe_result subscribe(mp_session *session, mp_str name, bool is_asked)
{
    mp_topics *topics = mp_session_table_topics(session->table);
    mp_subscribe_result result = MP_SUBSCRIBE_DONE;
    MP_LOCKED(&topics->lock);
    subscription *before = find_subscription(session, name);
    if (is_closed(session)) { /* read under the lock of topics: the thread that closes the session drops its
                                 subscriptions afterwards */
        result = MP_SUBSCRIBE_CLOSED;
    } else if (before == NULL && session->subscription_count >= (size_t)MP_MAX_SUBSCRIPTIONS) {
        result = MP_SUBSCRIBE_TOO_MANY;
    } else if (before == NULL || !mp_str_eq(before->topic->node.key, name)) {
        mp_topic_holder *holder =
            is_asked ? hold_bytes(topics, mp_owner_name(session->owner), mp_topic_weight(name)) : NULL;
        if (is_asked && holder == NULL)
            return MP_SUBSCRIBE_FULL;
        if (before != NULL)
            drop_subscription(topics, before);
        add_subscription(topics, session, name, holder);
    }
    return result;
}

mp_subscribe_result mp_session_subscribe(mp_session *session, mp_str name, bool is_asked)
{
    mp_subscribe_result result = subscribe(session, name, is_asked);
    mp_session_keep(session);
    return result;
}

void mp_session_put_topics(mp_session *session, mp_buf *out)
{
    MP_LOCKED(&mp_session_table_topics(session->table)->lock);
    MP_EACH(subscription, s, &session->subscriptions, in_session) {
        mp_buf_putc(out, s->holder == NULL ? '0' : '1');
        mp_kept_put(out, s->topic->node.key);
    }
}

void mp_session_take_topics(mp_session *session, mp_str topics)
{
    mp_str name;
    while (topics.len > 0) {
        bool is_asked = topics.ptr[0] == '1';
        topics = mp_str_from(topics, 1);
        if (!mp_kept_take(&topics, &name))
            break;
        subscribe(session, name, is_asked);
        atomic_store(&mp_session_table_topics(session->table)->has_revived, true);
    }
}

static void move_subscription(mp_topics *topics, subscription *s, topic *to)
{
    topic *from = s->topic;
    mp_link_drop(&s->in_topic);
    from->count--;
    s->topic = to;
    to->count++;
    mp_link_put(&to->subscribers, &s->in_topic);
    drop_if_unused(topics, from);
}

/* True if a subscription is one to another topic now. */
static bool subscribe_as(mp_session *session, mp_str audience)
{
    bool has_moved = false;
    mp_topics *topics = mp_session_table_topics(session->table);
    mp_scoped_buf name = {0};
    MP_LOCKED(&topics->lock);
    MP_EACH(subscription, s, &session->subscriptions, in_session) {
        mp_str known = s->topic->node.key, about = base_of(known);
        if (s->topic->base == NULL || mp_str_eq(mp_str_from(known, about.len + 1), audience))
            continue;
        name.len = 0;
        mp_buf_put(&name, about);
        mp_buf_putc(&name, '\0');
        mp_buf_put(&name, audience);
        move_subscription(topics, s, need_topic(topics, mp_buf_str(&name)));
        has_moved = true;
    }
    return has_moved;
}

void mp_session_subscribe_as(mp_session *session, mp_str audience)
{
    if (subscribe_as(session, audience)) /* called for each call of a session: rarely does anything change */
        mp_session_keep(session);
}

static void unsubscribe(mp_session *session, mp_str name)
{
    mp_topics *topics = mp_session_table_topics(session->table);
    MP_LOCKED(&topics->lock);
    subscription *s = find_subscription(session, name);
    if (s != NULL)
        drop_subscription(topics, s);
}

void mp_session_unsubscribe(mp_session *session, mp_str name)
{
    unsubscribe(session, name);
    mp_session_keep(session);
}

void mp_session_unsubscribe_all(mp_session *session)
{
    mp_topics *topics = mp_session_table_topics(session->table);
    MP_LOCKED(&topics->lock);
    while (!mp_link_is_alone(&session->subscriptions))
        drop_subscription(topics, mp_container(session->subscriptions.next, subscription, in_session));
}

void mp_topic_set_listened(mp_rpc *rpc, mp_str name, bool is_listened)
{
    mp_topics *topics = mp_session_table_topics(rpc->table);
    uint64_t bit = UINT64_C(1) << rpc->index;
    MP_LOCKED(&topics->lock);
    topic *t = need_topic(topics, name);
    t->rpcs = is_listened ? t->rpcs | bit : t->rpcs & ~bit;
    drop_if_unused(topics, t);
}

void mp_topic_audiences(mp_rpc *rpc, mp_str name, mp_buf *out)
{
    mp_topics *topics = mp_session_table_topics(rpc->table);
    MP_LOCKED(&topics->lock);
    mp_node *node = mp_map_find(&topics->bases, name);
    const base *found = node == NULL ? NULL : mp_container(node, base, node);
    for (mp_link *link = found == NULL ? NULL : mp_link_first(&found->topics); link != NULL && link != &found->topics;
         link = link->next) {
        mp_buf_put(out, mp_str_from(mp_container(link, topic, in_base)->node.key, name.len + 1));
        mp_buf_putc(out, '\n');
    }
}

typedef struct {
    mp_str prefix;
    mp_buf *out;
} names;

static void put_revived(mp_buf *out, const subscription *s, mp_str rest)
{
    mp_str name = s->holder == NULL ? MP_STR_NONE : s->holder->node.key;
    mp_hex_put(mp_buf_room(out, 2 * name.len), (const unsigned char *)name.ptr, name.len);
    out->len += 2 * name.len;
    mp_buf_putc(out, ' ');
    mp_buf_put(out, rest);
    mp_buf_putc(out, '\n');
}

static void put_name(mp_node *node, void *arg)
{
    const names *it = arg;
    const base *of = mp_container(node, base, node);
    if (!mp_str_starts(node->key, it->prefix))
        return;
    MP_EACH(topic, t, &of->topics, in_base) {
        if (t->count > 0) {
            const mp_link *first = mp_link_first(&t->subscribers);
            put_revived(it->out, mp_container(first, const subscription, in_topic),
                        mp_str_from(node->key, it->prefix.len));
            break;
        }
    }
}

void mp_session_revived_topics(mp_session *session, mp_str prefix, mp_buf *out)
{
    if (!session->was_revived)
        return;
    MP_LOCKED(&mp_session_table_topics(session->table)->lock);
    MP_EACH(subscription, s, &session->subscriptions, in_session) {
        mp_str name = base_of(s->topic->node.key);
        if (mp_str_starts(name, prefix))
            put_revived(out, s, mp_str_from(name, prefix.len));
    }
}

void mp_topic_revived(mp_rpc *rpc, mp_str prefix, mp_buf *out)
{
    mp_topics *topics = mp_session_table_topics(rpc->table);
    if (!atomic_load(&topics->has_revived))
        return;
    MP_LOCKED(&topics->lock);
    mp_map_each(&topics->bases, put_name, &(names){prefix, out});
}

#define NAMES_BYTES ((size_t)32 << 10) /* of one part of mp_topic_names: some hundred names, read under the lock */

size_t mp_topic_names(mp_rpc *rpc, mp_str prefix, size_t from, mp_buf *out)
{
    mp_topics *topics = mp_session_table_topics(rpc->table);
    size_t start = out->len;
    MP_LOCKED(&topics->lock);
    const mp_map *bases = &topics->bases; /* it only grows: then a slot that was read moves to one behind */
    for (; from <= bases->mask && out->len - start < NAMES_BYTES; from++)
        for (const mp_node *node = bases->slots[from]; node != NULL; node = node->next)
            if (mp_str_starts(node->key, prefix)) {
                mp_buf_put(out, mp_str_from(node->key, prefix.len));
                mp_buf_putc(out, '\n');
            }
    return from > bases->mask ? 0 : from;
}

/* The sessions that subscribe to the topic now, each with a counted reference, in memory that the caller frees. */
static mp_session **followers_of(mp_topics *topics, mp_str name, size_t *count)
{
    mp_session **list = NULL;
    *count = 0;
    MP_LOCKED(&topics->lock);
    const topic *t = find_topic(topics, name);
    if (t != NULL && t->count > 0) {
        list = mp_new(t->count * sizeof *list);
        MP_EACH(subscription, each, &t->subscribers, in_topic)
            list[(*count)++] = mp_session_ref(each->session);
    }
    return list;
}

/* -- publications ---------------------------------------------------------------------------------------------- */

static char *keep_copy(char *at, mp_str *s)
{
    if (s->ptr == NULL)
        return at;
    memcpy(at, s->ptr, s->len);
    s->ptr = at;
    return at + s->len;
}

static size_t size_of(const mp_publication *publication)
{
    return sizeof *publication + publication->topic.len + publication->plain.len + publication->before.len +
           publication->after.len;
}

static mp_publication *ref_publication(mp_publication *publication)
{
    atomic_fetch_add_explicit(&publication->refs, 1, memory_order_relaxed);
    return publication;
}

void mp_publication_unref(mp_publication *publication)
{
    if (atomic_fetch_sub(&publication->refs, 1) != 1)
        return;
    mp_stat_add(&mp_stat_publication_bytes, -(int64_t)size_of(publication));
    free(publication);
}

typedef struct {
    mp_link link;
    mp_node node;
    mp_publication *publication;
} queued;

void init_queue(mp_publications *queue, size_t merge_above)
{
    pthread_mutex_init(&queue->lock, NULL);
    queue->merge_above = merge_above;
    mp_map_init(&queue->by_topic);
}

static bool has_room(const mp_publications *queue, size_t more)
{
    return queue->bytes <= MAX_QUEUE_BYTES && more <= MAX_QUEUE_BYTES - queue->bytes;
}

/* The entry of the queue for a publication of this topic: a new one at the end; in a long queue that of the topic's
 * last publication, which is dropped. The caller has the queue's lock, and sets the entry's publication. */
static queued *place_of(mp_publications *queue, mp_str name)
{
    mp_node *node = mp_map_find(&queue->by_topic, name);
    if (node != NULL)
        mp_map_drop(&queue->by_topic, node);
    if (node != NULL && atomic_load_explicit(&queue->count, memory_order_relaxed) >= queue->merge_above) {
        queued *before = mp_container(node, queued, node);
        queue->bytes -= size_of(before->publication);
        mp_publication_unref(before->publication);
        return before;
    }
    queued *w = mp_new(sizeof *w);
    mp_link_put(&queue->ring, &w->link);
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_relaxed);
    mp_stat_add(&mp_stat_publications, 1);
    return w;
}

/* Puts the publication, whose reference it takes over, into the queue; drops it if the queue is full. True if the queue
 * was empty and is no more: its thread may sleep. */
static bool put_in_queue(mp_publications *queue, mp_publication *publication)
{
    pthread_mutex_lock(&queue->lock);
    bool was_empty = mp_link_is_alone(&queue->ring), fits = has_room(queue, size_of(publication));
    if (fits) {
        queued *w = place_of(queue, publication->topic);
        w->publication = publication;
        w->node.key = publication->topic;
        mp_map_put(&queue->by_topic, &w->node);
        queue->bytes += size_of(publication);
    }
    pthread_mutex_unlock(&queue->lock);
    if (!fits) {
        mp_stat_add(&mp_stat_dropped_publications, 1);
        mp_publication_unref(publication);
    }
    return was_empty && fits;
}

/* Reads `count` without the lock: another thread may put a publication into the queue at any time. */
static bool is_empty(const mp_publications *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_relaxed) == 0;
}

mp_publication *MP_NULLABLE mp_publications_take(mp_publications *queue)
{
    if (is_empty(queue))
        return NULL;
    MP_LOCKED(&queue->lock);
    mp_publication *publication = NULL;
    mp_link *link = mp_link_take(&queue->ring);
    if (link != NULL) {
        queued *w = mp_container(link, queued, link);
        publication = w->publication;
        if (mp_map_find(&queue->by_topic, publication->topic) == &w->node)
            mp_map_drop(&queue->by_topic, &w->node);
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
        queue->bytes -= size_of(publication);
        mp_stat_add(&mp_stat_publications, -1);
        free(w);
    }
    return publication;
}

void clear_queue(mp_publications *queue)
{
    for (mp_publication *publication; (publication = mp_publications_take(queue)) != NULL;)
        mp_publication_unref(publication);
    mp_map_clear(&queue->by_topic);
    pthread_mutex_destroy(&queue->lock);
}

void mp_topic_publish(mp_rpc *rpc, mp_str name, mp_str plain, mp_str before, mp_str after)
{
    mp_publication *publication = mp_new(sizeof *publication + name.len + plain.len + before.len + after.len);
    atomic_init(&publication->refs, 1);
    publication->topic = name;
    publication->plain = plain;
    publication->before = before;
    publication->after = after;
    keep_copy(keep_copy(keep_copy(keep_copy(publication->bytes, &publication->topic), &publication->plain),
                        &publication->before),
              &publication->after);
    mp_stat_add(&mp_stat_publication_bytes, (int64_t)size_of(publication));
    put_in_queue(&rpc->publisher->pending, publication);
}

/* -- sending --------------------------------------------------------------------------------------------------- */

static void pass_to_rpc(const mp_rpc *from, const mp_rpc *to, mp_publication *publication)
{
    if (put_in_queue(&to->publisher->to_calls, ref_publication(publication)) && to != from)
        mp_loop_wake(to->loop);
}

/* Moves the publications of this turn to the queues of the rpcs that send them. */
static void distribute_pending(mp_rpc *rpc)
{
    mp_topics *topics = mp_session_table_topics(rpc->table);
    for (mp_publication *publication; (publication = mp_publications_take(&rpc->publisher->pending)) != NULL;) {
        pthread_mutex_lock(&topics->lock);
        const topic *t = find_topic(topics, publication->topic);
        bool has_subscribers = t != NULL && t->count > 0;
        uint64_t rpcs = t == NULL ? 0 : t->rpcs;
        pthread_mutex_unlock(&topics->lock);
        if (has_subscribers && publication->plain.ptr != NULL)
            put_in_queue(&rpc->publisher->to_sessions, ref_publication(publication));
        for (unsigned i = 0; publication->before.ptr != NULL && i < MP_RPC_MAX; i++)
            if (rpcs & (UINT64_C(1) << i))
                pass_to_rpc(rpc, mp_session_table_rpc(rpc->table, i), publication);
        mp_publication_unref(publication);
    }
}

static void end_publication(mp_publisher *publisher)
{
    while (publisher->next < publisher->session_count)
        mp_session_unref(publisher->sessions[publisher->next++]);
    free(publisher->sessions);
    publisher->sessions = MP_UNSET;
    publisher->session_count = publisher->next = 0;
    if (publisher->sending != NULL)
        mp_publication_unref(publisher->sending);
    publisher->sending = NULL;
}

static void send_to_sessions(mp_rpc *rpc, int budget)
{
    mp_publisher *publisher = rpc->publisher;
    for (; budget > 0; budget--) {
        mp_publication *publication = publisher->sending;
        if (publication == NULL) {
            publication = mp_publications_take(&publisher->to_sessions);
            if (publication == NULL)
                return;
            publisher->sending = publication;
            publisher->sessions =
                followers_of(mp_session_table_topics(rpc->table), publication->topic, &publisher->session_count);
        }
        if (publisher->next < publisher->session_count) {
            mp_session *session = publisher->sessions[publisher->next++];
            session->transport->notify(rpc, session, publication->plain);
            mp_session_unref(session);
        }
        if (publisher->next == publisher->session_count)
            end_publication(publisher);
    }
}

void mp_publisher_turn(mp_rpc *rpc, int budget)
{
    distribute_pending(rpc);
    send_to_sessions(rpc, budget);
}

bool mp_publisher_has_news(const mp_rpc *rpc)
{
    return !is_empty(&rpc->publisher->pending) || mp_publisher_has_more(rpc);
}

bool mp_publisher_has_more(const mp_rpc *rpc)
{
    const mp_publisher *publisher = rpc->publisher;
    return publisher->sending != NULL || publisher->notifying != NULL || !is_empty(&publisher->to_sessions) ||
           !is_empty(&publisher->to_calls);
}

mp_publisher *mp_publisher_new(void)
{
    mp_publisher *publisher = mp_new(sizeof *publisher);
    init_queue(&publisher->pending, 0);
    init_queue(&publisher->to_sessions, MERGE_ABOVE);
    init_queue(&publisher->to_calls, MERGE_ABOVE);
    mp_map_init(&publisher->topics);
    return publisher;
}

void mp_publisher_free(mp_publisher *publisher)
{
    end_publication(publisher);
    if (publisher->notifying != NULL)
        mp_publication_unref(publisher->notifying);
    clear_queue(&publisher->pending);
    clear_queue(&publisher->to_sessions);
    clear_queue(&publisher->to_calls);
    mp_map_clear(&publisher->topics);
    free(publisher);
}
