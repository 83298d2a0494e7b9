/* refusal.h: log lines about refused requests and connections, and the readable request lines of `run --trace`.
 *
 * Each line names the cause and a remedy. Each cause has a budget of 10 lines per second, so that an attacker cannot
 * fill the log. Lines over the budget are counted; the next line of that cause has their number as `suppressed`. */
#ifndef MP_TELEMETRY_REFUSAL_H
#define MP_TELEMETRY_REFUSAL_H

#include "log.h"
#include <stdbool.h>

/* X(id, cause as it appears in the log, remedy). Each cause has its own budget. */
#define MP_CAUSES(X)                                                                                                   \
    X(HOST, "host", "add this name to hosts in the configuration, if clients may use it")                              \
    X(ORIGIN, "origin", "add the page's origin to cors.origins, or its host to hosts, if it may use the gateway")      \
    X(ADMIN_HOST, "admin host", "add this name to admin.hosts in the configuration, if operators may use it")          \
    X(AUTH, "auth", "moonpool explain --bearer-env VAR (or --header) shows what the auth scripts decide, and why")     \
    X(AUTH_WAITING, "auth waiting", "auth scripts take longer than 10 s, or 1,024 requests wait for them")             \
    X(SCOPES, "scopes", "grant the scopes in the auth script, or moonpool explain PRINCIPAL NAME")                     \
    X(TLS, "tls", "compare the client's TLS version, certificate and trusted authorities with tls in listen")          \
    X(SCHEME, "scheme", "the client's URL begins with https:// if the listener has tls in listen, else with http://")  \
    X(PROXY, "proxy",                                                                                                  \
      "see proxy_protocol and trusted_proxies in listen: only trusted proxies connect there, with a PROXY header")     \
    X(SESSION, "session", "clients send initialize again; sessions end after sessions.idle, and with the gateway")     \
    X(REVISION, "revision", "the gateway serves 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28")        \
    X(HEADER, "header", "a client of 2026-07-28 repeats members of the body in headers")                               \
    X(MEDIA_TYPE, "media type",                                                                                        \
      "clients send Content-Type: application/json and Accept: application/json, text/event-stream")                   \
    X(MESSAGE, "message", "a body is one JSON-RPC 2.0 message in UTF-8")                                               \
    X(HTTP, "http", "a proxy in front may have changed the request; headers have at most 64 KiB")                      \
    X(HTTP2, "http2", "the client sent what HTTP/2 forbids, a flood of frames, or too slowly: see http2 in listen")    \
    X(TIME, "request time", "see limits.request_time: a request arrives within it, from its first byte to its last")   \
    X(SIZE, "size", "see limits.body; a body has at most 100,000 values, headers have at most 64 KiB")                 \
    X(BODIES, "bodies", "see limits.bodies; the field address names a client that sends many large bodies at once")    \
    X(CONNECTIONS, "connections", "see limits.connections; a proxy in front of clients belongs in trusted_proxies")    \
    X(METHOD, "method", "clients send messages by POST; GET opens an event stream, DELETE ends a session")             \
    X(PATH, "path", "clients need the whole URL, with the path of endpoints.mcp")                                      \
    X(STREAM, "stream", "one event stream per session; a client that comes back sends Last-Event-ID")                  \
    X(SESSIONS, "sessions", "see sessions.max and sessions.per_principal")                                             \
    X(CLUSTER, "cluster", "`moonpool cluster status` says why this gateway has not joined")                            \
    X(CALLS, "calls", "see limits.calls_in_flight")                                                                    \
    X(OVERLOAD, "overload", "requests wait longer than overload.wait: add workers, or limit callers by a policy")      \
    X(LUA_MEMORY, "lua memory", "see limits.lua_memory: the calls of a worker hold more at once")                      \
    X(ANSWERS, "answers", "see limits.answers: clients do not read their answers")                                     \
    X(LOOP, "loop", "remove one of the upstreams by which gateways lead to each other")                                \
    X(HOP, "hop", "an upgrade left several processes: see GET /status, and the log lines of each process")             \
    X(RATE, "rate", "see the limits and quotas in scripts/policy")                                                     \
    X(ADMIN, "admin", "see admin.tokens and admin.certificates for who may use the admin listener")                    \
    X(STOPPING, "stopping", "clients try again when the gateway has restarted")

#define MP_CAUSE_ID(id, name, hint) MP_CAUSE_##id,
typedef enum { MP_CAUSES(MP_CAUSE_ID) MP_CAUSE_COUNT } mp_cause;
#undef MP_CAUSE_ID

/* Takes one line from the budget of the cause. False if the log level hides the line, or if the budget is used up,
 * which is counted. */
bool mp_refusal_begin(mp_cause cause);
/* Writes the line that mp_refusal_begin allowed. `why` must not contain credentials. */
void mp_refusal_write(mp_cause cause, mp_str why, const mp_log_field *fields);

#define mp_refused(cause, why, ...)                                                                                    \
    (mp_refusal_begin(cause)                                                                                           \
         ? mp_refusal_write(cause, why, (const mp_log_field[]){__VA_ARGS__ __VA_OPT__(, ){NULL, {NULL, 0}, 0}})        \
         : (void)0)

/* -- trace ------------------------------------------------------------------------------------------------------ */

/* Turns on trace lines on stderr, one per request and refusal, whatever log.level is. Call it before threads start. */
void mp_trace_start(bool has_color);
bool mp_trace_is_on(void);

typedef enum { MP_TRACE_PLAIN, MP_TRACE_GOOD, MP_TRACE_DOUBTFUL, MP_TRACE_BAD, MP_TRACE_DIM } mp_trace_color;

/* Appends the local time of day, as at the start of a trace line. */
void mp_trace_put_time(mp_buf *line);
/* Appends at most 200 bytes of `text`, with control characters escaped. */
void mp_trace_put(mp_buf *line, mp_trace_color color, mp_str text);
/* Writes the line and adds its line end. */
void mp_trace_write(mp_buf *line);

#endif
