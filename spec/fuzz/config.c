/* config.c: a configuration of arbitrary bytes is either loaded completely or refused with a report; the report is
 * safe to print on a terminal and contains no secret. MOONPOOL_FUZZ builds it; run it with
 * -dict=spec/fuzz/config.dict. */
#define _GNU_SOURCE 1
#include "config/config.h"
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return setenv("SECRET", "hunter2-hunter2", 1);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const mp_str secret = {"hunter2-hunter2", 15};
    mp_buf report = {0};
    mp_str text = {(const char *)data, size};
    bool is_given_away = memmem(data, size, secret.ptr, secret.len) !=
                         NULL; /* the fuzzer guesses the value from comparisons in the code */
    mp_config *config = mp_config_parse(text, "moonpool.yaml", &report);
    if ((config == NULL) != (report.len > 0))
        abort();
    for (size_t i = 0; i < report.len; i++) {
        unsigned char c = (unsigned char)report.ptr[i];
        if ((c < ' ' && c != '\n') || c == 0x7f)
            abort();
        if (!is_given_away && mp_str_starts(mp_str_from(mp_buf_str(&report), i), secret))
            abort();
    }
    if (config != NULL &&
        (config->workers < 1 || config->listen[0] == NULL || config->hosts[0] == NULL || config->scripts_path == NULL))
        abort();
    mp_config_free(config);
    mp_buf_clear(&report);
    return 0;
}
