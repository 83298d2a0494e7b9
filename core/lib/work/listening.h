/* listening.h: what a listening job takes its messages from. A library of scripts makes a userdata that begins with an
 * mp_listening, and whose metatable has MP_LISTENING. */
#ifndef MP_LIB_WORK_LISTENING_H
#define MP_LIB_WORK_LISTENING_H

#include "loop/loop.h"
#include <lua.h>

#define MP_LISTENING "is_listening"

typedef struct mp_listening mp_listening;

typedef struct {
    /* Begins to listen, on the thread of `loop`. `ready` runs on it when a message may be taken, and only marks. False:
     * there are too many connections, which was counted. */
    bool (*open)(mp_listening *source, mp_loop *loop, void (*ready)(void *ctx), void *ctx);
    void (*close)(mp_listening *source);
    bool (*has_message)(const mp_listening *source);
    /* Takes the oldest message, and pushes its text and what more there is to say of it; or nil, nil: messages may have
     * been missed.  [-0, +2, throws] */
    void (*take)(lua_State *L, mp_listening *source);
} mp_listening_kind;

struct mp_listening {
    const mp_listening_kind *kind;
};

#endif
