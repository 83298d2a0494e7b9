/* commands.c: the table of commands. Help, usage errors, completions and the manual's check come from it. */
#include "cli.h"
#include <string.h>

#define LEVELS "debug info warn error"
#define REVISIONS "2024-11-05 2025-03-26 2025-06-18 2025-11-25 2026-07-28"
#define ALGORITHMS "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519"
#define CONFIG                                                                                                         \
    {                                                                                                                  \
        "config", 'c', "FILE", "the configuration (default: ./moonpool.yaml)", "<file>"                                \
    }
#define SCOPES                                                                                                         \
    {                                                                                                                  \
        "scopes", 's', "SCOPES", "what the principal was granted: \"orders:read orders:write\"", NULL                  \
    }
#define CLAIMS                                                                                                         \
    {                                                                                                                  \
        "claims", 0, "OBJECT", "what else auth knows of it, as JSON", NULL                                             \
    }
#define ADMIN                                                                                                          \
    {                                                                                                                  \
        "admin", 'a', "ADDRESS", "host:port or unix:/path (default: the file's `admin.listen`)", NULL                  \
    }
#define LOG_LEVEL                                                                                                      \
    {                                                                                                                  \
        "log-level", 0, "LEVEL", "debug, info, warn or error (default: `log.level`, or info)", LEVELS                  \
    }
#define READY_FD                                                                                                       \
    {                                                                                                                  \
        "ready-fd", 0, "N", "write a line to the open descriptor N once everything is\nserved (default: none)", NULL   \
    }

const mp_cli_command mp_cli_commands[] = {
    {"run",
     "[OPTION]... [moonpool.yaml]",
     "serve what the configuration says, until SIGTERM or SIGINT",
     "Serves what the configuration says. At SIGTERM or SIGINT running calls may end\n"
     "(limits.drain); a second signal stops at once.\n",
     "<file>",
     mp_cli_run,
     {{"listen", 'l', "ADDRESS",
       "host:port, [IPv6]:port or unix:/path; may be repeated;\nport 0 takes a free one\n"
       "(default: the file's `listen`, or 127.0.0.1:7300)",
       NULL},
      {"watch", 'w', NULL, "print what each reload changes, or what is wrong, on stdout", NULL},
      LOG_LEVEL,
      READY_FD}},
    {"stdio",
     "[OPTION]... [moonpool.yaml]",
     "serve the same to the client that started it, over stdin and stdout",
     "Serves what the configuration says to the one client that started it: MCP on stdin and\n"
     "stdout, a JSON message a line, in every revision; the log on stderr. Listens nowhere, so\n"
     "the file's `listen`, `endpoints`, `admin` and `workers` mean nothing here. At the end of\n"
     "stdin, at SIGTERM or SIGINT running calls may end (limits.drain), and what they answer is\n"
     "written; a signal after that stops at once.\n"
     "\n"
     "A client's configuration, as many have it:\n"
     "  {\"mcpServers\": {\"hello\": {\"command\": \"moonpool\", \"args\": [\"stdio\", \"/path/moonpool.yaml\"]}}}\n",
     "<file>",
     mp_cli_stdio,
     {LOG_LEVEL,
      READY_FD,
      {"specs", 0, NULL, NULL, NULL} /* `test` starts it so */,
      {"apart", 0, NULL, NULL, NULL} /* and `call` */}},
    {"check",
     "[--json] [moonpool.yaml]",
     "read configuration and scripts, print what is served or every mistake",
     "Reads the configuration and every script as `run` does, then prints each tool, resource\n"
     "and prompt as clients see it, or each mistake with its place in the file. Names in\n"
     "functions that no script knows are warned of, on stderr. Binds nothing, serves nothing.\n",
     "<file>",
     mp_cli_check,
     {{"json", 0, NULL, "print the definitions as JSON", NULL}}},
    {"list",
     "[--as PRINCIPAL] [moonpool.yaml]",
     "print what is served, one line each",
     "Prints each tool, resource and prompt: its kind, its name, the first line about it. With\n"
     "--as those alone that this principal sees.\n",
     "<file>",
     mp_cli_list,
     {{"as", 0, "PRINCIPAL", "what this one sees: an id, or anonymous", "anonymous local"}, SCOPES, CLAIMS}},
    {"explain",
     "[OPTION]... [PRINCIPAL] [NAME]",
     "say what a principal sees and may use, and which rule decides",
     "Says of one tool, prompt or resource, by its name or URI, which rule decides whether the\n"
     "principal sees it and may use it, and what its client meets; without NAME of each in a\n"
     "line. PRINCIPAL is an id, whose scopes and claims are given here; or anonymous, or local,\n"
     "which is whoever runs the gateway. With --bearer-env or --header there is no PRINCIPAL:\n"
     "the auth scripts are asked, as for a request that has these.\n"
     "The exit code is 1 where the client is refused.\n",
     "anonymous local",
     mp_cli_explain,
     {SCOPES,
      CLAIMS,
      {"bearer-env", 'b', "VAR", "the variable of the environment that holds a bearer token", NULL},
      {"header", 'H', "HEADER", "of the request, as in 'X-Api-Key: …'; may be repeated", NULL},
      CONFIG}},
    {"new",
     "[-c FILE] tool|resource|prompt|job|lib|policy|auth NAME",
     "write a script to start from",
     "Writes scripts/tools/NAME.lua, or into the folder of another kind, below `scripts.path`\n"
     "of the configuration; in a folder without one, an empty moonpool.yaml too. Never writes\n"
     "over a file. NAME may have folders: orders/refund.\n",
     "tool resource prompt job lib policy auth",
     mp_cli_new,
     {CONFIG}},
    {"call",
     "[OPTION]... NAME [KEY=VALUE]...",
     "call one tool, here or at a running gateway",
     "Calls a tool, without a server unless --url names one. Values are read as the tool's\n"
     "schema says: numbers, true and false, lists and objects as JSON. The result goes to\n"
     "stdout; progress and logs to stderr, as they come. Questions are asked at the terminal;\n"
     "without one the tool is told that nobody can be asked.\n"
     "The exit code is 1 when the tool fails.\n"
     "Everybody on this machine can read the words of a command: a token goes into a variable\n"
     "(--bearer-env) or a file (--header @FILE). Certificates are always verified.\n",
     NULL,
     mp_cli_call,
     {{"json", 'j', "OBJECT", "the arguments, or the rest of them, as JSON", NULL},
      {"revision", 'r', "DATE", "of the protocol (default: 2026-07-28)", REVISIONS},
      {"url", 'u', "URL", "call at this endpoint: http://127.0.0.1:7300/mcp", NULL},
      {"bearer-env", 'b', "VAR", "send the token in this environment variable to --url", NULL},
      {"header", 'H', "HEADER", "send 'Name: value' to --url, or the lines of @FILE;\nmay be repeated", NULL},
      {"ca", 0, "FILE", "trust these certificates at --url, not the system's", "<file>"},
      {"raw", 0, NULL, "print the whole result as JSON", NULL},
      CONFIG}},
    {"test",
     "[-c FILE] [PATH]...",
     "run the *_spec.lua files that stand beside the scripts",
     "Runs the specs of your scripts inside the real runtime: every *_spec.lua below\n"
     "`scripts.path`, or those below each PATH. They see describe, it, before_each, assert,\n"
     "call, read, fake, and what scripts see. The exit code is 1 when one fails.\n",
     "<file>",
     mp_cli_test,
     {CONFIG}},
    {"key",
     "new NAME [OPTION]... | pair FILE [--alg NAME]",
     "make an API key, or a pair of keys that sign and verify tokens",
     "key new makes an API key for auth.keys. The key is printed this once; the line that goes\n"
     "into the file of keys has only its SHA-256.\n"
     "key pair makes a private key at FILE, which must not be there yet and which only you can\n"
     "read, and prints the public key that auth.jwt wants.\n",
     "new pair",
     mp_cli_key,
     {{"scopes", 's', "SCOPES", "what the API key may do, as in notes:read,notes:write", NULL},
      {"expires", 'e', "TIME", "after which it is refused, as in 90d (default: never)", NULL},
      {"file", 'f', "FILE", "append the line to this file, and print the key alone", "<file>"},
      {"alg", 0, "NAME", "what the pair is for (default: ES256)", ALGORITHMS}}},
    {"token",
     "--key FILE [OPTION]... [CLAIM=VALUE]...",
     "print a token (JWT), signed with a private key: for tests and examples",
     "Prints a JWT with these claims, `iat` and `exp`, signed with the private key in FILE.\n"
     "VALUE is a text; CLAIM:=VALUE takes JSON. As in\n"
     "  moonpool token -k signing.pem iss=https://issuer.example aud=http://127.0.0.1:7300/mcp\n",
     NULL,
     mp_cli_token,
     {{"key", 'k', "FILE", "the private key, in PEM: moonpool key pair makes one", "<file>"},
      {"scope", 0, "SCOPES", "the claim `scope`, as in \"notes:read notes:write\"", NULL},
      {"expires", 'e', "TIME", "from now on, as in 30s, 10m, 1h, 90d (default: 1h)", NULL},
      {"alg", 0, "NAME", "of the signature (default: what goes with the key)", ALGORITHMS},
      {"kid", 0, "NAME", "the name of the key, in the header (default: none)", NULL}}},
    {"types",
     "[-c FILE] DIR",
     "write what editors with LuaLS need to complete and check scripts",
     "Writes the types of moonpool's own names into DIR/lua/types, those of the scripts that\n"
     "the configuration serves (arguments, outputs, names) beside them, if there is one, and\n"
     "DIR/.luarc.json unless there is one. Run it again when tools have changed.\n",
     "<dir>",
     mp_cli_types,
     {CONFIG}},
    {"reload",
     "[-a ADDRESS] [moonpool.yaml]",
     "let the running gateway read its scripts and configuration again",
     "Asks the running gateway, at its admin listener, to read its scripts and its configuration\n"
     "again, and prints what changed, or every mistake; then the old ones stay, and the exit\n"
     "code is 1.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN}},
    {"status",
     "[-a ADDRESS] [--json] [moonpool.yaml]",
     "print how the running gateway is: scripts, gauges and counters",
     "Prints what the running gateway says of itself at its admin listener: which scripts serve\n"
     "and what is wrong with those that do not, and each gauge and counter that is not 0.\n",
     "<file>",
     mp_cli_admin,
     {ADMIN, {"json", 0, NULL, "print all of it, as JSON", NULL}}},
    {"config",
     "[--schema]",
     "print every key of moonpool.yaml with its default",
     "Prints every key of moonpool.yaml with its default, as a file to start from.\n",
     NULL,
     mp_cli_config,
     {{"schema", 0, NULL, "print the file's JSON Schema (draft-07) instead, for editors", NULL},
      {"man", 0, NULL, NULL, NULL} /* for the manual page's own spec */}},
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
     "say more about a command",
     "Says what there is, or more about a command.\n",
     "<command>",
     mp_cli_help,
     {{0}}},
    {"version", "", "print the version", "Prints the version.\n", NULL, mp_cli_version, {{0}}},
};

const size_t mp_cli_command_count = sizeof mp_cli_commands / sizeof *mp_cli_commands;

const mp_cli_command *mp_cli_find(const char *name)
{
    const char *names[sizeof mp_cli_commands / sizeof *mp_cli_commands];
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        names[i] = mp_cli_commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return &mp_cli_commands[i];
    }
    mp_cli_misused("unknown command", name, mp_nearest(mp_str_of(name), names, mp_cli_command_count), "");
    return NULL;
}

const char *mp_cli_value(const mp_cli_args *args, const char *option)
{
    for (int i = args->given_count - 1; i >= 0; i--)
        if (strcmp(args->given[i].option->name, option) == 0)
            return args->given[i].value == NULL ? "" : args->given[i].value;
    return NULL;
}
