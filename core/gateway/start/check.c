/* check.c: `moonpool check`: loads the scripts as a gateway would, and prints the list of things that it would serve,
 * with every error and warning. */
#include "gateway/certificates/certificates.h"
#include "gateway/gateway.h"
#include "config/config.h"
#include "start.h"
#include <unistd.h>

#define EXIT_CONFIG 78

/* True if the scripts leave a public gateway without authentication; the report is printed. */
static bool is_exposed(const mp_config *config, const mp_vm *vm)
{
    mp_scoped_buf report = {0};
    bool exposed = mp_open_relay_check(config, NULL, vm, &report) != 0;
    if (exposed)
        mp_print_report(&report);
    return exposed;
}

/* Reads the scripts and loads them into a VM. Returns NULL if they have errors, which are printed. */
static mp_vm *MP_NULLABLE prove_scripts(const mp_runtime_config *settings, mp_source **source)
{
    mp_err err;
    mp_scoped_buf report = {0};
    mp_vm *vm = NULL;
    *source = mp_source_read(settings->config->scripts_path, settings->config->scripts_rocks, &err);
    if (*source == NULL) {
        mp_buf_printf(&report, "moonpool: %s\n  hint: %s\n", err.text, err.hint);
    } else {
        mp_declared_begin();
        vm = mp_lib_new(*source, &settings->lib, &report);
        if (vm == NULL)
            mp_source_unref(*source);
    }
    mp_print_report(&report);
    return vm;
}

static void go_on(MP_UNUSED void *MP_NULLABLE ctx) {}

/* Loads the TLS files; false on an error. Prints errors and warnings. */
static bool has_certificates(const mp_config *config, bool *has_warnings)
{
    mp_scoped_buf report = {0};
    mp_certificates *certificates = mp_certificates_new(config, true, (mp_certificate_beat){go_on, NULL}, &report);
    *has_warnings = report.len > 0;
    mp_print_report(&report);
    mp_certificates_free(certificates);
    return certificates != NULL;
}

/* Notes that `check` does not know the sockets of systemd:NAME. That is not a warning about the configuration, so
 * --strict does not fail. */
static void note_sockets(const mp_config *config)
{
    mp_scoped_buf note = {0};
    bool has_sockets = mp_systemd_name(mp_str_of(config->admin_listen)).ptr != NULL;
    for (size_t i = 0; config->listen[i] != NULL; i++)
        has_sockets = has_sockets || mp_systemd_name(mp_str_of(config->listen[i])).ptr != NULL;
    if (has_sockets)
        mp_buf_printf(&note,
                      "%s: the addresses of systemd:NAME are those of the socket unit: whether they exist, and need "
                      "authentication, is checked when the service starts\n",
                      config->name == NULL ? "the configuration" : config->name);
    mp_print_report(&note);
}

/* Notes how long a stop may take where the process leaves a cluster first: who stops it has to wait so long. */
static void note_leave(const mp_config *config)
{
    mp_scoped_buf note = {0};
    uint64_t ms = config->linger + config->cluster_leave + config->drain + MP_ENDING_MS;
    if (config->cluster_listen == NULL || config->cluster_leave == 0)
        return;
    mp_buf_printf(&note,
                  "%s: a stop takes up to %llu s (limits.linger, cluster.leave, limits.drain and 1 s): "
                  "terminationGracePeriodSeconds of Kubernetes, stop_grace_period of compose and TimeoutStopSec of "
                  "systemd have to be longer\n",
                  config->name == NULL ? "the configuration" : config->name, (unsigned long long)((ms + 999) / 1000));
    mp_print_report(&note);
}

int mp_gateway_check(mp_config *config, const char *form, bool is_strict)
{
    bool has_warnings = false;
    int code = has_certificates(config, &has_warnings) ? 0 : EXIT_CONFIG;
    if (config->warnings.len > 0) {
        has_warnings = true;
        mp_print_report(&config->warnings);
    }
    note_sockets(config);
    note_leave(config);
    mp_buf settings_doubts = {0};
    mp_config_put_missing_folders(config, &settings_doubts);
    mp_config_put_refused_hosts(config, &settings_doubts);
    mp_config_put_unseen_clients(config, &settings_doubts);
    has_warnings = has_warnings || settings_doubts.len > 0;
    mp_print_report(&settings_doubts);
    mp_buf_clear(&settings_doubts);
    mp_source *source;
    mp_process_state process_state = {0};
    mp_process_state_open(&process_state, config);
    mp_runtime_config *settings = mp_runtime_config_new(config, &process_state);
    mp_vm *vm = prove_scripts(settings, &source);
    if (vm == NULL || is_exposed(config, vm))
        code = EXIT_CONFIG;
    if (vm != NULL) {
        mp_buf out = {0}, doubts = {0};
        mp_lib_describe(vm, form, &out, &doubts);
        if (mp_lib_has_issuer(vm))
            mp_config_put_unknown_scheme(config, &doubts);
        printf("%.*s", MP_STR_ARG(mp_buf_str(&out)));
        if (out.len == 0 && code == 0 && strcmp(form, "whole") == 0 && isatty(STDERR_FILENO))
            fputs("no mistakes; the scripts serve nothing yet (--connect asks upstreams)\n", stderr);
        if (doubts.len > 0) {
            has_warnings = true;
            mp_print_report(&doubts);
        }
        mp_buf_clear(&out);
        mp_buf_clear(&doubts);
        mp_lib_free(vm);
        mp_source_unref(source);
    }
    mp_process_state_close(&process_state);
    mp_runtime_config_unref(settings);
    return code == 0 && is_strict && (has_warnings || mp_log_warnings() > 0) ? EXIT_FAILURE : code;
}
