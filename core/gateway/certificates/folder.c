#include "folder.h"
#include <dirent.h>
#include <errno.h>
#include <sys/inotify.h>

/* Certificates of one folder; each takes about 4 KB of memory. */
#define PAIRS ((size_t)MP_LIMIT(tls_pairs, 10000))
#define STEP_US 5000 /* how long a step may take: signals and reloads wait for it */
#define WATCHED 1000 /* subfolders that are watched, of the watches that all processes of the user share */
#define REPORTED 20  /* pairs whose faults a start, `moonpool check` or a round shows, of possibly thousands */

typedef struct {
    mp_certificate_files files;
    char *name;
    mp_tls_pair *MP_NULLABLE served;
    bool is_new;    /* in this round; its names were not compared with those of others yet */
    bool is_folder; /* NAME/fullchain.pem: without both files it is some other folder */
    bool is_double; /* NAME.pem is served: this one is refused */
} entry;

struct mp_certificate_folder {
    mp_certificate_owner owner;
    char *path, *MP_NULLABLE first; /* the name of the pair for other names; NULL: the first one */
    bool refuses_others;
    entry **entries;           /* ordered by the path of the certificate; changed with the owner's lock */
    size_t count, at, refused; /* refused: in this round */
    uint64_t failed_at;        /* see mp_certificate_folder_failed_at */
    bool is_busy, is_asked, is_changed, is_unread, was_full;
    mp_tls_names *names;
};

/* -- which pairs there are ----------------------------------------------------------------------------------------- */

typedef struct {
    char **paths; /* of certificates */
    size_t count, cap;
    bool is_full; /* there are more than the folder may have */
} listing;

static bool ends_in(mp_str name, mp_str end)
{
    return name.len > end.len && memcmp(name.ptr + name.len - end.len, end.ptr, end.len) == 0;
}

static void put_path(listing *all, const char *folder, const struct dirent *found)
{
    mp_str name = mp_str_of(found->d_name);
    bool is_pem = ends_in(name, MP_STR(".pem"));
    if (name.ptr[0] == '.' ||
        (!is_pem && found->d_type != DT_DIR && found->d_type != DT_LNK && found->d_type != DT_UNKNOWN) ||
        ends_in(name, MP_STR(".key")) || mp_str_is(name, "lost+found")) /* a file system's own, and closed */
        return;
    if (all->count == all->cap)
        all->paths = mp_resize(all->paths, (all->cap = all->cap * 2 + 64) * sizeof *all->paths);
    mp_buf path = {0};
    mp_buf_printf(&path, "%s/%s%s", folder, found->d_name, is_pem ? "" : "/fullchain.pem");
    mp_buf_putc(&path, '\0');
    all->paths[all->count++] = path.ptr;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_paths(const char *folder, listing *all)
{
    *all = (listing){.paths = mp_new(sizeof *all->paths)};
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return -1;
    const struct dirent *found;
    while (errno = 0, (found = readdir(dir)) != NULL)
        put_path(all, folder, found);
    int why = errno;
    closedir(dir);
    qsort(all->paths, all->count, sizeof *all->paths, compare_paths);
    errno = why;
    return why == 0 ? 0 : -1;
}

/* Takes over `path`. */
static entry *new_entry(const mp_certificate_folder *folder, char *path)
{
    entry *e = mp_new(sizeof *e);
    mp_str name = mp_str_of(path + strlen(folder->path) + 1);
    mp_scoped_buf key = {0};
    e->is_folder = memchr(name.ptr, '/', name.len) != NULL;
    name.len -= e->is_folder ? strlen("/fullchain.pem") : strlen(".pem");
    mp_buf_printf(&key, "%s/%.*s%s", folder->path, MP_STR_ARG(name), e->is_folder ? "/privkey.pem" : ".key");
    e->name = mp_dup(name);
    e->files.paths[MP_TLS_CERTIFICATE] = path;
    e->files.paths[MP_TLS_KEY] = mp_dup(mp_buf_str(&key));
    return e;
}

static void free_entry(entry *e)
{
    mp_certificate_files_clear(&e->files);
    mp_tls_pair_unref(e->served);
    free(e->name);
    free(e);
}

static bool is_first(const mp_certificate_folder *folder, const entry *e)
{
    const char *first = folder->first;
    return first != NULL && strcmp(e->name, first) == 0;
}

/* A pair whose files are gone is served no more. That of `default` stays, as a listener's only pair does. */
static bool may_go(const mp_certificate_folder *folder, const entry *e)
{
    return e->served == NULL || !is_first(folder, e);
}

/* For a pair that was served until now. */
static void note_removal(mp_certificate_folder *folder, const entry *e)
{
    folder->is_changed = true;
    mp_log(MP_INFO, "certificate removed", mp_log_str("address", mp_str_of(folder->owner.address)),
           mp_log_str("certificate", mp_str_of(e->files.paths[MP_TLS_CERTIFICATE])));
}

/* Frees what was served and does not remain. */
static void drop_entry(mp_certificate_folder *folder, entry *e)
{
    if (e->served != NULL)
        note_removal(folder, e);
    free_entry(e);
}

static int compare_to(const mp_certificate_folder *folder, size_t i, const listing *now, size_t k)
{
    return i == folder->count ? 1
           : k == now->count  ? -1
                              : strcmp(folder->entries[i]->files.paths[MP_TLS_CERTIFICATE], now->paths[k]);
}

/* How many of the entries have files in the folder still, or go on to be served without. */
static size_t count_kept(const mp_certificate_folder *folder, const listing *now)
{
    size_t kept = 0;
    for (size_t i = 0, k = 0; i < folder->count;) {
        int order = compare_to(folder, i, now, k);
        kept += order == 0 || (order < 0 && !may_go(folder, folder->entries[i]));
        i += order <= 0;
        k += order >= 0;
    }
    return kept;
}

/* Brings the entries up to date with the folder. New ones beyond the limit are left out: none takes another's place. */
static void take_listing(mp_certificate_folder *folder, listing *now)
{
    entry **next = mp_new((folder->count + now->count + 1) * sizeof *next),
          **gone = mp_new((folder->count + 1) * sizeof *gone);
    size_t count = 0, gone_count = 0;
    for (size_t i = 0, k = 0, all = count_kept(folder, now); i < folder->count || k < now->count;) {
        int order = compare_to(folder, i, now, k);
        if (order > 0 && all++ >= PAIRS) {
            now->is_full = true;
            free(now->paths[k++]);
            continue;
        }
        entry *e = order > 0 ? new_entry(folder, now->paths[k]) : folder->entries[i];
        if (order >= 0 || !may_go(folder, e))
            next[count++] = e;
        else
            gone[gone_count++] = e;
        if (order == 0)
            free(now->paths[k]);
        i += order <= 0;
        k += order >= 0;
    }
    pthread_mutex_lock(folder->owner.lock);
    entry **old = folder->entries;
    folder->entries = next;
    folder->count = count;
    pthread_mutex_unlock(folder->owner.lock);
    for (size_t i = 0; i < gone_count; i++)
        drop_entry(folder, gone[i]);
    free(old);
    free(gone);
    free(now->paths);
}

/* -- rounds -------------------------------------------------------------------------------------------------------- */

static void warn(const mp_certificate_folder *folder, const char *why)
{
    mp_log(MP_WARN, "certificate", mp_log_str("address", mp_str_of(folder->owner.address)),
           mp_log_str("why", mp_str_of(why)));
}

/* -1 with errno: the folder cannot be read, or 0: it has no pair any more, as a mount point without its volume. */
static int begin(mp_certificate_folder *folder, bool is_asked)
{
    listing now;
    folder->is_asked = is_asked;
    folder->at = folder->refused = 0;
    folder->failed_at = 0;
    if (list_paths(folder->path, &now) != 0 || (now.count == 0 && folder->count > 0)) {
        for (size_t i = 0; i < now.count; i++)
            free(now.paths[i]);
        free(now.paths);
        return -1;
    }
    take_listing(folder, &now);
    if (now.is_full && !folder->was_full) {
        mp_scoped_buf why = {0};
        mp_buf_printf(&why, "%s has more than %zu certificates: the others are not served%c", folder->path, PAIRS, 0);
        warn(folder, why.ptr);
    }
    folder->was_full = now.is_full;
    folder->is_busy = true;
    return 0;
}

void mp_certificate_folder_begin(mp_certificate_folder *folder, bool is_asked)
{
    bool is_unread = begin(folder, is_asked) != 0;
    if (is_unread && !folder->is_unread) {
        mp_scoped_buf why = {0};
        mp_buf_printf(
            &why, "%s %s%s: its certificates stay in use%c", folder->path,
            errno == 0 ? "has no certificate any more" : "cannot be read: ", errno == 0 ? "" : strerror(errno), 0);
        warn(folder, why.ptr);
    }
    folder->is_unread = is_unread;
}

void mp_certificate_folder_watch(const mp_certificate_folder *folder, int fd, uint32_t events)
{
    inotify_add_watch(fd, folder->path, events | IN_ONLYDIR);
    size_t watched = 0;
    for (size_t i = 0; i < folder->count && watched < WATCHED; i++) {
        mp_scoped_buf path = {0};
        if (!folder->entries[i]->is_folder)
            continue;
        mp_buf_printf(&path, "%s/%s%c", folder->path, folder->entries[i]->name, 0);
        inotify_add_watch(fd, path.ptr, events | IN_ONLYDIR);
        watched++;
    }
}

bool mp_certificate_folder_is_busy(const mp_certificate_folder *folder)
{
    return folder->is_busy;
}

uint64_t mp_certificate_folder_failed_at(const mp_certificate_folder *folder)
{
    return folder->failed_at;
}

static bool is_absent(const mp_file_signature *file)
{
    return file->inode == 0 && file->size == 0;
}

/* A subfolder that has neither file is none of ours, or no more. */
static bool is_no_pair(const entry *e, const mp_file_signature now[3])
{
    return e->is_folder && is_absent(&now[MP_TLS_CERTIFICATE]) && is_absent(&now[MP_TLS_KEY]);
}

static void serve(mp_certificate_folder *folder, entry *e, mp_tls_pair *MP_NULLABLE pair)
{
    pthread_mutex_lock(folder->owner.lock);
    mp_tls_pair *old = e->served;
    e->served = pair;
    if (pair == NULL)
        e->files.expires = 0;
    pthread_mutex_unlock(folder->owner.lock);
    mp_tls_pair_unref(old);
    e->is_new = pair != NULL;
    folder->is_changed = true;
}

static void forget(mp_certificate_folder *folder, entry *e)
{
    MP_LOCKED(folder->owner.lock);
    e->files.is_ok = true;
    e->files.failed_at = 0;
    e->files.refused_at = 0;
    memset(e->files.tried, 0, sizeof e->files.tried);
}

static mp_tls_pair *MP_NULLABLE load(entry *e, const mp_file_signature now[3], mp_tls_findings *findings)
{
    const mp_tls_files files = {MP_NEVER_NULL(e->files.paths[MP_TLS_CERTIFICATE]),
                                MP_NEVER_NULL(e->files.paths[MP_TLS_KEY]), NULL, false, NULL};
    memcpy(e->files.tried, now, sizeof e->files.tried);
    if (!e->is_double)
        return mp_tls_pair_load(&files, findings);
    findings->count = 1;
    findings->all[0].file = MP_TLS_CERTIFICATE;
    findings->all[0].is_warning = false;
    findings->all[0].err = (mp_err){"", ""};
    mp_err_set(&findings->all[0].err, "%s is not served: %s.pem beside its folder has the same NAME", files.certificate,
               e->name);
    return NULL;
}

static int compare_with(const void *path, const void *at)
{
    return strcmp(path, MP_NEVER_NULL((*(entry *const *)at)->files.paths[MP_TLS_CERTIFICATE]));
}

/* Of NAME/fullchain.pem the pair NAME.pem, which comes before it in each round, if it is served. */
static entry *MP_NULLABLE twin_of(const mp_certificate_folder *folder, entry *e)
{
    mp_scoped_buf path = {0};
    if (!e->is_folder)
        return NULL;
    mp_buf_printf(&path, "%s/%s.pem%c", folder->path, e->name, 0);
    entry **found = bsearch(path.ptr, folder->entries, folder->count, sizeof *folder->entries, compare_with);
    entry *twin = found != NULL && (*found)->served != NULL ? *found : NULL;
    bool is_double = twin != NULL && !is_absent(&twin->files.tried[MP_TLS_CERTIFICATE]);
    if (is_double != e->is_double)
        memset(e->files.tried, 0, sizeof e->files.tried);
    e->is_double = is_double;
    return twin;
}

static void look_at_changes(mp_certificate_folder *folder, entry *e)
{
    mp_file_signature now[3];
    mp_tls_findings findings;
    entry *twin = twin_of(folder, e);
    mp_certificate_files_sign(&e->files, now);
    mp_certificate_need need = mp_certificate_files_need(&e->files, now, folder->is_asked);
    if (is_no_pair(e, now) && may_go(folder, e)) {
        forget(folder, e);
        if (e->served != NULL) {
            note_removal(folder, e);
            serve(folder, e, NULL);
        }
        return;
    }
    if (!need.is_needed)
        return;
    if (e->is_double && e->served != NULL)
        serve(folder, e, NULL);
    need.was_served = e->served != NULL;
    mp_tls_pair *pair = load(e, now, &findings);
    if (pair != NULL && twin != NULL) /* that of `default`, whose files are gone */
        serve(folder, twin, NULL);
    if (pair != NULL)
        serve(folder, e, pair);
    else if (need.logs_failure)
        need.is_quiet = ++folder->refused > REPORTED;
    mp_certificate_files_settle(&e->files, &folder->owner, need, pair != NULL,
                                pair == NULL ? 0 : mp_tls_pair_expires(pair), &findings);
}

static void look_at(mp_certificate_folder *folder, entry *e)
{
    look_at_changes(folder, e);
    if (e->files.failed_at != 0 && (folder->failed_at == 0 || e->files.failed_at < folder->failed_at))
        folder->failed_at = e->files.failed_at;
}

static mp_tls_pair *MP_NULLABLE other_of(const mp_certificate_folder *folder)
{
    for (size_t i = 0; i < folder->count && !folder->refuses_others; i++)
        if (folder->entries[i]->served != NULL && (folder->first == NULL || is_first(folder, folder->entries[i])))
            return folder->entries[i]->served;
    return NULL;
}

/* Reports the first name of the pair that another one serves. */
static void compare_names(const mp_certificate_folder *folder, const entry *e, mp_buf *why)
{
    for (char *const *name = mp_tls_pair_names(MP_NEVER_NULL(e->served)); *name != NULL; name++) {
        const mp_tls_pair *serves = mp_tls_names_find(folder->names, mp_str_of(*name));
        for (size_t i = 0; serves != e->served && i < folder->count; i++)
            if (folder->entries[i]->served == serves) {
                mp_buf_printf(why, "%s is not served for %s: %s is, which has that name, too%c",
                              e->files.paths[MP_TLS_CERTIFICATE], *name,
                              folder->entries[i]->files.paths[MP_TLS_CERTIFICATE], 0);
                return;
            }
    }
}

static void make_names(mp_certificate_folder *folder)
{
    mp_tls_pair **pairs = mp_new((folder->count + 1) * sizeof(mp_tls_pair *));
    size_t count = 0;
    for (size_t i = 0; i < folder->count; i++) {
        mp_tls_pair *pair = folder->entries[i]->served;
        if (pair != NULL)
            pairs[count++] = pair;
    }
    mp_tls_names *old = folder->names;
    folder->names = mp_tls_names_new(pairs, count, other_of(folder));
    mp_tls_names_unref(old);
    free(pairs);
}

static void end_round(mp_certificate_folder *folder)
{
    folder->is_busy = false;
    if (folder->refused > REPORTED) {
        mp_scoped_buf all = {0};
        mp_buf_printf(&all, "%zu certificates of %s are refused, of which %d are logged%c", folder->refused,
                      folder->path, REPORTED, 0);
        warn(folder, all.ptr);
    }
    if (!folder->is_changed)
        return;
    make_names(folder);
    for (size_t i = 0; i < folder->count; i++) {
        mp_scoped_buf why = {0};
        entry *e = folder->entries[i];
        if (e->is_new)
            compare_names(folder, e, &why);
        if (why.len > 0)
            warn(folder, why.ptr);
        e->is_new = false;
    }
}

bool mp_certificate_folder_step(mp_certificate_folder *folder)
{
    uint64_t until = mp_monotonic_us() + STEP_US;
    while (folder->at < folder->count && mp_monotonic_us() < until)
        look_at(folder, folder->entries[folder->at++]);
    if (folder->at < folder->count)
        return false;
    end_round(folder);
    bool is_changed = folder->is_changed;
    folder->is_changed = false;
    return is_changed;
}

mp_tls_names *mp_certificate_folder_names(const mp_certificate_folder *folder)
{
    return mp_tls_names_ref(folder->names);
}

/* -- the start ----------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_yaml yaml;
    mp_yaml_mark at;
    size_t shown;
} reporter;

static void report(reporter *to, bool is_warning, const mp_err *found)
{
    mp_err err = *found;
    if (is_warning)
        mp_err_set(&err, "warning: %s", found->text);
    mp_yaml_error(&to->yaml, to->at, &err);
}

/* Reads a pair at the start. */
static void read_first(mp_certificate_folder *folder, entry *e, reporter *to)
{
    mp_file_signature now[3];
    mp_tls_findings findings;
    mp_certificate_files_sign(&e->files, now);
    (void)twin_of(folder, e);
    e->files.is_ok = true;
    if (is_no_pair(e, now))
        return;
    mp_tls_pair *pair = load(e, now, &findings);
    e->files.made_at = mp_monotonic_ms();
    if (pair != NULL) {
        e->files.expires = mp_tls_pair_expires(pair);
        serve(folder, e, pair);
    } else
        mp_certificate_files_refuse(&e->files, &findings);
    for (size_t i = 0; i < findings.count && to->shown < REPORTED; i++, to->shown++)
        report(to, true, &findings.all[i].err);
}

static int read_all(mp_certificate_folder *folder, const mp_config *config, const mp_config_tls *tls,
                    mp_certificate_beat beat, mp_buf *out)
{
    mp_err err = {"", ""};
    reporter to = {{.text = mp_str_of(config->text), .name = config->name, .report = out}, tls->at_folder, 0};
    size_t served, refused;
    if (begin(folder, true) != 0) {
        int why = errno;
        mp_err_set(&err, "%s cannot be read: %s", folder->path, strerror(why));
        if (why == ENOENT || why == ENOTDIR)
            mp_err_hint(&err, "make the folder; relative paths start at the folder of the configuration file");
        else if (why == EACCES)
            mp_err_hint(&err, "the user that runs moonpool (%d) needs to list it", (int)geteuid());
    }
    for (size_t i = 0; i < folder->count; i++) {
        read_first(folder, folder->entries[i], &to);
        beat.call(beat.ctx);
    }
    mp_certificate_folder_count(folder, &served, &refused);
    if (refused > 0 && to.shown == REPORTED) {
        mp_err all = {"", ""};
        mp_err_set(&all, "%zu certificates of %s are not served", refused, folder->path);
        report(&to, true, &all);
    }
    folder->refuses_others = false;
    if (err.text[0] == '\0' && served == 0) {
        mp_err_set(&err, "%s has no certificate with its key", folder->path);
        mp_err_hint(&err, "as NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem");
    } else if (err.text[0] == '\0' && other_of(folder) == NULL)
        mp_err_set(&err, "%s has no certificate '%s' with its key, as 'default' wants", folder->path, folder->first);
    folder->refuses_others = tls->unknown == MP_UNKNOWN_REFUSED;
    if (err.text[0] != '\0') {
        report(&to, false, &err);
        return -1;
    }
    end_round(folder);
    return 0;
}

mp_certificate_folder *MP_NULLABLE mp_certificate_folder_new(const mp_config *config, const mp_config_tls *tls,
                                                             const mp_certificate_owner *owner,
                                                             mp_certificate_beat beat, mp_buf *report)
{
    mp_certificate_folder *folder = mp_new(sizeof *folder);
    folder->owner = *owner;
    folder->path = mp_dup(mp_str_of(tls->folder));
    folder->first = mp_dup_text(tls->first);
    folder->entries = mp_new(sizeof *folder->entries);
    folder->names = mp_tls_names_new(NULL, 0, NULL);
    if (read_all(folder, config, tls, beat, report) == 0) {
        folder->is_changed = false;
        return folder;
    }
    mp_certificate_folder_free(folder);
    return NULL;
}

void mp_certificate_folder_free(mp_certificate_folder *MP_NULLABLE folder)
{
    if (folder == NULL)
        return;
    for (size_t i = 0; i < folder->count; i++)
        free_entry(folder->entries[i]);
    mp_tls_names_unref(folder->names);
    free(folder->entries);
    free(folder->first);
    free(folder->path);
    free(folder);
}

/* -- what is shown ------------------------------------------------------------------------------------------------- */

static int compare_expiry(const void *a, const void *b)
{
    const entry *first = *(entry *const *)a, *second = *(entry *const *)b;
    int64_t one = first->files.expires, other = second->files.expires;
    return one < other ? -1 : one > other ? 1 : strcmp(first->name, second->name);
}

static bool is_among(const mp_certificate_shown *room, size_t count, const entry *e)
{
    for (size_t i = 0; i < count; i++)
        if (room[i].files == &e->files)
            return true;
    return false;
}

size_t mp_certificate_folder_show(const mp_certificate_folder *folder, bool with_refused,
                                  mp_certificate_shown room[MP_CERTIFICATE_SHOWN])
{
    entry **order = mp_new((folder->count + 1) * sizeof *order);
    size_t served = 0, count = 0, half = MP_CERTIFICATE_SHOWN / 2;
    for (size_t i = 0; i < folder->count; i++)
        if (folder->entries[i]->served != NULL)
            order[served++] = folder->entries[i];
    qsort(order, served, sizeof *order, compare_expiry);
    size_t cap = with_refused ? MP_CERTIFICATE_SHOWN - (served < half ? served : half) : 0;
    for (size_t i = 0; i < folder->count && count < cap; i++) {
        const entry *e = folder->entries[i];
        if (e->files.refused_at != 0)
            room[count++] = (mp_certificate_shown){e->name, &e->files, e->served};
    }
    for (size_t i = 0, refused = count; i < served && count < MP_CERTIFICATE_SHOWN; i++)
        if (!is_among(room, refused, order[i]))
            room[count++] = (mp_certificate_shown){order[i]->name, &order[i]->files, order[i]->served};
    free(order);
    return count;
}

void mp_certificate_folder_count(const mp_certificate_folder *folder, size_t *served, size_t *refused)
{
    *served = *refused = 0;
    for (size_t i = 0; i < folder->count; i++) {
        *served += folder->entries[i]->served != NULL;
        *refused += folder->entries[i]->files.refused_at != 0;
    }
}
