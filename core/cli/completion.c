/* completion.c: prints completions for bash, zsh and fish from the table of commands. */
#include "cli.h"

static bool is_told(const mp_cli_option *option)
{
    return option->doc != NULL;
}

static void put_names(mp_buf *out)
{
    for (size_t i = 0; i < mp_cli_command_count; i++)
        mp_buf_printf(out, "%s%s", i == 0 ? "" : " ", mp_cli_commands[i].name);
}

/* Appends the first line of a doc, without characters that are special inside shell quotes. */
static void put_words(mp_buf *out, const char *MP_NULLABLE doc)
{
    for (const char *p = doc; p != NULL && *p != '\0' && *p != '\n'; p++)
        if (strchr("'`[]:\"\\", *p) == NULL)
            mp_buf_putc(out, *p);
}

static bool are_words(const char *MP_NULLABLE choices)
{
    return choices != NULL && choices[0] != '<';
}

/* A shell command that lists the names of served things, for at most two seconds; NULL for other choices. */
static const char *MP_NULLABLE lister(const char *MP_NULLABLE choices)
{
    static const char *const served[][2] = {{"<tool>", "timeout 2 moonpool list --names tools 2>/dev/null"},
                                            {"<resource>", "timeout 2 moonpool list --names resources 2>/dev/null"},
                                            {"<prompt>", "timeout 2 moonpool list --names prompts 2>/dev/null"},
                                            {"<job>", "timeout 2 moonpool list --names jobs 2>/dev/null"}};
    for (size_t i = 0; choices != NULL && i < sizeof served / sizeof *served; i++)
        if (strcmp(choices, served[i][0]) == 0)
            return served[i][1];
    return NULL;
}

/* -- bash ---------------------------------------------------------------------------------------------------------- */

static void put_bash_choices(mp_buf *out, const char *MP_NULLABLE choices)
{
    if (choices == NULL)
        mp_buf_put(out, MP_STR("COMPREPLY=()"));
    else if (strcmp(choices, "<file>") == 0)
        mp_buf_put(out, MP_STR("COMPREPLY=($(compgen -f -- \"$word\"))"));
    else if (strcmp(choices, "<dir>") == 0)
        mp_buf_put(out, MP_STR("COMPREPLY=($(compgen -d -- \"$word\"))"));
    else if (strcmp(choices, "<command>") == 0)
        mp_buf_put(out, MP_STR("COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))"));
    else if (lister(choices) != NULL)
        mp_buf_printf(out, "local IFS=$'\\n'; COMPREPLY=($(compgen -W \"$(%s)\" -- \"$word\"))", lister(choices));
    else
        mp_buf_printf(out, "COMPREPLY=($(compgen -W \"%s\" -- \"$word\"))", choices);
}

static void put_bash(mp_buf *out)
{
    mp_buf_put(out, MP_STR("# bash completion of moonpool, made by `moonpool completion bash`.\n"
                           "_moonpool() {\n"
                           "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} commands=\""));
    put_names(out);
    mp_buf_put(out, MP_STR("\"\n"
                           "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                           "    COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$word\"))\n"
                           "    return\n"
                           "  fi\n"
                           "  case ${COMP_WORDS[1]} in\n"));
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        const mp_cli_command *command = &mp_cli_commands[i];
        mp_buf_printf(out, "  %s)\n    case $before in\n", command->name);
        for (const mp_cli_option *o = command->options; o->name != NULL; o++) {
            if (!is_told(o) || o->value == NULL)
                continue;
            mp_buf_printf(out, "    --%s", o->name);
            if (o->letter != 0)
                mp_buf_printf(out, "|-%c", o->letter);
            mp_buf_put(out, MP_STR(") "));
            put_bash_choices(out, o->choices);
            mp_buf_put(out, MP_STR("; return ;;\n"));
        }
        mp_buf_put(out, MP_STR("    esac\n    case $word in\n    -*) COMPREPLY=($(compgen -W \"--help"));
        for (const mp_cli_option *o = command->options; o->name != NULL; o++)
            if (is_told(o))
                mp_buf_printf(out, " --%s", o->name);
        mp_buf_put(out, MP_STR("\" -- \"$word\")) ;;\n    *) "));
        put_bash_choices(out, command->choices);
        mp_buf_put(out, MP_STR(" ;;\n    esac ;;\n"));
    }
    mp_buf_put(out, MP_STR("  esac\n}\ncomplete -o filenames -F _moonpool moonpool\n"));
}

/* -- zsh ----------------------------------------------------------------------------------------------------------- */

static void put_zsh_choices(mp_buf *out, const char *MP_NULLABLE choices)
{
    if (choices == NULL)
        mp_buf_put(out, MP_STR(" "));
    else if (strcmp(choices, "<file>") == 0)
        mp_buf_put(out, MP_STR("_files"));
    else if (strcmp(choices, "<dir>") == 0)
        mp_buf_put(out, MP_STR("_files -/"));
    else if (are_words(choices))
        mp_buf_printf(out, "(%s)", choices);
    else if (lister(choices) != NULL)
        mp_buf_printf(out, "{local -a served; served=(${(f)\"$(%s)\"}); compadd -a served}", lister(choices));
    else {
        mp_buf_putc(out, '(');
        put_names(out);
        mp_buf_putc(out, ')');
    }
}

static void put_zsh(mp_buf *out)
{
    mp_buf_put(out, MP_STR("#compdef moonpool\n# zsh completion of moonpool, made by `moonpool completion zsh`.\n"
                           "_moonpool() {\n  local -a commands=(\n"));
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        mp_buf_printf(out, "    '%s:", mp_cli_commands[i].name);
        put_words(out, mp_cli_commands[i].summary);
        mp_buf_put(out, MP_STR("'\n"));
    }
    mp_buf_put(out, MP_STR("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
                           "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n"));
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        const mp_cli_command *command = &mp_cli_commands[i];
        mp_buf_printf(out, "  %s) _arguments '(-h --help)'{-h,--help}'[print help]'", command->name);
        for (const mp_cli_option *o = command->options; o->name != NULL; o++) {
            if (!is_told(o))
                continue;
            if (o->letter != 0)
                mp_buf_printf(out, " '*'{-%c,--%s}'[", o->letter, o->name);
            else
                mp_buf_printf(out, " '*--%s[", o->name);
            put_words(out, o->doc);
            mp_buf_putc(out, ']');
            if (o->value != NULL) {
                mp_buf_printf(out, ":%s:", o->value);
                put_zsh_choices(out, o->choices);
            }
            mp_buf_putc(out, '\'');
        }
        if (command->choices != NULL) {
            mp_buf_put(out, MP_STR(" '*:argument:"));
            put_zsh_choices(out, command->choices);
            mp_buf_putc(out, '\'');
        }
        mp_buf_put(out, MP_STR(" ;;\n"));
    }
    mp_buf_put(
        out,
        MP_STR("  esac\n}\n"
               "if [ \"$funcstack[1]\" = _moonpool ]; then _moonpool \"$@\"; else compdef _moonpool moonpool; fi\n"));
}

/* -- fish ---------------------------------------------------------------------------------------------------------- */

static void put_fish_choices(mp_buf *out, const char *MP_NULLABLE choices)
{
    if (choices == NULL)
        return;
    if (strcmp(choices, "<file>") == 0)
        mp_buf_put(out, MP_STR(" -F"));
    else if (strcmp(choices, "<dir>") == 0)
        mp_buf_put(out, MP_STR(" -a '(__fish_complete_directories)'"));
    else if (are_words(choices))
        mp_buf_printf(out, " -a '%s'", choices);
    else if (lister(choices) != NULL)
        mp_buf_printf(out, " -a '(%s)'", lister(choices));
    else {
        mp_buf_put(out, MP_STR(" -a '"));
        put_names(out);
        mp_buf_putc(out, '\'');
    }
}

static void put_fish(mp_buf *out)
{
    mp_buf_put(out, MP_STR("# fish completion of moonpool, made by `moonpool completion fish`.\n"
                           "complete -c moonpool -f\n"
                           "complete -c moonpool -n __fish_use_subcommand -s h -l help -d 'print help'\n"
                           "complete -c moonpool -n __fish_use_subcommand -s V -l version -d 'print the version'\n"));
    for (size_t i = 0; i < mp_cli_command_count; i++) {
        const mp_cli_command *command = &mp_cli_commands[i];
        mp_buf_printf(out, "complete -c moonpool -n __fish_use_subcommand -a %s -d '", command->name);
        put_words(out, command->summary);
        mp_buf_put(out, MP_STR("'\n"));
        if (command->choices != NULL) {
            mp_buf_printf(out, "complete -c moonpool -n '__fish_seen_subcommand_from %s'", command->name);
            put_fish_choices(out, command->choices);
            mp_buf_putc(out, '\n');
        }
        for (const mp_cli_option *o = command->options; o->name != NULL; o++) {
            if (!is_told(o))
                continue;
            mp_buf_printf(out, "complete -c moonpool -n '__fish_seen_subcommand_from %s' -l %s", command->name,
                          o->name);
            if (o->letter != 0)
                mp_buf_printf(out, " -s %c", o->letter);
            if (o->value != NULL)
                mp_buf_put(out, MP_STR(" -r"));
            put_fish_choices(out, o->choices);
            mp_buf_put(out, MP_STR(" -d '"));
            put_words(out, o->doc);
            mp_buf_put(out, MP_STR("'\n"));
        }
    }
}

int mp_cli_completion(const mp_cli_args *args)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    static void (*const put[])(mp_buf *) = {put_bash, put_zsh, put_fish};
    if (args->word_count != 1)
        return mp_cli_misused("completion takes one shell: bash, zsh or fish", NULL, NULL, "completion");
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(args->words[0], shells[i]) != 0)
            continue;
        mp_scoped_buf out = {0};
        put[i](&out);
        return mp_cli_print(mp_buf_str(&out));
    }
    const char *near = mp_suggest(mp_str_of(args->words[0]), shells, 3);
    return mp_cli_misused("no completions for the shell", args->words[0],
                          near == NULL ? "there are some for bash, zsh and fish" : near, "completion");
}
