/* listening.h: what a listening job takes its messages from. A library of scripts makes a userdata that begins with an
 * mp_listening, and whose metatable has MP_LISTENING. It puts messages here, which wait until the job takes them. */
#ifndef MP_LIB_WORK_LISTENING_H
#define MP_LIB_WORK_LISTENING_H

#include "loop/loop.h"
#include <lua.h>

#define MP_LISTENING "is_listening"

typedef struct mp_listening mp_listening;

typedef struct {
    /* Begins to listen, on the thread of `loop`. False: there are too many connections, which was counted. */
    bool (*open)(mp_listening *source, mp_loop *loop);
    void (*close)(mp_listening *source);
    /* A message was dropped; `is_first`: and the one before was not. Counts it, and writes a line of the log. */
    void (*dropped)(mp_listening *source, bool is_first);
    const mp_stat *waiting; /* gauge of the messages that wait */
} mp_listening_kind;

/* Zeroed but for its kind. */
struct mp_listening {
    const mp_listening_kind *kind;
    void (*ready)(void *ctx);
    void *ctx;
    mp_link messages;
    int64_t count; /* of them, without gaps */
    size_t bytes;
    bool is_behind; /* one was dropped: all others are until none waits */
};

/* Pushes the userdata of a library, of `size` bytes, zeroed but for its kind. It begins with an mp_listening, and has
 * the values at 1, the server, and at 2, the channel's name, as its user values.  [-0, +1, throws] */
void *mp_listening_new(lua_State *L, size_t size, const mp_listening_kind *kind, const char *metatable);
/* `ready` runs when a message may be taken, and only marks. False: as `open`. */
bool mp_listening_open(mp_listening *source, mp_loop *loop, void (*ready)(void *ctx), void *ctx);
/* Drops what waits. */
void mp_listening_close(mp_listening *source);
bool mp_listening_has_message(const mp_listening *source);
/* Takes the oldest message, and pushes its text and the name of its channel; nil twice where messages may have been
 * missed.  [-0, +2, throws] */
void mp_listening_take(lua_State *L, mp_listening *source);

/* For the library, on the thread of the loop. `source` is an mp_listening. The texts are copied. */
void mp_listening_put(void *source, mp_str channel, mp_str text);
/* Messages may have been missed here. */
void mp_listening_put_gap(void *source);

#endif
