/* keys.c: the table of all keys of moonpool.yaml, used by the parser, `moonpool config`, moonpool.yaml(5)
 * and the JSON Schema. It has more than 400 lines because all keys are in one table; those
 * of upstreams are in two files beside it. */
#include "read.h"
#include "rows.h"

static const char *const trusts[] = {"strict", "full", NULL};
static const char *const unknowns[] = {"default", "refuse", NULL};
static const char *const needs[] = {"required", "optional", NULL};
static const char *const switches[] = {"off", "on", NULL};
static const char *const broken[] = {"last_good", "leave_out", "refuse", NULL};
static const char *const noes[] = {"true", "false", NULL};
static const char *const yeses[] = {"false", "true", NULL};
static const char *const upstream_revisions[] = {"auto", "modern", "legacy", "sse", NULL};
static const char *const owners[] = {"auto", "principal", "session", "call", "gateway", NULL};
static const char *const client_auths[] = {"auto", "basic", "post", NULL};
static const char *const uri_forms[] = {"as_is", "wrap", NULL};
static const char *const name_forms[] = {"safe", "as_is", NULL};
static const char *const retries[] = {"read_only", "hinted", "never", NULL};
static const char *const auth_modes[] = {"scripts", "none", NULL};
static const char *const expired_streams[] = {"end", "keep", NULL};
static const char *const audits[] = {"none", "names", "redacted", "full", NULL};
static const char *const reload_checks[] = {"off", "warn", "refuse", NULL};
static const char *const aways[] = {"local", "refuse", "allow", NULL};
static const char *const taps[] = {"none", "names", "shapes", "full", NULL};
static const char *const log_formats[] = {"logfmt", "json", NULL};
static const char *const addresses[] = {"shown", "hidden", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};

_Static_assert(offsetof(mp_upstream_config, circuit_open_max_ms) ==
                   offsetof(mp_upstream_config, circuit_open_min_ms) + sizeof(uint64_t),
               "a key of the type TIMES fills two adjacent members");

const mp_config_key mp_config_keys[] = {
    {"listen", MP_KEY_LIST, SLOT(listen), .preset = "127.0.0.1:7300", ADDRESS, .bare = "listen.address",
     .restarts = true, .item_slot = offsetof(mp_config, listen_tls), .item_size = sizeof(mp_config_tls),
     .doc =
         "Addresses on which clients connect: host:port, [IPv6]:port, unix:/path, or systemd:NAME for the sockets of "
         "a socket unit with this FileDescriptorName=; one, or a list. Port 0 selects a free port. Instead of an "
         "address an item may be a map: {address: 0.0.0.0:7300, tls: {certificate: c.pem, key: k.pem}}."},
    {"listen.address", MP_KEY_TEXT, ADDRESS, .doc = "The address."},
    TLS_KEYS("listen.tls", OF_ITEM),
    {"listen.tls.folder", MP_KEY_PATH, OF_ITEM(folder), .least = 1, .most = 4000, .restarts = true,
     .doc = "Instead of certificate and key: a folder of pairs, NAME.pem with NAME.key or NAME/fullchain.pem with "
            "NAME/privkey.pem, at most 10,000. The name that a client asks for (SNI) selects the certificate that has "
            "it, else one with a wildcard for it. The folder is watched."},
    {"listen.tls.default", MP_KEY_TEXT, OF_ITEM(first), .least = 1, .most = 255, .form = "a name", .restarts = true,
     .doc = "The NAME of the pair of folder for clients that ask for another name, or for none. The default is the "
            "first one, by file name."},
    {"listen.tls.unknown", MP_KEY_CHOICE, OF_ITEM(unknown), .choices = unknowns, .restarts = true,
     .doc = "default: clients that ask for a name without a certificate get that of default. refuse: they get the "
            "alert unrecognized_name, as clients that ask for no name do."},
    {"listen.http2", MP_KEY_CHOICE, OF_ITEM(http2), .choices = switches, .restarts = true,
     .doc =
         "Whether clients may use HTTP/2 at this address besides HTTP/1.1: chosen by ALPN with TLS, by prior knowledge "
         "without. The default is off."},
    {"listen.trusted_proxies", MP_KEY_LIST, OF_ITEM(trusted_proxies), PROXY,
     .doc = "Proxies in front of this address, which say which client a request is from: addresses, networks "
            "(10.1.0.0/16), or unix for the peers of a "
            "Unix socket. The address of a client is the right-most one of X-Forwarded-For or Forwarded that is none "
            "of these. Of other peers both "
            "headers are ignored. Name the proxies alone, not a network that clients are in."},
    {"listen.proxy_protocol", MP_KEY_CHOICE, OF_ITEM(proxy_protocol), .choices = switches, .restarts = true,
     .doc = "on: each connection to this address comes from one of trusted_proxies and begins with a header of the "
            "PROXY protocol, version 1 or 2, "
            "which has the address of the client. Other connections are closed. The default is off."},
    {"acme", MP_KEY_SECTION,
     .doc = "For a client of ACME on this machine, such as certbot, that gets the certificates."},
    {"acme.challenges", MP_KEY_PATH, SLOT(rpc.challenges), .least = 1, .most = 4000,
     .doc = "A folder with a file for each challenge. GET /.well-known/acme-challenge/TOKEN is answered with the file "
            "TOKEN, of at most 1 KiB, at each address of listen, for any Host, without authentication. A certificate "
            "authority asks for it at port 80."},
    {"workers", COUNT(1, 64), SLOT(workers), .preset = "auto", .word = "auto", .restarts = true,
     .doc = "Number of serving threads, each with its own event loop and Lua state. auto: one per processor."},
    {"scripts", MP_KEY_SECTION, .bare = "scripts.path",
     .doc = "The Lua scripts to serve. `scripts: DIR` is short for scripts.path."},
    {"scripts.path", MP_KEY_PATH, SLOT(scripts_path), .preset = "scripts", .least = 1, .most = 4000,
     .doc = "Folder of the scripts. A relative path starts at the folder of this file."},
    {"scripts.rocks", MP_KEY_PATH, SLOT(scripts_rocks), .least = 1, .most = 4000,
     .doc =
         "A LuaRocks tree for Lua 5.4. `require` of scripts finds the pure-Lua modules in its share/lua/5.4. They see "
         "Lua's own library only, and have no grants."},
    {"scripts.watch", MP_KEY_CHOICE, SLOT(scripts_watch), .preset = "true", .choices = noes,
     .doc = "Whether saving a script or this file reloads the gateway. If false, only SIGHUP and POST /reload do."},
    {"scripts.drain", TIME(0, DAY), SLOT(scripts_drain), .preset = "10m",
     .doc = "Time after a reload for which running calls and background tasks may continue with the scripts they began "
            "with."},
    {"scripts.reload_check", MP_KEY_CHOICE, SLOT(reload_check), .preset = "off", .choices = reload_checks,
     .doc = "Whether a reload waits until the recorded calls (see record) were replayed against the new scripts. "
            "refuse: the reload is refused if a call fails that did not before; warn: it is only logged. Differences "
            "are in the report of the reload."},
    {"scripts.broken", MP_KEY_CHOICE, SLOT(scripts_broken), .preset = "last_good", .choices = broken,
     .doc = "What a start does if this file or a script has errors. last_good: it serves the generation that served "
            "last, which is kept in the state folder; without one, as leave_out. leave_out: it serves without the "
            "tools, resources, prompts and jobs that have errors, and ends if anything else has. refuse: it ends."},
    {"scripts.trust", MP_KEY_CHOICE, SLOT(scripts_trust), .preset = "strict", .choices = trusts,
     .doc = "What scripts may use. full enables Lua's whole standard library: io, os, debug, package."},
    {"scripts.allow", MP_KEY_SECTION,
     .doc = "Grants for all scripts. Without grants scripts have access to nothing outside."},
    {"scripts.allow.net", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_NET]), .least = 1, .most = 300,
     .check = mp_config_check_net, .form = "a host",
     .doc = "Hosts that scripts may connect to: host:port, *.domain:port or an IP address with port. Names may resolve "
            "to public addresses only, unless the word private follows."},
    {"scripts.allow.read", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_READ]), .least = 1, .most = 4000, .form = "a path",
     .doc = "Files and folders that scripts may read; folders with everything in them. A relative path starts at the "
            "folder of this file."},
    {"scripts.allow.write", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_WRITE]), .least = 1, .most = 4000, .form = "a path",
     .doc = "Files and folders that scripts may write, create and remove. Reading needs a grant of its own."},
    {"scripts.allow.run", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_RUN]), .least = 1, .most = 4000, .form = "a program",
     .doc = "Programs that scripts may run: a path, or a name that is searched in PATH at start. The programs "
            "themselves are not confined."},
    {"scripts.allow.env", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_ENV]), .least = 1, .most = 256,
     .check = mp_config_check_variable, .form = "a variable", .pattern = "^[A-Za-z_][A-Za-z0-9_]*\\*?$",
     .doc = "Environment variables that scripts may read. APP_* means every variable whose name begins with APP_."},
    {"scripts.allow.store", MP_KEY_LIST, SLOT(allow.lists[MP_GRANT_STORE]), .least = 1, .most = 1024,
     .check = mp_config_check_store_keys, .form = "a key", .pattern = "^[^*]+\\*?$",
     .doc = "Keys of the store. keys:* means every key that begins with keys:. Keys that scripts.grants gives to some "
            "scripts are reserved: scripts without such a grant can neither read nor change them."},
    {"scripts.grants", MP_KEY_GRANTS, SLOT(grants), .form = "paths of scripts",
     .doc = "Additional grants for single folders (tools/orders/) or files (tools/git.lua) of scripts. Each path has "
            "the same keys as scripts.allow."},
    {"endpoints", MP_KEY_SECTION,
     .doc = "Paths of the MCP endpoints; a / at the end of a request's path does not count. off disables one."},
    {"endpoints.mcp", MP_KEY_TEXT, SLOT(endpoint_mcp), .preset = "/mcp", ENDPOINT, .restarts = true,
     .doc = "Path of Streamable HTTP, for revisions 2025-03-26 and later."},
    {"endpoints.sse", MP_KEY_TEXT, SLOT(endpoint_sse), .preset = "/sse", ENDPOINT, .restarts = true,
     .doc = "Path of the HTTP+SSE event stream, for revision 2024-11-05."},
    {"endpoints.messages", MP_KEY_TEXT, SLOT(endpoint_messages), .preset = "/messages", ENDPOINT, .restarts = true,
     .doc = "Path to which HTTP+SSE clients send POST requests. Disabled together with sse."},
    {"endpoints.prefix", MP_KEY_TEXT, SLOT(endpoint_prefix), ENDPOINT, .restarts = true,
     .doc = "Path prefix that a proxy in front removes from requests. HTTP+SSE clients send POST requests "
            "to this prefix followed by endpoints.messages."},
    {"hosts", MP_KEY_LIST, SLOT(hosts), .preset = "localhost, 127.0.0.1, [::1]", .least = 1, .most = 255, HOST,
     .doc = "Names that clients may have in the headers Host and Origin, without port; protects from DNS rebinding. "
            "*.example.com "
            "allows every name below example.com, at any depth, and not example.com itself; \"*\" allows every name. "
            "The admin "
            "listener has names of its own: admin.hosts."},
    {"auth", MP_KEY_SECTION, .bare = "auth.mode",
     .doc = "Authentication of clients. `auth: none` is short for auth.mode."},
    {"auth.mode", MP_KEY_CHOICE, SLOT(auth_mode), .preset = "scripts", .choices = auth_modes,
     .doc = "scripts: the scripts in scripts/auth authenticate each request; if there are none, the gateway listens on "
            "loopback addresses only. none: every client that can connect is served without authentication."},
    {"auth.expired_streams", MP_KEY_CHOICE, SLOT(expired_streams), .preset = "end", .choices = expired_streams,
     .doc = "What happens to event streams whose credentials expire. end: the stream ends, and the client reconnects "
            "with new credentials. keep: the stream stays open. Running calls continue in both cases."},
    {"public_url", MP_KEY_TEXT, SLOT(public_url), .least = 1, .most = 512, .check = mp_config_check_origin,
     .form = "an address", .pattern = "^https?://[^/]+$",
     .doc = "Scheme and host by which clients reach this gateway, as in https://mcp.example.com; used in OAuth "
            "metadata. Default: http:// and the Host header of each request. A gateway with this key needs auth "
            "scripts, or auth: none."},
    {"cors", MP_KEY_SECTION, .doc = "Web pages that may use this gateway from browsers."},
    {"cors.origins", MP_KEY_LIST, SLOT(origins), .least = 1, .most = 512, .check = mp_config_check_origin_or_all,
     .form = "an origin", .pattern = "^\\*$|^[a-z][a-z0-9+.-]*://[^/]+$",
     .doc = "Allowed origins of web pages, as in https://app.example.com; they are also allowed in the Origin header. "
            "\"*\" allows every page. Without origins, browsers block pages of other origins."},
    {"server", MP_KEY_SECTION, .doc = "How this server describes itself to clients."},
    {"server.name", MP_KEY_TEXT, SLOT(lib.server_name), .preset = "moonpool", .least = 1, .most = 128,
     .doc = "Name of the server."},
    {"server.instructions", MP_KEY_TEXT, SLOT(lib.instructions), .least = 1, .most = 64 * KIB,
     .doc = "What a model should know about the tools as a whole."},
    {"sessions", MP_KEY_SECTION, .doc = "Sessions, used by clients of revisions before 2026-07-28."},
    {"sessions.idle", TIME(100, 30 * DAY), SLOT(rpc.idle_ms), .preset = "30m",
     .doc = "A session ends if its client sends nothing and has no open stream for this time."},
    {"sessions.keep", MP_KEY_CHOICE, SLOT(forgets_sessions), .preset = "true", .choices = noes, .restarts = true,
     .doc = "With store.file, sessions of Streamable HTTP survive a restart, with their events, and so do tasks. "
            "false: they "
            "end with the process."},
    {"sessions.max", COUNT(1, 10 * MILLION), SLOT(rpc.max_sessions), .preset = "10000",
     .doc = "Limit of open sessions. Further sessions are refused with 429."},
    {"sessions.per_principal", COUNT(1, 10 * MILLION), SLOT(rpc.max_sessions_per_principal), .preset = "1000",
     .doc = "Limit of open sessions per principal: per authenticated identity, or per client address without "
            "authentication. Addresses of one IPv6 network of 64 bits count as one."},
    {"sessions.replay", MP_KEY_SECTION, .bare = "sessions.replay.events",
     .doc = "Events stored for Streamable HTTP clients that lost a stream and resume it with Last-Event-ID."},
    {"sessions.replay.events", COUNT(0, MILLION), SLOT(rpc.replay_events), .preset = "256", .word = "off",
     .restarts = true,
     .doc = "Number of the latest events stored per session. off stores none, and events have no id."},
    {"limits", MP_KEY_SECTION, .doc = "Limits on what clients and scripts may use."},
    {"limits.body", SIZE(KIB, GIB), SLOT(http.body), .preset = "4MiB",
     .doc = "Limit of a request body. Larger bodies are refused with 413."},
    {"limits.bodies", SIZE(KIB, 64 * GIB), SLOT(http.bodies), .preset = "256MiB",
     .doc = "Limit of the memory of all requests being received or answered, in all workers together. While it is "
            "exceeded, requests that arrive are refused with 503. Those that hold little (16 KiB with HTTP/1.1) may "
            "use an eighth more. One that arrives at once, is that small, and is answered at once, is not counted with "
            "HTTP/1.1. An address alone leaves an eighth to others."},
    {"limits.request_time", TIME(100, HOUR), SLOT(http.request_ms), .preset = "30s", .restarts = true,
     .doc = "Time from the first byte of a request to its last. Idle connections are closed after the same time."},
    {"limits.call", MP_KEY_SECTION, .doc = "Limits of one tool call."},
    {"limits.call.time", TIME(10, DAY), SLOT(rpc.call_ms), .preset = "60s",
     .doc = "A call that takes longer is cancelled with an error."},
    {"limits.call.cpu", TIME(10, HOUR), SLOT(lib.vm.call_cpu_ms), .preset = "2s",
     .doc = "Processor time that a call may spend in Lua; waiting does not count. A call that exceeds it is cancelled "
            "with an error."},
    {"limits.call.memory", SIZE(MIB, 64 * GIB), SLOT(lib.vm.call_memory), .preset = "64MiB",
     .doc = "Memory that a call may allocate, out of limits.lua_memory. A call that exceeds it is cancelled with an "
            "error."},
    {"limits.call.output", SIZE(KIB, 32 * MIB), SLOT(lib.vm.call_output), .preset = "8MiB",
     .doc = "Limit of the JSON of one result or error, of the stored result of a task, and of one message or question "
            "to the client. A larger result becomes an error that states its size; that of an upstream may be as large "
            "as limits.upstreams.answer. A larger message is not sent and is an error in the script."},
    {"limits.page", SIZE(KIB, 8 * MIB), SLOT(lib.list_page), .preset = "1MiB",
     .doc = "Bytes of the entries on one page of a list of tools, resources, templates or prompts. A longer list comes "
            "in pages; several clients read only the first one."},
    {"limits.calls_in_flight", COUNT(1, MILLION), SLOT(rpc.max_calls), .preset = "1024",
     .doc = "Limit of calls in flight. Further calls are refused."},
    {"limits.connections", COUNT(1, MILLION), SLOT(http.connections), .preset = "10000",
     .doc = "Limit of open connections. Further ones wait in the kernel's queue."},
    {"limits.stream_queue", SIZE(KIB, GIB), SLOT(http.stream_queue), .preset = "1MiB",
     .doc = "Limit of the bytes queued for the reader of one event stream. A stream that exceeds it is ended. "
            "Answers to calls are not counted here but in limits.answers, a 16th of which may wait before "
            "the next answer, or this limit where that is more. One other event may be larger."},
    {"limits.answers", SIZE(MIB, 64 * GIB), SLOT(http.answers), .preset = "256MiB",
     .doc = "Limit of the bytes of events, and of answers above 4 KiB, that wait for their readers, in all workers "
            "together. Above it new calls are refused with 503, and readers that have read nothing for a second are "
            "disconnected; at one and a half times the limit, a client that would get a further answer is "
            "disconnected, too."},
    {"limits.lua_memory", SIZE(4 * MIB, 64 * GIB), SLOT(lib.vm.memory), .preset = "256MiB",
     .doc = "Limit of the memory of one worker's Lua state. A call that needs more is ended with an error, and 503 if "
            "its answer has not begun."},
    {"limits.http", MP_KEY_SECTION, .doc = "HTTP requests made by scripts."},
    {"limits.http.body", SIZE(KIB, GIB), SLOT(lib.http_body), .preset = "16MiB",
     .doc = "Limit of the body of one response, after decompression. A larger one is aborted with an error."},
    {"limits.http.time", TIME(10, DAY), SLOT(lib.http_time_ms), .preset = "30s",
     .doc = "Default timeout of a request; for a stream, the time until its response begins."},
    {"limits.exec", MP_KEY_SECTION, .doc = "Programs that scripts run."},
    {"limits.exec.time", TIME(10, DAY), SLOT(lib.exec_time_ms), .preset = "30s",
     .doc = "Default timeout of a program, after which it is ended."},
    {"limits.sqlite", MP_KEY_SECTION, .doc = "Databases of scripts."},
    {"limits.sqlite.memory", SIZE(MIB, 64 * GIB), SLOT(lib.sqlite.memory), .preset = "64MiB",
     .doc = "Limit of the memory that SQLite uses for one database: pages, temporary tables, sorting, values. A "
            "statement that needs more fails with an error."},
    {"limits.upstreams", MP_KEY_SECTION, .doc = "Limits over all upstreams."},
    {"limits.upstreams.channels", COUNT(1, MILLION), SLOT(upstream_limits.channels), .preset = "1024",
     .doc = "Limit of open channels: sessions at upstreams, and running programs. A request that needs one more ends "
            "the one that was idle longest, if that is a second or more; else it waits, at most for the time of "
            "upstreams.NAME.open, and is then refused."},
    {"limits.upstreams.processes", COUNT(1, 10000), SLOT(upstream_limits.processes), .preset = "64",
     .doc = "Limit of running programs of all upstreams. A request that needs one more ends the one that was idle "
            "longest, if that is a second or more; else it waits its turn, at most for the time of "
            "upstreams.NAME.open, and is then refused."},
    {"limits.upstreams.answer", SIZE(KIB, GIB), SLOT(upstream_limits.answer), .preset = "16MiB",
     .doc = "Limit of one message of an upstream, after decompression. A request with a larger answer fails."},
    {"limits.linger", TIME(0, HOUR), SLOT(linger), .preset = "0s",
     .doc = "At SIGTERM, the time before the drain: /readyz says 503, and everything is served on, so that a balancer "
            "sends no more before connections are refused. SIGINT and a second signal do not wait for it."},
    {"limits.drain", TIME(0, HOUR), SLOT(drain), .preset = "10s",
     .doc =
         "At SIGTERM, the time that running calls have to finish. Calls that are then cancelled have half a second for "
         "their <close> handlers. The process ends within limits.linger and "
         "limits.drain plus one second."},
    {"overload", MP_KEY_SECTION, .bare = "overload.wait",
     .doc = "What a worker does that has more requests than it can serve."},
    {"overload.wait", TIME(1, HOUR), SLOT(rpc.overload_ms), .preset = "200ms", .word = "off",
     .doc =
         "A request that waits longer in its worker before it begins is refused with 503 and Retry-After. While that "
         "happens, requests that would wait for a quarter of this time are refused when they arrive, and requests that "
         "list things or open a session for an eighth. Not over stdio."},
#include "upstream_keys.def"
    {"upstream_lock", MP_KEY_PATH, SLOT(upstream_lock), .preset = "moonpool.lock", .least = 1, .most = 4000,
     .doc = "The file of the definitions that were approved, which `moonpool lock` writes. If it has a line of an "
            "upstream, tools, prompts and resources of this upstream that are not approved, or that have changed "
            "since, are not served. A relative path starts at the folder of this file, which is watched."},
    {"tasks", MP_KEY_SECTION, .doc = "Calls that continue in the background."},
    {"tasks.ttl", TIME(100, 30 * DAY), SLOT(lib.task_ms), .preset = "1h",
     .doc = "Maximum lifetime of a task and its stored result."},
    {"store", MP_KEY_SECTION, .doc = "The key-value store that all workers share: values of scripts, and tasks."},
    {"store.entries", COUNT(1, 100 * MILLION), SLOT(store_entries), .preset = "100000",
     .doc = "Limit of the entries. Scripts have 80 %: writing one more fails. The rest is for tasks, limits and the "
            "gateway."},
    {"store.bytes", SIZE(KIB, 64 * GIB), SLOT(store_bytes), .preset = "64MiB",
     .doc = "Limit of the bytes of all keys and values. Scripts have 76 %."},
    {"store.file", MP_KEY_PATH, SLOT(store_file), .restarts = true, .least = 1, .most = 4000,
     .doc = "An SQLite file that preserves what scripts store across restarts. It belongs to this gateway alone and is "
            "created if it does not exist. A relative path starts at the folder of this file. Without this key the "
            "store is lost when the gateway ends."},
    {"http", MP_KEY_SECTION, .doc = "HTTP requests made by scripts."},
    {"http.ca", MP_KEY_PATH, SLOT(client.ca), .least = 1, .most = 4000,
     .doc = "A PEM file of CA certificates to trust instead of the system's. A relative path starts at the folder of "
            "this file."},
    {"heartbeat", TIME(100, HOUR), SLOT(http.heartbeat_ms), .preset = "15s",
     .doc = "Interval at which a quiet event stream receives a comment, so that proxies keep it open. The answer of a "
            "call that takes longer becomes such a stream, if Accept of its request names text/event-stream."},
    {"sign_in", MP_KEY_SECTION, .bare = "sign_in.provider",
     .doc = "Makes this gateway the authorization server of its clients (OAuth 2.1): people sign in at a page of its "
            "own. It needs public_url, and on other than loopback addresses https, seal_keys and store.file."},
    {"sign_in.provider", MP_KEY_CHOICE, SLOT(lib.sign_in.provider), .preset = "off", .choices = mp_sign_in_providers,
     .doc = "Who knows the people. password: the file of sign_in.passwords. oidc: any provider of OpenID Connect; "
            "oauth2: one of OAuth 2.0 without it. The others are what these providers need. off: nobody signs in "
            "here."},
    {"sign_in.issuer", MP_KEY_TEXT, SLOT(lib.sign_in.issuer), .least = 1, .most = 1024, .check = mp_config_check_issuer,
     .form = "a URL", .pattern = "^https?://",
     .doc = "The provider's issuer, byte for byte as its metadata name it. Without this key google and github are the "
            "public ones; for a GitHub Enterprise Server it is its address."},
    {"sign_in.client", MP_KEY_TEXT, SLOT(lib.sign_in.client), .least = 1, .most = 1024, .form = "a client id",
     .doc = "The id of this gateway at the provider, where its redirect address is public_url and /oauth/callback."},
    {"sign_in.secret", MP_KEY_TEXT, SLOT(lib.sign_in.secret), .least = 1, .most = 16 * KIB, .form = "a secret",
     .doc = "Its secret, as in \"${file:/run/secrets/provider}\". Without this key the gateway is a public client."},
    {"sign_in.ask", MP_KEY_LIST, SLOT(lib.sign_in.ask), .least = 1, .most = 512, .check = mp_config_check_scope,
     .form = "a scope",
     .doc = "Scopes to ask the provider for, instead of those that are usual for it, such as openid, email, profile."},
    {"sign_in.scopes", MP_KEY_LIST, SLOT(lib.sign_in.scopes), .least = 1, .most = 512, .check = mp_config_check_scope,
     .form = "a scope", .doc = "Scopes of this gateway that everybody has who signs in at a provider."},
    {"sign_in.urls", MP_KEY_SECTION, .doc = "The endpoints of provider oauth2, which has no metadata."},
    {"sign_in.urls.authorize", MP_KEY_TEXT, SLOT(lib.sign_in.authorize_url), .least = 1, .most = 1024,
     .check = mp_config_check_issuer, .form = "a URL", .pattern = "^https?://", .doc = "The page for browsers."},
    {"sign_in.urls.token", MP_KEY_TEXT, SLOT(lib.sign_in.token_url), .least = 1, .most = 1024,
     .check = mp_config_check_issuer, .form = "a URL", .pattern = "^https?://", .doc = "The token endpoint."},
    {"sign_in.urls.user", MP_KEY_TEXT, SLOT(lib.sign_in.user_url), .least = 1, .most = 1024,
     .check = mp_config_check_issuer, .form = "a URL", .pattern = "^https?://",
     .doc = "Whose a token is: a JSON object with sub or id."},
    {"sign_in.passwords", MP_KEY_PATH, SLOT(lib.sign_in.passwords), .least = 1, .most = 4000,
     .doc = "The file of users: a line for each, as `moonpool key password NAME` writes it. Only the gateway's user "
            "may be "
            "able to read it. Changes count within a second. A relative path starts at the folder of this file."},
    {"sign_in.allow", MP_KEY_SECTION, .doc = "Who may sign in, of those whom the provider knows."},
    {"sign_in.allow.users", MP_KEY_LIST, SLOT(lib.sign_in.users), .least = 1, .most = 128, .form = "a user",
     .doc = "Names in the file of passwords, or subjects of the provider: GitHub's number of a user, Entra's object "
            "id, else sub. Whoever one of the lists users, emails, groups, roles names may sign in; without all of "
            "them everybody may."},
    {"sign_in.allow.emails", MP_KEY_LIST, SLOT(lib.sign_in.emails), .least = 3, .most = 320, .form = "an address",
     .doc = "Addresses that the provider has verified, as ann@example.com, or all of a domain, as *@example.com."},
    {"sign_in.allow.groups", MP_KEY_LIST, SLOT(lib.sign_in.groups), .least = 1, .most = 256, .form = "a group",
     .doc = "Groups as the provider's claim names them. For github: organizations, as acme, and teams, as acme/ops."},
    {"sign_in.allow.roles", MP_KEY_LIST, SLOT(lib.sign_in.roles), .least = 1, .most = 256, .form = "a role",
     .doc = "Roles of an application in Entra, or of a realm in Keycloak."},
    {"sign_in.allow.tenants", MP_KEY_LIST, SLOT(lib.sign_in.tenants), .least = 1, .most = 64, .form = "a tenant id",
     .doc = "With entra: the only tenants whose people may sign in. An issuer for several of them needs this key."},
    {"sign_in.clients", MP_KEY_SECTION, .doc = "Which clients may ask people to sign in."},
    {"sign_in.clients.cimd", MP_KEY_CHOICE, SLOT(lib.sign_in.refuses_documents), .preset = "true", .choices = noes,
     .doc = "Clients whose id is the https URL of a document about them (Client ID Metadata Documents): the gateway "
            "fetches it, from public addresses alone. false: clients register, and the gateway asks nobody."},
    {"sign_in.tokens", MP_KEY_SECTION, .doc = "How long clients may act for a person."},
    {"sign_in.tokens.access", TIME(60000, DAY), SLOT(lib.sign_in.access_ms), .preset = "1h",
     .doc = "An access token is valid for this time; then the client asks for another one."},
    {"sign_in.tokens.refresh", TIME(60000, 400 * DAY), SLOT(lib.sign_in.refresh_ms), .preset = "90d",
     .doc = "The person signs in anew after this time, counted from the sign-in."},
    {"sign_in.tokens.idle", TIME(60000, 400 * DAY), SLOT(lib.sign_in.idle_ms), .preset = "30d",
     .doc = "A client that has asked for no access token for this time lets the person sign in anew."},
    {"sign_in.tokens.unchecked", TIME(0, 400 * DAY), SLOT(lib.sign_in.unchecked_ms), .preset = "24h",
     .doc = "Before a client gets another access token the provider is asked whether the person may still sign in. "
            "Where it cannot be asked, the person signs in anew after this time."},
    {"seal_keys", MP_KEY_LIST, SLOT(seal_keys), .least = 16, .most = 4096, .form = "a secret",
     .doc = "Secrets that encrypt what clients store for the gateway, such as cursors. The first one encrypts, all of "
            "them decrypt: to rotate, put the new secret first. Without this key a random secret is made at start, and "
            "data of an earlier process is refused."},
    {"cluster", MP_KEY_SECTION,
     .doc = "Gateways that share a server of Redis 6.2 or Valkey 7.2, or newer: the values and locks of the library "
            "store, limits and quotas of policies, and which of them runs a job."},
    {"cluster.name", MP_KEY_TEXT, SLOT(lib.cluster.name), .least = 1, .most = 32, .check = mp_config_check_cluster,
     .form = "a name", .pattern = "^[a-z0-9_-]{1,32}$",
     .doc = "The same on all of them. Their keys in the server begin with mp:NAME:."},
    {"cluster.node", MP_KEY_TEXT, SLOT(lib.cluster.node_name), .restarts = true, .least = 1, .most = 64,
     .check = mp_config_check_node, .form = "a name", .pattern = "^[A-Za-z0-9._-]{1,64}$",
     .doc = "The name of this gateway among them. Without this key it is the host's name."},
    {"cluster.redis", MP_KEY_SECTION, .bare = "cluster.redis.url",
     .doc = "The server. `redis: URL` is short for cluster.redis.url."},
    {"cluster.redis.url", MP_KEY_TEXT, SLOT(lib.cluster.url), .least = 1, .most = 512, .check = mp_config_check_redis,
     .form = "a URL", .pattern = "^rediss?://",
     .doc = "redis://USER@HOST:PORT/DATABASE; rediss:// is TLS (see http.ca)."},
    {"cluster.redis.sentinels", MP_KEY_LIST, SLOT(lib.cluster.sentinels), .least = 1, .most = 300,
     .check = mp_config_check_sentinel, .form = "host:port", .pattern = "^[^ *]+:[0-9]{1,5}$",
     .doc = "Redis Sentinels, as s1.internal:26379. The host in the URL is then their lower-case name of the primary."},
    {"cluster.redis.password", MP_KEY_TEXT, SLOT(lib.cluster.password), .least = 1, .most = 4096, .form = "a password",
     .doc = "The password of the user, as in \"${file:/run/secrets/redis}\"."},
    {"cluster.redis.timeout", TIME(1, 10 * SECOND), SLOT(lib.cluster.timeout_ms), .preset = "250ms",
     .doc = "Time for the answer to one operation of the store."},
    {"cluster.when_redis_is_down", MP_KEY_SECTION,
     .doc = "What policies do while the server does not answer, unless their option `away` says otherwise."},
    {"cluster.when_redis_is_down.limits", MP_KEY_CHOICE, SLOT(lib.cluster.limits), .preset = "local", .choices = aways,
     .doc =
         "local: each gateway counts alone, and admits its share of the rate. refuse: no call. allow: all calls. The "
         "server counts as down for a call after 100 ms."},
    {"cluster.when_redis_is_down.quotas", MP_KEY_CHOICE, SLOT(lib.cluster.quotas), .preset = "refuse", .choices = aways,
     .doc = "The same for quotas. local: each gateway counts alone from 0, and admits its share of the number."},
    {"cluster.listen", MP_KEY_TEXT, SLOT(cluster_listen), .least = 1, .most = 128, .check = mp_config_check_node_listen,
     .form = "an address", .pattern = "^\\[[0-9A-Fa-f:.]+\\]:[0-9]{1,5}$|^[A-Za-z0-9._-]+:[0-9]{1,5}$",
     .restarts = true,
     .doc = "Address of the listener for the other gateways, as in 10.0.0.5:7310. A request for a session of another "
            "gateway goes to its address. Without this key each client must stay with one gateway."},
    {"cluster.leave", TIME(0, 7 * DAY), SLOT(cluster_leave), .preset = "10m",
     .doc =
         "At SIGTERM, after limits.linger, the time for which sessions of this gateway are still answered, by way of "
         "the others. It ends with the last session; those that are left are unknown then."},
    {"cluster.advertise", MP_KEY_TEXT, SLOT(cluster_advertise), .least = 1, .most = 271,
     .check = mp_config_check_sentinel, .form = "host:port", .pattern = "^[^ *]+:[0-9]{1,5}$", .restarts = true,
     .doc = "Where the others reach that listener, if it is not the address in cluster.listen."},
    {"cluster.tls", MP_KEY_SECTION, .restarts = true,
     .doc = "TLS between the gateways, which show each other their certificates. Needed unless cluster.listen is a "
            "loopback address. The files are watched."},
    {"cluster.tls.certificate", MP_KEY_PATH, SLOT(cluster_tls.certificate), .least = 1, .most = 4000, .restarts = true,
     .doc = "A PEM file: this gateway's certificate, for servers and clients, then its issuers. A relative path starts "
            "at the folder of this file."},
    {"cluster.tls.key", MP_KEY_PATH, SLOT(cluster_tls.key), .least = 1, .most = 4000, .restarts = true,
     .doc = "A PEM file with the private key of the certificate, without a passphrase."},
    {"cluster.tls.ca", MP_KEY_PATH, SLOT(cluster_tls.client_ca), .least = 1, .most = 4000, .restarts = true,
     .doc = "A PEM file of the CA certificates that sign those of the gateways."},
    {"cluster.tls.name", MP_KEY_TEXT, SLOT(cluster_tls_name), .least = 1, .most = 253,
     .check = mp_config_check_node_name, .form = "a DNS name", .pattern = "^[A-Za-z0-9._-]+$", .restarts = true,
     .doc = "The DNS name that the certificates of all gateways have, and no other certificate of these CAs. Default: "
            "moonpool-NAME, with cluster.name."},
    {"admin", MP_KEY_SECTION, .bare = "admin.listen",
     .doc = "The listener for operators: /healthz, /readyz, /status, /metrics, /reload and /api. `admin: off` is short "
            "for admin.listen."},
    {"admin.listen", MP_KEY_TEXT, SLOT(admin_listen), .preset = "127.0.0.1:7301", ADDRESS, .word = "off",
     .restarts = true,
     .doc = "Address of the admin listener, in the forms of listen, or off. On a loopback address every user of this "
            "machine may read health, "
            "status and metrics, and reload; all else needs a token. An address that other machines can reach needs "
            "admin.tokens or admin.tls.client_ca."},
    {"admin.hosts", MP_KEY_LIST, SLOT(admin_hosts), .least = 1, .most = 255, HOST,
     .doc = "Further names that requests to the admin listener may have in Host and Origin, in the forms of hosts. "
            "localhost, 127.0.0.1, [::1] and the "
            "address of the listener are always allowed; /healthz and /readyz answer whatever the Host is, and so does "
            "/metrics "
            "to a request with a token."},
    {"admin.mode", MP_KEY_TEXT, SLOT(admin_mode), .preset = "0600", .least = 3, .most = 4,
     .check = mp_config_check_mode, .form = "permissions", .pattern = "^0?[0-7]{3}$", .restarts = true,
     .doc = "Permissions of the file of a Unix socket. A user who can open the file may do everything."},
    {"admin.group", MP_KEY_TEXT, SLOT(admin_group), .least = 1, .most = 64, .restarts = true,
     .doc = "Group of the file of a Unix socket, as in {listen: \"unix:/run/moonpool/admin.sock\", mode: 0660, group: "
            "ops}."},
    TLS_KEYS("admin.tls", OF_ADMIN),
    {"admin.tokens", MP_KEY_SECTION,
     .doc =
         "Tokens by role, for `Authorization: Bearer`. Each has a name, which the audit shows. Without tokens, a "
         "loopback address has one of its own, with the role operate, which the commands of root and of the gateway's "
         "user find by themselves."},
    {"admin.tokens.metrics", MP_KEY_PAIRS, ADMIN_TOKEN(0),
     .doc = "Tokens that may read metrics, as in {grafana: \"${file:/run/secrets/grafana}\"}."},
    {"admin.tokens.view", MP_KEY_PAIRS, ADMIN_TOKEN(1), .doc = "Tokens that may also read everything else."},
    {"admin.tokens.operate", MP_KEY_PAIRS, ADMIN_TOKEN(2),
     .doc = "Tokens that may also change things: reload, end sessions, cancel calls."},
    {"admin.certificates", MP_KEY_PAIRS, SLOT(admin_certificates), .least = 1, .most = 16,
     .check = mp_config_check_admin_role, .form = "roles",
     .doc =
         "Roles of client certificates (admin.tls.client_ca) by subject, as in {\"CN=grafana*\": metrics}; the first "
         "pattern that matches counts, and a certificate that none matches has no role. Without this key each "
         "certificate has the role operate."},
    {"admin.tap", MP_KEY_CHOICE, SLOT(admin_tap), .preset = "shapes", .choices = taps,
     .doc =
         "The most that `moonpool tap` shows of a call's arguments. names: the names of the members; shapes: also the "
         "types and sizes of their values; full: everything, secrets included."},
    {"record", MP_KEY_SECTION, .bare = "record.tools",
     .doc = "Calls that are kept in memory, with what they got from outside, for `moonpool replay`. Values of secret "
            "members are never kept. `record: \"orders_*\"` is short for record.tools."},
    {"record.tools", MP_KEY_LIST, SLOT(record.tools), .least = 1, .most = 256, .form = "a tool",
     .doc = "Names of the tools whose calls are recorded; * stands for any text. Without this key calls are recorded "
            "only while `moonpool record` runs."},
    {"record.file", MP_KEY_PATH, SLOT(record_file), .least = 1, .most = 4000, .restarts = true,
     .doc = "A file that receives each recorded call as a line of JSON, and from which they are read at the start, so "
            "that they outlive the process. When it has 8 MiB it is renamed to NAME.1, and the NAME.1 before is "
            "removed. A relative path starts at the folder of this file."},
    {"metrics", MP_KEY_SECTION, .bare = "metrics.enabled",
     .doc = "Counters and histograms at /metrics of the admin listener, in Prometheus's text format. `metrics: off` is "
            "short for "
            "metrics.enabled."},
    {"metrics.enabled", MP_KEY_CHOICE, SLOT(metrics_enabled), .preset = "on", .choices = switches,
     .doc = "Whether the times of calls are measured. Off, /metrics has the counters of /status alone."},
    {"traces", MP_KEY_SECTION, .bare = "traces.otlp",
     .doc = "Spans of calls, sent to an OpenTelemetry collector. `traces: http://127.0.0.1:4318` is short for "
            "traces.otlp."},
    {"traces.otlp", MP_KEY_TEXT, SLOT(traces.otlp), .least = 1, .most = 4096, .check = mp_config_check_collector,
     .form = "a URL", .pattern = "^https?://", .word = "off",
     .doc = "URL of a collector that takes OTLP by HTTP with JSON, without /v1/traces; usually with port 4318. Without "
            "this key no call is recorded."},
    {"traces.headers", MP_KEY_PAIRS, SLOT(traces.headers), .least = 0, .most = 16 * KIB,
     .check_name = mp_config_check_header_token, .check = mp_config_check_header_value, .form = "texts",
     .doc = "Headers of requests to the collector, as in {authorization: \"Bearer ${file:/run/secrets/otlp}\"}."},
    {"traces.sample", MP_KEY_SECTION, .bare = "traces.sample.ratio",
     .doc = "The calls that are recorded. `sample: 0.05` is short for traces.sample.ratio."},
    {"traces.sample.ratio", MP_KEY_TEXT, SLOT(traces.ratio), .preset = "1", .least = 1, .most = 16,
     .check = mp_config_check_ratio, .form = "a ratio", .is_number = true,
     .doc = "The share of the calls that no client's context decides about, from 0 to 1."},
    {"traces.sample.errors", MP_KEY_CHOICE, SLOT(traces.takes_errors), .preset = "false", .choices = yeses,
     .doc = "Whether a call that failed is sent in any case. All calls are then recorded, and most are discarded at "
            "their end."},
    {"traces.sample.slower", TIME(1, DAY), SLOT(traces.slower_ms), .preset = "off", .word = "off",
     .doc = "Calls that took longer are sent in any case. All calls are then recorded, and most are discarded at their "
            "end."},
    {"traces.parent", MP_KEY_SECTION, .doc = "What the trace context of a client's request does (traceparent)."},
    {"traces.parent.accept", MP_KEY_CHOICE, SLOT(traces.refuses_parents), .preset = "true", .choices = noes,
     .doc = "Whether the context of a client is the parent of its call, and decides whether the call is recorded. "
            "Otherwise it is only a link."},
    {"traces.propagate", MP_KEY_LIST, SLOT(traces.propagate), .preset = "upstreams", .least = 1, .most = 255,
     .check = mp_config_check_propagate, .form = "a host", .pattern = "^(upstreams|\\*|(\\*\\.)?[A-Za-z0-9._:-]+)$",
     .doc = "Where requests carry the trace of the call on, as traceparent: upstreams, and hosts of http.*, as in "
            "[upstreams, \"*.internal\"]."},
    {"traces.attributes", MP_KEY_PAIRS, SLOT(traces.attributes), .least = 0, .most = 1024, .form = "texts",
     .doc = "Attributes of this gateway, as in {deployment.environment.name: prod}."},
    {"traces.addresses", MP_KEY_CHOICE, SLOT(traces.addresses), .preset = "shown", .choices = addresses,
     .doc = "Whether spans have the addresses of clients (client.address)."},
    {"log", MP_KEY_SECTION,
     .doc = "The log on standard error, or in a file: one event per line. To journald, lines of logfmt have its "
            "<priority> and no time."},
    {"log.file", MP_KEY_PATH, SLOT(log_file), .least = 1, .most = 4000, .restarts = true,
     .doc =
         "A file that receives the log instead of standard error. A relative path starts at the folder of this file. "
         "SIGUSR1 and SIGHUP open it again, after another program such as logrotate has renamed it."},
    {"log.format", MP_KEY_CHOICE, SLOT(log_format), .preset = "logfmt", .choices = log_formats,
     .doc = "logfmt, or json: one object per line, with the same keys."},
    {"log.level", MP_KEY_CHOICE, SLOT(log_level), .preset = "info", .choices = levels,
     .doc = "Lowest level that is logged."},
    {"log.audit", MP_KEY_PATH, SLOT(audit), .least = 1, .most = 4000, .restarts = true,
     .doc = "A file that receives one line of JSON per call and per refused request: principal, action, client address "
            "and result. A relative path starts at the folder of this file. SIGUSR1 and SIGHUP open it again."},
    {"log.audit_sample", MP_KEY_SECTION, .doc = "The calls that have a line in log.audit."},
    {"log.audit_sample.ok", MP_KEY_TEXT, SLOT(audit_sample), .preset = "1", .least = 1, .most = 16,
     .check = mp_config_check_ratio, .form = "a ratio", .is_number = true,
     .doc = "The share of the calls with the outcome ok that have an audit line, from 0 to 1. Their lines say sample "
            "then. All other calls and all refusals have an audit line in any case."},
    {"log.audit_arguments", MP_KEY_CHOICE, SLOT(audit_arguments), .preset = "names", .choices = audits,
     .doc = "What an audit line contains of a call's arguments. redacted: values, but *** for values that look like "
            "secrets, and long texts cut."},
};

_Static_assert(sizeof mp_config_keys / sizeof *mp_config_keys <= MP_CONFIG_KEYS_CAP,
               "arrays of the reader are too small");

const size_t mp_config_key_count = sizeof mp_config_keys / sizeof *mp_config_keys;
_Static_assert(sizeof mp_config_keys / sizeof *mp_config_keys <= MP_CONFIG_KEYS_CAP, "raise MP_CONFIG_KEYS_CAP");

const char *mp_config_key_name(const mp_config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot == NULL ? key->path : dot + 1;
}

bool mp_config_key_is_in(const mp_config_key *key, const mp_config_key *MP_NULLABLE section)
{
    if (section == NULL)
        return strchr(key->path, '.') == NULL;
    size_t len = strlen(section->path);
    return strncmp(key->path, section->path, len) == 0 && key->path[len] == '.' &&
           strchr(key->path + len + 1, '.') == NULL;
}

const mp_config_key *MP_NULLABLE mp_config_key_find(const mp_config_key *MP_NULLABLE section, mp_str name)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_is_in(&mp_config_keys[i], section) && mp_str_is(name, mp_config_key_name(&mp_config_keys[i])))
            return &mp_config_keys[i];
    return NULL;
}

/* The list or map that contains the key; NULL: none. In the table, keys that begin with the same word stand together,
 * and a list or map precedes its members. */
const mp_config_key *MP_NULLABLE mp_config_key_list(const mp_config_key *key)
{
    const mp_config_key *found = NULL;
    for (const mp_config_key *at = key; at-- > mp_config_keys && *at->path == *key->path;) {
        if (at->type != MP_KEY_LIST && at->type != MP_KEY_MAP)
            continue;
        size_t len = strlen(at->path);
        if (strncmp(key->path, at->path, len) == 0 && key->path[len] == '.')
            found = at;
    }
    return found;
}

const mp_config_key *mp_config_key_at(const char *path)
{
    const mp_config_key *key = mp_config_keys;
    while (strcmp(key->path, path) != 0)
        key++;
    return key;
}
