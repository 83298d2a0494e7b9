/* connection.h: a connection that follows channels. The server sends their messages without being asked. */
#ifndef MP_REDIS_CONNECTION_H
#define MP_REDIS_CONNECTION_H

#include "redis.h"

typedef struct {
    /* A message has come: a list of texts, as mp_redis_replies has them. */
    void (*message)(void *ctx, const mp_buf *values);
    /* The connection is lost. It follows no channel any more, and the next command opens it again. */
    void (*lost)(void *ctx);
    void *ctx;
} mp_redis_follower;

/* `follower` outlives the connection, which is not closed for having nothing to do. */
void mp_redis_set_follower(mp_redis *redis, const mp_redis_follower *follower);
/* The first word of an error, which names its kind; a server may put anything into the others, the password too. */
mp_str mp_redis_error_kind(mp_str text);

#endif
