#include "inotify.h"
#include "data/data.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FOLDER_DEPTH 16
#define MAX_WATCHES 10000
#define MAX_LINKS 16       /* maximum length of a chain of symbolic links */
#define MAX_WRITTEN 64     /* files open for writing; further ones are not waited for */
#define WRITE_MS 2000      /* maximum time that a reload waits for the end of a write */
#define QUIET_MS 100       /* wait after the last change */
#define MAX_SETTLE_MS 1000 /* longest wait after the first change */
#define IN_FOLDER                                                                                                      \
    (IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |   \
     IN_MOVE_SELF)
#define OF_NAME (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)

/* A watched folder in which only one name matters, because it leads to a watched file or folder. */
typedef struct {
    int wd;
    char *name;
} step;

/* A file that was modified and is not closed yet by its writer. */
typedef struct {
    int wd;
    uint32_t name;  /* a hash of its name in the folder `wd`: the first close counts for all names of one hash */
    uint64_t since; /* time of the first write, in ms of the caller's clock */
} written;

struct mp_inotify {
    char *dir, *MP_NULLABLE rocks, *MP_NULLABLE file, *MP_NULLABLE lock; /* all but dir may be NULL */
    int fd;                                                              /* kept open as long as it works */
    int *wds, *before; /* the current watches and those before the last renewal; sorted once complete */
    int count, old_count;
    const char *at; /* `dir` or `file`, whichever could not be watched */
    int failed;     /* errno for the first folder that could not be watched */
    step steps[96];
    size_t step_count;
    written written[MAX_WRITTEN];
    size_t written_count;
    uint64_t first_at, last_at;          /* times of changes that no reload has begun to read; 0: none */
    uint64_t again_at;                   /* earliest time of the next read: the last one saw incomplete files */
    uint64_t read_for;                   /* first change covered by the current read; 0: another cause */
    bool has_empty_file, has_empty_lock; /* `file` and `lock` were empty when they were read last */
};

static bool is_empty(const char *MP_NULLABLE path)
{
    struct stat st;
    return path != NULL && stat(path, &st) == 0 && st.st_size == 0;
}

mp_inotify *mp_inotify_new(const char *dir, const char *MP_NULLABLE rocks, const char *MP_NULLABLE file,
                           const char *MP_NULLABLE lock)
{
    mp_inotify *watcher = mp_new(sizeof *watcher);
    watcher->dir = mp_dup(mp_str_of(dir));
    watcher->rocks = rocks == NULL ? NULL : mp_source_rocks_below(rocks);
    watcher->file = mp_dup_text(file);
    watcher->lock = mp_dup_text(lock);
    watcher->fd = -1;
    watcher->has_empty_file = is_empty(watcher->file);
    watcher->has_empty_lock = is_empty(watcher->lock);
    return watcher;
}

static void forget_steps(mp_inotify *watcher)
{
    for (size_t i = 0; i < watcher->step_count; i++)
        free(watcher->steps[i].name);
    watcher->step_count = 0;
}

static void stop_watching(mp_inotify *watcher)
{
    if (watcher->fd >= 0)
        close(watcher->fd);
    watcher->fd = -1;
    forget_steps(watcher);
    watcher->count = 0;
    watcher->written_count = 0;
}

void mp_inotify_free(mp_inotify *MP_NULLABLE watcher)
{
    if (watcher == NULL)
        return;
    stop_watching(watcher);
    free(watcher->wds);
    free(watcher->before);
    free(watcher->dir);
    free(watcher->rocks);
    free(watcher->file);
    free(watcher->lock);
    free(watcher);
}

static int add_watch(mp_inotify *watcher, const char *path, uint32_t mask)
{
    if (watcher->count == MAX_WATCHES) {
        watcher->failed = ENOSPC;
        return -1;
    }
    int wd = inotify_add_watch(watcher->fd, path, mask);
    if (wd >= 0 && watcher->count % 64 == 0)
        watcher->wds = mp_resize(watcher->wds, (size_t)(watcher->count + 64) * sizeof *watcher->wds);
    if (wd >= 0)
        watcher->wds[watcher->count++] = wd;
    else if (errno != ENOENT && errno != ENOTDIR && watcher->failed == 0)
        watcher->failed = errno;
    return wd;
}

/* The target of a symbolic link to a file is watched, too. */
static void watch_below(mp_inotify *watcher, const char *path, int depth)
{
    if (depth > MAX_FOLDER_DEPTH || add_watch(watcher, path, IN_FOLDER | IN_ONLYDIR) < 0)
        return;
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char inner[PATH_MAX];
        struct stat st;
        int length = snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (length >= (int)sizeof inner || stat(inner, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && entry->d_name[0] != '.')
            watch_below(watcher, inner, depth + 1);
        else if (S_ISREG(st.st_mode) && entry->d_type == DT_LNK)
            add_watch(watcher, inner, IN_FOLDER);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Each component of the path may be a symbolic link that is replaced, or may not exist yet. */
static void watch_names(mp_inotify *watcher, const char *path)
{
    char way[PATH_MAX];
    if (snprintf(way, sizeof way, "%s", path) >= (int)sizeof way)
        return;
    for (size_t left = strlen(way); left > 0 && watcher->step_count < sizeof watcher->steps / sizeof *watcher->steps;) {
        while (left > 1 && way[left - 1] == '/')
            way[--left] = '\0';
        char *slash = strrchr(way, '/');
        const char *name = slash == NULL ? way : slash + 1;
        if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return;
        char *kept = mp_dup(mp_str_of(name));
        if (slash == NULL)
            strcpy(way, ".");
        else if (slash == way)
            way[1] = '\0';
        else
            *slash = '\0';
        int wd = add_watch(watcher, way, OF_NAME | IN_MASK_ADD);
        if (wd < 0)
            free(kept);
        else
            watcher->steps[watcher->step_count++] = (step){wd, kept};
        if (slash == NULL || slash == way)
            return;
        left = strlen(way);
    }
}

/* Watches each component of `path`, and of the targets of its links: Kubernetes config maps replace the second of two
 * links. */
static void watch_way(mp_inotify *watcher, const char *path)
{
    char at[PATH_MAX], target[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return;
    for (int links = 0; links <= MAX_LINKS; links++) {
        watch_names(watcher, at);
        ssize_t length = readlink(at, target, sizeof target - 1);
        if (length <= 0)
            return;
        target[length] = '\0';
        char *slash = target[0] == '/' ? NULL : strrchr(at, '/');
        size_t kept = slash == NULL ? 0 : (size_t)(slash + 1 - at);
        if (kept + (size_t)length >= sizeof at)
            return;
        memcpy(at + kept, target, (size_t)length + 1);
    }
}

static int compare_watches(const void *a, const void *b)
{
    int one = *(const int *)a, other = *(const int *)b;
    return one < other ? -1 : one > other;
}

/* Removes the watches of folders that are no longer on the paths. */
static void drop_olds(mp_inotify *watcher)
{
    if (watcher->count > 0)
        qsort(watcher->wds, (size_t)watcher->count, sizeof(int), compare_watches);
    for (int i = 0; i < watcher->old_count; i++)
        if (watcher->count == 0 ||
            bsearch(&watcher->before[i], watcher->wds, (size_t)watcher->count, sizeof(int), compare_watches) == NULL)
            inotify_rm_watch(watcher->fd, watcher->before[i]); /* fails for folders that are gone and for duplicates */
}

static void watch_file(mp_inotify *watcher, char *MP_NULLABLE file)
{
    if (file == NULL || watcher->failed != 0)
        return;
    watcher->at = file;
    add_watch(watcher, file, IN_FOLDER | IN_MASK_ADD);
    watch_way(watcher, file);
}

static void watch_all(mp_inotify *watcher)
{
    watcher->at = watcher->dir;
    watch_below(watcher, watcher->dir, 0);
    watch_way(watcher, watcher->dir);
    char *rocks = watcher->rocks;
    if (rocks != NULL && watcher->failed == 0) {
        watcher->at = rocks;
        watch_below(watcher, rocks, 0);
        watch_way(watcher, rocks);
    }
    watch_file(watcher, watcher->file);
    watch_file(watcher, watcher->lock);
}

int mp_inotify_renew(mp_inotify *watcher, mp_err *err)
{
    int *spare = watcher->before;
    watcher->before = watcher->wds;
    watcher->old_count = watcher->count;
    watcher->wds = spare;
    watcher->count = 0;
    watcher->failed = 0;
    watcher->at = watcher->dir;
    forget_steps(watcher);
    if (watcher->fd < 0)
        watcher->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watcher->fd < 0)
        watcher->failed = errno;
    else
        watch_all(watcher);
    if (watcher->failed == 0) {
        drop_olds(watcher);
        return 0;
    }
    mp_err_set(err, "cannot watch %s for changes: %s", watcher->at, strerror(watcher->failed));
    mp_err_hint(
        err, "raise fs.inotify.max_user_watches and max_user_instances; the files are polled every second meanwhile");
    stop_watching(watcher);
    return -1;
}

int mp_inotify_fd(const mp_inotify *watcher)
{
    return watcher->fd;
}

/* A parent folder of the scripts is watched only for the name that leads to them, unless it has scripts, too. */
static bool matters(const mp_inotify *watcher, const struct inotify_event *event)
{
    bool is_way = false;
    for (size_t i = 0; i < watcher->step_count; i++)
        if (watcher->steps[i].wd == event->wd) {
            if (event->len == 0 || strcmp(event->name, watcher->steps[i].name) == 0)
                return true;
            is_way = true;
        }
    return !is_way;
}

/* -- files that are being written ------------------------------------------------------------------------------- */

static void forget_written(mp_inotify *watcher, size_t i)
{
    watcher->written[i] = watcher->written[--watcher->written_count];
}

/* Logs and swap files of editors stay open for long: only scripts count, and files that are watched themselves (without
 * a name). */
static bool is_read(const struct inotify_event *event)
{
    if (event->len == 0)
        return true;
    size_t length = strlen(event->name);
    return event->name[0] != '.' && length > 4 && strcmp(event->name + length - 4, ".lua") == 0;
}

static uint32_t hash_of(const struct inotify_event *event)
{
    uint32_t hash = 2166136261u; /* the hash function is FNV-1a */
    for (size_t i = 0; i < event->len && event->name[i] != '\0'; i++)
        hash = (hash ^ (unsigned char)event->name[i]) * 16777619u;
    return hash;
}

static void note_write(mp_inotify *watcher, const struct inotify_event *event, uint64_t now)
{
    if (event->mask & IN_Q_OVERFLOW)
        watcher->written_count = 0; /* the close may be among the lost events */
    if ((event->mask & (IN_Q_OVERFLOW | IN_ISDIR)) || !is_read(event))
        return;
    uint32_t name = hash_of(event);
    size_t i = 0;
    while (i < watcher->written_count && (watcher->written[i].wd != event->wd || watcher->written[i].name != name))
        i++;
    bool is_known = i < watcher->written_count;
    if (event->mask & IN_MODIFY) {
        if (!is_known && i < MAX_WRITTEN)
            watcher->written[watcher->written_count++] = (written){event->wd, name, now};
    } else if (is_known && !(event->mask & IN_ATTRIB)) {
        forget_written(watcher, i); /* the file was closed, renamed, removed, or replaced */
    }
}

/* -- when to read --------------------------------------------------------------------------------------------- */

void mp_inotify_take(mp_inotify *watcher, uint64_t now)
{
    _Alignas(struct inotify_event) char news[16 * 1024];
    bool any = false;
    for (ssize_t got; watcher->fd >= 0 && (got = read(watcher->fd, news, sizeof news)) > 0;)
        for (const char *at = news; at < news + got;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            any = any || (event->mask & IN_Q_OVERFLOW) || (!(event->mask & IN_IGNORED) && matters(watcher, event));
            note_write(watcher, event, now);
            at += sizeof *event + event->len;
        }
    for (size_t i = watcher->written_count; i-- > 0;)
        if (watcher->written[i].since + WRITE_MS <= now)
            forget_written(watcher, i);
    if (!any)
        return;
    if (watcher->first_at == 0)
        watcher->first_at = now;
    watcher->last_at = now;
}

uint64_t mp_inotify_due(const mp_inotify *MP_NULLABLE watcher)
{
    if (watcher == NULL || watcher->first_at == 0)
        return 0;
    uint64_t quiet = watcher->last_at + QUIET_MS, patience = watcher->first_at + MAX_SETTLE_MS;
    uint64_t due = quiet < patience ? quiet : patience, most = due + WRITE_MS;
    for (size_t i = 0; i < watcher->written_count; i++)
        if (watcher->written[i].since + WRITE_MS > due)
            due = watcher->written[i].since + WRITE_MS;
    due = due < most ? due : most;
    return due > watcher->again_at ? due : watcher->again_at;
}

void mp_inotify_begin(mp_inotify *MP_NULLABLE watcher)
{
    if (watcher == NULL)
        return;
    watcher->read_for = watcher->first_at;
    watcher->first_at = 0;
}

bool mp_inotify_is_torn(mp_inotify *MP_NULLABLE watcher, bool is_emptied, uint64_t now)
{
    if (watcher == NULL || watcher->read_for == 0)
        return false;
    mp_inotify_take(watcher, now);
    bool has_empty_file = is_empty(watcher->file), has_empty_lock = is_empty(watcher->lock);
    is_emptied =
        is_emptied || (has_empty_file && !watcher->has_empty_file) || (has_empty_lock && !watcher->has_empty_lock);
    if ((watcher->first_at == 0 && !is_emptied) || now >= watcher->read_for + MAX_SETTLE_MS + WRITE_MS) {
        watcher->has_empty_file = has_empty_file;
        watcher->has_empty_lock = has_empty_lock;
        return false;
    }
    watcher->first_at = watcher->read_for;
    watcher->last_at = now;
    watcher->again_at = now + QUIET_MS;
    return true;
}
