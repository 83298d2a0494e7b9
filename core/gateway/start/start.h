/* start.h: finds the generation that a start serves. If a reload would refuse the files on the disk, that is the last
 * good one; without one, it is what serves alone of the scripts on the disk. */
#ifndef MP_GATEWAY_START_START_H
#define MP_GATEWAY_START_START_H

#include "gateway/certificates/certificates.h"
#include "gateway/gateway.h"
#include "last_good_writer.h"
#include "gateway/worker.h"

typedef struct {
    mp_worker_shared *shared;
    const mp_gateway_options *options;
    mp_certificate_beat beat;
    mp_buf report;                  /* the errors of the files on the disk, for people; empty: they serve */
    bool is_config;                 /* the configuration on the disk does not load */
    const char *event;              /* name of the log event for the errors */
    mp_source *MP_NULLABLE tried;   /* the scripts on the disk; NULL: they could not be read */
    mp_buf tried_config;            /* the configuration on the disk, in canonical form; empty: it could not be read */
    mp_last_good *MP_NULLABLE kept; /* the last good generation, if it was looked for; NULL: none */
    mp_err no_kept;                 /* why there is no saved generation, or why it does not serve */
    bool is_unusable;               /* a saved generation exists but cannot serve */
    bool serves_kept;
    mp_buf left_out; /* the paths of the scripts that are left out, each with a NUL */
} mp_start;

/* The configuration that was kept, if the one on the disk has errors: options->report. NULL if there is none; the
 * errors are printed then. */
mp_config *MP_NULLABLE mp_start_find_config(mp_start *start);
/* Fills `shared`: certificates, process_state, settings and source. Takes ownership of `config`. Returns a VM, which
 * the first worker then uses; or NULL, with the exit code of the process, and an error in `err` or printed. */
mp_vm *MP_NULLABLE mp_start_load(mp_start *start, mp_config *config, int *code, mp_err *err);
/* Logs the errors of the files on the disk, and what serves in their place: the saved generation, or the files without
 * errors. */
void mp_start_log(const mp_start *start);
/* Appends members of a JSON object that say what serves, each with a comma before it; nothing if the files on the disk
 * do. */
void mp_start_describe(const mp_start *start, mp_buf *out);
/* Frees memory that is used only until the gateway serves. May be called again. */
void mp_start_clear(mp_start *start);

/* Prints a report on stderr. */
void mp_print_report(const mp_buf *report);
/* Logs each error of a report as an `event`. Errors end with a line break and are separated by an empty line. */
void mp_log_report(const char *event, mp_str report);

#endif
