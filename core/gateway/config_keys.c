/* config_keys.c: every key of moonpool.yaml. The checks, `moonpool config`, moonpool.yaml(5) and the JSON Schema come from here. */
#include "config.h"

#define SLOT(member) .slot = offsetof(mp_config, member)
#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define SECOND ((int64_t)1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define MILLION ((int64_t)1000000)

#define ADDRESS                                                                                                        \
    .least = 1, .most = 128, .check = mp_config_check_address, .form = "an address",                                   \
    .pattern = "^unix:/.+|^\\[[0-9A-Fa-f:.]+\\]:[0-9]{1,5}$|^[A-Za-z0-9._-]+:[0-9]{1,5}$"
/* The keys of one `tls`: of an item of `listen`, or of the admin's listener. */
#define TLS_KEYS(at, member)                                                                                           \
    {at, MP_KEY_SECTION, .restarts = true,                                                                             \
     .doc = "Makes it speak TLS, 1.2 and 1.3. The files are watched: new connections use new ones."},                  \
        {at ".certificate",                                                                                            \
         MP_KEY_PATH,                                                                                                  \
         member(certificate),                                                                                          \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc = "A PEM file: the server's certificate, then those that lead to its authority. A relative path starts " \
                "at the folder of this file."},                                                                        \
        {at ".key",                                                                                                    \
         MP_KEY_PATH,                                                                                                  \
         member(key),                                                                                                  \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc = "A PEM file with the certificate's private key, without a passphrase."},                               \
        {at ".client_ca",                                                                                              \
         MP_KEY_PATH,                                                                                                  \
         member(client_ca),                                                                                            \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc = "A PEM file of authorities: clients show a certificate that one of them has signed."},                 \
    {                                                                                                                  \
        at ".client", MP_KEY_CHOICE, member(client),                                                                   \
            .choices = needs, .restarts = true,                                                                        \
            .doc = "With client_ca: whether a client without a certificate is refused (required, the default), or "    \
                   "served like any other."                                                                            \
    }
#define OF_ITEM(member) .slot = offsetof(mp_config_tls, member)
#define OF_ADMIN(member) SLOT(admin_tls.member)
#define ENDPOINT                                                                                                       \
    .least = 1, .most = 256, .check = mp_config_check_endpoint, .form = "a path", .pattern = "^/", .word = "off"
#define TIME(lowest, highest) .type = MP_KEY_TIME, .least = (lowest), .most = (highest)
#define SIZE(lowest, highest) .type = MP_KEY_SIZE, .least = (lowest), .most = (highest)
#define COUNT(lowest, highest) .type = MP_KEY_COUNT, .least = (lowest), .most = (highest)

static const char *const trusts[] = {"strict", "full", NULL};
static const char *const needs[] = {"required", "optional", NULL};
static const char *const noes[] = {"true", "false", NULL};
static const char *const auth_modes[] = {"scripts", "none", NULL};
static const char *const expired_streams[] = {"end", "keep", NULL};
static const char *const audits[] = {"none", "names", "redacted", "full", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};

const mp_config_key mp_config_keys[] = {
    {"listen", MP_KEY_LIST, SLOT(listen), .preset = "127.0.0.1:7300", ADDRESS, .bare = "listen.address",
     .restarts = true, .item_slot = offsetof(mp_config, listen_tls), .item_size = sizeof(mp_config_tls),
     .doc = "Where clients connect: host:port, [IPv6]:port or unix:/path, one or a list. Port 0 takes a free one. In "
            "place "
            "of an address there may be keys: {address: 0.0.0.0:7300, tls: {certificate: c.pem, key: k.pem}}."},
    {"listen.address", MP_KEY_TEXT, ADDRESS, .doc = "The address."},
    TLS_KEYS("listen.tls", OF_ITEM),
    {"workers", COUNT(1, 64), SLOT(workers), .preset = "auto", .word = "auto", .restarts = true,
     .doc = "Threads that serve, each with an event loop and a Lua state of its own. auto: one per processor."},
    {"scripts", MP_KEY_SECTION, .bare = "scripts.path",
     .doc = "The Lua scripts that are served. `scripts: DIR` is short for the path alone."},
    {"scripts.path", MP_KEY_PATH, SLOT(scripts_path), .preset = "scripts", .least = 1, .most = 4000,
     .doc = "Their folder. A relative path starts at the folder of this file."},
    {"scripts.watch", MP_KEY_CHOICE, SLOT(scripts_watch), .preset = "true", .choices = noes,
     .doc = "Whether scripts that are saved, and this file, serve at once. Without, at SIGHUP and at POST /reload."},
    {"scripts.drain", TIME(0, DAY), SLOT(scripts_drain), .preset = "10m",
     .doc = "After a reload, how long calls and background work may go on with the scripts they began with."},
    {"scripts.generations", COUNT(1, 1000), SLOT(scripts_generations), .preset = "16",
     .doc = "Earlier scripts that may be kept for that at once. One more, and what runs on the oldest is called off."},
    {"scripts.trust", MP_KEY_CHOICE, SLOT(scripts_trust), .preset = "strict", .choices = trusts,
     .doc = "What scripts may touch. full opens Lua's whole standard library: io, os, debug, package."},
    {"scripts.allow", MP_KEY_SECTION, .doc = "What all scripts may touch. Without it: nothing."},
    {"scripts.allow.net", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_NET]), .least = 1, .most = 300,
     .check = mp_config_check_net, .form = "a host",
     .doc = "Where they may connect: host:port, *.domain, an address. Names lead to public addresses, unless the word "
            "private "
            "follows."},
    {"scripts.allow.read", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_READ]), .least = 1, .most = 4000, .form = "a path",
     .doc = "Files and folders that they may read, with all that is in them. A relative path starts at the folder of "
            "this file."},
    {"scripts.allow.write", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_WRITE]), .least = 1, .most = 4000, .form = "a path",
     .doc = "Files and folders that they may write, make and remove. Reading them is another grant."},
    {"scripts.allow.run", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_RUN]), .least = 1, .most = 4000, .form = "a program",
     .doc = "Programs that they may run: a path, or a name that is looked up in PATH at start. What a program does is "
            "not confined."},
    {"scripts.allow.env", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_ENV]), .least = 1, .most = 256,
     .check = mp_config_check_variable, .form = "a variable", .pattern = "^[A-Za-z_][A-Za-z0-9_]*\\*?$",
     .doc = "Environment variables that they may see; APP_* is all that begin with APP_."},
    {"scripts.grants", MP_KEY_GRANTS, SLOT(grants), .form = "paths of scripts",
     .doc = "What single folders (tools/orders/) or files (tools/git.lua) of scripts may touch beyond that: each path "
            "has keys as scripts.allow has them."},
    {"endpoints", MP_KEY_SECTION, .doc = "Paths that speak MCP. off switches one off."},
    {"endpoints.mcp", MP_KEY_TEXT, SLOT(endpoint_mcp), .preset = "/mcp", ENDPOINT, .restarts = true,
     .doc = "Streamable HTTP, revisions 2025-03-26 and later."},
    {"endpoints.sse", MP_KEY_TEXT, SLOT(endpoint_sse), .preset = "/sse", ENDPOINT, .restarts = true,
     .doc = "HTTP+SSE, revision 2024-11-05: the event stream."},
    {"endpoints.messages", MP_KEY_TEXT, SLOT(endpoint_messages), .preset = "/messages", ENDPOINT, .restarts = true,
     .doc = "HTTP+SSE: where its clients post. Switched off with sse."},
    {"endpoints.prefix", MP_KEY_TEXT, SLOT(endpoint_prefix), ENDPOINT, .restarts = true,
     .doc =
         "What a proxy in front takes off paths before they come here: HTTP+SSE clients are told to post to this and "
         "endpoints.messages."},
    {"hosts", MP_KEY_LIST, SLOT(hosts), .preset = "localhost, 127.0.0.1, [::1]", .least = 1, .most = 255,
     .check = mp_config_check_host, .form = "a host", .pattern = "^(\\*|[A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\])$",
     .doc = "Names that requests may carry in Host and Origin, without port: the guard against DNS rebinding. \"*\" "
            "allows every one."},
    {"auth", MP_KEY_SECTION, .bare = "auth.mode", .doc = "Who comes in. `auth: none` is short for the mode alone."},
    {"auth.mode", MP_KEY_CHOICE, SLOT(auth_mode), .preset = "scripts", .choices = auth_modes,
     .doc = "scripts asks those in scripts/auth; without any, only this machine is listened to. none lets everybody in "
            "who "
            "reaches a listener, and says so on purpose."},
    {"auth.expired_streams", MP_KEY_CHOICE, SLOT(expired_streams), .preset = "end", .choices = expired_streams,
     .doc = "Event streams whose credentials expire: end, and the client comes back with new ones, or keep. Calls that "
            "run "
            "go on."},
    {"public_url", MP_KEY_TEXT, SLOT(public_url), .least = 1, .most = 512, .check = mp_config_check_origin,
     .form = "an address", .pattern = "^https?://[^/]+$",
     .doc = "Scheme and host by which clients reach this gateway, as in https://mcp.example.com: what the metadata of "
            "OAuth says. Without it, http:// and the Host of each request. With it, a gateway needs auth scripts, or "
            "auth: none."},
    {"cors", MP_KEY_SECTION, .doc = "Pages in browsers that may talk to this gateway."},
    {"cors.origins", MP_KEY_LIST, SLOT(origins), .least = 1, .most = 512, .check = mp_config_check_origin_or_all,
     .form = "an origin", .pattern = "^\\*$|^[a-z][a-z0-9+.-]*://[^/]+$",
     .doc = "Their origins, as in https://app.example.com, which may then stand in Origin too. \"*\" is every page. "
            "Without "
            "any, browsers keep pages of others away."},
    {"server", MP_KEY_SECTION, .doc = "How this server introduces itself to clients."},
    {"server.name", MP_KEY_TEXT, SLOT(server_name), .preset = "moonpool", .least = 1, .most = 128, .doc = "Its name."},
    {"server.instructions", MP_KEY_TEXT, SLOT(server_instructions), .least = 1, .most = 64 * KIB,
     .doc = "What a model should know about the tools as a whole."},
    {"sessions", MP_KEY_SECTION, .doc = "Sessions, which clients of revisions before 2026-07-28 have."},
    {"sessions.idle", TIME(100, 30 * DAY), SLOT(session_idle), .preset = "30m",
     .doc = "A session that neither asks nor listens for so long ends."},
    {"sessions.initialize_within", TIME(100, HOUR), SLOT(session_initialize_within), .preset = "30s",
     .doc = "An HTTP+SSE stream whose client does not initialize in time ends."},
    {"sessions.max", COUNT(1, 10 * MILLION), SLOT(sessions_max), .preset = "10000",
     .doc = "Sessions at once. The next one is refused with 429."},
    {"sessions.per_principal", COUNT(1, 10 * MILLION), SLOT(sessions_per_principal), .preset = "1000",
     .doc = "Sessions at once of one principal: whoever the credentials name, or, where there are none, one address."},
    {"sessions.subscriptions", COUNT(1, MILLION), SLOT(subscriptions), .preset = "1024",
     .doc = "Things that one session, or one call that listens, is told about. One more is refused."},
    {"sessions.replay", MP_KEY_SECTION, .bare = "sessions.replay.events",
     .doc = "Events kept for Streamable HTTP clients that lost a stream and come back with Last-Event-ID."},
    {"sessions.replay.events", COUNT(0, MILLION), SLOT(replay_events), .preset = "256", .word = "off", .restarts = true,
     .doc = "The latest events of one session. off keeps none, and events then carry no id."},
    {"sessions.replay.bytes", SIZE(KIB, GIB), SLOT(replay_bytes), .preset = "1MiB",
     .doc =
         "Bytes of one session's events. The oldest make room, and a client that asks for what followed one of them is "
         "refused."},
    {"sessions.replay.total", SIZE(KIB, 64 * GIB), SLOT(replay_total), .preset = "64MiB",
     .doc = "Bytes of all sessions' events. The oldest of all make room."},
    {"limits", MP_KEY_SECTION, .doc = "What clients and scripts may use up."},
    {"limits.body", SIZE(KIB, GIB), SLOT(body), .preset = "4MiB",
     .doc = "The body of a request. Larger ones are refused with 413."},
    {"limits.headers", SIZE(KIB, MIB), SLOT(headers), .preset = "64KiB",
     .doc = "All headers of a request. Larger ones are refused with 431."},
    {"limits.handshake", TIME(100, HOUR), SLOT(handshake), .preset = "10s",
     .doc = "From accepting a connection to the end of its TLS handshake."},
    {"limits.request_time", TIME(100, HOUR), SLOT(request_time), .preset = "30s", .restarts = true,
     .doc = "From the first byte of a request to its last; a connection without a request is kept as long."},
    {"limits.call", MP_KEY_SECTION, .doc = "One call of a tool."},
    {"limits.call.time", TIME(10, DAY), SLOT(call_time), .preset = "60s",
     .doc = "A call that takes longer is called off with an error."},
    {"limits.call.cpu", TIME(10, HOUR), SLOT(call_cpu), .preset = "2s",
     .doc = "Lua that a call runs, without what it waits for. One that runs longer is called off with an error."},
    {"limits.call.memory", SIZE(MIB, 64 * GIB), SLOT(call_memory), .preset = "64MiB",
     .doc = "Memory that a call may take of limits.lua_memory. One that takes more is called off with an error."},
    {"limits.call.output", SIZE(KIB, 32 * MIB), SLOT(call_output), .preset = "8MiB",
     .doc =
         "The JSON of one result or error, also of what a task keeps of it, or of one message or question on the way. "
         "A larger result becomes an error that says how large; a larger message is not sent, and is an error in "
         "the script."},
    {"limits.call.waiting", COUNT(1, MILLION), SLOT(call_waiting), .preset = "256", .restarts = true,
     .doc = "Calls that wait for a turn of one tool, where its `concurrency` says how many run at once. The next one "
            "fails."},
    {"limits.auth", MP_KEY_SECTION, .doc = "Finding out who sent a request, where auth scripts wait for others."},
    {"limits.auth.time", TIME(10, HOUR), SLOT(auth_time), .preset = "10s",
     .doc = "It may take so long; then the request is refused with 503."},
    {"limits.auth.waiting", COUNT(1, MILLION), SLOT(auth_waiting), .preset = "1024",
     .doc = "Requests for which that waits at once. The next one is refused with 503."},
    {"limits.calls_in_flight", COUNT(1, MILLION), SLOT(calls_in_flight), .preset = "1024",
     .doc = "Calls being answered at once. The next one is refused."},
    {"limits.listeners", COUNT(1, MILLION), SLOT(listeners), .preset = "10000",
     .doc = "Calls that only listen (subscriptions/listen), which do not count as in flight. The next one is refused."},
    {"limits.connections", COUNT(1, MILLION), SLOT(connections), .preset = "10000",
     .doc = "Connections at once. More wait in the kernel's queue."},
    {"limits.stream_queue", SIZE(KIB, GIB), SLOT(stream_queue), .preset = "1MiB",
     .doc = "Bytes that wait for the reader of one event stream. More end the stream."},
    {"limits.stall", TIME(100, HOUR), SLOT(stall), .preset = "30s",
     .doc = "A reader that takes nothing for so long, with bytes waiting, loses its stream."},
    {"limits.dead_peer", TIME(SECOND, HOUR), SLOT(dead_peer), .preset = "30s", .restarts = true,
     .doc = "A peer whose machine or network vanished is noticed within this time."},
    {"limits.lua_memory", SIZE(4 * MIB, 64 * GIB), SLOT(lua_memory), .preset = "256MiB",
     .doc = "Memory of one worker's Lua state."},
    {"limits.http", MP_KEY_SECTION, .doc = "Requests that scripts send to others."},
    {"limits.http.requests", COUNT(1, 10000), SLOT(http_requests), .preset = "256",
     .doc = "Requests of one worker at once. The next one is refused."},
    {"limits.http.lookups", COUNT(1, 10000), SLOT(http_lookups), .preset = "256", .restarts = true,
     .doc = "Names being looked up at once, for all workers. Each has a thread, which stays until the name server has "
            "answered, also when its request was given up. The next request to a name is refused."},
    {"limits.http.per_host", COUNT(1, 10000), SLOT(http_per_host), .preset = "32",
     .doc = "Connections of one worker to one host. More requests wait for one."},
    {"limits.http.body", SIZE(KIB, GIB), SLOT(http_body), .preset = "16MiB",
     .doc = "The body of one answer, decompressed. A larger one is cut off with an error."},
    {"limits.http.held", SIZE(KIB, 64 * GIB), SLOT(http_held), .preset = "128MiB",
     .doc = "Bytes of all answers that one worker has received and no script has taken."},
    {"limits.http.time", TIME(10, DAY), SLOT(http_time), .preset = "30s",
     .doc = "A request that says no other timeout ends with an error after so long; a stream, when its answer has not "
            "begun by then."},
    {"limits.http.idle", TIME(0, HOUR), SLOT(http_idle), .preset = "15s",
     .doc = "Connections that no request uses are kept for so long."},
    {"limits.pool", MP_KEY_SECTION, .doc = "Threads for what would block: files and databases."},
    {"limits.pool.threads", COUNT(1, 64), SLOT(pool_threads), .preset = "4", .restarts = true,
     .doc = "As many at most, of all workers together. They begin when they are first needed."},
    {"limits.pool.queue", COUNT(1, MILLION), SLOT(pool_queue), .preset = "1024", .restarts = true,
     .doc = "What may wait for one of them. The next one is refused."},
    {"limits.fs", MP_KEY_SECTION, .doc = "Files that scripts read and write."},
    {"limits.fs.file", SIZE(KIB, GIB), SLOT(fs_file), .preset = "16MiB",
     .doc = "Bytes that are read or written at once. More is an error."},
    {"limits.fs.held", SIZE(KIB, 64 * GIB), SLOT(fs_held), .preset = "128MiB",
     .doc = "Bytes on their way from or to files, of all workers together."},
    {"limits.exec", MP_KEY_SECTION, .doc = "Programs that scripts run."},
    {"limits.exec.processes", COUNT(1, 10000), SLOT(exec_processes), .preset = "16",
     .doc = "Programs of one worker at once. The next one is refused."},
    {"limits.exec.output", SIZE(KIB, GIB), SLOT(exec_output), .preset = "4MiB",
     .doc = "Bytes that a program may print, on each of stdout and stderr. One that prints more is ended."},
    {"limits.exec.time", TIME(10, DAY), SLOT(exec_time), .preset = "30s",
     .doc = "A program that is given no other timeout is ended after so long."},
    {"limits.exec.grace", TIME(0, HOUR), SLOT(exec_grace), .preset = "2s",
     .doc = "How long a program that is ended may take after SIGTERM, before SIGKILL."},
    {"limits.sqlite", MP_KEY_SECTION, .doc = "Databases of scripts."},
    {"limits.sqlite.databases", COUNT(1, 1000), SLOT(sqlite_databases), .preset = "32",
     .doc =
         "Files of one worker that scripts have open at once, and databases in memory. Each has a thread. The next one "
         "is refused."},
    {"limits.sqlite.queue", COUNT(1, MILLION), SLOT(sqlite_queue), .preset = "1024",
     .doc = "Statements that wait for one database. The next one is refused."},
    {"limits.sqlite.rows", COUNT(1, 100 * MILLION), SLOT(sqlite_rows), .preset = "10000",
     .doc = "Rows of one result. More are an error."},
    {"limits.sqlite.bytes", SIZE(KIB, GIB), SLOT(sqlite_bytes), .preset = "16MiB",
     .doc = "Bytes of one result, and of one value. More are an error."},
    {"limits.sqlite.busy", TIME(0, HOUR), SLOT(sqlite_busy), .preset = "5s",
     .doc = "How long a statement waits for another connection or process to unlock the file."},
    {"limits.drain", TIME(0, HOUR), SLOT(drain), .preset = "10s",
     .doc = "At SIGTERM, how long running calls may take to end."},
    {"tasks", MP_KEY_SECTION, .doc = "Calls that go on in the background."},
    {"tasks.max", COUNT(1, MILLION), SLOT(tasks_max), .preset = "1024",
     .doc = "Background work at once. The next one is refused."},
    {"tasks.ttl", TIME(100, 30 * DAY), SLOT(tasks_ttl), .preset = "1h",
     .doc = "The longest that a task and what is known of it last."},
    {"store", MP_KEY_SECTION, .doc = "What all workers remember together: what scripts store, and tasks."},
    {"store.entries", COUNT(1, 100 * MILLION), SLOT(store_entries), .preset = "100000",
     .doc = "Entries at once. What needs one more fails."},
    {"store.bytes", SIZE(KIB, 64 * GIB), SLOT(store_bytes), .preset = "64MiB",
     .doc = "Bytes of their keys and texts at once."},
    {"store.file", MP_KEY_PATH, SLOT(store_file), .restarts = true, .least = 1, .most = 4000,
     .doc = "A file that keeps what scripts store over a restart: an SQLite database of this gateway alone, made where "
            "there is none. A relative path starts at the folder of this file. Without it all is gone at the end."},
    {"http", MP_KEY_SECTION, .doc = "Requests that scripts send to others."},
    {"http.ca", MP_KEY_PATH, SLOT(http_ca), .least = 1, .most = 4000,
     .doc = "A file of PEM certificates to trust instead of the system's. A relative path starts at the folder of this "
            "file."},
    {"heartbeat", TIME(100, HOUR), SLOT(heartbeat), .preset = "15s",
     .doc = "A quiet event stream gets a comment this often, so that proxies keep it open."},
    {"seal_keys", MP_KEY_LIST, SLOT(seal_keys), .least = 16, .most = 4096, .form = "a secret",
     .doc = "Secrets that seal what clients carry for the gateway, such as cursors. The first seals, all open: to "
            "change it, put the "
            "new one in front. Without any, one is made at start, and what an earlier process sealed is refused."},
    {"admin", MP_KEY_SECTION, .doc = "The operator's own listener: /healthz, /status, /reload."},
    {"admin.listen", MP_KEY_TEXT, SLOT(admin_listen), .preset = "127.0.0.1:7301", ADDRESS, .word = "off",
     .restarts = true, .doc = "Its address, or off. Anybody who reaches it may read it, and ask for a reload."},
    TLS_KEYS("admin.tls", OF_ADMIN),
    {"log", MP_KEY_SECTION, .doc = "The log, on standard error: one event, one line of logfmt."},
    {"log.level", MP_KEY_CHOICE, SLOT(log_level), .preset = "info", .choices = levels,
     .doc = "The least level that is written."},
    {"log.audit", MP_KEY_PATH, SLOT(audit), .least = 1, .most = 4000, .restarts = true,
     .doc = "A file that gets one line of JSON per call, and per request that is refused: who, what, from where, with "
            "what outcome. A relative path starts at the folder of this file. At SIGHUP it is opened again."},
    {"log.audit_arguments", MP_KEY_CHOICE, SLOT(audit_arguments), .preset = "names", .choices = audits,
     .doc =
         "What such a line tells of a call's arguments. redacted: their values, but *** for what looks like a secret, "
         "and long texts cut."},
};

const size_t mp_config_key_count = sizeof mp_config_keys / sizeof *mp_config_keys;

const char *mp_config_key_name(const mp_config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot == NULL ? key->path : dot + 1;
}

bool mp_config_key_is_in(const mp_config_key *key, const mp_config_key *section)
{
    if (section == NULL)
        return strchr(key->path, '.') == NULL;
    size_t len = strlen(section->path);
    return strncmp(key->path, section->path, len) == 0 && key->path[len] == '.' &&
           strchr(key->path + len + 1, '.') == NULL;
}

const mp_config_key *mp_config_key_find(const mp_config_key *section, mp_str name)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_is_in(&mp_config_keys[i], section) && mp_str_is(name, mp_config_key_name(&mp_config_keys[i])))
            return &mp_config_keys[i];
    return NULL;
}

const mp_config_key *mp_config_key_list(const mp_config_key *key)
{
    for (size_t i = 0; i < mp_config_key_count; i++) {
        size_t len = strlen(mp_config_keys[i].path);
        if (mp_config_keys[i].type == MP_KEY_LIST && strncmp(key->path, mp_config_keys[i].path, len) == 0 &&
            key->path[len] == '.')
            return &mp_config_keys[i];
    }
    return NULL;
}

const mp_config_key *mp_config_key_at(const char *path)
{
    const mp_config_key *key = mp_config_keys;
    while (strcmp(key->path, path) != 0)
        key++;
    return key;
}
