/* source.c: reads the script files of a folder. The result never changes, and all workers share it. */
#include "data/source.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 10000
#define MAX_FILE_BYTES ((size_t)1 << 20)
#define MAX_TOTAL_BYTES ((size_t)64 << 20)
#define MAX_FOLDER_DEPTH 16

#define ROCKS "share/lua/5.4" /* folder of the Lua sources in a LuaRocks tree */
#define C_MODULES "lib/lua/5.4"

/* One folder with all the Lua files below it, sorted by path once they are read. */
typedef struct {
    const char *key,
        *absence; /* key of the configuration that names the folder; hint for a folder that cannot be read */
    char *dir;    /* empty: none is configured */
    mp_source_file *files;
    size_t count, cap, bytes;
} tree;

struct mp_source {
    atomic_int refs;
    atomic_bool was_loaded;
    tree scripts, rocks; /* rocks: a LuaRocks tree */
    char *MP_NULLABLE c_modules;
    mp_buf left_out; /* see mp_source_left_out */
};

/* A folder that is being read; `up` is the parent folder. */
typedef struct folder {
    const struct folder *up;
    dev_t dev;
    ino_t ino;
    int depth;
} folder;

static int read_folder(tree *source, mp_str path, const folder *MP_NULLABLE up, mp_err *err);

bool mp_source_is_first_load(mp_source *source)
{
    return !atomic_exchange(&source->was_loaded, true);
}

static int fail_errno(mp_err *err, const char *dir, mp_str path, const char *hint)
{
    mp_err_set(err, "%s%s%.*s: %s", dir, path.len == 0 ? "" : "/", MP_STR_ARG(path), strerror(errno));
    return mp_err_hint(err, "%s", hint);
}

static bool is_skipped(mp_str name)
{
    return name.ptr[0] == '.' || name.ptr[name.len - 1] == '~';
}

static bool is_lua(mp_str name)
{
    return name.len > 4 && memcmp(name.ptr + name.len - 4, ".lua", 4) == 0;
}

/* Reads all of `fd`, at most one byte over the limit. Returns -1 and errno on an error. */
static int read_all(int fd, mp_buf *text)
{
    while (text->len <= MAX_FILE_BYTES) {
        size_t more = MAX_FILE_BYTES + 1 - text->len;
        if (more > 64 * 1024)
            more = 64 * 1024;
        ssize_t got = read(fd, mp_buf_room(text, more), more);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return 0;
        text->len += (size_t)got;
    }
    return 0;
}

static int keep_file(tree *source, mp_str path, mp_str text, mp_err *MP_NULLABLE err)
{
    if (text.len > MAX_FILE_BYTES) {
        mp_err_set(err, "%s/%.*s: larger than 1 MiB", source->dir, MP_STR_ARG(path));
        return mp_err_hint(err, "split it, or move data out of it");
    }
    if (source->count == MAX_FILES) {
        mp_err_set(err, "%s: more than %d Lua files", source->dir, MAX_FILES);
        return mp_err_hint(err, "is this the right folder? %s in moonpool.yaml names it", source->key);
    }
    source->bytes += text.len;
    if (source->bytes > MAX_TOTAL_BYTES) {
        mp_err_set(err, "%s: more than 64 MiB of Lua files", source->dir);
        return mp_err_hint(err, "is this the right folder? %s in moonpool.yaml names it", source->key);
    }
    if (source->count == source->cap) {
        source->cap = source->cap == 0 ? 32 : source->cap * 2;
        source->files = mp_resize(source->files, source->cap * sizeof *source->files);
    }
    source->files[source->count++] = (mp_source_file){mp_dup(path), mp_dup(text), text.len};
    return 0;
}

static int read_file(tree *source, const char *full, mp_str path, mp_err *err)
{
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a named pipe must not block */
    if (fd < 0)
        return fail_errno(err, source->dir, path, "let the user that runs moonpool read it, or remove it");
    struct stat st;
    mp_scoped_buf text = {0};
    int result;
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        mp_err_set(err, "%s/%.*s: not a regular file", source->dir, MP_STR_ARG(path));
        result = mp_err_hint(err, "remove it, or give it another name than *.lua");
    } else if (read_all(fd, &text) != 0) {
        result = fail_errno(err, source->dir, path, "remove it, or repair it");
    } else {
        result = keep_file(source, path, mp_buf_str(&text), err);
    }
    close(fd);
    return result;
}

/* Reads one entry of a folder. `path` is relative to the scripts' folder. Symbolic links are followed. */
static int read_entry(tree *source, mp_str name, mp_str path, const folder *in, mp_err *err)
{
    mp_scoped_buf full = {0};
    mp_buf_printf(&full, "%s/%.*s%c", source->dir, MP_STR_ARG(path), '\0');
    struct stat st;
    int result = 0;
    if (stat(full.ptr, &st) != 0) {
        if (is_lua(name))
            result =
                fail_errno(err, source->dir, path, "is it a symbolic link that leads nowhere? remove it, or repair it");
    } else if (S_ISDIR(st.st_mode)) {
        result = read_folder(source, path, in, err);
    } else if (is_lua(name)) {
        result = read_file(source, full.ptr, path, err);
    }
    return result;
}

static int check_place(tree *source, const char *full, mp_str path, const folder *here, mp_err *err)
{
    for (const folder *up = here->up; up != NULL; up = up->up)
        if (up->dev == here->dev && up->ino == here->ino) {
            mp_err_set(err, "%s: a symbolic link that leads back to a folder around it", full);
            return mp_err_hint(err, "remove the link");
        }
    if (here->depth > MAX_FOLDER_DEPTH) {
        mp_err_set(err, "%s/%.*s: more than %d folders deep", source->dir, MP_STR_ARG(path), MAX_FOLDER_DEPTH);
        return mp_err_hint(err, "move it further up");
    }
    return 0;
}

static int read_names(tree *source, DIR *dir, mp_str path, const folder *here, mp_err *err)
{
    int result = 0;
    const struct dirent *entry;
    while (result == 0 && (entry = readdir(dir)) != NULL) {
        mp_str name = mp_str_of(entry->d_name);
        if (is_skipped(name))
            continue;
        mp_scoped_buf inner = {0};
        if (path.len > 0)
            mp_buf_printf(&inner, "%.*s/", MP_STR_ARG(path));
        mp_buf_put(&inner, name);
        result = read_entry(source, name, mp_buf_str(&inner), here, err);
    }
    return result;
}

static int read_folder(tree *source, mp_str path, const folder *MP_NULLABLE up, mp_err *err)
{
    mp_scoped_buf full = {0};
    mp_buf_printf(&full, "%s%s%.*s%c", source->dir, path.len == 0 ? "" : "/", MP_STR_ARG(path), '\0');
    struct stat st;
    int result;
    DIR *dir = opendir(full.ptr);
    if (dir == NULL || fstat(dirfd(dir), &st) != 0) {
        result = fail_errno(err, source->dir, path,
                            up == NULL ? source->absence : "let the user that runs moonpool read it, or remove it");
    } else {
        folder here = {up, st.st_dev, st.st_ino, up == NULL ? 0 : up->depth + 1};
        result = check_place(source, full.ptr, path, &here, err);
        if (result == 0)
            result = read_names(source, dir, path, &here, err);
    }
    if (dir != NULL)
        closedir(dir);
    return result;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const mp_source_file *)a)->path, ((const mp_source_file *)b)->path);
}

static void sort_files(tree *source)
{
    if (source->count > 0)
        qsort(source->files, source->count, sizeof *source->files, by_path);
}

static int read_tree(tree *source, mp_err *err)
{
    if (read_folder(source, MP_STR_NONE, NULL, err) != 0)
        return -1;
    sort_files(source);
    return 0;
}

static void clear_tree(tree *source)
{
    for (size_t i = 0; i < source->count; i++) {
        free(source->files[i].path);
        free(source->files[i].text);
    }
    free(source->files);
    free(source->dir);
}

static mp_str without_slash(const char *dir)
{
    mp_str name = mp_str_of(dir);
    while (name.len > 1 && name.ptr[name.len - 1] == '/')
        name.len--;
    return name;
}

/* Joins `dir` and `below` with a '/'. The caller frees the path. */
static char *join_paths(mp_str dir, const char *below)
{
    mp_scoped_buf path = {0};
    mp_buf_printf(&path, "%.*s%s%s", MP_STR_ARG(dir), mp_str_eq(dir, MP_STR("/")) ? "" : "/", below);
    return mp_dup(mp_buf_str(&path));
}

mp_source *mp_source_new(const char *dir, const char *MP_NULLABLE rocks)
{
    mp_source *source = mp_new(sizeof *source);
    atomic_init(&source->refs, 1);
    source->scripts.key = "scripts.path";
    source->scripts.absence =
        "scripts.path in moonpool.yaml names the folder of the scripts; moonpool new writes a first one";
    source->rocks.key = "scripts.rocks";
    source->rocks.absence = "scripts.rocks in moonpool.yaml names a LuaRocks tree, which "
                            "luarocks install --lua-version 5.4 --tree DIR NAME makes";
    source->scripts.dir = mp_dup(without_slash(dir));
    if (rocks != NULL) {
        source->rocks.dir = join_paths(without_slash(rocks), ROCKS);
        source->c_modules = join_paths(without_slash(rocks), C_MODULES);
    } else {
        source->rocks.dir = mp_dup(MP_STR_NONE);
    }
    return source;
}

mp_source *MP_NULLABLE mp_source_read(const char *dir, const char *MP_NULLABLE rocks, mp_err *err)
{
    mp_source *source = mp_source_new(dir, rocks);
    if (read_tree(&source->scripts, err) != 0 || (rocks != NULL && read_tree(&source->rocks, err) != 0)) {
        mp_source_unref(source);
        return NULL;
    }
    return source;
}

int mp_source_add(mp_source *source, bool is_rock, mp_str path, mp_str text, mp_err *err)
{
    return keep_file(is_rock ? &source->rocks : &source->scripts, path, text, err);
}

void mp_source_sort(mp_source *source)
{
    sort_files(&source->scripts);
    sort_files(&source->rocks);
}

/* True if `paths`, each followed by a NUL, has the path. */
static bool is_among(mp_str paths, const char *path)
{
    while (paths.len > 0)
        if (mp_str_is(mp_str_cut(&paths, '\0'), path))
            return true;
    return false;
}

static void copy_files(tree *to, const tree *from, mp_str without)
{
    for (size_t i = 0; i < from->count; i++) {
        const mp_source_file *file = &from->files[i];
        if (!is_among(without, file->path))
            keep_file(to, mp_str_of(file->path), (mp_str){file->text, file->len},
                      NULL); /* fits, since all of `from` does */
    }
}

mp_source *mp_source_without(const mp_source *source, mp_str paths)
{
    mp_source *copy = mp_new(sizeof *copy);
    atomic_init(&copy->refs, 1);
    copy->scripts.dir = mp_dup(mp_str_of(source->scripts.dir));
    copy->rocks.dir = mp_dup(mp_str_of(source->rocks.dir));
    copy->c_modules = mp_dup_text(source->c_modules);
    copy_files(&copy->scripts, &source->scripts, paths);
    copy_files(&copy->rocks, &source->rocks, MP_STR_NONE);
    mp_buf_put(&copy->left_out, paths);
    return copy;
}

mp_str mp_source_left_out(const mp_source *source)
{
    return mp_buf_str(&source->left_out);
}

char *mp_source_rocks_below(const char *rocks)
{
    return join_paths(without_slash(rocks), ROCKS);
}

mp_source *mp_source_ref(mp_source *source)
{
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

void mp_source_unref(mp_source *MP_NULLABLE source)
{
    if (source == NULL || atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) != 1)
        return;
    clear_tree(&source->scripts);
    clear_tree(&source->rocks);
    free(source->c_modules);
    mp_buf_clear(&source->left_out);
    free(source);
}

/* Appends the paths that differ, each after `prefix`. */
static bool is_same_tree(const tree *one, const tree *other, const char *prefix, mp_buf *paths)
{
    bool same = true;
    for (size_t i = 0, k = 0; i < one->count || k < other->count;) {
        int order = i == one->count ? 1 : k == other->count ? -1 : strcmp(one->files[i].path, other->files[k].path);
        const mp_source_file *left = order <= 0 ? &one->files[i++] : NULL,
                             *right = order >= 0 ? &other->files[k++] : NULL;
        if (left != NULL && right != NULL && left->len == right->len && memcmp(left->text, right->text, left->len) == 0)
            continue;
        same = false;
        mp_buf_printf(paths, "%s%s\n", prefix, left != NULL ? left->path : right->path);
    }
    return same;
}

bool mp_source_is_same(const mp_source *one, const mp_source *other, mp_buf *paths)
{
    bool same = is_same_tree(&one->scripts, &other->scripts, "", paths) &&
                mp_str_eq(mp_buf_str(&one->left_out), mp_buf_str(&other->left_out));
    return is_same_tree(&one->rocks, &other->rocks, "rock ", paths) && same;
}

static bool is_emptied_tree(const tree *before, const tree *now)
{
    for (size_t i = 0, k = 0; i < now->count; i++) {
        if (now->files[i].len > 0)
            continue;
        while (k < before->count && strcmp(before->files[k].path, now->files[i].path) < 0)
            k++;
        if (k == before->count || strcmp(before->files[k].path, now->files[i].path) != 0 || before->files[k].len > 0)
            return true;
    }
    return false;
}

bool mp_source_is_emptied(const mp_source *before, const mp_source *now)
{
    return is_emptied_tree(&before->scripts, &now->scripts) || is_emptied_tree(&before->rocks, &now->rocks);
}

const mp_source_file *mp_source_files(const mp_source *source, size_t *count)
{
    *count = source->scripts.count;
    return source->scripts.files;
}

const mp_source_file *mp_source_rock_files(const mp_source *source, size_t *count)
{
    *count = source->rocks.count;
    return source->rocks.files;
}

const char *mp_source_dir(const mp_source *source)
{
    return source->scripts.dir;
}

const char *MP_NULLABLE mp_source_rocks(const mp_source *source)
{
    return source->rocks.dir[0] == '\0' ? NULL : source->rocks.dir;
}

const char *MP_NULLABLE mp_source_c_modules(const mp_source *source)
{
    return source->c_modules;
}

const mp_source_file *MP_NULLABLE mp_source_rock(const mp_source *source, const char *path)
{
    const mp_source_file wanted = {.path = (char *)(uintptr_t)path};
    if (source->rocks.count == 0)
        return NULL;
    return bsearch(&wanted, source->rocks.files, source->rocks.count, sizeof wanted, by_path);
}

static bool is_below(const char *dir, const char *path)
{
    size_t length = strlen(dir);
    return length > 0 && strncmp(path, dir, length) == 0 && path[length] == '/';
}

bool mp_source_has(const mp_source *source, const char *path)
{
    return is_below(source->scripts.dir, path) || is_below(source->rocks.dir, path);
}
