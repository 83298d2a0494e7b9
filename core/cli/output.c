/* output.c: functions that all commands use: the values of options, output and errors. It knows no command. */
#include "cli.h"
#include <errno.h>

const char *MP_NULLABLE mp_cli_value(const mp_cli_args *args, const char *option)
{
    for (int i = args->given_count - 1; i >= 0; i--)
        if (strcmp(args->given[i].option->name, option) == 0)
            return args->given[i].value == NULL ? "" : args->given[i].value;
    return NULL;
}

int mp_cli_print(mp_str text)
{
    fwrite(text.ptr, 1, text.len, stdout);
    if (fflush(stdout) == 0)
        return MP_ENDED_WELL;
    fprintf(stderr, "moonpool: cannot write to stdout: %s\n", strerror(errno));
    return MP_FAILED;
}

int mp_cli_misused(const char *what, const char *MP_NULLABLE word, const char *MP_NULLABLE near, const char *command)
{
    fprintf(stderr, "moonpool: %s", what);
    if (word != NULL)
        fprintf(stderr, " '%s'", word);
    if (near != NULL && strchr(near, ' ') != NULL)
        fprintf(stderr, "\n  hint: %s\n", near);
    else if (near != NULL)
        fprintf(stderr, "\n  hint: did you mean '%s'?\n", near);
    else
        fprintf(stderr, "\n  hint: moonpool %s%s--help lists the possibilities\n", command,
                command[0] == '\0' ? "" : " ");
    return MP_BAD_USAGE;
}

void mp_cli_complain(mp_buf *report)
{
    if (report->len > 0)
        fwrite(report->ptr, 1, report->len, stderr);
    mp_buf_clear(report);
}
