/* gateway.h: the whole house, as the command line sees it.
 *
 *   gateway  the process: its table of sessions, its workers, its signals
 *   worker   a thread with a loop, a server, a server role and a Lua VM of its own */
#ifndef MP_GATEWAY_H
#define MP_GATEWAY_H

#include "config.h"
#include "script/script.h"

typedef struct {
    bool on_stdio;    /* serves the one client at stdin and stdout, and listens nowhere */
    bool has_specs;   /* answers "moonpool/specs" */
    bool is_apart;    /* of one command of the workbench: leaves store.file alone, and says nothing of itself */
    int ready_fd;     /* gets one line once everything listens; -1: none */
    bool prints;      /* each reload, on stdout */
    const char *file; /* the configuration's, which is read again when it changes; NULL: it is not */
    mp_config *(*read)(void *ctx, mp_buf *report); /* reads it: NULL and what is wrong, or another configuration */
    void *ctx;
} mp_gateway_options;

/* Serves until SIGTERM or SIGINT, on stdio also until the client has left. Takes `config` over. Gives the exit code: 0 ended well, 1 failed running, 78 bad scripts. What is wrong is on stderr. */
int mp_gateway_run(mp_config *config, const mp_gateway_options *options);
/* Loads the scripts as `run` would, takes `config` over, prints what would be served to stdout, in a form of mp_vm_describe. 0 or 78. */
int mp_gateway_check(mp_config *config, const char *form);
/* Runs a command of the workbench; gives its exit code. */
int mp_gateway_bench(const char *command, const mp_bench_argument *arguments, size_t count);

#endif
