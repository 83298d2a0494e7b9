/* cli.c: parses argv into a command with its options and words. */
#include "cli.h"
#include "lib/lib.h"
#include <getopt.h>

#define SIGN 256 /* value of the first long option in getopt's tables */

static const struct option top_options[] = {
    {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};

/* Options of other programs, with the option that does the same here, in the commands that have it. */
static const char *const other_options[][2] = {
    {"port", "listen"},   {"host", "listen"},    {"bind", "listen"},      {"address", "listen"}, {"debug", "log-level"},
    {"verbose", "trace"}, {"debug", "trace"},    {"token", "bearer-env"}, {"server", "url"},     {"endpoint", "url"},
    {"args", "json"},     {"arguments", "json"}, {"params", "json"},      {"file", "config"},
};

static const char *MP_NULLABLE option_for(mp_str word, const char *const *names, size_t count)
{
    for (size_t i = 0; i < sizeof other_options / sizeof *other_options; i++)
        for (size_t at = 0; mp_str_is(word, other_options[i][0]) && at < count; at++)
            if (strcmp(names[at], other_options[i][1]) == 0)
                return names[at];
    return mp_suggest(word, names, count);
}

/* The hint about an option that none resembles; NULL: the pointer to the help says enough. */
static const char *MP_NULLABLE hint_for(const char *command)
{
    if (command[0] == '\0')
        return "options stand behind the command, as in moonpool run --config moonpool.yaml; moonpool --help lists all";
    if (strcmp(command, "add") == 0)
        return "a program and its options stand behind --, as in moonpool add files -- npx -y some-server";
    if (strcmp(command, "call") == 0 || strcmp(command, "prompt") == 0)
        return "arguments are KEY=VALUE without dashes, as in name=Ann; --help lists the options";
    return NULL;
}

/* Prints the error that getopt_long found; it has not yet permuted `argv` up to that word. */
static int bad_option(int sign, char **argv, const struct option *options, const char *command)
{
    const char *names[MP_CLI_OPTIONS + 2];
    size_t count = 0;
    const char *word = argv[optind - 1];
    char letter[] = {'-', (char)optopt, '\0'};
    bool is_long = strncmp(word, "--", 2) == 0;
    if (sign == ':')
        return mp_cli_misused("missing value after", is_long ? word : letter, NULL, command);
    if (!is_long)
        return mp_cli_misused("unknown option", letter,
                              (optopt | 0x20) == 'v' && command[0] == '\0' ? "--version" : hint_for(command), command);
    if (optopt != 0)
        return mp_cli_misused("this option takes no value:", word, NULL, command);
    for (const struct option *o = options; o->name != NULL; o++)
        names[count++] = o->name;
    mp_scoped_buf near = {0};
    const char *name = option_for((mp_str){word + 2, strcspn(word + 2, "=")}, names, count);
    mp_buf_printf(&near, "--%s%c", name == NULL ? "" : name, '\0');
    return mp_cli_misused("unknown option", word, name == NULL ? hint_for(command) : near.ptr, command);
}

/* Converts the command's options to getopt_long's two tables. */
static void translate_options(const mp_cli_command *command, char *letters, struct option *options)
{
    int count = 0;
    *letters++ = ':';
    *letters++ = 'h';
    for (; count < MP_CLI_OPTIONS && command->options[count].name != NULL; count++) {
        const mp_cli_option *option = &command->options[count];
        int takes = option->value == NULL ? no_argument : required_argument;
        options[count] = (struct option){option->name, takes, NULL, SIGN + count};
        if (option->letter == 0)
            continue;
        *letters++ = option->letter;
        if (takes == required_argument)
            *letters++ = ':';
    }
    *letters = '\0';
    options[count++] = (struct option){"help", no_argument, NULL, 'h'};
    options[count] = (struct option){0};
}

static const mp_cli_option *MP_NULLABLE option_of(const mp_cli_command *command, int sign)
{
    for (int i = 0; i < MP_CLI_OPTIONS && command->options[i].name != NULL; i++)
        if (sign == SIGN + i || (sign != 0 && sign == command->options[i].letter))
            return &command->options[i];
    return NULL;
}

static int take_options(const mp_cli_command *command, char **whole, int argc, char **argv)
{
    char letters[2 * MP_CLI_OPTIONS + 3];
    struct option options[MP_CLI_OPTIONS + 2];
    mp_cli_args args = {.command = command};
    translate_options(command, letters, options);
    for (int i = 1; i < argc && args.command_count == 0; i++)
        if (strcmp(argv[i], "--") == 0)
            args.command_count = argc - i - 1; /* getopt_long() moves the words before "--" behind it */
    for (int sign; (sign = getopt_long(argc, argv, letters, options, NULL)) != -1;) {
        if (sign == 'h') {
            mp_scoped_buf out = {0};
            mp_cli_put_help(&out, command);
            return mp_cli_print(mp_buf_str(&out));
        }
        const mp_cli_option *option = option_of(command, sign);
        if (option == NULL)
            return bad_option(sign, argv, options, command->name);
        if (args.given_count == MP_CLI_GIVEN)
            return mp_cli_misused("too many options, from", argv[optind - 1], NULL, command->name);
        args.given[args.given_count].option = option;
        args.given[args.given_count++].value = optarg;
    }
    args.argv = whole;
    args.words = argv + optind;
    args.word_count = argc - optind;
    if (args.command_count > args.word_count)
        args.command_count = 0;
    return command->run(&args);
}

int mp_cli(int argc, char **argv)
{
    mp_buf usage = {0};
    int code;
    mp_crash_set_work(mp_lib_put_work);
    mp_crash_start();
    opterr = 0;
    int sign = getopt_long(argc, argv, "+:hV", top_options, NULL);
    if (sign == 'V')
        return mp_cli_print_version(optind < argc && strcmp(argv[optind], "--all") == 0);
    if (sign != -1 && sign != 'h')
        return bad_option(sign, argv, top_options, "");
    if (sign == 'h' || optind >= argc) {
        mp_cli_put_usage(&usage);
        code = sign == 'h' ? mp_cli_print(mp_buf_str(&usage)) : MP_BAD_USAGE;
        if (sign == 'h')
            mp_buf_clear(&usage);
        else
            mp_cli_complain(&usage);
        return code;
    }
    const mp_cli_command *command = mp_cli_find(argv[optind]);
    if (command == NULL)
        return MP_BAD_USAGE;
    int first = optind;
    optind = 0; /* getopt starts again after the name of the command */
    return take_options(command, argv, argc - first, argv + first);
}
