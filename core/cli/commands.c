/* commands.c: the table of commands. Help, usage errors, completions and the check of the manual page use it. */
#include "cli.h"
#include "mcp/mcp.h"

#define LEVELS "debug info warn error"
#define KINDS "tools resources prompts jobs"
#define ALGORITHMS "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519"
#define CONFIG {"config", 'c', "FILE", "the configuration (default: ./moonpool.yaml)", "<file>"}
#define URL {"url", 'u', "URL", "use the server at this endpoint, as in http://127.0.0.1:7300/mcp", NULL}
#define REVISION {"revision", 'r', "DATE", "revision of the protocol (default: the newest)", MP_ERA_DATES}
#define BEARER {"bearer-env", 'b', "VAR", "send the token in this environment variable to --url", NULL}
#define HEADER {"header", 'H', "HEADER", "send 'Name: value' to --url, or the lines of @FILE;\nmay be repeated", NULL}
#define CA {"ca", 0, "FILE", "trust these CA certificates at --url, not the system's", "<file>"}
#define RAW {"raw", 0, NULL, "print the whole result as JSON", NULL}
#define ANSWER                                                                                                         \
    {"answer", 0, "[KEY=]JSON",                                                                                        \
     "answer a question of the tool: sure='{\"confirm\": true}', or decline;\nmay be repeated", NULL}
#define SCOPES {"scopes", 's', "SCOPES", "scopes of the principal, as in \"orders:read orders:write\"", NULL}
#define CLAIMS {"claims", 0, "OBJECT", "further claims of the principal, as JSON", NULL}
#define ADMIN {"admin", 'a', "ADDRESS", "host:port or unix:/path (default: the file's `admin.listen`)", NULL}
#define LOG_LEVEL {"log-level", 0, "LEVEL", "debug, info, warn or error (default: `log.level`, or info)", LEVELS}
#define READY_FD                                                                                                       \
    {"ready-fd", 0, "N", "write a line to the open descriptor N once all listeners\nare open (default: none)", NULL}

const mp_cli_command mp_cli_commands[] = {
    {"run",
     "[OPTION]... [moonpool.yaml]",
     "serve the scripts of a configuration, until SIGTERM or SIGINT",
     "Serves the scripts of the configuration. At SIGTERM or SIGINT running calls may finish\n"
     "(limits.drain); a second signal stops them. If configuration or scripts have errors,\n"
     "serves what served last (scripts.broken).\n",
     "<file>",
     mp_cli_run,
     {{"listen", 'l', "ADDRESS",
       "host:port, [IPv6]:port, unix:/path or systemd:NAME;\nmay be repeated; port 0 selects a free port\n"
       "(default: the file's `listen`, or 127.0.0.1:7300)",
       NULL},
      {"trace", 't', NULL, "print each request as it is answered, on stderr", NULL},
      {"watch", 'w', NULL, "print the changes or errors of each reload, on stdout", NULL},
      CONFIG,
      LOG_LEVEL,
      READY_FD}},
    {"stdio",
     "[OPTION]... [moonpool.yaml]",
     "serve the client that started it, over stdin and stdout",
     "Serves the scripts of the configuration to the client that started it: MCP on stdin and\n"
     "stdout, one JSON message per line, in every revision; the log on stderr. Has no listeners:\n"
     "`listen`, `endpoints`, `admin` and `workers` of the file have no effect. At the end of\n"
     "stdin, at SIGTERM or SIGINT running calls may finish (limits.drain), and their answers are\n"
     "written; a further signal stops them.\n"
     "\n"
     "The configuration of many clients looks like this:\n"
     "  {\"mcpServers\": {\"hello\": {\"command\": \"moonpool\", \"args\": [\"stdio\", \"/path/moonpool.yaml\"]}}}\n",
     "<file>",
     mp_cli_stdio,
     {CONFIG,
      LOG_LEVEL,
      READY_FD,
      {"specs", 0, NULL, NULL, NULL} /* `moonpool test` starts stdio with this option */,
      {"replay", 0, NULL, NULL, NULL} /* `moonpool replay` starts stdio with this option */,
      {"headers", 0, "FILE", NULL, NULL} /* `moonpool call --url` starts stdio with this option */,
      {"apart", 0, NULL, NULL, NULL} /* `moonpool call` starts stdio with this option */}},
    {"check",
     "[--connect] [--json] [--strict] [moonpool.yaml]",
     "check configuration and scripts, print what they serve or all errors",
     "Reads the configuration and every script as `run` does, then prints each tool, resource\n"
     "and prompt as clients see it, or each error with its place in the file. Warnings go to\n"
     "stderr: unknown names, globals, grants and policies that match nothing, tools that no\n"
     "client can reach, a timeout that limits.call.time ends first, names that get 403, files of\n"
     "keys that cannot be read or have a mistake, nothing to serve. With --strict the exit code is\n"
     "1 for warnings. Opens no listeners. With --connect also asks each upstream for its lists and\n"
     "prints them as clients would see them; starts their programs; asks the server of cluster\n"
     "for its version, and whether it lets the gateway do what it has to.\n",
     "<file>",
     mp_cli_check,
     {{"connect", 0, NULL, "connect to each upstream; exit with 1 if one fails", NULL},
      {"json", 0, NULL, "print the definitions as JSON", NULL},
      {"strict", 0, NULL, "exit with 1 if there is a warning; for CI", NULL},
      CONFIG}},
    {"list",
     "[OPTION]... [moonpool.yaml]",
     "print tools, resources and prompts, one line each",
     "Prints each tool, resource and prompt: its kind, name and the first line of its\n"
     "description. --as selects those that this principal sees; --url lists those of a server, and\n"
     "a command after -- those of a program that is a server.\n",
     "<file>",
     mp_cli_list,
     {{"as", 0, "PRINCIPAL", "list what this principal sees: an id, or anonymous", "anonymous local"},
      SCOPES,
      CLAIMS,
      {"names", 0, "KIND", "print only the names: of tools, resources, prompts or jobs", KINDS},
      URL,
      REVISION,
      BEARER,
      HEADER,
      CA,
      CONFIG}},
    {"explain",
     "[OPTION]... [PRINCIPAL] [NAME]",
     "show what a principal sees and may use, and which rule decides",
     "Shows for a tool, prompt or resource (by name or URI) which rule decides whether the\n"
     "principal sees it and may use it, and what its client receives; without NAME, one line for\n"
     "each. PRINCIPAL is an id, with scopes and claims from the options; or anonymous; or local,\n"
     "the user that runs the gateway. With --bearer-env or --header there is no PRINCIPAL: the\n"
     "auth scripts authenticate a request with these credentials.\n"
     "For one of an upstream, the running gateway is asked for the state of its circuit.\n"
     "The exit code is 1 if the client is refused.\n",
     "anonymous local",
     mp_cli_explain,
     {{"as", 0, "PRINCIPAL", "the principal, in the place of the argument", "anonymous local"},
      SCOPES,
      CLAIMS,
      {"bearer-env", 'b', "VAR", "the environment variable that contains a bearer token", NULL},
      {"header", 'H', "HEADER", "a header of the request, as in 'X-Api-Key: …'; may be repeated", NULL},
      ADMIN,
      CONFIG}},
    {"new",
     "[-c FILE] tool|resource|prompt|job|lib|policy|auth NAME",
     "write an example script to start from",
     "Writes NAME.lua into the folder of its kind below `scripts.path`, as in\n"
     "scripts/tools/NAME.lua, and a spec beside it, which `moonpool test` runs. Also writes an\n"
     "empty moonpool.yaml if there is none. Never overwrites a file. NAME may have folders:\n"
     "orders/refund.\n",
     "tool resource prompt job lib policy auth",
     mp_cli_new,
     {CONFIG}},
    {"call",
     "[OPTION]... NAME [KEY=VALUE]... [-- COMMAND...]",
     "call one tool, here or at another server",
     "Calls a tool, without a server unless --url or a command after -- names one: any MCP\n"
     "server. Values are converted by the tool's schema: numbers, true and false, lists and\n"
     "objects as JSON. The result goes to stdout; progress and logs go to stderr as they\n"
     "arrive. Questions of the tool are answered by\n"
     "--answer, then at the terminal; without both the tool learns that no user can answer.\n"
     "The exit code is 1 if the tool fails. Ctrl-C cancels the call.\n"
     "Every user of this machine can read the arguments of a command, so pass a token in a\n"
     "variable (--bearer-env) or a file (--header @FILE). Certificates are always verified.\n",
     "<tool>",
     mp_cli_call,
     {{"json", 'j', "OBJECT", "arguments as JSON, in addition to KEY=VALUE", NULL},
      ANSWER,
      URL,
      REVISION,
      BEARER,
      HEADER,
      CA,
      RAW,
      CONFIG}},
    {"read",
     "[OPTION]... URI [-- COMMAND...]",
     "read one resource, here or at another server",
     "Reads a resource, without a server unless --url or a command after -- names one, and prints its\n"
     "text or bytes. A terminal receives a description instead of bytes.\n",
     "<resource>",
     mp_cli_call,
     {ANSWER, URL, REVISION, BEARER, HEADER, CA, RAW, CONFIG}},
    {"prompt",
     "[OPTION]... NAME [KEY=VALUE]... [-- COMMAND...]",
     "print the messages of one prompt, here or at another server",
     "Prints the messages of a prompt, each below its role. Needs no server unless --url or a command\n"
     "after -- names one.\n",
     "<prompt>",
     mp_cli_call,
     {ANSWER, URL, REVISION, BEARER, HEADER, CA, RAW, CONFIG}},
    {"complete",
     "[OPTION]... PROMPT|TEMPLATE KEY=PREFIX [KEY=VALUE]... [-- COMMAND...]",
     "print the completions of an argument",
     "Prints the completions of the first KEY of a prompt or URI template, one per line.\n"
     "Further keys are arguments that already have a value.\n",
     "<prompt>",
     mp_cli_call,
     {URL, REVISION, BEARER, HEADER, CA, RAW, CONFIG}},
    {"job",
     "[-c FILE] NAME",
     "run one job now",
     "Runs a job once, in its own process, regardless of its schedule, and prints what it\n"
     "returned. What the job stores is discarded: a running gateway does not see it. The exit\n"
     "code is 1 if the job fails.\n",
     "<job>",
     mp_cli_call,
     {CONFIG}},
    {"test",
     "[-c FILE] [--play FILE] [PATH]...",
     "run the *_spec.lua files beside the scripts",
     "Runs the specs of your scripts inside the real runtime: every *_spec.lua below\n"
     "`scripts.path`, or those below each PATH. Specs may use describe, it, before_each,\n"
     "assert, call, read, fake, and everything that scripts may use. The exit code is 1 if a spec\n"
     "fails. With --play no spec is run but the calls of a transcript, as `moonpool call` runs\n"
     "them: they write files and send requests. Each answer is compared with the transcript's.\n",
     "<file>",
     mp_cli_test,
     {CONFIG, {"play", 0, "FILE", "play this transcript, as moonpool tap --record writes it", "<file>"}}},
    {"add",
     "[OPTION]... NAME URL | NAME -- COMMAND [ARGUMENT]...",
     "add an MCP server to the configuration, as an upstream",
     "Connects to the server, prints what it offers, and writes an entry at the end of\n"
     "`upstreams:`; the rest of the file stays as it is. If the server fails, nothing is written.\n"
     "A value may be a variable of the gateway, in single quotes: '${KEY:?set it}'. Secrets\n"
     "themselves are refused: the file, and the arguments of a program, are not secret.\n",
     NULL,
     mp_cli_upstream,
     {{"bearer-env", 'b', "VAR", "send the token in this environment variable to URL", NULL},
      {"header", 'H', "HEADER", "send 'name: value' to URL; may be repeated", NULL},
      {"env", 'e', "NAME=VALUE", "a variable of COMMAND; may be repeated", NULL},
      {"prefix", 'p', "PREFIX", "put before the names of its tools (default: NAME_)", NULL},
      {"revision", 'r', "REVISION", "auto, modern, legacy or sse (default: auto)", "auto modern legacy sse"},
      {"dry-run", 'n', NULL, "print the entry, write nothing", NULL},
      {"untried", 0, NULL, "write the entry without connecting", NULL},
      CONFIG}},
    {"import",
     "[OPTION]... FILE [NAME]...",
     "add the MCP servers of another program's configuration",
     "Reads the JSON file of Claude Desktop, Claude Code, Cursor, VS Code and others, and writes\n"
     "its servers, or those named, at the end of `upstreams:`. Disabled ones become comments. A\n"
     "value that looks like a secret is not copied: a variable stands in its place, and a line\n"
     "says which. The exit code is 1 if a server was left out.\n",
     "<file>",
     mp_cli_upstream,
     {{"dry-run", 'n', NULL, "print the entries, write nothing", NULL}, CONFIG}},
    {"lock",
     "[OPTION]... [NAME]...",
     "approve the definitions of upstreams",
     "Connects to the upstreams, or to those named, and shows each definition of a tool, prompt or\n"
     "resource that is new or differs from the approved one. After the answer `y` writes them to\n"
     "the file of `upstream_lock`. A gateway that runs serves what was approved at once, and keeps\n"
     "back what was not. The exit code is 1 if something is left that is not approved.\n",
     NULL,
     mp_cli_upstream,
     {{"check", 0, NULL, "ask and write nothing: exit with 1 if a definition differs", NULL},
      {"yes", 'y', NULL, "approve without a question", NULL},
      CONFIG}},
    {"key",
     "new NAME [OPTION]... | password NAME [OPTION]... | pair FILE [--alg NAME]",
     "make an API key, a user's password, or a key pair for tokens",
     "key new makes an API key for auth.keys. The key is printed only this once; the line for the\n"
     "file of keys contains only its SHA-256.\n"
     "key password asks for the password of a user who signs in at this gateway; the line for the\n"
     "file of sign_in.passwords has its scrypt hash. Without a terminal the password is the first\n"
     "line of the input. With --file the new line takes the place of one that the user has.\n"
     "key pair writes a private key to FILE, which must not exist yet and which only you can\n"
     "read, and prints the public key for auth.jwt.\n",
     "new password pair",
     mp_cli_key,
     {{"scopes", 's', "SCOPES", "scopes of the API key or the user, as in notes:read,notes:write", NULL},
      {"expires", 'e', "TIME", "how long the API key is valid, as in 90d (default: forever)", NULL},
      {"file", 'f', "FILE", "append the line to this file, and print no more than the key", "<file>"},
      {"alg", 0, "NAME", "the algorithm of the key pair (default: ES256)", ALGORITHMS}}},
    {"token",
     "--key FILE [OPTION]... [CLAIM=VALUE]...",
     "print a token (JWT), signed with a private key: for tests and examples",
     "Prints a JWT with these claims, `iat` and `exp`, signed with the private key in FILE.\n"
     "VALUE is text; CLAIM:=VALUE takes JSON. Example:\n"
     "  moonpool token -k signing.pem iss=https://issuer.example aud=http://127.0.0.1:7300/mcp\n",
     NULL,
     mp_cli_token,
     {{"key", 'k', "FILE", "the private key, in PEM: moonpool key pair makes one", "<file>"},
      {"scope", 0, "SCOPES", "the claim `scope`, as in \"notes:read notes:write\"", NULL},
      {"expires", 'e', "TIME", "how long the token is valid, as in 30s, 10m, 90d (default: 1h)", NULL},
      {"alg", 0, "NAME", "the signature's algorithm (default: by the type of the key)", ALGORITHMS},
      {"kid", 0, "NAME", "the key id in the token's header (default: none)", NULL}}},
    {"types",
     "[-c FILE] DIR",
     "write types for editors with LuaLS, to complete and check scripts",
     "Writes the types of moonpool's API to DIR/lua/types. If there is a configuration, also\n"
     "writes the types of its scripts there (arguments, outputs, names). Writes DIR/.luarc.json\n"
     "if it does not exist. Run it again when tools have changed.\n",
     "<dir>",
     mp_cli_types,
     {CONFIG}},
    {"reload",
     "[-a ADDRESS] [moonpool.yaml]",
     "reload the scripts and configuration of the running gateway",
     "Requests a reload of scripts and configuration at the admin listener of the running\n"
     "gateway, and prints what changed. On errors prints them, the previous version stays in\n"
     "use, and the exit code is 1.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN, CONFIG}},
    {"status",
     "[-a ADDRESS] [--json | --healthy] [moonpool.yaml]",
     "print the state of the running gateway: scripts, gauges and counters",
     "Prints the state of the running gateway, from its admin listener: what is wrong, worst first,\n"
     "and what to do next; the serving scripts, the errors of the last reload, and each gauge and\n"
     "counter that is not 0.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN,
      {"json", 0, NULL, "print everything as JSON", NULL},
      {"healthy", 0, NULL,
       "print what /healthz says, and exit with 1 unless that is ok,\nwithin five seconds; needs no token", NULL},
      CONFIG}},
    {"log",
     "[-a ADDRESS] --level LEVEL [--for TIME] [moonpool.yaml]",
     "change the level of the running gateway's log for a time",
     "Changes the level of the running gateway's log, by its admin listener. After the time the log\n"
     "has the level of the configuration again; a reload ends the change, too.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN,
      {"level", 0, "LEVEL", "debug, info, warn or error", LEVELS},
      {"for", 0, "TIME", "as in 30s, 10m or 2h, at most 1d (default: 5m)", NULL},
      CONFIG}},
    {"drain",
     "[-a ADDRESS] [moonpool.yaml]",
     "end the running gateway once its calls have ended, as SIGTERM does",
     "Ends the running gateway as SIGTERM does, by its admin listener: everything is served on for\n"
     "`limits.linger`, running calls may finish within `limits.drain`, then the process exits. A SIGTERM\n"
     "that follows hurries nothing, so this is what a hook runs before a container is stopped. Does\n"
     "not wait for the end. Needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN, CONFIG}},
    {"upgrade",
     "[-a ADDRESS] [--json] [moonpool.yaml]",
     "let the program that is installed now take over from the running one",
     "Asks the running gateway, by its admin listener, to start the file that is now at its path,\n"
     "as SIGUSR2 does. The new process takes over the listening sockets, and after a trial of 2 s\n"
     "the store, schedules and the admin listener. Sessions live on in the process that opened\n"
     "them, for an hour at most. Waits for the end, and prints the id of the new process. If the new\n"
     "one does not serve, nothing changes, the reason is printed, and the exit code is 1.\n"
     "Refused on stdio, in a container's first process or a child of it, and in a child of tini,\n"
     "runsv, supervisord and the like: restart there. The environment and limits are those of the\n"
     "process before; where the unit of systemd has changed, it says so. Needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN, {"json", 0, NULL, "print the answer as JSON", NULL}, CONFIG}},
    {"switch",
     "[-a ADDRESS] [-c FILE] [--json] [on|off KIND NAME]",
     "switch a tool or an upstream of the running gateway off or on",
     "Switches a tool, prompt, resource or a whole upstream of the running gateway off, or on again,\n"
     "by its admin listener; without words prints what is switched off, by which caller, and since\n"
     "when. KIND is tool, prompt, resource or upstream; NAME is a name, or a resource's URI. Clients\n"
     "do not see what is off, and calls of it are answered as if it did not exist. That outlives\n"
     "reloads, and with `store.file` restarts. Scripts cannot switch it on. Needs the role operate.\n"
     "Ends when all workers have switched; the exit code is 1 if one has not in time.\n",
     "on off",
     mp_cli_admin,
     {ADMIN, {"json", 0, NULL, "print the answer as JSON", NULL}, CONFIG}},
    {"cluster",
     "[-a ADDRESS] [-c FILE] [--json] status | drain NODE | forget NODE",
     "print the nodes of the running gateway's cluster, drain or forget one",
     "cluster status prints a line for each process of the cluster, as the running gateway knows it by\n"
     "its admin listener: node, address, version, state, sessions, and the time since its record last\n"
     "changed. The exit code is 1 if a record is stale: its process has not renewed it for 10 s; or if\n"
     "this gateway has not joined, which the first line says. cluster drain asks a node to leave and\n"
     "end, as SIGTERM does there: it takes no clients any more, and its sessions are answered by way of\n"
     "the others until they end, or `cluster.leave` is over. It asks by the server of cluster, which the\n"
     "node reads each 2 s; a node that has begun to leave does not come back, but for a start of it.\n"
     "cluster forget removes the records of a node that are stale: its sessions are unknown at once,\n"
     "and not after a minute. Both need the role operate.\n",
     "status drain forget",
     mp_cli_admin,
     {ADMIN, {"json", 0, NULL, "print the answer as JSON", NULL}, CONFIG}},
    {"sessions",
     "[-a ADDRESS] [--json] [--user NAME [--revoke]] [moonpool.yaml]",
     "print who is signed in at the running gateway, or sign a user out",
     "Prints a line for each sign-in at the running gateway (`sign_in`), by its admin listener: user,\n"
     "client, since when, and when a client last got an access token; those of NAME alone with --user.\n"
     "With --revoke all sign-ins of this user end: tokens are refused at once, and streams and calls\n"
     "end within a second. The exit code is 1 if there was none. --revoke needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN,
      {"user", 0, "NAME", "sign-ins of this user", NULL},
      {"revoke", 0, NULL, "end the sign-ins of the user", NULL},
      {"json", 0, NULL, "print the answer as JSON", NULL}}},
    {"dashboard",
     "[-a ADDRESS] [--open] [moonpool.yaml]",
     "print a link that opens the dashboard of the running gateway",
     "Prints a link that opens the dashboard of the running gateway in a browser. The link is valid\n"
     "once, for a minute; the page is then signed in for twelve hours, or until the gateway ends.\n"
     "Needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN, {"open", 0, NULL, "open the link too, by xdg-open", NULL}, CONFIG}},
    {"upstreams",
     "[-a ADDRESS] [-c FILE] [--json] [--connect] [NAME]",
     "print the state of the running gateway's upstreams",
     "Prints a line for each upstream of the running gateway, or for NAME: state, revision,\n"
     "transport, sessions or processes, times of its answers, and the last failure. The states:\n"
     "  unused  nothing was asked of it yet     down    it fails; requests are refused for now\n"
     "  up      it answers                      barred  it refuses the gateway's credentials\n"
     "The exit code is 1 if one of them is down or barred. With --connect no gateway is asked: the\n"
     "command connects to each upstream itself, and prints what clients would see.\n",
     NULL,
     mp_cli_admin,
     {ADMIN,
      {"json", 0, NULL, "print everything as JSON", NULL},
      {"connect", 0, NULL, "ask the upstreams themselves, without a gateway", NULL},
      CONFIG}},
    {"tap",
     "[OPTION]... [moonpool.yaml]",
     "print calls of the running gateway as they begin and end",
     "Prints a line for each call of the running gateway when it begins and when it has ended, for\n"
     "each session that opens or ends, and for each refusal, until Ctrl-C. Of arguments it shows\n"
     "names, types and sizes, no values, unless --arguments and the key `admin.tap` say otherwise.\n"
     "A PATTERN may have '*'. With --outcome or --slower only what has ended is shown. Needs the\n"
     "role operate. A line says how many events were dropped: over 1000 a second, or not read.\n",
     "<file>",
     mp_cli_admin,
     {{"tool", 0, "PATTERN", "calls of this tool, prompt or resource", NULL},
      {"principal", 0, "PATTERN", "calls of this principal", NULL},
      {"session", 0, "MARK", "calls of this session, as /api/sessions names it", NULL},
      {"method", 0, "PATTERN", "calls of this method, as in tools/*", NULL},
      {"outcome", 0, "PATTERN", "calls that ended so: ok, failed, error, timeout, …", NULL},
      {"slower", 0, "TIME", "calls that took this long or longer, as in 100ms", NULL},
      {"arguments", 0, "FORM", "none, names, shapes or full (default: shapes)", "none names shapes full"},
      {"sample", 0, "PART", "this part of the calls, chosen at random: from 0 to 1, as in 0.01", NULL},
      {"record", 0, "FILE",
       "write tool calls, without secrets, as a transcript for test --play;\nonly --tool and --for go with it",
       "<file>"},
      {"for", 0, "TIME", "end after this time, from 1s to 1h (default: 1h)", NULL},
      {"json", 0, NULL, "print each event as JSON", NULL},
      ADMIN,
      CONFIG}},
    {"profile",
     "[OPTION]... [moonpool.yaml]",
     "show where the time of the running gateway's workers goes",
     "Samples the workers of the running gateway for a time, and prints the parts of the phases of\n"
     "calls and of the lines of scripts, or writes them to a file: a flame graph (.svg), folded stacks\n"
     "(.folded) or JSON (.json). Time is processor time; waiting takes none. With --memory it counts\n"
     "what lines allocate. Calls and their limits stay as they are. Needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {{"for", 0, "TIME", "as in 10s or 2m, at most 5m (default: 30s)", NULL},
      {"worker", 0, "N", "only this worker; the first one is 0", NULL},
      {"tool", 0, "PATTERN", "only calls of this tool, prompt or resource", NULL},
      {"hz", 0, "N", "samples a second, from 1 to 1000 (default: 199)", NULL},
      {"process", 0, "PID", "an older process, after an upgrade (default: the newest)", NULL},
      {"memory", 0, NULL, "sample allocations, one in 512 KiB, not time", NULL},
      {"out", 0, "FILE", "write to this file: .svg, .folded or .json", NULL},
      ADMIN,
      CONFIG}},
    {"record",
     "[OPTION]... [moonpool.yaml]",
     "have the running gateway record calls, for replay",
     "Has the running gateway record the calls of some tools: arguments, principal, result, and\n"
     "what their scripts got from http, sqlite, exec, fs, store, upstreams, clocks and random\n"
     "numbers. Writes a line of JSON for each call to stdout or FILE, until Ctrl-C or --for is\n"
     "over. Values of members whose names or schemas say that they are secret are left out, and\n"
     "the record says so. Needs the role operate.\n",
     "<file>",
     mp_cli_admin,
     {{"tool", 0, "PATTERN", "tools whose calls are recorded; * stands for any text (default: *)", NULL},
      {"for", 0, "TIME", "end after this time, from 1s to 1d (default: 1h)", NULL},
      {"most", 0, "N", "end after this number of calls (default: 1000)", NULL},
      {"out", 'o', "FILE", "append the records to this file (default: stdout)", "<file>"},
      ADMIN,
      CONFIG}},
    {"replay",
     "[OPTION]... [FILE]",
     "run recorded calls against the scripts on disk, print what differs",
     "Runs the recorded calls of FILE, or the last ones that the running gateway keeps, against\n"
     "the scripts of the configuration. Nothing outside is touched: libraries answer from the\n"
     "record, and what it has no answer for is refused. Prints the difference of each call's\n"
     "result, and of what it asked outside and in which order. The exit code is 1 if one differs.\n",
     "<file>",
     mp_cli_replay,
     {{"last", 0, "N", "the last calls that the running gateway keeps (default: 50)", NULL},
      {"json", 0, NULL, "print a line of JSON for each call", NULL},
      {"gate", 0, NULL, NULL, NULL} /* a reload that waits for scripts.reload_check starts replay with this option */,
      ADMIN,
      CONFIG}},
    {"doctor",
     "[OPTION]... NAME|URL",
     "walk the way to an MCP server, and say where it stops",
     "Connects to an upstream of the configuration, or to any server at a URL, as the gateway does,\n"
     "and prints each step: address, connect, tls, probe (revision and transport), authorization\n"
     "(what the server says about it; only looked at), token, list; of a program: program, probe,\n"
     "list. The first step that fails says why, and what to do next. The exit code is 1 then.\n"
     "With --bearer-env, an upstream with auth.exchange gets that token exchanged.\n",
     NULL,
     mp_cli_upstream,
     {{"json", 0, NULL, "print the steps as JSON", NULL},
      {"bearer-env", 'b', "VAR", "send the token in this environment variable to the server", NULL},
      {"header", 'H', "HEADER", "send 'Name: value' to the server, or the lines of @FILE;\nmay be repeated", NULL},
      {"ca", 0, "FILE", "trust these CA certificates at the server, not the system's", "<file>"},
      CONFIG}},
    {"config",
     "[--schema]",
     "print every key of moonpool.yaml with its default",
     "Prints every key of moonpool.yaml with its default, in the form of a file to start from.\n",
     NULL,
     mp_cli_config,
     {{"schema", 0, NULL, "print the file's JSON Schema (draft-07) instead, for editors", NULL},
      {"man", 0, NULL, NULL, NULL} /* used by the manual page's spec */}},
    {"completion",
     "bash|zsh|fish",
     "print the completions of a shell",
     "Prints a script that completes commands, options and values. For one session:\n"
     "  source <(moonpool completion bash)\n",
     "bash zsh fish",
     mp_cli_completion,
     {{0}}},
    {"help",
     "[COMMAND]",
     "print the help of a command",
     "Lists the commands, or prints the help of one command.\n",
     "<command>",
     mp_cli_help,
     {{0}}},
    {"version",
     "",
     "print the version",
     "Prints the version; with --all, also that of each library.\n",
     NULL,
     mp_cli_version,
     {{"all", 0, NULL, "the versions of the libraries that are linked in, and of the system's", NULL}}},
};

const size_t mp_cli_command_count = sizeof mp_cli_commands / sizeof *mp_cli_commands;

#define REMOVING                                                                                                       \
    "an upstream is an entry in moonpool.yaml and a tool a file: remove that; `moonpool switch off` is for a time"
#define SAVING "nothing is built: a file that is saved below scripts/ serves, and `moonpool check` reads all"
#define EDITING "keys are written into moonpool.yaml: `moonpool config` prints them all with their defaults"
#define LOOKING "`moonpool dashboard` and `moonpool tap` show a running gateway, `moonpool call` calls one tool"

/* Command names of other programs, with the command that does the same here, or with a hint. */
static const char *const other_words[][2] = {
    {"serve", "run"},     {"start", "run"},       {"up", "run"},        {"dev", "run"},         {"ls", "list"},
    {"tools", "list"},    {"show", "list"},       {"invoke", "call"},   {"exec", "call"},       {"create", "new"},
    {"init", "new"},      {"generate", "new"},    {"lint", "check"},    {"validate", "check"},  {"get", "read"},
    {"resource", "read"}, {"prompts", "prompt"},  {"ps", "status"},     {"ping", "status"},     {"schema", "config"},
    {"stop", "drain"},    {"shutdown", "drain"},  {"quit", "drain"},    {"restart", "upgrade"}, {"update", "upgrade"},
    {"install", "add"},   {"remove", REMOVING},   {"rm", REMOVING},     {"delete", REMOVING},   {"uninstall", REMOVING},
    {"build", SAVING},    {"compile", SAVING},    {"deploy", SAVING},   {"publish", SAVING},    {"set", EDITING},
    {"edit", EDITING},    {"configure", EDITING}, {"inspect", LOOKING}, {"inspector", LOOKING}, {"debug", LOOKING},
};

const mp_cli_command *MP_NULLABLE mp_cli_find(const char *name)
{
    const char *names[sizeof mp_cli_commands / sizeof *mp_cli_commands], *near = NULL;
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        names[i] = mp_cli_commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return &mp_cli_commands[i];
    }
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words && near == NULL; i++)
        if (strcmp(name, other_words[i][0]) == 0)
            near = other_words[i][1];
    mp_cli_misused("unknown command", name,
                   near != NULL ? near : mp_suggest(mp_str_of(name), names, mp_cli_command_count), "");
    return NULL;
}
