/* cli.h: the command line.
 *
 *   command   a row of one table: its options, its help, its completions and what it does come from there
 *   option    a row of its command; what was given is asked for by name */
#ifndef MP_CLI_CLI_H
#define MP_CLI_CLI_H

#include "gateway/gateway.h"

enum { MP_ENDED_WELL = 0, MP_FAILED = 1, MP_BAD_USAGE = 2, MP_BAD_CONFIG = 78 /* EX_CONFIG */ };

/* Does what the command line says; gives the exit code. */
int mp_cli(int argc, char **argv);

/* -- the table (commands.c) ------------------------------------------------------------------------------------ */

#define MP_CLI_OPTIONS 12
#define MP_CLI_GIVEN 64

typedef struct {
    const char *name;    /* "listen" */
    char letter;         /* 'l', or 0 */
    const char *value;   /* "ADDRESS"; NULL: takes none */
    const char *doc;     /* lines as --help has them; NULL: told nowhere */
    const char *choices; /* words for completion; "<file>", "<dir>", or NULL */
} mp_cli_option;

typedef struct mp_cli_command mp_cli_command;

/* What was given: options in order, then the words that are none. */
typedef struct {
    const mp_cli_command *command;
    struct {
        const mp_cli_option *option;
        const char *value;
    } given[MP_CLI_GIVEN];
    int given_count;
    char **words;
    int word_count;
} mp_cli_args;

struct mp_cli_command {
    const char *name, *arguments, *summary;
    const char *about;   /* the paragraph of its help */
    const char *choices; /* what its words may be, as of options */
    int (*run)(const mp_cli_args *args);
    mp_cli_option options[MP_CLI_OPTIONS];
};

extern const mp_cli_command mp_cli_commands[];
extern const size_t mp_cli_command_count;

/* NULL, and told, when there is none. */
const mp_cli_command *mp_cli_find(const char *name);
/* The value given last; NULL when there is none, "" for an option that takes none. */
const char *mp_cli_value(const mp_cli_args *args, const char *option);

/* -- telling (help.c) ------------------------------------------------------------------------------------------ */

void mp_cli_put_usage(mp_buf *out);
void mp_cli_put_help(mp_buf *out, const mp_cli_command *command);
/* What was asked for goes to stdout; a stdout that takes nothing is a failure. Gives the exit code. */
int mp_cli_print(mp_str text);
/* Bad usage, with what was probably meant, or where to read on (`command` may be ""). Gives the exit code. */
int mp_cli_misused(const char *what, const char *word, const char *near, const char *command);
/* Writes a report to stderr and frees it. */
void mp_cli_complain(mp_buf *report);

/* -- the commands ---------------------------------------------------------------------------------------------- */

/* The configuration at `file`, or in this folder; NULL when it was refused, told already. */
mp_config *mp_cli_load(const char *file, const char *command);
/* The only word, a file, or NULL. MP_BAD_USAGE, and told, when there are more. */
int mp_cli_take_file(const mp_cli_args *args, const char **file);

int mp_cli_run(const mp_cli_args *args);
int mp_cli_stdio(const mp_cli_args *args);
int mp_cli_check(const mp_cli_args *args);
int mp_cli_list(const mp_cli_args *args);
int mp_cli_config(const mp_cli_args *args);
int mp_cli_help(const mp_cli_args *args);
int mp_cli_version(const mp_cli_args *args);
int mp_cli_completion(const mp_cli_args *args);
int mp_cli_new(const mp_cli_args *args);
int mp_cli_call(const mp_cli_args *args);
int mp_cli_explain(const mp_cli_args *args);
int mp_cli_key(const mp_cli_args *args);
int mp_cli_token(const mp_cli_args *args);
int mp_cli_test(const mp_cli_args *args);
int mp_cli_types(const mp_cli_args *args);
int mp_cli_admin(const mp_cli_args *args);

#endif
