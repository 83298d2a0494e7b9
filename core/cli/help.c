/* help.c: prints the help of commands and usage errors. */
#include "cli.h"
#include <moonpool/version.h>

#define COLUMN 27 /* column where the doc of an option begins */

/* Appends "  -l, --listen ADDRESS   host:port …"; further lines of the doc are aligned below the first. */
static void put_option(mp_buf *out, const mp_cli_option *option)
{
    size_t start = out->len;
    if (option->letter != 0)
        mp_buf_printf(out, "  -%c, --%s", option->letter, option->name);
    else
        mp_buf_printf(out, "      --%s", option->name);
    if (option->value != NULL)
        mp_buf_printf(out, " %s", option->value);
    mp_str rest = mp_str_of(option->doc), line;
    while ((line = mp_str_cut(&rest, '\n')).ptr != NULL) {
        do
            mp_buf_putc(out, ' ');
        while (out->len - start < COLUMN);
        mp_buf_printf(out, "%.*s\n", MP_STR_ARG(line));
        start = out->len;
    }
}

void mp_cli_put_help(mp_buf *out, const mp_cli_command *command)
{
    static const mp_cli_option help = {"help", 'h', NULL, "print this help", NULL};
    mp_buf_printf(out, "usage: moonpool %s%s%s\n\n%s\n", command->name, *command->arguments == '\0' ? "" : " ",
                  command->arguments, command->about);
    for (int i = 0; i < MP_CLI_OPTIONS && command->options[i].name != NULL; i++)
        if (command->options[i].doc != NULL)
            put_option(out, &command->options[i]);
    put_option(out, &help);
    if (strstr(command->arguments, "[moonpool.yaml]") != NULL)
        mp_buf_put(out, MP_STR("\nThe file is ./moonpool.yaml by default.\n"));
}

void mp_cli_put_usage(mp_buf *out)
{
    mp_buf_put(out, MP_STR("moonpool serves MCP tools, resources and prompts written in Lua.\n\n"
                           "usage: moonpool COMMAND [OPTION]... [ARGUMENT]...\n\n"));
    for (size_t i = 0; i < mp_cli_command_count; i++)
        mp_buf_printf(out, "  %-12s%s\n", mp_cli_commands[i].name, mp_cli_commands[i].summary);
    mp_buf_put(out,
               MP_STR("\n  -h, --help   print this help; after a command, its options (-V, --version)\n\n"
                      "The configuration is ./moonpool.yaml by default. Exit codes: 0, 1 failure, 2 bad usage,\n"
                      "78 bad configuration or scripts. Manual: moonpool(1), moonpool.yaml(5), moonpool-lua(7).\n\n"
                      "example: moonpool new tool greet && moonpool call greet name=Ann\n"));
}

int mp_cli_help(const mp_cli_args *args)
{
    if (args->word_count > 1)
        return mp_cli_misused("help takes one command; unexpected:", args->words[1], NULL, "help");
    mp_scoped_buf out = {0};
    if (args->word_count == 0) {
        mp_cli_put_usage(&out);
    } else {
        const mp_cli_command *command = mp_cli_find(args->words[0]);
        if (command == NULL)
            return MP_BAD_USAGE;
        mp_cli_put_help(&out, command);
    }
    return mp_cli_print(mp_buf_str(&out));
}

int mp_cli_print_version(bool with_libraries)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("moonpool " MOONPOOL_VERSION "\n"));
    if (with_libraries)
        mp_gateway_put_libraries(&out);
    return mp_cli_print(mp_buf_str(&out));
}

int mp_cli_version(const mp_cli_args *args)
{
    if (args->word_count > 0)
        return mp_cli_misused("version takes no arguments:", args->words[0], NULL, "version");
    return mp_cli_print_version(mp_cli_value(args, "all") != NULL);
}
