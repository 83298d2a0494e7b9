/* session.h: sessions as core/lib offers them to lua/moonpool, and publications to their subscribers. */
#ifndef MP_RPC_SESSION_H
#define MP_RPC_SESSION_H

#include "rpc/rpc.h"

const mp_era *MP_NULLABLE mp_session_era(const mp_session *session); /* NULL before `initialize` */
mp_str mp_session_id(const mp_session *session);
/* True if a session of any principal has this id and is open. The id must not come from a client. */
bool mp_session_is_known(mp_rpc *rpc, mp_str id);
mp_str mp_session_client(const mp_session *session);
mp_str mp_session_capabilities(const mp_session *session);
/* The lowest level of notifications/message that the client wants: 0 (debug) to 7 (emergency); -1 before
 * logging/setLevel. */
int mp_session_log_level(const mp_session *session);
void mp_session_set_log_level(mp_session *session, int level);
/* The session's facts have changed: the sweep writes its record again. */
void mp_session_keep(mp_session *session);

/* True if sessions like this one are kept in the store, from which a later process revives them. */
bool mp_session_is_kept(const mp_session *session);
/* Writes the record of such a session, and calls deliver(&ctx, loop) as mp_store_when_saved. */
void mp_session_settle(mp_session *session, mp_loop *loop, void (*deliver)(void *ctx, mp_loop *MP_NULLABLE), void *ctx);

/* A hash of a session's id. Lines of the log and the audit use it to tell sessions apart; it gives no access to the
 * session. */
typedef struct {
    char text[9];
} mp_session_mark;
mp_session_mark mp_session_mark_of(mp_str id);

/* Subscribes the session to a topic until the session ends. The part of the topic's name behind a NUL is the
 * audience. A session has one audience for each topic: a later subscription replaces the audience, and
 * mp_session_unsubscribe ignores it. FULL: there is no memory for the topic. */
typedef enum { MP_SUBSCRIBE_DONE, MP_SUBSCRIBE_CLOSED, MP_SUBSCRIBE_TOO_MANY, MP_SUBSCRIBE_FULL } mp_subscribe_result;
mp_subscribe_result mp_session_subscribe(mp_session *session, mp_str topic, bool is_asked);
void mp_session_unsubscribe(mp_session *session, mp_str topic);
/* Changes the audience of all subscriptions of the session that have one (its principal's scopes may have changed). */
void mp_session_subscribe_as(mp_session *session, mp_str audience);

/* Publishes on a topic, on all workers: sends `plain` to the sessions that subscribe to it; sends `before`, the
 * call's id and `after` to the calls that listen to it. A text with ptr == NULL is not sent. Of several publications
 * on a topic in one turn only the last is sent. */
void mp_topic_publish(mp_rpc *rpc, mp_str topic, mp_str plain, mp_str before, mp_str after);
/* Appends the audiences of the topic that have subscribers, one per line. */
void mp_topic_audiences(mp_rpc *rpc, mp_str topic, mp_buf *out);
/* Appends a part of the names of topics with subscribers that begin with `prefix`, one per line, without it. `from` 0:
 * the first part. Returns where to go on; 0: that was the last. What comes or goes meanwhile may be left out. */
size_t mp_topic_names(mp_rpc *rpc, mp_str prefix, size_t from, mp_buf *out);
/* Appends a line for each topic that begins with `prefix`: the name that its first session counts for, in hex, a space,
 * and the rest of the topic. Nothing unless sessions of an earlier process were revived. Reads all topics, locked. */
void mp_topic_revived(mp_rpc *rpc, mp_str prefix, mp_buf *out);
/* As mp_topic_revived, for the topics of one session; nothing unless an earlier process has opened it. */
void mp_session_revived_topics(mp_session *session, mp_str prefix, mp_buf *out);

#endif
