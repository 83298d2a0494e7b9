/* forward.h: the quick way of a tools/call to an upstream. A plain call of a federated tool is forwarded by C, without
 * Lua: its params go on as the client's bytes with other names and another `_meta`, and the upstream's result comes
 * back as its bytes, with members of its first level dropped or added. Every other call takes the general way through
 * lua/moonpool/upstream, before anything has happened.
 *
 *   route   what C needs to know of one tool. The general way makes it when it has served a call of the tool
 *   client  the channel that calls of one client use, which Lua has chosen, and what the client can do
 *   step    what differs between the results of upstreams and those of one revision of clients
 *
 * A route is usable only while that channel is open. An upstream whose first event is not a plain result hands
 * the exchange over to the general way, which goes on from there: it alone answers questions, passes notifications on,
 * sends again, and words errors.
 *
 *   forward.c          a call from its start to its end
 *   forward_routes.c   routes, clients and steps of a VM
 *   forward_bytes.c    the message to the upstream, and the result for the client */
#ifndef MP_LIB_SHORTCUT_FORWARD_H
#define MP_LIB_SHORTCUT_FORWARD_H

#include "lib/shortcut/shortcut.h"

#define MP_FORWARD_BYTES ((size_t)256 << 10) /* bytes of a result that C converts */

/* -- forward_routes.c ---------------------------------------------------------------------------------------------- */

/* headers of clients that a route copies: upstream/routes.lua leaves tools of upstreams with more to the general way */
#define MP_FORWARD_PASS 16

/* The texts are behind the structure, each with a zero byte that is not counted. */
typedef struct {
    mp_node node;                    /* its key is the name of the tool for clients */
    int tool;                        /* registry reference of the tool */
    mp_str upstream;                 /* the upstream */
    mp_str original, json_name;      /* its own name of the tool, and the same as JSON */
    mp_str header;                   /* the line Mcp-Name */
    mp_str definition, approved;     /* for the audit: hashes of the definition; without `ptr`: none */
    mp_str pass[MP_FORWARD_PASS][2]; /* headers of the client that the upstream gets: as configured, in lower case */
    size_t pass_count;
    mp_thing_metrics *metrics;
    uint64_t scopes;   /* bit set of the scopes that the tool requires, as in mp_plan */
    bool may_be_task;  /* the upstream can run the tool as an MCP task */
    bool has_policies; /* the policies of scripts run first; they call forward.call() */
    char texts[];
} mp_route;

/* What calls of one client have in common at one upstream. */
typedef struct {
    mp_node node;   /* its key: the client, and the upstream */
    mp_buf key;     /* of the channel */
    mp_buf able[2]; /* JSON: the capabilities that a stateless upstream is told; [1]: and that of waiting for tasks */
    bool can_have_task;   /* the client can have MCP tasks of this gateway */
    bool takes_questions; /* the upstream may ask the client in the middle of a call */
    bool can_ask;         /* the client can be asked something */
} mp_forward_client;

/* The results of a revision of clients. */
typedef struct {
    bool is_known; /* calls of this revision may take the quick way */
    bool is_base;  /* results have resultType and the server's name; else they have neither, nor ttlMs and cacheScope */
    bool has_objects;   /* structuredContent must be an object */
    bool has_none;      /* the result has no structuredContent */
    bool is_text_alone; /* blocks other than texts without annotations are converted by Lua */
} mp_forward_step;

typedef struct mp_forwards {
    mp_map routes, clients;
    bool are_suspended; /* a catalogue has changed, and the routes are of the one before */
    /* registry references of Lua functions: one continues an exchange, the other runs the policies of a tool */
    int take_over, run_policies;
    mp_str client, server; /* JSON: this gateway as client and as server; strings that `names` holds */
    int names;
    mp_forward_step steps[MP_PLAIN_ERAS];
    mp_buf message, result, who, cancel, passed;
} mp_forwards;

mp_forwards *mp_forwards_new(void);
void mp_forwards_free(mp_forwards *forwards);
/* Drops the routes: another snapshot of the registry is served.  [-0, +0] */
void mp_forwards_clear(lua_State *MP_NULLABLE L, mp_forwards *forwards);
const mp_route *MP_NULLABLE mp_route_find(const mp_forwards *forwards, mp_str tool);
/* The client of a call that takes a route; NULL: Lua has not chosen its channel, or it can have a task of the tool. */
const mp_forward_client *MP_NULLABLE mp_forward_client_of(mp_forwards *forwards, const mp_call *call,
                                                          const mp_route *route);

/* -- forward_bytes.c ----------------------------------------------------------------------------------------------- */

/* The facts besides the call that determine the message to an upstream. */
typedef struct {
    const mp_route *route;
    const mp_era *era; /* era of the upstream's revision */
    mp_str able;       /* JSON: the capabilities of the client that a stateless upstream is told */
    mp_str arguments;  /* JSON: in the place of those of the client; without `ptr`: the client's */
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
/* The function forward.call of Lua.  [-0, +0|3|4, throws, parks] */
int mp_forward_call(lua_State *L);

#endif
