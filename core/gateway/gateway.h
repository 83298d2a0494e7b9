/* gateway.h: the gateway process, as the command line uses it.
 *
 *   gateway  the process: its session table, workers and signals
 *   worker   a thread with its own event loop, HTTP server and Lua state */
#ifndef MP_GATEWAY_H
#define MP_GATEWAY_H

#include "gateway/libraries.h"
#include "config/config.h"
#include "lib/lib.h"

typedef struct {
    char *const *argv; /* the arguments of the process, with which an upgrade starts the next one */
    bool on_stdio;     /* serves one client on stdin and stdout, and has no listeners */
    bool has_specs;    /* serves the method "moonpool/specs" */
    bool is_replay;    /* serves the method "moonpool/replay", and its scripts reach nothing outside */
    /* started for one command of the workbench: does not open store.file and logs nothing about itself */
    bool is_apart;
    bool traces;  /* prints each request on stderr, in a form for people */
    int ready_fd; /* descriptor that gets one line once all listeners are open; -1: none */
    bool prints;  /* prints each reload on stdout */
    /* path of the configuration, which is read again when it changes; NULL: never read again */
    const char *MP_NULLABLE file;
    /* reads the configuration again; returns NULL and a report on an error */
    mp_config *MP_NULLABLE (*read)(void *ctx, mp_buf *report);
    /* lets the options of the command line override a configuration that was kept; -1 and a report on an error */
    int (*MP_NULLABLE adjust)(void *ctx, mp_config *config, mp_buf *report);
    void *ctx;
    const char *report; /* the errors of the configuration, where it cannot be used */
} mp_gateway_options;

/* Serves until SIGTERM or SIGINT, on stdio also until stdin ends. Takes ownership of `config`; NULL: the file has
 * errors, and only the saved generation can serve. Prints errors to stderr. Returns the exit code: 0 success, 1 failure
 * while running, 78 errors in scripts or configuration. */
int mp_gateway_run(mp_config *MP_NULLABLE config, const mp_gateway_options *options);
/* True if an upgrade of a running gateway has started this process. */
bool mp_gateway_is_successor(void);
/* Loads the scripts as mp_gateway_run would and prints what they serve to stdout, in a form of mp_lib_describe. Takes
 * ownership of `config`. Returns 0, or 78 on errors, or 1 for warnings if `is_strict`. */
int mp_gateway_check(mp_config *config, const char *form, bool is_strict);
/* Runs a command of the workbench and returns its exit code. */
int mp_gateway_workbench(const char *command, const mp_workbench_argument *arguments, size_t count);

#endif
