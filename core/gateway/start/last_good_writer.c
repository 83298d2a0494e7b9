#define _GNU_SOURCE 1 /* for pthread_cond_clockwait */
#include "last_good_writer.h"
#include "json/json.h"
#include "net/net.h"
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#define RETRY_SECONDS 60 /* seconds before another attempt, as after a full disk */
/* s of waiting at the end of the process: a disk that does not answer must not hold it up */
#define END_SECONDS 1

/* A generation that is to be kept. */
typedef struct {
    int64_t generation;
    mp_source *MP_NULLABLE source; /* generation to save; NULL: none, and a saved one is to be removed */
    char *MP_NULLABLE config, *MP_NULLABLE lock;
} change;

struct mp_last_good_writer {
    char *folder, *name;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t news;
    pthread_t thread;
    bool has_thread, is_ending, has_ended;
    change *MP_NULLABLE newest; /* the change to carry out next; NULL: none */
    int64_t kept;               /* the generation that the file has; 0: none of this process */
    mp_err err;                 /* why the newest generation is not in the file; empty: it is there */
};

/* -- the state folder ---------------------------------------------------------------------------------------------- */

static bool is_absolute(const char *MP_NULLABLE path)
{
    return path != NULL && path[0] == '/';
}

/* The folder for last good generations; NULL if the environment names none. The caller frees it. */
static char *MP_NULLABLE find_folder(void)
{
    const char *unit = getenv("STATE_DIRECTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    mp_scoped_buf path = {0};
    if (is_absolute(unit)) /* the first of several folders */
        mp_buf_put(&path, (mp_str){unit, strcspn(unit, ":")});
    else if (is_absolute(state))
        mp_buf_printf(&path, "%s/moonpool", state);
    else if (is_absolute(home))
        mp_buf_printf(&path, "%s/.local/state/moonpool", home);
    else
        return NULL;
    mp_buf_put(&path, MP_STR("/last-good"));
    return mp_dup(mp_buf_str(&path));
}

/* The absolute path of a file. Symbolic links stay as they are: one that leads to another release leads to the same
 * configuration. NULL if it has a line break, or if there is no current folder. The caller frees it. */
static char *MP_NULLABLE name_of(const char *file)
{
    char here[PATH_MAX];
    mp_scoped_buf path = {0};
    if (strchr(file, '\n') != NULL || (file[0] != '/' && getcwd(here, sizeof here) == NULL))
        return NULL;
    mp_scoped_buf whole = {0};
    mp_buf_printf(&whole, "%s/%s", file[0] == '/' ? "" : here, file);
    for (mp_str rest = mp_buf_str(&whole); rest.ptr != NULL;) {
        mp_str part = mp_str_cut(&rest, '/');
        if (part.len > 0 && !mp_str_is(part, "."))
            mp_buf_printf(&path, "/%.*s", MP_STR_ARG(part));
    }
    return mp_dup(mp_buf_str(&path));
}

mp_last_good *MP_NULLABLE mp_last_good_find(const char *file, mp_err *err)
{
    char *path = find_folder(), *name = name_of(file);
    mp_last_good *kept = NULL;
    *err = (mp_err){0};
    if (path != NULL && name != NULL && access(path, F_OK) == 0) {
        int folder = mp_last_good_open_folder(path, false, err);
        if (folder >= 0) {
            kept = mp_last_good_read(folder, name, err);
            close(folder);
        }
    }
    free(path);
    free(name);
    return kept;
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static void free_change(change *MP_NULLABLE one)
{
    if (one == NULL)
        return;
    mp_source_unref(one->source);
    free(one->config);
    free(one->lock);
    free(one);
}

static int carry_out(const mp_last_good_writer *writer, const change *one, mp_err *err)
{
    const mp_source *source = one->source;
    int folder = mp_last_good_open_folder(writer->folder, source != NULL, err);
    if (source == NULL) {
        if (folder >= 0) {
            mp_last_good_forget(folder, writer->name);
            close(folder);
        }
        return 0;
    }
    if (folder < 0)
        return -1;
    const mp_generation_parts parts = {writer->name, mp_str_of(one->config), one->lock, source};
    int failed = mp_last_good_write(folder, &parts, err);
    close(folder);
    return failed;
}

/* A folder that nobody has asked for need not be there, as in a container without a home. */
static mp_log_level level_of_failure(const mp_last_good_writer *writer)
{
    return getenv("STATE_DIRECTORY") == NULL && access(writer->folder, F_OK) != 0 ? MP_DEBUG : MP_WARN;
}

/* Logs a failure once, and its end. */
static void report_change(const mp_last_good_writer *writer, const change *one, const mp_err *before, const mp_err *now)
{
    if (now->text[0] != '\0' && strcmp(before->text, now->text) != 0)
        mp_log(level_of_failure(writer), "last good generation not kept", mp_log_int("generation", one->generation),
               mp_log_str("folder", mp_str_of(writer->folder)), mp_log_str("why", mp_str_of(now->text)),
               mp_log_str("hint", mp_str_of(now->hint[0] != '\0' ? now->hint
                                                                 : "a start with a broken file serves an older one")));
    else if (now->text[0] == '\0' && one->source != NULL)
        mp_log(before->text[0] == '\0' ? MP_DEBUG : MP_INFO, "last good generation kept",
               mp_log_int("generation", one->generation), mp_log_str("folder", mp_str_of(writer->folder)));
}

/* Waits for a change; with the lock. `may_retry`: for RETRY_SECONDS at most. */
static void await_order(mp_last_good_writer *writer, bool may_retry)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += RETRY_SECONDS;
    while (writer->newest == NULL && !writer->is_ending)
        if (!may_retry)
            pthread_cond_wait(&writer->news, &writer->lock);
        else if (pthread_cond_clockwait(&writer->news, &writer->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            return;
}

static void *MP_NULLABLE run_thread(void *arg)
{
    mp_last_good_writer *writer = arg;
    change *failed = NULL; /* the change that failed and is tried again */
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        await_order(writer, failed != NULL);
        change *one = writer->newest != NULL ? writer->newest : failed;
        if (one == NULL || (writer->newest == NULL && writer->is_ending))
            break;
        if (one != failed)
            free_change(failed);
        failed = writer->newest = NULL;
        mp_err before = writer->err, err = {0};
        pthread_mutex_unlock(&writer->lock);
        int result = carry_out(writer, one, &err);
        report_change(writer, one, &before, &err);
        pthread_mutex_lock(&writer->lock);
        writer->err = err;
        if (result != 0) {
            failed = one;
            continue;
        }
        writer->kept = one->source == NULL ? 0 : one->generation;
        free_change(one);
    }
    free_change(failed);
    writer->has_ended = true;
    pthread_cond_signal(&writer->news);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* -- the main thread ----------------------------------------------------------------------------------------------- */

/* Denies scripts access to the state folder, even with a grant for it: a saved generation has secrets of the
 * configuration, and decides which scripts serve. */
static void close_off(const char *folder)
{
    char real[PATH_MAX];
    mp_err err;
    int fd = mp_last_good_open_folder(folder, true, &err);
    if (fd >= 0)
        close(fd);
    mp_file_close_off(realpath(folder, real) == NULL ? NULL : real);
}

mp_last_good_writer *MP_NULLABLE mp_last_good_writer_new(const char *MP_NULLABLE file)
{
    char *folder = find_folder(), *name = file == NULL ? NULL : name_of(file);
    if (folder == NULL || name == NULL) {
        free(folder);
        free(name);
        return NULL;
    }
    mp_last_good_writer *writer = mp_new(sizeof *writer);
    writer->folder = folder;
    writer->name = name;
    close_off(folder);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->news, NULL);
    return writer;
}

/* Ends the thread. False: it does not end in time. */
static bool end_thread(mp_last_good_writer *writer)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_SECONDS;
    {
        MP_LOCKED(&writer->lock);
        writer->is_ending = true;
        pthread_cond_signal(&writer->news);
        while (!writer->has_ended)
            if (pthread_cond_clockwait(&writer->news, &writer->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
                return false;
    }
    pthread_join(writer->thread, NULL);
    return true;
}

void mp_last_good_writer_free(mp_last_good_writer *MP_NULLABLE writer)
{
    if (writer == NULL)
        return;
    if (writer->has_thread && !end_thread(writer))
        return; /* the writer's thread still uses it; the process ends */
    free_change(writer->newest);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->news);
    mp_file_close_off(NULL);
    free(writer->folder);
    free(writer->name);
    free(writer);
}

void mp_last_good_writer_keep(mp_last_good_writer *MP_NULLABLE writer, int64_t generation, mp_source *source,
                              const mp_config *config)
{
    if (writer == NULL)
        return;
    change *one = mp_new(sizeof *one);
    one->generation = generation;
    if (config->scripts_broken == MP_BROKEN_LAST_GOOD) {
        one->source = mp_source_ref(source);
        one->config = mp_dup(mp_str_of(config->text));
        one->lock = mp_dup_text(config->lock);
    }
    MP_LOCKED(&writer->lock);
    free_change(writer->newest);
    writer->newest = one;
    if (!writer->has_thread)
        writer->has_thread = pthread_create(&writer->thread, NULL, run_thread, writer) == 0;
    if (!writer->has_thread)
        mp_err_set(&writer->err, "no thread can be started");
    pthread_cond_signal(&writer->news);
}

void mp_last_good_writer_describe(mp_last_good_writer *MP_NULLABLE writer, mp_buf *out)
{
    if (writer == NULL) {
        mp_buf_put(out, MP_STR("{\"kept\":0,\"why\":\"there is no state folder\"}"));
        return;
    }
    MP_LOCKED(&writer->lock);
    mp_buf_printf(out, "{\"kept\":%lld", (long long)writer->kept);
    if (writer->err.text[0] != '\0') {
        mp_buf_put(out, MP_STR(",\"why\":"));
        mp_json_put_string(out, mp_str_of(writer->err.text));
    }
    mp_buf_putc(out, '}');
}
