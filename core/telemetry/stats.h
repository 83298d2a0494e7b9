/* stats.h: all gauges and counters of the process, in one table. Each thread adds to its own slot, and a reader sums
 * the slots, so a gauge that rises on one worker and falls on another reads correctly. */
#ifndef MP_TELEMETRY_STATS_H
#define MP_TELEMETRY_STATS_H

#include <stdint.h>

/* X(id, family, label, value of the label, what it counts). Gauges rise and fall; counters only rise. */
#define MP_GAUGES(X)                                                                                                   \
    X(SESSIONS_SSE, "sessions", "transport", "sse", "open HTTP+SSE sessions")                                          \
    X(SESSIONS_HTTP, "sessions", "transport", "http", "open Streamable HTTP sessions")                                 \
    X(CONNECTIONS, "connections", "", "", "open client connections")                                                   \
    X(STREAMS_OPEN, "streams_open", "", "", "event streams with a connected reader")                                   \
    X(REQUESTS_IN_FLIGHT, "requests_in_flight", "", "", "JSON-RPC requests in flight")                                 \
    X(LISTENERS, "listeners", "", "", "open subscriptions/listen calls")                                               \
    X(CALLS_WAITING, "calls_waiting", "", "", "calls that wait because of the concurrency limit of their tool")        \
    X(JOBS, "jobs", "", "", "running background tasks")                                                                \
    X(AUTH_PENDING, "auth_pending", "", "", "requests whose authentication is pending")                                \
    X(SUBSCRIPTIONS, "subscriptions", "", "", "subscriptions of all sessions")                                         \
    X(PUBLICATIONS, "publications", "", "", "publications that wait to be sent")                                       \
    X(TASKS, "tasks", "", "", "Lua coroutines that run or wait")                                                       \
    X(CLEANUPS, "cleanups", "", "", "cancelled calls whose <close> handlers run or wait")                              \
    X(OPS, "ops", "", "", "operations that coroutines wait for")                                                       \
    X(BODY_BYTES, "body_bytes", "", "",                                                                                \
      "bytes of requests being received or answered, without the first 16 KiB of each")                                \
    X(QUEUE_BYTES, "queue_bytes", "", "", "bytes of events and answers queued for their readers")                      \
    X(STORE_ENTRIES, "store_entries", "", "", "entries of the store")                                                  \
    X(STORE_BYTES, "store_bytes", "", "", "bytes of keys and values in the store")                                     \
    X(STORE_UNSAVED, "store_unsaved", "", "", "changes of the store that are not in its file yet")                     \
    X(REPLAY_BYTES, "replay_bytes", "", "", "bytes of events stored for clients that resume a stream")                 \
    X(DATABASES, "databases", "", "", "open SQLite databases of scripts")                                              \
    X(STATEMENTS, "statements", "", "", "SQL statements of scripts that wait or run")                                  \
    X(SQLITE_BYTES, "sqlite_bytes", "", "", "bytes of SQL parameters and results in progress")                         \
    X(HTTP_REQUESTS, "http_requests", "", "", "outgoing HTTP requests in flight")                                      \
    X(LOOKUPS, "lookups", "", "", "name lookups in progress, including those of cancelled requests")                   \
    X(POOL_JOBS, "pool_jobs", "", "", "blocking jobs that wait for a thread or run")                                   \
    X(FS_BYTES, "fs_bytes", "", "", "bytes of file reads and writes in progress")                                      \
    X(CHILD_PROCESSES, "child_processes", "", "", "running programs of scripts")                                       \
    X(VMS, "vms", "", "", "Lua states, serving or draining")                                                           \
    X(VMS_DRAINING, "vms_draining", "", "", "Lua states of earlier scripts, which finish their calls")                 \
    X(WORKERS_STUCK, "workers_stuck", "", "", "workers whose loop has not run for limits.stuck")                       \
    X(LUA_BYTES, "lua_bytes", "", "", "bytes allocated by Lua states")

#define MP_COUNTERS(X)                                                                                                 \
    X(REQUESTS, "requests", "", "", "HTTP requests received")                                                          \
    X(CALLS, "calls", "", "", "JSON-RPC requests received")                                                            \
    X(SESSIONS_OPENED, "sessions_opened", "", "", "sessions opened")                                                   \
    X(CLOSED_GONE, "sessions_closed", "reason", "gone", "the client of an HTTP+SSE stream disconnected")               \
    X(CLOSED_DELETE, "sessions_closed", "reason", "delete", "the client sent DELETE")                                  \
    X(CLOSED_IDLE, "sessions_closed", "reason", "idle", "not used for sessions.idle")                                  \
    X(CLOSED_UNINITIALIZED, "sessions_closed", "reason", "uninitialized",                                              \
      "no initialize in sessions.initialize_within")                                                                   \
    X(CLOSED_SLOW, "sessions_closed", "reason", "slow", "the reader of an HTTP+SSE stream stalled")                    \
    X(CLOSED_EXPIRED, "sessions_closed", "reason", "expired", "the credentials of an HTTP+SSE stream expired")         \
    X(CLOSED_SHUTDOWN, "sessions_closed", "reason", "shutdown", "the gateway stopped")                                 \
    X(DROPPED_GONE, "dropped", "reason", "gone", "messages whose reader had disconnected")                             \
    X(DROPPED_SLOW, "dropped", "reason", "slow", "messages that did not fit the queue of a stalled reader")            \
    X(DROPPED_ANSWERS, "dropped", "reason", "answers", "answers cut off because limits.answers was exceeded")          \
    X(DROPPED_UNMATCHED, "dropped", "reason", "unmatched", "responses that match no request")                          \
    X(DROPPED_REPLAY, "dropped", "reason", "replay", "events not stored for resuming: too large, or over the total")   \
    X(DROPPED_LOG, "dropped", "reason", "log", "log lines that did not fit the queue")                                 \
    X(SUPPRESSED_LOG, "dropped", "reason", "refusals", "log lines about refusals over log.refusals")                   \
    X(DROPPED_AUDIT, "dropped", "reason", "audit", "audit lines that did not fit the queue, or could not be written")  \
    X(DROPPED_NOTES, "dropped", "reason", "notes", "notifications over the queue of a Lua state")                      \
    X(DROPPED_PUBLICATIONS, "dropped", "reason", "publications", "publications over the queue of a worker")            \
    X(DROPPED_TOLD, "dropped", "reason", "told", "messages between workers over the queue of a Lua state")             \
    X(DROPPED_LISTED, "dropped", "reason", "listed", "lists of a template's resources over limits.listed")             \
    X(STREAMS_EXPIRED, "streams_ended", "reason", "expired", "streams ended because their credentials expired")        \
    X(STREAMS_SLOW, "streams_ended", "reason", "slow", "streams ended because their reader stalled")                   \
    X(STORE_FAILURES, "store_failures", "", "", "failed writes of the store to its file")                              \
    X(REFUSED_SESSIONS, "refused", "reason", "sessions", "sessions over sessions.max or sessions.per_principal")       \
    X(REFUSED_CALLS, "refused", "reason", "calls", "calls over limits.calls_in_flight")                                \
    X(REFUSED_BODIES, "refused", "reason", "bodies", "requests whose bodies did not fit limits.bodies")                \
    X(REFUSED_ANSWERS, "refused", "reason", "answers", "calls while limits.answers was exceeded")                      \
    X(REFUSED_VALUES, "refused", "reason", "values", "bodies with more values than limits.values")                     \
    X(REFUSED_RATE, "refused", "reason", "rate", "calls over a limit or quota of a policy")                            \
    X(REFUSED_TURNS, "refused", "reason", "turns", "calls over limits.call.waiting")                                   \
    X(REFUSED_LISTENERS, "refused", "reason", "listeners", "subscriptions/listen calls over limits.listeners")         \
    X(REFUSED_JOBS, "refused", "reason", "jobs", "background tasks over tasks.max")                                    \
    X(REFUSED_AUTH_PENDING, "refused", "reason", "auth_pending",                                                       \
      "requests over limits.auth.waiting, or past limits.auth.time")                                                   \
    X(REFUSED_AUTH, "refused", "reason", "auth", "requests with missing or invalid credentials")                       \
    X(REFUSED_CONNECTIONS, "refused", "reason", "connections", "times that accepting paused at limits.connections")    \
    X(REFUSED_ORIGIN, "refused", "reason", "origin", "requests whose Host or Origin is not allowed")                   \
    X(REFUSED_TLS, "refused", "reason", "tls", "TLS handshakes that failed or took too long")                          \
    X(REFUSED_HTTP, "refused", "reason", "http", "outgoing requests over limits.http.requests")                        \
    X(REFUSED_LOOKUPS, "refused", "reason", "lookups", "outgoing requests over limits.http.lookups")                   \
    X(REFUSED_ADDRESS, "refused", "reason", "address", "outgoing connections to addresses without a grant")            \
    X(REFUSED_DATABASES, "refused", "reason", "databases", "databases over limits.sqlite.databases")                   \
    X(REFUSED_STATEMENTS, "refused", "reason", "statements", "SQL statements over limits.sqlite.queue")                \
    X(REFUSED_SQLITE_BYTES, "refused", "reason", "sqlite_bytes", "SQL statements over limits.sqlite.held")             \
    X(REFUSED_POOL, "refused", "reason", "pool", "blocking jobs over limits.pool.queue")                               \
    X(REFUSED_PROCESSES, "refused", "reason", "processes", "programs over limits.exec.processes")                      \
    X(TOOL_CANCELLED, "tool_aborted", "reason", "cancelled", "calls cancelled by their client")                        \
    X(TOOL_GONE, "tool_aborted", "reason", "gone", "calls cancelled because their client disconnected")                \
    X(TOOL_TIME, "tool_aborted", "reason", "time", "calls over limits.call.time")                                      \
    X(TOOL_CPU, "tool_aborted", "reason", "cpu", "calls over limits.call.cpu")                                         \
    X(TOOL_MEMORY, "tool_aborted", "reason", "memory", "calls over limits.call.memory")                                \
    X(TOOL_OUTPUT, "tool_aborted", "reason", "output", "results over limits.call.output")                              \
    X(TOOL_SHUTDOWN, "tool_aborted", "reason", "shutdown", "calls still running when the gateway stopped")             \
    X(TOOL_RELOAD, "tool_aborted", "reason", "reload", "calls on scripts of before a reload, over scripts.drain")      \
    X(CLEANUPS_ENDED, "cleanups_ended", "", "", "cancelled calls whose <close> handlers exceeded their limits")        \
    X(TURNS_1MS, "turns", "within", "1ms", "turns of workers' event loops that took up to 1 ms")                       \
    X(TURNS_5MS, "turns", "within", "5ms", "turns that took up to 5 ms")                                               \
    X(TURNS_20MS, "turns", "within", "20ms", "turns that took up to 20 ms")                                            \
    X(TURNS_100MS, "turns", "within", "100ms", "turns that took up to 100 ms")                                         \
    X(TURNS_LONGER, "turns", "within", "longer", "turns that took longer")                                             \
    X(RELOAD_TURNS_1MS, "reload_turns", "within", "1ms",                                                               \
      "turns with work of a reload that took up to 1 ms of processor time")                                            \
    X(RELOAD_TURNS_5MS, "reload_turns", "within", "5ms", "turns with work of a reload: up to 5 ms")                    \
    X(RELOAD_TURNS_20MS, "reload_turns", "within", "20ms", "turns with work of a reload: up to 20 ms")                 \
    X(RELOAD_TURNS_100MS, "reload_turns", "within", "100ms", "turns with work of a reload: up to 100 ms")              \
    X(RELOAD_TURNS_LONGER, "reload_turns", "within", "longer", "turns with work of a reload: longer")                  \
    X(WORKER_STALLS, "worker_stalls", "", "", "times that a worker was stuck for limits.stuck")                        \
    X(TOOL_FAULTS, "tool_faults", "", "", "calls that ended in a Lua error")                                           \
    X(VERIFICATIONS, "jwt_verifications", "", "", "token signatures verified")

#define MP_STAT_ID(id, family, label, value, text) MP_STAT_##id,
typedef enum {
    MP_GAUGES(MP_STAT_ID) MP_STAT_GAUGES,
    MP_STAT_LAST_GAUGE = MP_STAT_GAUGES - 1,
    MP_COUNTERS(MP_STAT_ID) MP_STATS
} mp_stat;
#undef MP_STAT_ID

typedef struct {
    const char *family, *label, *value, *text; /* label and value are "" if the family has one member */
} mp_stat_name;

void mp_stat_add(mp_stat stat, int64_t n);
int64_t mp_stat_read(mp_stat stat);
mp_stat_name mp_stat_name_of(mp_stat stat);
/* Assigns the calling thread its own slot, for its whole life. Threads without one share a slot. */
void mp_stat_thread(void);

#endif
