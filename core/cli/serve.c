/* serve.c: the commands that load the configuration and serve it, or print what would be served. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTEN_CAP 16
#define MAX_HEADERS 128

/* A word that is no configuration: a script, or what other programs have in this place. */
static int complain_of_word(const char *word, const mp_cli_command *command)
{
    size_t length = strlen(word);
    if (length > 4 && strcmp(word + length - 4, ".lua") == 0)
        return mp_cli_misused("a script is no configuration:", word,
                              "a configuration names the folder of its scripts: leave the word out in the folder of "
                              "moonpool.yaml, or name that file",
                              command->name);
    if (strpbrk(word, "./") != NULL || access(word, F_OK) == 0)
        return MP_ENDED_WELL;
    mp_scoped_buf hint = {0};
    const char *level = strcmp(command->name, "log") == 0 ? "moonpool log --level debug sets a level. " : "";
    mp_buf_printf(&hint, "%sThe word after the command is the path of the configuration; moonpool %s --help has more%c",
                  level, command->name, '\0');
    return mp_cli_misused("there is no file", word, hint.ptr, command->name);
}

int mp_cli_take_file(const mp_cli_args *args, const char *MP_NULLABLE *file)
{
    if (args->word_count > 1)
        return mp_cli_misused("only one configuration file is allowed; unexpected:", args->words[1], NULL,
                              args->command->name);
    *file = args->word_count > 0 ? args->words[0] : mp_cli_value(args, "config");
    if (args->word_count > 0 && mp_cli_value(args, "config") != NULL)
        return mp_cli_misused("the configuration is already given by --config; unexpected:", args->words[0], NULL,
                              args->command->name);
    return args->word_count > 0 ? complain_of_word(args->words[0], args->command) : MP_ENDED_WELL;
}

static int parse_fd(const char *text, const char *command, int *fd)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number > 1 << 20)
        return mp_cli_misused("--ready-fd needs the number of a descriptor, not", text, NULL, command);
    int flags = fcntl((int)number, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return mp_cli_misused("--ready-fd: this descriptor is not open for writing:", text, NULL, command);
    *fd = (int)number;
    return MP_ENDED_WELL;
}

bool mp_cli_is_elsewhere(const char *MP_NULLABLE file)
{
    return file == NULL && access("moonpool.yaml", F_OK) != 0 && errno == ENOENT;
}

static mp_config *MP_NULLABLE load_config(const char *MP_NULLABLE file, const char *command, mp_buf *report)
{
    if (!mp_cli_is_elsewhere(file))
        return mp_config_load(file == NULL ? "moonpool.yaml" : file, report);
    mp_buf_printf(report,
                  "moonpool: no moonpool.yaml in this folder\n"
                  "  hint: name a file, as in moonpool %s examples/hello/moonpool.yaml; an empty file is a valid "
                  "configuration\n",
                  command);
    return NULL;
}

mp_config *mp_cli_load(const char *file, const char *command)
{
    mp_buf report = {0};
    mp_config *config = load_config(file, command, &report);
    mp_cli_complain(&report);
    return config;
}

/* Sets the headers of the only upstream to the lines of a file. For commands that send their user's headers: the
 * configuration refuses some of them. */
static int take_headers(mp_config *config, const char *MP_NULLABLE path, mp_buf *report)
{
    char *line = NULL;
    size_t room = 0, count = 0;
    if (config->upstreams == NULL || config->upstreams[0] == NULL) {
        mp_buf_printf(report, "moonpool: --headers: the configuration has no upstream to send the headers to\n");
        return -1;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        mp_buf_printf(report, "moonpool: --headers: cannot read %s: %s\n", path, strerror(errno));
        return -1;
    }
    char **headers = mp_new((MAX_HEADERS + 1) * sizeof *headers);
    for (ssize_t len; count < MAX_HEADERS && (len = getline(&line, &room, file)) > 0;)
        headers[count++] = mp_dup((mp_str){line, strcspn(line, "\n")});
    free(config->upstreams[0]->core.headers);
    config->upstreams[0]->core.headers = headers;
    free(line);
    fclose(file);
    return 0;
}

/* Overrides the values of the file by those of the options. */
static int override_config(mp_config *config, const mp_cli_args *args, mp_buf *report)
{
    const char *listen[MP_CLI_GIVEN], *level = mp_cli_value(args, "log-level");
    size_t count = 0;
    int code = MP_ENDED_WELL;
    for (int i = 0; i < args->given_count; i++)
        if (strcmp(args->given[i].option->name, "listen") == 0)
            listen[count++] = args->given[i].value;
    if (count > LISTEN_CAP)
        return mp_cli_misused("given more than 16 times", "--listen", NULL, args->command->name);
    if (count > 0 && mp_config_override(config, "listen", listen, count, "--listen", report) != 0)
        code = MP_BAD_USAGE;
    if (level != NULL && mp_config_override(config, "log.level", &level, 1, "--log-level", report) != 0)
        code = MP_BAD_USAGE;
    if (mp_cli_value(args, "watch") != NULL &&
        mp_config_override(config, "scripts.watch", (const char *[]){"true"}, 1, "--watch", report) != 0)
        code = MP_BAD_USAGE;
    if (mp_cli_value(args, "headers") != NULL && take_headers(config, mp_cli_value(args, "headers"), report) != 0)
        code = MP_BAD_USAGE;
    return code;
}

/* The origin of the configuration, and the options that override it. */
typedef struct {
    const mp_cli_args *args;
    const char *file;
    bool was_empty;
} origin;

/* Reads the configuration again while the gateway serves. A source that is not a regular file, such as a pipe, is
 * read only once. An empty file is ignored: it may be about to be written. */
static mp_config *MP_NULLABLE load_again(void *ctx, mp_buf *report)
{
    origin *from = ctx;
    struct stat info;
    bool is_there = stat(from->file, &info) == 0;
    if (is_there && (!S_ISREG(info.st_mode) || (info.st_size == 0 && !from->was_empty))) {
        mp_buf_printf(report, "%s:1:1: the file is %s\n", from->file,
                      S_ISREG(info.st_mode) ? "empty" : "no longer a regular file");
        mp_buf_put(report, MP_STR("  hint: to use every default, write a comment into the file\n"));
        return NULL;
    }
    mp_config *config = mp_config_load(from->file, report);
    if (config != NULL && override_config(config, from->args, report) != 0) {
        mp_config_free(config);
        return NULL;
    }
    from->was_empty = config == NULL ? from->was_empty : info.st_size == 0;
    return config;
}

/* Lets the options override a configuration that was kept. */
static int adjust_config(void *ctx, mp_config *config, mp_buf *report)
{
    origin *from = ctx;
    if (override_config(config, from->args, report) != 0)
        return -1;
    from->was_empty = config->text[0] == '\0';
    return 0;
}

void mp_cli_end_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static int serve_until_end(const mp_cli_args *args, bool on_stdio)
{
    mp_gateway_options options = {.argv = args->argv,
                                  .on_stdio = on_stdio,
                                  .has_specs = mp_cli_value(args, "specs") != NULL,
                                  .prints = mp_cli_value(args, "watch") != NULL,
                                  .traces = mp_cli_value(args, "trace") != NULL,
                                  .ready_fd = -1,
                                  .read = load_again,
                                  .adjust = adjust_config};
    options.is_replay = mp_cli_value(args, "replay") != NULL;
    if (options.is_replay)
        mp_cli_end_with_parent();
    options.is_apart = options.has_specs || options.is_replay || mp_cli_value(args, "apart") != NULL;
    origin from = {.args = args};
    struct stat info;
    const char *fd = mp_cli_value(args, "ready-fd"), *command = args->command->name;
    if (mp_gateway_is_successor())
        fd = NULL; /* the process before this one has used and closed it */
    if (fd != NULL && parse_fd(fd, command, &options.ready_fd) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    if (on_stdio && fd != NULL && options.ready_fd <= STDOUT_FILENO)
        return mp_cli_misused("--ready-fd: the client uses this descriptor:", fd, NULL, command);
    if (mp_cli_take_file(args, &from.file) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    mp_buf report = {0};
    bool may_be_kept = !mp_cli_is_elsewhere(from.file);
    mp_config *config = load_config(from.file, command, &report);
    int code = config == NULL ? MP_BAD_CONFIG : override_config(config, args, &report);
    if (from.file == NULL)
        from.file = "moonpool.yaml";
    bool is_there = stat(from.file, &info) == 0;
    if (may_be_kept && (is_there ? S_ISREG(info.st_mode) : config == NULL))
        options.file = from.file;
    from.was_empty = is_there && options.file != NULL && info.st_size == 0;
    options.ctx = &from;
    if (config == NULL && options.file != NULL) {
        mp_buf_putc(&report, '\0');
        options.report = report.ptr;
        code = mp_gateway_run(NULL, &options);
        mp_buf_clear(&report);
        return code;
    }
    mp_cli_complain(&report);
    if (code == MP_ENDED_WELL)
        return mp_gateway_run(config, &options);
    mp_config_free(config);
    return code;
}

int mp_cli_run(const mp_cli_args *args)
{
    return serve_until_end(args, false);
}

int mp_cli_stdio(const mp_cli_args *args)
{
    return serve_until_end(args, true);
}

static int check_config(const mp_cli_args *args, const char *form)
{
    const char *file = NULL;
    if (mp_cli_take_file(args, &file) != MP_ENDED_WELL)
        return MP_BAD_USAGE;
    mp_config *config = mp_cli_load(file, args->command->name);
    if (config == NULL)
        return MP_BAD_CONFIG;
    return mp_gateway_check(config, form, mp_cli_value(args, "strict") != NULL);
}

int mp_cli_check(const mp_cli_args *args)
{
    bool connects = mp_cli_value(args, "connect") != NULL;
    if (connects && mp_cli_value(args, "json") != NULL)
        return mp_cli_misused("--connect and --json exclude each other", NULL, NULL, "check");
    int code = check_config(args, mp_cli_value(args, "json") != NULL ? "json" : "whole");
    return code == MP_ENDED_WELL && connects ? mp_cli_check_upstreams(args) : code;
}

int mp_cli_list(const mp_cli_args *args)
{
    static const char *const kinds[] = {"tools", "resources", "prompts", "jobs"};
    const char *names = mp_cli_value(args, "names"), *url = mp_cli_value(args, "url"), *as = mp_cli_value(args, "as");
    if ((names != NULL) + (url != NULL || args->command_count > 0) + (as != NULL) > 1)
        return mp_cli_misused("--as, --names and --url exclude each other", NULL, NULL, "list");
    if (url != NULL || args->command_count > 0)
        return mp_cli_remote_list(args);
    if (as != NULL)
        return mp_cli_explain(args);
    for (int i = 0; i < args->given_count; i++)
        if (args->given[i].option->name[0] != 'n' && strcmp(args->given[i].option->name, "config") != 0)
            return mp_cli_misused("this option needs --as or --url:", args->given[i].option->name, NULL, "list");
    if (names == NULL)
        return check_config(args, "list");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(names, kinds[i]) == 0)
            return check_config(args, names);
    return mp_cli_misused("--names must be tools, resources, prompts or jobs, not", names,
                          mp_suggest(mp_str_of(names), kinds, sizeof kinds / sizeof *kinds), "list");
}

int mp_cli_config(const mp_cli_args *args)
{
    if (args->word_count > 0)
        return mp_cli_misused("config takes no arguments:", args->words[0],
                              "it prints all keys, with their defaults; they are set in moonpool.yaml", "config");
    mp_scoped_buf out = {0};
    if (mp_cli_value(args, "schema") != NULL)
        mp_config_print_schema(&out);
    else if (mp_cli_value(args, "man") != NULL)
        mp_config_print_man(&out);
    else
        mp_config_print_help(&out);
    return mp_cli_print(mp_buf_str(&out));
}
