#include "watcher.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_DEPTH 16
#define MOST_WATCHES 10000
#define MOST_LINKS 16 /* that lead to another */
#define IN_FOLDER                                                                                                      \
    (IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF |   \
     IN_MOVE_SELF)
#define OF_NAME (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)

/* A folder in which one name matters: it leads to what is watched. */
typedef struct {
    int wd;
    char *name;
} step;

struct mp_watcher {
    char *dir, *file;
    int fd;          /* stays while it works: the system takes its time to close one */
    int *wds, *olds; /* watched now, and before the last renewal; sorted once all are there */
    int count, old_count;
    const char *at; /* `dir` or `file`, whichever could not be watched */
    int failed;     /* errno of the first folder that could not be watched */
    step steps[96];
    size_t step_count;
};

mp_watcher *mp_watcher_new(const char *dir, const char *file)
{
    mp_watcher *watcher = mp_new(sizeof *watcher);
    watcher->dir = mp_dup(mp_str_of(dir));
    watcher->file = file == NULL ? NULL : mp_dup(mp_str_of(file));
    watcher->fd = -1;
    return watcher;
}

static void forget_steps(mp_watcher *watcher)
{
    for (size_t i = 0; i < watcher->step_count; i++)
        free(watcher->steps[i].name);
    watcher->step_count = 0;
}

static void stop(mp_watcher *watcher)
{
    if (watcher->fd >= 0)
        close(watcher->fd);
    watcher->fd = -1;
    forget_steps(watcher);
    watcher->count = 0;
}

void mp_watcher_free(mp_watcher *watcher)
{
    if (watcher == NULL)
        return;
    stop(watcher);
    free(watcher->wds);
    free(watcher->olds);
    free(watcher->dir);
    free(watcher->file);
    free(watcher);
}

static int add(mp_watcher *watcher, const char *path, uint32_t mask)
{
    if (watcher->count == MOST_WATCHES) {
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

/* A link to a file is watched at its other end too. */
static void watch_below(mp_watcher *watcher, const char *path, int depth)
{
    if (depth > MOST_DEPTH || add(watcher, path, IN_FOLDER | IN_ONLYDIR) < 0)
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
            add(watcher, inner, IN_FOLDER);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Every name on the way may be a link that is put in place anew, or not be there yet. */
static void watch_names(mp_watcher *watcher, const char *path)
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
        int wd = add(watcher, way, OF_NAME | IN_MASK_ADD);
        if (wd < 0)
            free(kept);
        else
            watcher->steps[watcher->step_count++] = (step){wd, kept};
        if (slash == NULL || slash == way)
            return;
        left = strlen(way);
    }
}

/* And so may every name on the way to where such a link leads: config maps put the second of two in place anew. */
static void watch_way(mp_watcher *watcher, const char *path)
{
    char at[PATH_MAX], target[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return;
    for (int links = 0; links <= MOST_LINKS; links++) {
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

static int compare(const void *a, const void *b)
{
    int one = *(const int *)a, other = *(const int *)b;
    return one < other ? -1 : one > other;
}

/* What was watched before, and is no more where it was. */
static void drop_olds(mp_watcher *watcher)
{
    if (watcher->count > 0)
        qsort(watcher->wds, (size_t)watcher->count, sizeof(int), compare);
    for (int i = 0; i < watcher->old_count; i++)
        if (watcher->count == 0 ||
            bsearch(&watcher->olds[i], watcher->wds, (size_t)watcher->count, sizeof(int), compare) == NULL)
            inotify_rm_watch(watcher->fd, watcher->olds[i]); /* fails for what is gone, and for one that came twice */
}

static void watch_all(mp_watcher *watcher)
{
    watcher->at = watcher->dir;
    watch_below(watcher, watcher->dir, 0);
    watch_way(watcher, watcher->dir);
    if (watcher->file == NULL || watcher->failed != 0)
        return;
    watcher->at = watcher->file;
    add(watcher, watcher->file, IN_FOLDER | IN_MASK_ADD);
    watch_way(watcher, watcher->file);
}

int mp_watcher_renew(mp_watcher *watcher, mp_err *err)
{
    int *spare = watcher->olds;
    watcher->olds = watcher->wds;
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
    mp_err_set(err, "%s cannot be watched for changes: %s", watcher->at, strerror(watcher->failed));
    mp_err_hint(
        err, "fs.inotify.max_user_watches and max_user_instances may be too small; until then it is read every second");
    stop(watcher);
    return -1;
}

int mp_watcher_fd(const mp_watcher *watcher)
{
    return watcher->fd;
}

/* In a folder on the way only one name matters; the same folder may be among the scripts', and then all do. */
static bool matters(const mp_watcher *watcher, const struct inotify_event *event)
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

bool mp_watcher_take(mp_watcher *watcher)
{
    _Alignas(struct inotify_event) char news[16 * 1024];
    bool any = false;
    for (ssize_t got; watcher->fd >= 0 && (got = read(watcher->fd, news, sizeof news)) > 0;)
        for (const char *at = news; at < news + got;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            any = any || (event->mask & IN_Q_OVERFLOW) || (!(event->mask & IN_IGNORED) && matters(watcher, event));
            at += sizeof *event + event->len;
        }
    return any;
}
