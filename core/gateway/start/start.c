#define _GNU_SOURCE /* for memmem */
#include "start.h"
#include "json/json.h"
#include "config/config.h"

#define EXIT_FAILED 1
#define EXIT_CONFIG 78
/* Each round leaves out the scripts whose errors the round before it has shown. A script that does not end while it
 * loads takes the time for loading, and hides those after it. */
#define MAX_ROUNDS 8

/* Result of one attempt to load scripts. */
typedef enum { LOADED, BROKEN, FAILED, STOPPED } result;

typedef struct {
    mp_start *start;
    mp_buf report, broken;
    mp_vm *MP_NULLABLE vm; /* set if the result is LOADED */
    mp_err *err;
} attempt;

void mp_print_report(const mp_buf *report)
{
    fprintf(stderr, "%.*s", MP_STR_ARG(mp_buf_str(report)));
    if (report->len > 0 && report->ptr[report->len - 1] != '\n')
        fputc('\n', stderr);
}

/* Prints why the gateway does not start. */
static void print_errors(const mp_start *start)
{
    mp_print_report(&start->report);
    if (start->is_unusable)
        fprintf(stderr, "moonpool: %s\n", start->no_kept.text);
}

/* -- the last good generation -------------------------------------------------------------------------------------- */

/* Parses the text of a configuration, and adds the approved definitions `lock` and the options of the command line.
 * NULL: a report on errors. */
static mp_config *MP_NULLABLE parse_text(const mp_start *start, const char *file, mp_str text,
                                         const char *MP_NULLABLE lock, mp_buf *report)
{
    const mp_gateway_options *options = start->options;
    mp_config *config = mp_config_parse(text, file, report);
    if (config != NULL && lock != NULL)
        config->lock = mp_dup(mp_str_of(lock));
    if (config == NULL || options->adjust == NULL || options->adjust(options->ctx, config, report) == 0)
        return config;
    mp_config_free(config);
    return NULL;
}

/* The last good generation cannot serve, because of `why`, of which the first line is kept. */
static void set_unusable(mp_start *start, mp_str why)
{
    mp_str line = mp_str_cut(&why, '\n');
    start->is_unusable = true;
    mp_err_set(&start->no_kept, "the last good generation cannot serve: %.*s", MP_STR_ARG(line));
}

/* In an upgrade: true if the saved generation may serve in place of files with errors. It must not serve less than the
 * process before this one. */
static bool may_be_kept(const mp_start *start)
{
    return !atomic_load(&start->shared->is_on_trial) || start->shared->may_be_kept;
}

/* True if the process before this one serves without the script, too. */
static bool may_lack(const mp_start *start, mp_str path)
{
    mp_str rest = mp_buf_str(&start->shared->may_lack);
    while (rest.len > 0)
        if (mp_str_eq(mp_str_cut(&rest, '\0'), path))
            return true;
    return false;
}

static bool may_lack_all(const mp_start *start, mp_str paths)
{
    bool may = true;
    while (may && paths.len > 0 && atomic_load(&start->shared->is_on_trial))
        may = may_lack(start, mp_str_cut(&paths, '\0'));
    return may;
}

/* The configuration of the last good generation; NULL: there is none, or it has errors now. */
static mp_config *MP_NULLABLE find_kept(mp_start *start)
{
    mp_scoped_buf report = {0};
    mp_err err;
    const char *file = start->options->file;
    if (start->options->is_apart || file == NULL)
        return NULL;
    mp_last_good *last = start->kept != NULL ? start->kept : mp_last_good_find(file, &err);
    start->kept = last;
    if (last == NULL) {
        if (err.text[0] == '\0')
            mp_err_set(&start->no_kept, "no generation has been kept in the state folder");
        else
            set_unusable(start, mp_str_of(err.text));
        return NULL;
    }
    mp_config *config = parse_text(start, file, mp_last_good_config(last), mp_last_good_lock(last), &report);
    if (config == NULL)
        set_unusable(start, mp_buf_str(&report));
    return config;
}

/* -- one try ------------------------------------------------------------------------------------------------------- */

/* Frees the result of an attempt that failed. */
static void unload_scripts(mp_worker_shared *shared)
{
    mp_process_state_close(&shared->process_state);
    mp_runtime_config_unref(shared->settings);
    mp_certificates_free(shared->certificates);
    mp_source_unref(shared->source);
    shared->process_state.store = MP_UNSET;
    shared->settings = MP_UNSET;
    shared->certificates = MP_UNSET;
    shared->source = MP_UNSET;
}

/* Opens the store: that of the file, or at an upgrade that of the process before this one, which is handed over
 * later. */
static int open_store(attempt *it, const mp_config *config)
{
    const mp_worker_shared *shared = it->start->shared;
    const mp_processes *processes = shared->processes;
    char path[MP_PROCESS_PATH];
    mp_store *store = shared->process_state.store;
    if (config->forgets_sessions == MP_SESSIONS_KEPT)
        mp_store_save_sessions(store);
    if (!atomic_load(&shared->is_on_trial))
        return mp_store_keep(store, config->store_file, it->err);
    mp_store_keep_later(store, config->store_file);
    if (!mp_processes_path(processes, shared->handed_by, "store", path))
        return mp_err_set(it->err, "the path of the folder for upgrades is too long");
    if (mp_store_follow(store, path, it->err) != 0)
        return -1;
    uint16_t number = mp_processes_number(processes);
    mp_processes_path(processes, number, "store", path);
    if (mp_store_serve(store, path, it->err) != 0)
        return -1;
    return mp_semaphores_share(shared->process_state.semaphores, store, number, it->err);
}

/* Makes the objects that all generations share, from the configuration of the first one, which they own from then on.
 */
static result open_shared(attempt *it, mp_config *config)
{
    mp_worker_shared *shared = it->start->shared;
    const mp_gateway_options *options = it->start->options;
    mp_certificates *certificates = mp_certificates_new(config, !options->on_stdio, it->start->beat, &it->report);
    if (certificates != NULL && it->report.len > 0) {
        mp_print_report(&it->report); /* the report has only warnings */
        it->report.len = 0;
    }
    mp_process_state_open(&shared->process_state, config);
    shared->settings = mp_runtime_config_new(config, &shared->process_state);
    if (certificates == NULL) {
        it->start->event = "config refused";
        return BROKEN;
    }
    mp_certificates_take(certificates, mp_buf_str(&shared->handed_tickets));
    shared->certificates = certificates;
    if (!options->is_apart && open_store(it, config) != 0)
        return FAILED;
    mp_series_enable(config->metrics_enabled == MP_METRICS_ON);
    if (!options->is_apart)
        mp_record_configure(&config->record);
    return LOADED;
}

/* True if what served last had auth scripts, and the scripts on the disk have none: a reload would refuse that. */
static bool has_lost_auth(attempt *it, const mp_source *source, const mp_vm *vm)
{
    mp_start *start = it->start;
    const mp_config *config = start->shared->settings->config;
    if (source != start->tried || config->scripts_broken != MP_BROKEN_LAST_GOOD || config->auth_mode == MP_AUTH_NONE ||
        mp_lib_has_auth(vm))
        return false;
    mp_config *kept = find_kept(start);
    const mp_last_good *last = start->kept;
    bool had_auth = kept != NULL && last != NULL && kept->auth_mode != MP_AUTH_NONE && mp_last_good_has(last, "auth/");
    mp_config_free(kept);
    return had_auth && mp_open_relay_check_loss(config, vm, &it->report) != 0;
}

static result load_scripts(attempt *it, mp_source *source)
{
    mp_worker_shared *shared = it->start->shared;
    const mp_config *config = shared->settings->config;
    shared->source = mp_source_ref(source);
    mp_declared_begin();
    mp_vm *vm = mp_lib_try(shared->source, &shared->settings->lib, &it->report, &it->broken);
    if (vm == NULL)
        return atomic_load(&shared->draining) ? STOPPED : BROKEN;
    if (it->start->options->on_stdio ||
        (mp_open_relay_check(config, shared->process_state.passed, vm, &it->report) == 0 &&
         !has_lost_auth(it, source, vm))) {
        mp_declared_serve();
        it->vm = vm;
        return LOADED;
    }
    mp_lib_free(vm);
    return BROKEN;
}

/* Takes ownership of `config`. Unless the result is LOADED, `shared` has nothing of it. */
static result load_sources(attempt *it, mp_source *source, mp_config *config)
{
    it->report.len = it->broken.len = 0;
    result found = open_shared(it, config);
    if (found == LOADED)
        found = load_scripts(it, source);
    if (found != LOADED)
        unload_scripts(it->start->shared);
    return found;
}

/* -- instead of the files on the disk ------------------------------------------------------------------------------ */

/* `config`: that of the last good generation, which was found with it. */
static result load_kept(attempt *it, mp_config *config)
{
    mp_start *start = it->start;
    mp_err err = {"there is no last good generation", ""};
    const mp_last_good *last = start->kept;
    mp_source *source =
        last == NULL ? NULL : mp_last_good_source(last, config->scripts_path, config->scripts_rocks, &err);
    if (source == NULL) {
        set_unusable(start, mp_str_of(err.text));
        mp_config_free(config);
        return BROKEN;
    }
    result found = load_sources(it, source, config);
    if (found == BROKEN)
        set_unusable(start, mp_buf_str(&it->report));
    start->serves_kept = found == LOADED;
    mp_source_unref(source);
    return found;
}

mp_config *MP_NULLABLE mp_start_find_config(mp_start *start)
{
    start->is_config = true;
    start->event = "config refused";
    mp_buf_put(&start->report, mp_str_of(start->options->report));
    mp_config *config = may_be_kept(start) ? find_kept(start) : NULL;
    if (config == NULL)
        print_errors(start);
    return config;
}

/* An empty file is a configuration; but one that was not empty when it served last has probably lost its text. */
static mp_config *if_not_emptied(mp_start *start, mp_config *config)
{
    if (config->text[0] != '\0' || config->name == NULL)
        return config;
    bool is_judged = !may_be_kept(start);
    mp_config *kept = is_judged ? NULL : find_kept(start);
    if (is_judged ? start->shared->may_be_empty : kept == NULL || kept->text[0] == '\0') {
        mp_config_free(kept);
        return config;
    }
    mp_buf_printf(&start->report, "%s:1:1: the file is empty\n", start->options->file);
    mp_buf_put(&start->report, MP_STR("  hint: to use every default, write a comment into the file\n"));
    start->is_config = true;
    start->event = "config refused";
    if (is_judged)
        return config; /* load_any refuses the configuration: it is not served */
    mp_config_free(config);
    return kept;
}

/* -- without the scripts that have errors -------------------------------------------------------------------------- */

static result leave_out(attempt *it, mp_str config, const char *MP_NULLABLE lock)
{
    mp_start *start = it->start;
    result found = BROKEN;
    const mp_source *tried = start->tried;
    const char *file = start->options->file;
    for (int round = 0; tried != NULL && file != NULL && found == BROKEN && it->broken.len > 0 &&
                        may_lack_all(start, mp_buf_str(&it->broken)) && round < MAX_ROUNDS;
         round++) {
        mp_buf_put(&start->left_out, mp_buf_str(&it->broken));
        mp_source *source = mp_source_without(tried, mp_buf_str(&start->left_out));
        mp_buf report = {0};
        mp_config *again = parse_text(start, file, config, lock, &report);
        mp_buf_clear(&report);
        if (again != NULL)
            found = load_sources(it, source, again);
        mp_source_unref(source);
        if (again == NULL)
            break; /* a file that it reads has changed meanwhile */
        if (found == BROKEN)
            mp_buf_printf(&start->report, "\n%.*s", MP_STR_ARG(mp_buf_str(&it->report)));
    }
    return found;
}

/* -- the whole start ----------------------------------------------------------------------------------------------- */

/* Finds what serves instead of the files on the disk, which have errors. */
static result load_instead(attempt *it, mp_broken_scripts mode, mp_str config, const char *MP_NULLABLE lock)
{
    mp_config *kept = mode == MP_BROKEN_LAST_GOOD && may_be_kept(it->start) ? find_kept(it->start) : NULL;
    if (mode == MP_BROKEN_LAST_GOOD && !may_be_kept(it->start))
        mp_err_set(&it->start->no_kept, "the process before this one serves without them, too");
    mp_buf broken = it->broken; /* errors of the files on the disk */
    it->broken = (mp_buf){0};
    result found = kept == NULL ? BROKEN : load_kept(it, kept);
    mp_buf_clear(&it->broken);
    it->broken = broken;
    return found == BROKEN && mode != MP_BROKEN_REFUSE ? leave_out(it, config, lock) : found;
}

/* Loads the files on the disk. Takes ownership of `config`. */
static result load_disk(attempt *it, mp_config *config)
{
    mp_err err;
    it->start->event = "script refused";
    mp_source *source = it->start->tried = mp_source_read(config->scripts_path, config->scripts_rocks, &err);
    if (source == NULL) {
        mp_buf_printf(&it->report, "%s\n  hint: %s\n", err.text, err.hint);
        mp_config_free(config);
        return BROKEN;
    }
    return load_sources(it, source, config);
}

static result load_any(attempt *it, mp_config *config)
{
    mp_start *start = it->start;
    if (start->is_config && may_be_kept(start))
        return load_kept(it, config);
    if (start->is_config) {
        mp_config_free(config);
        return BROKEN;
    }
    mp_broken_scripts mode =
        start->options->is_apart || start->options->file == NULL ? MP_BROKEN_REFUSE : config->scripts_broken;
    char *text = mp_dup(mp_str_of(config->text)), *lock = mp_dup_text(config->lock);
    mp_config_put_all(&start->tried_config, config);
    result found = load_disk(it, config);
    if (found == BROKEN) {
        mp_buf_put(&start->report, mp_buf_str(&it->report));
        found = load_instead(it, mode, mp_str_of(text), lock);
    }
    free(text);
    free(lock);
    return found;
}

mp_vm *MP_NULLABLE mp_start_load(mp_start *start, mp_config *config, int *code, mp_err *err)
{
    attempt it = {.start = start, .err = err};
    if (!start->is_config)
        config = if_not_emptied(start, config);
    result found = load_any(&it, config);
    if (found == BROKEN)
        print_errors(start);
    *code = found == BROKEN ? EXIT_CONFIG : found == FAILED ? EXIT_FAILED : 0;
    mp_buf_clear(&it.report);
    mp_buf_clear(&it.broken);
    return it.vm;
}

/* -- log and status ------------------------------------------------------------------------------------------------ */

/* Appends the scripts that are left out: "tools/a.lua, tools/b.lua". */
static void put_left_out(mp_buf *out, const mp_start *start, void (*put)(mp_buf *, mp_str), const char *between)
{
    mp_str rest = mp_buf_str(&start->left_out);
    for (bool is_first = true; rest.len > 0; is_first = false) {
        if (!is_first)
            mp_buf_put(out, mp_str_of(between));
        put(out, mp_str_cut(&rest, '\0'));
    }
}

void mp_log_report(const char *event, mp_str report)
{
    while (report.len > 0) {
        const char *end = memmem(report.ptr, report.len, "\n\n", 2);
        mp_str one = {report.ptr, end == NULL ? report.len : (size_t)(end - report.ptr)};
        report = end == NULL ? MP_STR_NONE : mp_str_from(report, one.len + 2);
        if (one.len > 0 && one.ptr[one.len - 1] == '\n')
            one.len--;
        mp_log(MP_ERROR, event, mp_log_str("error", one));
    }
}

void mp_start_log(const mp_start *start)
{
    char when[32];
    struct tm parts;
    if (start->report.len == 0)
        return;
    mp_log_report(start->event, mp_buf_str(&start->report));
    const mp_last_good *last = start->kept;
    if (start->serves_kept && last != NULL) {
        const time_t at = mp_last_good_time(last);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
        mp_log(MP_ERROR, "the last good generation serves", mp_log_str("kept", mp_str_of(when)),
               mp_log_str("why", MP_STR("the files on the disk have errors")),
               mp_log_str("hint", MP_STR("correct them: they are served as soon as they are saved")));
        return;
    }
    mp_scoped_buf names = {0};
    put_left_out(&names, start, mp_put_visible, ", ");
    mp_log(MP_ERROR, "scripts left out", mp_log_str("files", mp_buf_str(&names)),
           mp_log_str("why",
                      mp_str_of(start->no_kept.text[0] == '\0' ? "scripts.broken: leave_out" : start->no_kept.text)),
           mp_log_str("hint", MP_STR("correct them: they are served as soon as they are saved")));
}

void mp_start_describe(const mp_start *start, mp_buf *out)
{
    if (start->report.len == 0)
        return;
    mp_buf_printf(out, ",\"start\":{\"serves\":\"%s\",\"left_out\":[", start->serves_kept ? "last_good" : "others");
    put_left_out(out, start, mp_json_put_string, ",");
    mp_buf_put(out, MP_STR("]}"));
}

void mp_start_clear(mp_start *start)
{
    mp_buf_clear(&start->report);
    mp_buf_clear(&start->tried_config);
    mp_buf_clear(&start->left_out);
    mp_source_unref(start->tried);
    mp_last_good_free(start->kept);
    start->tried = NULL;
    start->kept = NULL;
}
