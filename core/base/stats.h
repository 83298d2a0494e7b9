/* stats.h: every gauge and counter of the house, in one table. Each thread adds to its own slot; a reader sums the slots,
 * so a gauge that rises on one worker and falls on another still reads true. */
#ifndef MP_BASE_STATS_H
#define MP_BASE_STATS_H

#include <stdint.h>

/* X(id, family, label, value of the label, what it counts). Gauges fall again; counters never do. */
#define MP_GAUGES(X)                                                                                                   \
    X(SESSIONS_SSE, "sessions", "transport", "sse", "HTTP+SSE sessions in the table")                                  \
    X(SESSIONS_HTTP, "sessions", "transport", "http", "Streamable HTTP sessions in the table")                         \
    X(CONNECTIONS, "connections", "", "", "accepted connections")                                                      \
    X(STREAMS_OPEN, "streams_open", "", "", "event streams with a reader")                                             \
    X(REQUESTS_IN_FLIGHT, "requests_in_flight", "", "", "JSON-RPC requests being answered")                            \
    X(LISTENERS, "listeners", "", "", "calls that listen to topics")                                                   \
    X(CALLS_WAITING, "calls_waiting", "", "", "calls that wait for a turn of their tool")                              \
    X(JOBS, "jobs", "", "", "background tasks, which no client's request waits for")                                   \
    X(ENTRIES, "entries", "", "", "requests that wait until it is known who sent them")                                \
    X(SUBSCRIPTIONS, "subscriptions", "", "", "topics that sessions follow, each by each")                             \
    X(PUBLICATIONS, "publications", "", "", "publications that wait to be sent")                                       \
    X(TASKS, "tasks", "", "", "Lua coroutines that run or wait")                                                       \
    X(OPS, "ops", "", "", "things that coroutines wait for")                                                           \
    X(QUEUE_BYTES, "queue_bytes", "", "", "bytes queued for event streams")                                            \
    X(STORE_ENTRIES, "store_entries", "", "", "texts in the store")                                                    \
    X(STORE_BYTES, "store_bytes", "", "", "bytes of their keys and texts")                                             \
    X(STORE_UNSAVED, "store_unsaved", "", "", "changes of the store that its file does not have yet")                  \
    X(REPLAY_BYTES, "replay_bytes", "", "", "bytes of events kept for clients that come back")                         \
    X(DATABASES, "databases", "", "", "SQLite connections of scripts")                                                 \
    X(STATEMENTS, "statements", "", "", "SQL of scripts, waiting for its database or under way")                       \
    X(HTTP_REQUESTS, "http_requests", "", "", "outgoing HTTP requests under way")                                      \
    X(LOOKUPS, "lookups", "", "", "names being looked up, also for requests that were given up")                       \
    X(POOL_JOBS, "pool_jobs", "", "", "work that blocks, waiting for a thread or under way")                           \
    X(FS_BYTES, "fs_bytes", "", "", "bytes on their way from and to scripts' files")                                   \
    X(CHILD_PROCESSES, "child_processes", "", "", "programs that scripts run")                                         \
    X(VMS, "vms", "", "", "Lua states that serve, or end the last of their calls")                                     \
    X(VMS_DRAINING, "vms_draining", "", "", "those of earlier scripts, which end their calls")                         \
    X(LUA_BYTES, "lua_bytes", "", "", "bytes held by Lua states")

#define MP_COUNTERS(X)                                                                                                 \
    X(REQUESTS, "requests", "", "", "HTTP requests received")                                                          \
    X(CALLS, "calls", "", "", "JSON-RPC requests received")                                                            \
    X(SESSIONS_OPENED, "sessions_opened", "", "", "sessions made")                                                     \
    X(CLOSED_GONE, "sessions_closed", "reason", "gone", "the client of an HTTP+SSE stream left")                       \
    X(CLOSED_DELETE, "sessions_closed", "reason", "delete", "the client sent DELETE")                                  \
    X(CLOSED_IDLE, "sessions_closed", "reason", "idle", "not used for sessions.idle")                                  \
    X(CLOSED_UNINITIALIZED, "sessions_closed", "reason", "uninitialized", "no initialize in time")                     \
    X(CLOSED_SLOW, "sessions_closed", "reason", "slow", "the reader of an HTTP+SSE stream stalled")                    \
    X(CLOSED_EXPIRED, "sessions_closed", "reason", "expired", "the credentials of an HTTP+SSE stream expired")         \
    X(CLOSED_SHUTDOWN, "sessions_closed", "reason", "shutdown", "the gateway stopped")                                 \
    X(DROPPED_GONE, "dropped", "reason", "gone", "messages whose reader had left")                                     \
    X(DROPPED_SLOW, "dropped", "reason", "slow", "messages that did not fit a stalled reader's queue")                 \
    X(DROPPED_UNMATCHED, "dropped", "reason", "unmatched", "responses that nobody asked for")                          \
    X(DROPPED_REPLAY, "dropped", "reason", "replay", "events not kept for a resume: too large, or over the total")     \
    X(DROPPED_LOG, "dropped", "reason", "log", "log lines that did not fit the queue")                                 \
    X(DROPPED_AUDIT, "dropped", "reason", "audit", "audit lines that did not fit the queue, or could not be written")  \
    X(DROPPED_NOTES, "dropped", "reason", "notes", "notifications over what a Lua state queues")                       \
    X(DROPPED_PUBLICATIONS, "dropped", "reason", "publications", "publications over what a worker queues")             \
    X(DROPPED_TOLD, "dropped", "reason", "told", "messages between workers over what a Lua state queues")              \
    X(STREAMS_EXPIRED, "streams_ended", "reason", "expired", "streams ended because their credentials expired")        \
    X(STREAMS_SLOW, "streams_ended", "reason", "slow", "streams ended because their reader stalled")                   \
    X(STORE_FAILURES, "store_failures", "", "", "times that the store could not be written to its file")               \
    X(REFUSED_SESSIONS, "refused", "reason", "sessions", "sessions over a cap")                                        \
    X(REFUSED_CALLS, "refused", "reason", "calls", "calls over limits.calls_in_flight")                                \
    X(REFUSED_RATE, "refused", "reason", "rate", "calls over a limit or a quota of a policy")                          \
    X(REFUSED_TURNS, "refused", "reason", "turns", "calls over limits.call.waiting")                                   \
    X(REFUSED_LISTENERS, "refused", "reason", "listeners", "calls over limits.listeners that would listen")            \
    X(REFUSED_JOBS, "refused", "reason", "jobs", "background tasks over tasks.max")                                    \
    X(REFUSED_ENTRIES, "refused", "reason", "entries", "requests over limits.auth.waiting, or past limits.auth.time")  \
    X(REFUSED_AUTH, "refused", "reason", "auth", "requests without credentials that are good here")                    \
    X(REFUSED_CONNECTIONS, "refused", "reason", "connections", "times accepting paused at limits.connections")         \
    X(REFUSED_ORIGIN, "refused", "reason", "origin", "requests whose Host or Origin is not served")                    \
    X(REFUSED_TLS, "refused", "reason", "tls", "TLS handshakes that failed or took too long")                          \
    X(REFUSED_HTTP, "refused", "reason", "http", "outgoing requests over limits.http.requests")                        \
    X(REFUSED_LOOKUPS, "refused", "reason", "lookups", "outgoing requests over limits.http.lookups")                   \
    X(REFUSED_ADDRESS, "refused", "reason", "address", "outgoing connections to addresses that no grant allows")       \
    X(REFUSED_DATABASES, "refused", "reason", "databases", "databases over limits.sqlite.databases")                   \
    X(REFUSED_STATEMENTS, "refused", "reason", "statements", "SQL over limits.sqlite.queue")                           \
    X(REFUSED_POOL, "refused", "reason", "pool", "work that blocks over limits.pool.queue")                            \
    X(REFUSED_PROCESSES, "refused", "reason", "processes", "programs over limits.exec.processes")                      \
    X(TOOL_CANCELLED, "tool_aborted", "reason", "cancelled", "calls called off by their client")                       \
    X(TOOL_GONE, "tool_aborted", "reason", "gone", "calls called off because their client left")                       \
    X(TOOL_TIME, "tool_aborted", "reason", "time", "calls that ran past limits.call.time")                             \
    X(TOOL_CPU, "tool_aborted", "reason", "cpu", "calls that ran Lua for longer than limits.call.cpu")                 \
    X(TOOL_MEMORY, "tool_aborted", "reason", "memory", "calls that took more than limits.call.memory")                 \
    X(TOOL_OUTPUT, "tool_aborted", "reason", "output", "results over limits.call.output")                              \
    X(TOOL_SHUTDOWN, "tool_aborted", "reason", "shutdown", "calls still running when the gateway stopped")             \
    X(TOOL_RELOAD, "tool_aborted", "reason", "reload", "calls on scripts before a reload, past scripts.drain")         \
    X(TURNS_1MS, "turns", "within", "1ms", "turns of the workers' loops, by how long they kept everybody waiting")     \
    X(TURNS_5MS, "turns", "within", "5ms", "longer than that")                                                         \
    X(TURNS_20MS, "turns", "within", "20ms", "longer than that")                                                       \
    X(TURNS_100MS, "turns", "within", "100ms", "longer than that")                                                     \
    X(TURNS_LONGER, "turns", "within", "longer", "longer than that")                                                   \
    X(RELOAD_TURNS_1MS, "reload_turns", "within", "1ms",                                                               \
      "those with work of a reload, by processor time from there on")                                                  \
    X(RELOAD_TURNS_5MS, "reload_turns", "within", "5ms", "longer than that")                                           \
    X(RELOAD_TURNS_20MS, "reload_turns", "within", "20ms", "longer than that")                                         \
    X(RELOAD_TURNS_100MS, "reload_turns", "within", "100ms", "longer than that")                                       \
    X(RELOAD_TURNS_LONGER, "reload_turns", "within", "longer", "longer than that")                                     \
    X(TOOL_FAULTS, "tool_faults", "", "", "calls that ended in a Lua error")                                           \
    X(VERIFICATIONS, "jwt_verifications", "", "", "signatures of tokens that were checked")

#define MP_STAT_ID(id, family, label, value, text) MP_STAT_##id,
typedef enum {
    MP_GAUGES(MP_STAT_ID) MP_STAT_GAUGES,
    MP_STAT_LAST_GAUGE = MP_STAT_GAUGES - 1,
    MP_COUNTERS(MP_STAT_ID) MP_STATS
} mp_stat;
#undef MP_STAT_ID

typedef struct {
    const char *family, *label, *value, *text; /* label and value are "" where a family has one member */
} mp_stat_name;

void mp_stat_add(mp_stat stat, int64_t n);
int64_t mp_stat_read(mp_stat stat);
mp_stat_name mp_stat_name_of(mp_stat stat);
/* Gives this thread a slot of its own, for its whole life. Threads without one share a slot. */
void mp_stat_thread(void);

#endif
