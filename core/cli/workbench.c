/* workbench.c: the commands that lua/moonpool/workbench implements; passes the parsed arguments to them. */
#include "cli.h"
#include "admin/admin.h"
#include <unistd.h>

#define MAX_ARGUMENTS (2 * MP_CLI_GIVEN + 8)

typedef struct {
    mp_workbench_argument list[MAX_ARGUMENTS];
    size_t count;
} arguments;

static void put_argument(arguments *to, const char *MP_NULLABLE name, const char *MP_NULLABLE value)
{
    if (to->count < MAX_ARGUMENTS && value != NULL)
        to->list[to->count++] = (mp_workbench_argument){name, value};
}

/* Adds the options under their names, then the words. */
static int take_arguments(const mp_cli_args *args, arguments *to)
{
    for (int i = 0; i < args->given_count; i++)
        put_argument(to, args->given[i].option->name, args->given[i].value == NULL ? "" : args->given[i].value);
    if ((size_t)args->word_count > MAX_ARGUMENTS - MP_CLI_GIVEN - 8)
        return mp_cli_misused("too many arguments, from", args->words[MP_CLI_GIVEN], NULL, args->command->name);
    for (int i = 0; i < args->word_count; i++)
        put_argument(to, NULL, args->words[i]);
    return MP_ENDED_WELL;
}

/* Like take_arguments(), but the words after "--" are the command of a server. */
static int take_server(const mp_cli_args *args, arguments *to)
{
    mp_cli_args rest = *args;
    rest.word_count -= args->command_count;
    if (take_arguments(&rest, to) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    if (to->count + (size_t)args->command_count > MAX_ARGUMENTS)
        return mp_cli_misused("the command after -- has too many words:", args->words[rest.word_count], NULL,
                              args->command->name);
    for (int i = rest.word_count; i < args->word_count; i++)
        put_argument(to, "server", args->words[i]);
    return MP_ENDED_WELL;
}

int mp_cli_new(const mp_cli_args *args)
{
    arguments given = {0};
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    mp_config *config = NULL;
    if (mp_cli_value(args, "config") == NULL && access("moonpool.yaml", F_OK) != 0) {
        put_argument(&given, "fresh", "moonpool.yaml"); /* the folder of a new project */
        put_argument(&given, "scripts", "scripts");
    } else {
        config = mp_cli_load(mp_cli_value(args, "config"), "new -c");
        if (config == NULL)
            return MP_BAD_CONFIG;
        put_argument(&given, "scripts", config->scripts_path);
    }
    int code = mp_gateway_workbench("new", given.list, given.count);
    mp_config_free(config);
    return code;
}

/* Runs commands that need no configuration, or that start a child process which reads it. */
static int with_child(const mp_cli_args *args)
{
    arguments given = {0};
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    return mp_gateway_workbench(args->command->name, given.list, given.count);
}

/* True for systemd:NAME, which is no address that a command can connect to. */
static bool is_socket_unit(const char *address)
{
    return mp_systemd_name(mp_str_of(address)).ptr != NULL;
}

/* Adds where the gateway's admin listener is, for a command that works without it, too: its child complains about the
 * configuration. The caller frees
 * `*token` and `*config`. */
static void take_reachable(const mp_cli_args *args, arguments *to, mp_config **config, char **token)
{
    const char *file = mp_cli_value(args, "config");
    mp_scoped_buf report = {0};
    *config = mp_config_load(file == NULL ? "moonpool.yaml" : file, &report);
    const char *named = mp_cli_value(args, "admin");
    const char *address = named != NULL || *config == NULL ? named : (*config)->admin_listen;
    if (address == NULL || is_socket_unit(address))
        return;
    put_argument(to, "address", address);
    *token =
        mp_admin_find_token(named == NULL ? *config : NULL, address); /* secrets of the file go to its own address */
    put_argument(to, "token", *token);
}

/* `explain`, and `list --as`. A header that is given several times is passed as several lines. */
int mp_cli_explain(const mp_cli_args *args)
{
    arguments given = {0};
    mp_scoped_buf headers = {0};
    const char *file = NULL;
    bool is_list = strcmp(args->command->name, "list") == 0;
    if (is_list && mp_cli_take_file(args, &file) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    for (int i = 0; i < args->given_count; i++)
        if (strcmp(args->given[i].option->name, "header") == 0)
            mp_buf_printf(&headers, "%s\n", args->given[i].value);
    char *lines = mp_dup(mp_buf_str(&headers));
    put_argument(&given, "header", headers.len > 0 ? lines : NULL);
    put_argument(&given, "config", file);
    put_argument(&given, "form", is_list ? "list" : NULL);
    mp_config *config = NULL;
    char *token = NULL;
    if (!is_list)
        take_reachable(args, &given, &config, &token);
    int code = mp_gateway_workbench("explain", given.list, given.count);
    free(token);
    mp_config_free(config);
    free(lines);
    return code;
}

/* `list --url`, and `list -- COMMAND`. */
int mp_cli_remote_list(const mp_cli_args *args)
{
    arguments given = {0};
    const char *file = NULL;
    mp_cli_args rest = *args;
    rest.word_count -= args->command_count;
    if (mp_cli_take_file(&rest, &file) != MP_ENDED_WELL || take_server(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    return mp_gateway_workbench("remote_list", given.list, given.count);
}

/* The commands of an MCP client; each has the same name in lua/moonpool/workbench/commands. */
int mp_cli_call(const mp_cli_args *args)
{
    arguments given = {0};
    /* `call -- NAME` has no command: -- only ends the options */
    bool has_command = args->command_count > 0 && args->command_count < args->word_count;
    if ((has_command ? take_server(args, &given) : take_arguments(args, &given)) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    return mp_gateway_workbench(args->command->name, given.list, given.count);
}

/* `add`, `import` and `lock`. */
int mp_cli_upstream(const mp_cli_args *args)
{
    return with_child(args);
}

int mp_cli_check_upstreams(const mp_cli_args *args)
{
    arguments given = {0};
    const char *file = NULL;
    mp_cli_take_file(args, &file);
    put_argument(&given, "config", file);
    put_argument(&given, "strict", mp_cli_value(args, "strict"));
    return mp_gateway_workbench("check_upstreams", given.list, given.count);
}

/* Without a configuration only the library's own types are written. */
int mp_cli_types(const mp_cli_args *args)
{
    arguments given = {0};
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    const char *file = mp_cli_value(args, "config");
    if (file == NULL && access("moonpool.yaml", F_OK) != 0)
        return mp_gateway_workbench("types", given.list, given.count);
    mp_config *config = mp_cli_load(file, "types -c");
    if (config == NULL)
        return MP_BAD_CONFIG;
    put_argument(&given, "config", file == NULL ? "moonpool.yaml" : file);
    put_argument(&given, "scripts", config->scripts_path);
    if (config->scripts_trust == MP_TRUST_FULL)
        put_argument(&given, "trust", "full");
    int code = mp_gateway_workbench("types", given.list, given.count);
    mp_config_free(config);
    return code;
}

int mp_cli_key(const mp_cli_args *args)
{
    return with_child(args);
}

int mp_cli_token(const mp_cli_args *args)
{
    return with_child(args);
}

int mp_cli_test(const mp_cli_args *args)
{
    arguments given = {0};
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    mp_config *config = mp_cli_load(mp_cli_value(args, "config"), "test -c");
    if (config == NULL)
        return MP_BAD_CONFIG;
    put_argument(&given, "scripts", config->scripts_path);
    int code =
        mp_gateway_workbench(mp_cli_value(args, "play") == NULL ? "test" : "play_transcript", given.list, given.count);
    mp_config_free(config);
    return code;
}

/* Adds where the admin listener is, and how to ask it. The caller frees `*token` and `*config`. */
static int take_admin(const mp_cli_args *args, const char *MP_NULLABLE file, arguments *to, mp_config **config,
                      char **token)
{
    const char *address = mp_cli_value(args, "admin");
    if (address == NULL && mp_cli_is_elsewhere(file)) {
        fprintf(stderr,
                "moonpool: no moonpool.yaml in this folder, to say where the gateway's admin listener is\n"
                "  hint: name the listener, as in moonpool %s --admin 127.0.0.1:7301, or the file by -c FILE\n",
                args->command->name);
        return MP_BAD_CONFIG;
    }
    if (address == NULL) {
        *config = mp_cli_load(file, args->command->name);
        if (*config == NULL) {
            fprintf(stderr,
                    "moonpool: a running gateway can be asked without this file: moonpool %s --admin 127.0.0.1:7301\n",
                    args->command->name);
            return MP_BAD_CONFIG;
        }
        address = (*config)->admin_listen;
        if (address != NULL && is_socket_unit(address)) {
            fprintf(stderr,
                    "moonpool: admin.listen is '%s', whose address the socket unit has\n"
                    "  hint: name it, as in --admin 127.0.0.1:7301\n",
                    address);
            mp_config_free(*config);
            *config = NULL;
            return MP_BAD_USAGE;
        }
    }
    put_argument(to, "address", address);
    *token = address == NULL ? NULL : mp_admin_find_token(*config, address);
    put_argument(to, "token", *token);
    return MP_ENDED_WELL;
}

int mp_cli_replay(const mp_cli_args *args)
{
    arguments given = {0};
    mp_config *config = NULL;
    char *token = NULL;
    if (mp_cli_value(args, "gate") != NULL)
        mp_cli_end_with_parent(); /* without this, a child would outlive the gateway whose reload waits for it */
    if (args->word_count > 1)
        return mp_cli_misused("only one file can be replayed; unexpected:", args->words[1], NULL, "replay");
    if (take_arguments(args, &given) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    int code =
        args->word_count > 0 ? MP_ENDED_WELL : take_admin(args, mp_cli_value(args, "config"), &given, &config, &token);
    if (code == MP_ENDED_WELL)
        code = mp_gateway_workbench("replay", given.list, given.count);
    free(token);
    mp_config_free(config);
    return code;
}

/* Gives the words of `switch` and `cluster` as lines. */
static void put_words(arguments *given, const mp_cli_args *args, mp_buf *words)
{
    for (int i = 0; i < args->word_count; i++)
        mp_buf_printf(words, "%s%s", i == 0 ? "" : "\n", args->words[i]);
    mp_buf_putc(words, '\0');
    put_argument(given, "words", words->ptr);
}

/* `reload`, `status`, `log`, `drain`, `switch`, `cluster`, `sessions`, `dashboard`, `upstreams`, `tap`, `profile` and
 * `record`. */
int mp_cli_admin(const mp_cli_args *args)
{
    const char *file = mp_cli_value(args, "config"), *command = args->command->name;
    arguments given = {0};
    mp_config *config = NULL;
    bool has_name = strcmp(command, "upstreams") == 0;
    if (has_name && args->word_count > 1)
        return mp_cli_misused("only one upstream can be named; unexpected:", args->words[1], NULL, command);
    bool is_cluster = strcmp(command, "cluster") == 0, has_words = is_cluster || strcmp(command, "switch") == 0;
    int most_words = is_cluster ? 2 : 3;
    if (has_words && args->word_count > most_words)
        return mp_cli_misused("only one name can be given; unexpected:", args->words[most_words], NULL, command);
    if (!has_name && !has_words && mp_cli_take_file(args, &file) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    if (mp_cli_value(args, "connect") != NULL) {
        if (mp_cli_value(args, "admin") != NULL || mp_cli_value(args, "json") != NULL)
            return mp_cli_misused("--connect asks no running gateway: it excludes --admin and --json", NULL, NULL,
                                  command);
        put_argument(&given, "config", file);
        put_argument(&given, "strict", "");
        put_argument(&given, "upstream", args->word_count > 0 ? args->words[0] : NULL);
        return mp_gateway_workbench("check_upstreams", given.list, given.count);
    }
    char *token = NULL;
    int code = take_admin(args, file, &given, &config, &token);
    if (code != MP_ENDED_WELL)
        return code;
    mp_scoped_buf words = {0};
    if (has_words)
        put_words(&given, args, &words);
    put_argument(&given, "command", command);
    put_argument(&given, "upstream", has_name && args->word_count > 0 ? args->words[0] : NULL);
    put_argument(&given, "json", mp_cli_value(args, "json") == NULL ? NULL : "yes");
    put_argument(&given, "healthy", mp_cli_value(args, "healthy") == NULL ? NULL : "yes");
    put_argument(&given, "open", mp_cli_value(args, "open") == NULL ? NULL : "yes");
    put_argument(&given, "user", mp_cli_value(args, "user"));
    put_argument(&given, "revoke", mp_cli_value(args, "revoke") == NULL ? NULL : "yes");
    bool is_record = strcmp(command, "record") == 0 || mp_cli_value(args, "record") != NULL;
    bool has_filters = is_record || strcmp(command, "tap") == 0 || strcmp(command, "profile") == 0;
    for (int i = 0; has_filters && i < args->given_count; i++)
        if (args->given[i].value != NULL && strcmp(args->given[i].option->name, "admin") != 0 &&
            strcmp(args->given[i].option->name, "config") != 0)
            put_argument(&given, args->given[i].option->name, args->given[i].value);
    put_argument(&given, "memory", mp_cli_value(args, "memory") == NULL ? NULL : "yes");
    put_argument(&given, "level", mp_cli_value(args, "level"));
    put_argument(&given, "for", mp_cli_value(args, "for"));
    code = mp_gateway_workbench(is_record ? "record" : "admin", given.list, given.count);
    free(token);
    mp_config_free(config);
    return code;
}
