/* cli.h: the command line.
 *
 *   command   a row of one table, which defines its options, help, completions and function
 *   option    a row of its command; values are looked up by the option's name */
#ifndef MP_CLI_CLI_H
#define MP_CLI_CLI_H

#include "gateway/gateway.h"

enum { MP_ENDED_WELL = 0, MP_FAILED = 1, MP_BAD_USAGE = 2, MP_BAD_CONFIG = 78 /* EX_CONFIG of sysexits.h */ };

/* Runs the command line and returns the exit code. */
int mp_cli(int argc, char **argv);

/* -- the table (commands.c) ------------------------------------------------------------------------------------ */

#define MP_CLI_OPTIONS 16
#define MP_CLI_GIVEN 64

typedef struct {
    const char *name;              /* "listen" */
    char letter;                   /* 'l', or 0 */
    const char *MP_NULLABLE value; /* "ADDRESS"; NULL: the option takes no value */
    const char *MP_NULLABLE doc;   /* lines as printed by --help; NULL: a hidden option */
    /* words for completion; "<file>", "<dir>", "<tool>" and the like complete files or names of served things; NULL:
     * none */
    const char *MP_NULLABLE choices;
} mp_cli_option;

typedef struct mp_cli_command mp_cli_command;

/* The given options in their order, then the other words. */
typedef struct {
    const mp_cli_command *command;
    char **argv; /* the arguments of the process, as they are */
    struct {
        const mp_cli_option *option;
        const char *value;
    } given[MP_CLI_GIVEN];
    int given_count;
    char **words;
    int word_count;
    int command_count; /* how many of the words, at their end, came after "--" */
} mp_cli_args;

struct mp_cli_command {
    const char *name, *arguments, *summary;
    const char *about;   /* description of the command in its help */
    const char *choices; /* completions of the command's words, as for options */
    int (*run)(const mp_cli_args *args);
    mp_cli_option options[MP_CLI_OPTIONS];
};

extern const mp_cli_command mp_cli_commands[];
extern const size_t mp_cli_command_count;

/* Returns NULL and prints an error if there is no such command. */
const mp_cli_command *MP_NULLABLE mp_cli_find(const char *name);

/* -- output (help.c) ----------------------------------------------------------------------------------------------- */

void mp_cli_put_usage(mp_buf *out);
void mp_cli_put_help(mp_buf *out, const mp_cli_command *command);
/* Prints the version of moonpool, and of its libraries. Returns the exit code. */
int mp_cli_print_version(bool with_libraries);

/* -- values, output and errors (output.c) ------------------------------------------------------------------------ */

/* The last value given for the option; "" if the option takes no value; NULL if it was not given. */
const char *MP_NULLABLE mp_cli_value(const mp_cli_args *args, const char *option);
/* Prints to stdout; failing to write is an error. Returns the exit code. */
int mp_cli_print(mp_str text);
/* Prints a usage error with the word that was probably meant, with a hint (`near` of several words), or with a pointer
 * to the help (`command` may be ""). Returns the exit code. */
int mp_cli_misused(const char *what, const char *MP_NULLABLE word, const char *MP_NULLABLE near, const char *command);
/* Writes a report to stderr and frees it. */
void mp_cli_complain(mp_buf *report);

/* -- the commands ---------------------------------------------------------------------------------------------- */

/* Loads the configuration at `file`, or in the current folder. Returns NULL if it has errors, which are printed. */
mp_config *MP_NULLABLE mp_cli_load(const char *MP_NULLABLE file, const char *command);
/* True if no file is named, and the current folder has none: then the folder is the wrong one. */
bool mp_cli_is_elsewhere(const char *MP_NULLABLE file);
/* Sets `*file` to the only word, or to NULL. Prints an error and returns MP_BAD_USAGE if there are more words. */
int mp_cli_take_file(const mp_cli_args *args, const char *MP_NULLABLE *file);
/* Makes the kernel kill this process when its parent ends. For replays, which change nothing outside and so have
 * nothing to clean up. */
void mp_cli_end_with_parent(void);

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
int mp_cli_remote_list(const mp_cli_args *args);
int mp_cli_explain(const mp_cli_args *args);
int mp_cli_key(const mp_cli_args *args);
int mp_cli_token(const mp_cli_args *args);
int mp_cli_replay(const mp_cli_args *args);
int mp_cli_test(const mp_cli_args *args);
/* The part of `check --connect` after the usual checks. */
int mp_cli_check_upstreams(const mp_cli_args *args);
int mp_cli_upstream(const mp_cli_args *args);
int mp_cli_types(const mp_cli_args *args);
int mp_cli_admin(const mp_cli_args *args);

#endif
