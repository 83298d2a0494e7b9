/* replies.h: reads replies with hiredis' reader, and stores their values in a flat form, in the order in which they
 * come: hiredis' own objects would take what a server says that a list has. */
#ifndef MP_REDIS_REPLIES_H
#define MP_REDIS_REPLIES_H

#include "redis.h"

#define MP_REDIS_REPLY_BYTES ((size_t)16 << 20) /* limit of a reply: as of a value of `fs` and of a row of SQLite */

typedef struct mp_replies mp_replies;

mp_replies *mp_replies_new(void);
void mp_replies_free(mp_replies *MP_NULLABLE replies);
/* Adds bytes that have come. */
void mp_replies_feed(mp_replies *replies, mp_str bytes);
/* 1: a whole reply is in the buffer of mp_replies_take; 0: more bytes are needed; -1: what has come is no reply, or too
 * large, and no more can be read. */
int mp_replies_next(mp_replies *replies, mp_err *err);
/* The last reply's values; the next reply replaces them. Its owner may empty it or exchange it for another. */
mp_buf *mp_replies_last(mp_replies *replies);

#endif
