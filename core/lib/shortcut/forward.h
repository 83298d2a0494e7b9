/* forward.h: the quick way of a tools/call to an upstream. A plain call of a federated tool is forwarded by C, without
 * Lua: its params go on as the client's bytes with other names and another `_meta`, and the upstream's result comes
 * back as its bytes, with members of its first level dropped or added. Every other call takes the general way through
 * lua/moonpool/upstream, before anything has happened.
 *
 *   route   what C needs to know of one tool. The general way makes it when it has served a call of the tool
 *   key     the key of the channel that calls of one client use, which Lua has chosen
 *   step    what differs between the results of upstreams and those of one revision of clients
 *
 * A route is usable only while a channel of the key is open. An upstream whose first event is not a plain result hands
 * the exchange over to the general way, which goes on from there: it alone answers questions, passes notifications on,
 * sends again, and words errors.
 *
 *   forward.c          a call from its start to its end
 *   forward_routes.c   routes, keys and steps of a VM
 *   forward_bytes.c    the message to the upstream, and the result for the client */
#ifndef MP_LIB_SHORTCUT_FORWARD_H
#define MP_LIB_SHORTCUT_FORWARD_H

#include "lib/shortcut/shortcut.h"

#define MP_FORWARD_BYTES ((size_t)256 << 10) /* bytes of a result that C converts */

/* -- forward_routes.c ---------------------------------------------------------------------------------------------- */

/* The texts are behind the structure. */
typedef struct {
    mp_node node;               /* its key is the name of the tool for clients */
    int tool;                   /* registry reference of the tool */
    mp_str upstream, json_name; /* the upstream, and its own name of the tool as JSON */
    mp_str header;              /* the line Mcp-Name, which ends with a zero byte that is not counted */
    mp_thing_metrics *metrics;
    bool may_be_task; /* the upstream can run the tool as an MCP task */
    char texts[];
} mp_route;

/* The results of a revision of clients. */
typedef struct {
    bool is_known; /* calls of this revision may take the quick way */
    bool is_base;  /* results have resultType and the server's name; else they have neither, nor ttlMs and cacheScope */
    bool has_objects;   /* structuredContent must be an object */
    bool has_none;      /* the result has no structuredContent */
    bool is_text_alone; /* blocks other than texts without annotations are converted by Lua */
} mp_forward_step;

typedef struct mp_forwards {
    mp_map routes, keys;
    bool are_suspended;    /* a catalogue has changed, and the routes are of the one before */
    int take_over;         /* registry reference of the Lua function that continues an exchange */
    mp_str client, server; /* JSON: this gateway as client and as server; strings that `names` holds */
    int names;
    mp_forward_step steps[MP_PLAIN_ERAS];
    mp_buf message, result, who, cancel;
} mp_forwards;

mp_forwards *mp_forwards_new(void);
void mp_forwards_free(mp_forwards *forwards);
/* Drops the routes: another snapshot of the registry is served.  [-0, +0] */
void mp_forwards_clear(lua_State *MP_NULLABLE L, mp_forwards *forwards);
const mp_route *MP_NULLABLE mp_route_find(const mp_forwards *forwards, mp_str tool);
/* The key of the channel for a call that takes a route; empty: Lua has not chosen one, or the client can have a task of
 * the tool. */
mp_str mp_forward_key(mp_forwards *forwards, const mp_call *call, const mp_route *route);

/* -- forward_bytes.c ----------------------------------------------------------------------------------------------- */

/* The facts besides the call that determine the message to an upstream. */
typedef struct {
    const mp_route *route;
    const mp_era *era; /* era of the upstream's revision */
    int64_t id;        /* of the request, and its progress token */
    mp_str traceparent,
        tracestate; /* trace context of the request's span, as JSON strings; empty: the client's own is passed on */
} mp_forward_target;

/* The JSON of the client's capabilities in the params of a plain call; empty: there are none. */
mp_str mp_forward_capabilities(mp_str params);
/* Appends the message to the upstream. `traces[2]` are the values of traceparent and tracestate in `_meta`, empty
 * without. False, appending nothing, for params that Lua has to convert. */
bool mp_forward_put_message(mp_buf *out, const mp_forwards *forwards, const mp_call *call,
                            const mp_forward_target *target, mp_str traces[2]);
/* Appends the result for a client, made of the upstream's. `*has_failed`: it has isError. False, appending nothing, for
 * a result that Lua has to convert or to refuse. */
bool mp_forward_put_result(mp_buf *out, const mp_forwards *forwards, const mp_forward_step *step, mp_str result,
                           bool *has_failed);

/* -- forward.c ----------------------------------------------------------------------------------------------------- */

/* Serves the call of a task by a route. The task's coroutine runs with nothing but the task on its stack. Where the
 * call is not plain for a route, nothing has happened. Otherwise the body of the coroutine returns `*count`.  [-0, +n,
 * throws, parks] */
mp_general mp_forward_run(lua_State *L, mp_lib_task *task, const mp_plain *it, int *count);

#endif
