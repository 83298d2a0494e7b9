/* main.c: the command line: options, commands, exit codes. */
#include "gateway/gateway.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ENDED_WELL = 0, FAILED = 1, BAD_USAGE = 2, BAD_CONFIG = 78 /* EX_CONFIG */ };

#define LISTEN_CAP 16

static const char usage[] = "moonpool serves MCP tools, resources and prompts written in Lua.\n"
                            "\n"
                            "usage: moonpool COMMAND [OPTION]... [moonpool.yaml]\n"
                            "\n"
                            "  run       serve what the configuration says, until SIGTERM or SIGINT\n"
                            "  stdio     serve the same to the client that started it, over stdin and stdout\n"
                            "  check     read configuration and scripts, print what is served or every mistake\n"
                            "  config    print every key of moonpool.yaml with its default\n"
                            "  help      say more about a command\n"
                            "  version   print the version\n"
                            "\n"
                            "options of run and stdio\n"
                            "  -l, --listen ADDRESS   run only: host:port, [IPv6]:port or unix:/path; may be\n"
                            "                         repeated (default: the file's `listen`, or 127.0.0.1:7300)\n"
                            "      --log-level LEVEL  debug, info, warn or error (default: `log.level`, or info)\n"
                            "      --ready-fd N       write a line to descriptor N once everything is served\n"
                            "                         (default: none)\n"
                            "options of all\n"
                            "  -h, --help             say this, or more about a command\n"
                            "  -V, --version          print the version\n"
                            "\n"
                            "The file is ./moonpool.yaml by default. Exit codes: 0 ended well, 1 failed,\n"
                            "2 bad usage, 78 bad configuration or scripts. Manual: moonpool(1), moonpool.yaml(5).\n"
                            "\n"
                            "examples\n"
                            "  moonpool run\n"
                            "  moonpool run --listen 0.0.0.0:8080 --log-level debug examples/hello/moonpool.yaml\n";

static const char help_run[] = "usage: moonpool run [OPTION]... [moonpool.yaml]\n"
                               "\n"
                               "Serves what the configuration says. At SIGTERM or SIGINT running calls may end\n"
                               "(limits.drain); a second signal stops at once.\n"
                               "\n"
                               "  -l, --listen ADDRESS   host:port, [IPv6]:port or unix:/path; may be repeated;\n"
                               "                         port 0 takes a free one\n"
                               "                         (default: the file's `listen`, or 127.0.0.1:7300)\n"
                               "      --log-level LEVEL  debug, info, warn or error (default: `log.level`, or info)\n"
                               "      --ready-fd N       write a line to the open descriptor N once everything is\n"
                               "                         served (default: none)\n"
                               "  -h, --help             say this\n"
                               "\n"
                               "The file is ./moonpool.yaml by default.\n";

static const char help_stdio[] =
    "usage: moonpool stdio [OPTION]... [moonpool.yaml]\n"
    "\n"
    "Serves what the configuration says to the one client that started it: MCP on stdin and\n"
    "stdout, a JSON message a line, in every revision; the log on stderr. Listens nowhere, so\n"
    "the file's `listen`, `endpoints`, `admin` and `workers` mean nothing here. At the end of\n"
    "stdin, at SIGTERM or SIGINT running calls may end (limits.drain), and what they answer is\n"
    "written; a signal after that stops at once.\n"
    "\n"
    "      --log-level LEVEL  debug, info, warn or error (default: `log.level`, or info)\n"
    "      --ready-fd N       write a line to the open descriptor N once everything is\n"
    "                         served (default: none)\n"
    "  -h, --help             say this\n"
    "\n"
    "The file is ./moonpool.yaml by default. A client's configuration, as many have it:\n"
    "  {\"mcpServers\": {\"hello\": {\"command\": \"moonpool\", \"args\": [\"stdio\", \"/path/moonpool.yaml\"]}}}\n";

static const char help_check[] = "usage: moonpool check [moonpool.yaml]\n"
                                 "\n"
                                 "Reads the configuration and every script as `run` does, then prints each tool, or\n"
                                 "each mistake with its place in the file. Binds nothing, serves nothing. The file is\n"
                                 "./moonpool.yaml by default.\n";

static const char help_config[] =
    "usage: moonpool config [--schema]\n"
    "\n"
    "Prints every key of moonpool.yaml with its default, as a file to start from.\n"
    "\n"
    "      --schema           print the file's JSON Schema (draft-07) instead, for editors\n";

static const char help_help[] = "usage: moonpool help [COMMAND]\n\nSays what there is, or more about a command.\n";
static const char help_version[] = "usage: moonpool version\n\nPrints the version.\n";

/* -- telling --------------------------------------------------------------------------------------------------- */

/* What was asked for goes to stdout; a stdout that takes nothing is a failure. */
static int print(mp_str text)
{
    fwrite(text.ptr, 1, text.len, stdout);
    if (fflush(stdout) == 0)
        return ENDED_WELL;
    fprintf(stderr, "moonpool: cannot write: %s\n", strerror(errno));
    return FAILED;
}

static int complain(int code, mp_buf *report)
{
    if (report->len > 0)
        fwrite(report->ptr, 1, report->len, stderr);
    mp_buf_clear(report);
    return code;
}

static int misused(const char *what, const char *word, const char *near, const char *command)
{
    fprintf(stderr, "moonpool: %s", what);
    if (word != NULL)
        fprintf(stderr, " '%s'", word);
    if (near != NULL)
        fprintf(stderr, "\n  hint: did you mean '%s'?\n", near);
    else
        fprintf(stderr, "\n  hint: moonpool %s%s--help says what there is\n", command, command[0] == '\0' ? "" : " ");
    return BAD_USAGE;
}

/* -- options --------------------------------------------------------------------------------------------------- */

enum { OPTION_LOG_LEVEL = 256, OPTION_READY_FD, OPTION_SCHEMA, OPTION_MAN };

static const struct option run_options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
                                            {"ready-fd", required_argument, NULL, OPTION_READY_FD},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
static const struct option stdio_options[] = {{"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
                                              {"ready-fd", required_argument, NULL, OPTION_READY_FD},
                                              {"help", no_argument, NULL, 'h'},
                                              {NULL, 0, NULL, 0}};
static const struct option plain_options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
static const struct option config_options[] = {
    {"schema", no_argument, NULL, OPTION_SCHEMA},
    {"man", no_argument, NULL, OPTION_MAN}, /* for the manual page's own spec */
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};
static const struct option top_options[] = {
    {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};

/* What getopt_long stumbled over; `argv` is still as it was given up to there. */
static int bad_option(int sign, char **argv, const struct option *options, const char *command)
{
    const char *names[16];
    size_t count = 0;
    const char *word = argv[optind - 1];
    char letter[] = {'-', (char)optopt, '\0'};
    bool is_long = strncmp(word, "--", 2) == 0;
    if (sign == ':')
        return misused("a value is missing after", is_long ? word : letter, NULL, command);
    if (!is_long)
        return misused("unknown option", letter, NULL, command);
    if (optopt != 0)
        return misused("no value goes with", word, NULL, command);
    for (const struct option *o = options; o->name != NULL; o++)
        names[count++] = o->name;
    mp_buf near = {0};
    const char *name = mp_nearest((mp_str){word + 2, strcspn(word + 2, "=")}, names, count);
    mp_buf_printf(&near, "--%s%c", name == NULL ? "" : name, '\0');
    misused("unknown option", word, name == NULL ? NULL : near.ptr, command);
    mp_buf_clear(&near);
    return BAD_USAGE;
}

typedef struct {
    const char *file, *log_level, *listen[LISTEN_CAP];
    size_t listen_count;
    mp_gateway_options gateway;
} run_arguments;

static int take_file(int argc, char **argv, const char *command, const char **file)
{
    if (argc - optind > 1)
        return misused("one configuration file at a time, this is too much:", argv[optind + 1], NULL, command);
    *file = optind < argc ? argv[optind] : NULL;
    return ENDED_WELL;
}

static int parse_fd(const char *text, const char *command, int *fd)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number > 1 << 20)
        return misused("--ready-fd needs the number of a descriptor, not", text, NULL, command);
    int flags = fcntl((int)number, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return misused("--ready-fd: this descriptor is not open for writing:", text, NULL, command);
    *fd = (int)number;
    return ENDED_WELL;
}

/* The configuration at `file`, or in this folder; NULL when it was refused, told already. */
static mp_config *load(const char *file, const char *command)
{
    mp_buf report = {0};
    if (file == NULL && access("moonpool.yaml", F_OK) != 0 && errno == ENOENT) {
        fprintf(
            stderr,
            "moonpool: there is no moonpool.yaml in this folder\n"
            "  hint: name one, as in moonpool %s examples/hello/moonpool.yaml; an empty file is a configuration too\n",
            command);
        return NULL;
    }
    mp_config *config = mp_config_load(file == NULL ? "moonpool.yaml" : file, &report);
    complain(0, &report);
    return config;
}

/* -- commands -------------------------------------------------------------------------------------------------- */

/* `run` and `stdio`. */
static int serve(int argc, char **argv, bool on_stdio)
{
    run_arguments args = {.gateway = {.on_stdio = on_stdio, .ready_fd = -1}};
    const char *command = argv[0];
    const struct option *options = on_stdio ? stdio_options : run_options;
    for (int sign; (sign = getopt_long(argc, argv, on_stdio ? ":h" : ":l:h", options, NULL)) != -1;) {
        switch (sign) {
        case 'h':
            return print(mp_str_of(on_stdio ? help_stdio : help_run));
        case 'l':
            if (args.listen_count == LISTEN_CAP)
                return misused("more than 16 times", "--listen", NULL, command);
            args.listen[args.listen_count++] = optarg;
            break;
        case OPTION_LOG_LEVEL:
            args.log_level = optarg;
            break;
        case OPTION_READY_FD:
            if (parse_fd(optarg, command, &args.gateway.ready_fd) != ENDED_WELL)
                return BAD_USAGE;
            if (on_stdio && args.gateway.ready_fd <= STDOUT_FILENO)
                return misused("--ready-fd: this descriptor is the client's:", optarg, NULL, command);
            break;
        default:
            return bad_option(sign, argv, options, command);
        }
    }
    if (take_file(argc, argv, command, &args.file) != ENDED_WELL)
        return BAD_USAGE;
    mp_config *config = load(args.file, command);
    if (config == NULL)
        return BAD_CONFIG;
    mp_buf report = {0};
    int code = ENDED_WELL;
    if (args.listen_count > 0 &&
        mp_config_override(config, "listen", args.listen, args.listen_count, "--listen", &report) != 0)
        code = BAD_USAGE;
    if (args.log_level != NULL &&
        mp_config_override(config, "log.level", &args.log_level, 1, "--log-level", &report) != 0)
        code = BAD_USAGE;
    complain(code, &report);
    if (code == ENDED_WELL)
        code = mp_gateway_run(config, &args.gateway);
    mp_config_free(config);
    return code;
}

static int run(int argc, char **argv)
{
    return serve(argc, argv, false);
}

static int stdio(int argc, char **argv)
{
    return serve(argc, argv, true);
}

/* Commands whose only option is --help: true when `*code` is the whole story. */
static bool took_plain_options(int argc, char **argv, const char *help, int *code)
{
    int sign = getopt_long(argc, argv, ":h", plain_options, NULL);
    if (sign == -1)
        return false;
    *code = sign == 'h' ? print(mp_str_of(help)) : bad_option(sign, argv, plain_options, argv[0]);
    return true;
}

static int check(int argc, char **argv)
{
    const char *file = NULL;
    int code;
    if (took_plain_options(argc, argv, help_check, &code))
        return code;
    if (take_file(argc, argv, "check", &file) != ENDED_WELL)
        return BAD_USAGE;
    mp_config *config = load(file, "check");
    if (config == NULL)
        return BAD_CONFIG;
    code = mp_gateway_check(config);
    mp_config_free(config);
    return code;
}

static int config(int argc, char **argv)
{
    void (*put)(mp_buf * out) = mp_config_print_help;
    for (int sign; (sign = getopt_long(argc, argv, ":h", config_options, NULL)) != -1;) {
        if (sign == 'h')
            return print(mp_str_of(help_config));
        if (sign != OPTION_SCHEMA && sign != OPTION_MAN)
            return bad_option(sign, argv, config_options, "config");
        put = sign == OPTION_SCHEMA ? mp_config_print_schema : mp_config_print_man;
    }
    if (optind < argc)
        return misused("config takes no file:", argv[optind], NULL, "config");
    mp_buf out = {0};
    put(&out);
    int code = print(mp_buf_str(&out));
    mp_buf_clear(&out);
    return code;
}

static int help(int argc, char **argv);

static int version(int argc, char **argv)
{
    int code;
    if (took_plain_options(argc, argv, help_version, &code))
        return code;
    if (optind < argc)
        return misused("version takes nothing:", argv[optind], NULL, "version");
    return print(MP_STR("moonpool " MOONPOOL_VERSION "\n"));
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {{"run", run, help_run},          {"stdio", stdio, help_stdio}, {"check", check, help_check},
                {"config", config, help_config}, {"help", help, help_help},    {"version", version, help_version}};

#define COMMANDS (sizeof commands / sizeof *commands)

/* The row of a command; COMMANDS, and told, when there is none. */
static size_t find_command(const char *name)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    misused("unknown command", name, mp_nearest(mp_str_of(name), names, COMMANDS), "");
    return COMMANDS;
}

static int help(int argc, char **argv)
{
    int code;
    if (took_plain_options(argc, argv, help_help, &code))
        return code;
    if (argc - optind > 1)
        return misused("one command at a time, this is too much:", argv[optind + 1], NULL, "help");
    if (optind == argc)
        return print(mp_str_of(usage));
    size_t row = find_command(argv[optind]);
    return row == COMMANDS ? BAD_USAGE : print(mp_str_of(commands[row].help));
}

int main(int argc, char **argv)
{
    opterr = 0;
    int sign = getopt_long(argc, argv, "+:hV", top_options, NULL);
    if (sign == 'h')
        return print(mp_str_of(usage));
    if (sign == 'V')
        return print(MP_STR("moonpool " MOONPOOL_VERSION "\n"));
    if (sign != -1)
        return bad_option(sign, argv, top_options, "");
    if (optind >= argc) {
        fputs(usage, stderr);
        return BAD_USAGE;
    }
    size_t row = find_command(argv[optind]);
    if (row == COMMANDS)
        return BAD_USAGE;
    int first = optind;
    optind = 0; /* getopt begins anew, behind the command */
    return commands[row].run(argc - first, argv + first);
}
