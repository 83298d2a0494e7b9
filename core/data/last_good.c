/* last_good.c: writes and reads the file of a last good generation. Its form:
 *
 *   moonpool generation 1                      the form; another number is another form
 *   sha256 <64 hexadecimal digits>             of all bytes after this line
 *   config <length of name> <length of text>   then the name, LF, the text, LF
 *   lock 0 <length of text>                    only if there are approved definitions
 *   script <length of path> <length of text>   each script, then each file of the rocks as `rock`
 *   end */
#define _GNU_SOURCE 1
#include "data/last_good.h"
#include "base/base.h"
#include "data/sha256.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORM "moonpool generation 1\n"
#define ANY_FORM "moonpool generation "
#define HASH "sha256 "
#define DIGITS 64
#define HEAD (sizeof FORM - 1 + sizeof HASH - 1 + DIGITS + 1)
/* Twice the 64 MiB of scripts and of rocks that a source may have, 1 MiB of configuration, 64 MiB of approved
 * definitions, and their names. */
#define MAX_BYTES ((size_t)300 << 20)
#define NAME_DIGITS 32 /* hexadecimal digits of a file's name: half of the hash of the configuration's path */
#define MAX_LENGTH_DIGITS 9
/* Configurations that no longer exist, as of specs and experiments, must not fill the folder for ever. */
#define FORGET_SECONDS (30 * 24 * 3600)
#define MAX_PATH 8192

struct mp_last_good {
    mp_buf text; /* the whole file */
    mp_str config, lock, scripts;
    time_t at;
};

/* -- the folder ---------------------------------------------------------------------------------------------------- */

/* Makes the folders of `path` that do not exist, for this user alone. */
static void make_folders(const char *path)
{
    char *copy = mp_dup(mp_str_of(path));
    for (char *at = copy + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(copy, 0700);
        *at = '/';
    }
    mkdir(copy, 0700);
    free(copy);
}

/* True if nobody but this user can change the file or folder. */
static bool is_own(const struct stat *info)
{
    return info->st_uid == geteuid() && (info->st_mode & 022) == 0;
}

int mp_last_good_open_folder(const char *path, bool makes, mp_err *err)
{
    struct stat info;
    if (makes)
        make_folders(path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        mp_err_set(err, "%s: %s", path, errno == ELOOP || errno == ENOTDIR ? "not a folder" : strerror(errno));
    } else if (fstat(fd, &info) != 0 || !is_own(&info)) {
        mp_err_set(err, "%s: other users can change this folder", path);
        mp_err_hint(err, "it must belong to the user that runs moonpool, with mode 0700");
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Writes the name of the file that belongs to the configuration `name`. */
static void file_of(const char *name, char file[NAME_DIGITS + 1])
{
    unsigned char digest[MP_SHA256_BYTES];
    mp_sha256(mp_str_of(name), digest);
    *mp_hex_put(file, digest, NAME_DIGITS / 2) = '\0';
}

/* -- writing ------------------------------------------------------------------------------------------------------- */

static void put_part(mp_buf *out, const char *word, mp_str name, mp_str text)
{
    mp_buf_printf(out, "%s %zu %zu\n", word, name.len, text.len);
    mp_buf_put(out, name);
    mp_buf_putc(out, '\n');
    mp_buf_put(out, text);
    mp_buf_putc(out, '\n');
}

static void put_files(mp_buf *out, const char *word, const mp_source_file *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_part(out, word, mp_str_of(files[i].path), (mp_str){files[i].text, files[i].len});
}

static void put_digits(char digits[DIGITS], mp_str text)
{
    unsigned char digest[MP_SHA256_BYTES];
    mp_sha256(text, digest);
    mp_hex_put(digits, digest, sizeof digest);
}

static void put_all(mp_buf *out, const mp_generation_parts *parts)
{
    size_t count;
    const mp_source_file *files = mp_source_files(parts->source, &count);
    mp_buf_printf(out, FORM HASH "%0*d\n", DIGITS, 0);
    put_part(out, "config", mp_str_of(parts->name), parts->config);
    if (parts->lock != NULL)
        put_part(out, "lock", MP_STR_NONE, mp_str_of(parts->lock));
    put_files(out, "script", files, count);
    files = mp_source_rock_files(parts->source, &count);
    put_files(out, "rock", files, count);
    mp_buf_put(out, MP_STR("end\n"));
    put_digits(out->ptr + HEAD - 1 - DIGITS, mp_str_from(mp_buf_str(out), HEAD));
}

/* Opens a file of the folder that this user alone can have written. -1 with errno. */
static int open_file(int folder, const char *file, struct stat *info)
{
    int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, info) == 0 && S_ISREG(info->st_mode) && info->st_nlink == 1 && is_own(info))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* True if the file begins with `head`, and so has its hash. Sets its time to now: it is not removed as unused. */
static bool is_kept(int folder, const char *file, const char *head)
{
    char found[HEAD];
    struct stat info;
    int fd = open_file(folder, file, &info);
    bool is_same = fd >= 0 && read(fd, found, HEAD) == (ssize_t)HEAD && memcmp(found, head, HEAD) == 0;
    if (is_same)
        futimens(fd, NULL);
    if (fd >= 0)
        close(fd);
    return is_same;
}

/* The caller holds the lock of the folder, so a temporary file that exists was left by a process that was killed. */
static int replace_file(int folder, const char *file, mp_str text)
{
    char beside[NAME_DIGITS + 8];
    snprintf(beside, sizeof beside, "%s.new", file);
    if (unlinkat(folder, beside, 0) != 0 && errno != ENOENT)
        return -1;
    int fd = openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int failed = mp_write_text(fd, text);
    if (failed == 0)
        failed = fsync(fd);
    if (failed == 0)
        failed = renameat(folder, beside, folder, file);
    int why = errno;
    if (failed != 0)
        unlinkat(folder, beside, 0);
    else
        fsync(folder); /* the file is complete either way; this keeps its new name */
    close(fd);
    errno = why;
    return failed;
}

/* True if the configuration that a file belongs to does not exist any more. */
static bool is_orphan(int folder, const char *file)
{
    char start[HEAD + MAX_PATH];
    struct stat info;
    int fd = open_file(folder, file, &info);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, start, sizeof start - 1);
    close(fd);
    if (info.st_mtime + FORGET_SECONDS > time(NULL) || got <= (ssize_t)HEAD)
        return false;
    start[got] = '\0';
    char *name = strchr(start + HEAD, '\n'), *end = name == NULL ? NULL : strchr(name + 1, '\n');
    if (end == NULL)
        return false;
    *end = '\0';
    return access(name + 1, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

static void forget_orphans(int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        if (strlen(entry->d_name) == NAME_DIGITS && is_orphan(folder, entry->d_name))
            unlinkat(folder, entry->d_name, 0);
    if (dir != NULL)
        closedir(dir);
}

int mp_last_good_write(int folder, const mp_generation_parts *parts, mp_err *err)
{
    char file[NAME_DIGITS + 1];
    mp_scoped_buf text = {0};
    int failed = 0;
    file_of(parts->name, file);
    put_all(&text, parts);
    if (text.len > MAX_BYTES)
        failed = mp_err_set(err, "the generation has more than %zu MiB", MAX_BYTES >> 20);
    else if (flock(folder, LOCK_EX) != 0) /* another process of this user may write */
        failed = mp_err_set(err, "cannot lock the folder: %s", strerror(errno));
    else if (!is_kept(folder, file, text.ptr)) {
        if (replace_file(folder, file, mp_buf_str(&text)) != 0)
            failed = mp_err_set(err, "%s: %s", file, strerror(errno));
        else
            forget_orphans(folder);
    }
    flock(folder, LOCK_UN);
    return failed;
}

void mp_last_good_forget(int folder, const char *name)
{
    char file[NAME_DIGITS + 1];
    file_of(name, file);
    unlinkat(folder, file, 0);
}

/* -- reading ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_str word, name, text;
} part;

/* Takes a length and the character after it off `*rest`. */
static bool take_length(mp_str *rest, char after, size_t *length)
{
    size_t digits = 0;
    *length = 0;
    while (digits < rest->len && digits < MAX_LENGTH_DIGITS && rest->ptr[digits] >= '0' && rest->ptr[digits] <= '9')
        *length = *length * 10 + (size_t)(rest->ptr[digits++] - '0');
    if (digits == 0 || digits == rest->len || rest->ptr[digits] != after)
        return false;
    *rest = mp_str_from(*rest, digits + 1);
    return true;
}

/* Takes `length` bytes and a line break off `*rest`. */
static bool take_text(mp_str *rest, size_t length, mp_str *text)
{
    if (length >= rest->len || rest->ptr[length] != '\n')
        return false;
    *text = (mp_str){rest->ptr, length};
    *rest = mp_str_from(*rest, length + 1);
    return true;
}

static bool take_part(mp_str *rest, part *one)
{
    size_t name, text;
    mp_str before = *rest;
    one->word = mp_str_cut(rest, ' ');
    if (rest->ptr == NULL || one->word.len > 8) {
        *rest = before;
        return false;
    }
    return take_length(rest, ' ', &name) && take_length(rest, '\n', &text) && take_text(rest, name, &one->name) &&
           take_text(rest, text, &one->text);
}

static int read_file(int fd, size_t size, mp_buf *text)
{
    mp_buf_room(text, size + 1);
    for (ssize_t got; text->len < size; text->len += got > 0 ? (size_t)got : 0) {
        got = read(fd, text->ptr + text->len, size - text->len);
        if (got == 0 || (got < 0 && errno != EINTR))
            return -1;
    }
    return 0;
}

/* Finds the parts in the text of the file. */
static int take_parts(mp_last_good *kept, const char *name, mp_err *err)
{
    char digits[DIGITS];
    mp_str text = mp_buf_str(&kept->text);
    part one;
    if (mp_str_starts(text, MP_STR(ANY_FORM)) && !mp_str_starts(text, MP_STR(FORM)))
        return mp_err_set(err, "another version of moonpool has written it, in a form that this one does not know");
    if (text.len < HEAD)
        return mp_err_set(err, "it is damaged");
    put_digits(digits, mp_str_from(text, HEAD));
    if (!mp_str_starts(text, MP_STR(FORM HASH)) || memcmp(text.ptr + HEAD - 1 - DIGITS, digits, DIGITS) != 0)
        return mp_err_set(err, "it is damaged");
    text = mp_str_from(text, HEAD);
    if (!take_part(&text, &one) || !mp_str_is(one.word, "config") || !mp_str_is(one.name, name))
        return mp_err_set(err, "it belongs to another configuration");
    kept->config = one.text;
    mp_str rest = text;
    if (take_part(&rest, &one) && mp_str_is(one.word, "lock")) {
        kept->lock = one.text;
        ((char *)(uintptr_t)one.text.ptr)[one.text.len] =
            '\0'; /* replaces the line break, which has been read already */
        text = rest;
    }
    kept->scripts = text;
    return 0;
}

mp_last_good *MP_NULLABLE mp_last_good_read(int folder, const char *name, mp_err *err)
{
    char file[NAME_DIGITS + 1];
    struct stat info;
    mp_last_good *kept = mp_new(sizeof *kept);
    int failed = 0;
    err->text[0] = err->hint[0] = '\0';
    file_of(name, file);
    int fd = open_file(folder, file, &info);
    if (fd < 0) {
        failed = -1;
        if (errno == EPERM || errno == ELOOP)
            mp_err_set(err, "%s: other users can change it", file);
        else if (errno != ENOENT)
            mp_err_set(err, "%s: %s", file, strerror(errno));
    } else if ((size_t)info.st_size > MAX_BYTES || read_file(fd, (size_t)info.st_size, &kept->text) != 0) {
        failed = mp_err_set(err, "%s: it is too large, or cannot be read", file);
    } else {
        kept->at = info.st_mtime;
        failed = take_parts(kept, name, err);
    }
    if (fd >= 0)
        close(fd);
    if (failed == 0)
        return kept;
    mp_last_good_free(kept);
    return NULL;
}

mp_str mp_last_good_config(const mp_last_good *kept)
{
    return kept->config;
}

const char *MP_NULLABLE mp_last_good_lock(const mp_last_good *kept)
{
    return kept->lock.ptr;
}

time_t mp_last_good_time(const mp_last_good *kept)
{
    return kept->at;
}

static bool ends_with(mp_str text, mp_str end)
{
    return text.len >= end.len && mp_str_eq(mp_str_from(text, text.len - end.len), end);
}

bool mp_last_good_has(const mp_last_good *kept, const char *prefix)
{
    mp_str rest = kept->scripts;
    for (part one; take_part(&rest, &one);)
        if (mp_str_is(one.word, "script") && mp_str_starts(one.name, mp_str_of(prefix)) &&
            !ends_with(one.name, MP_STR("_spec.lua")))
            return true;
    return false;
}

mp_source *MP_NULLABLE mp_last_good_source(const mp_last_good *kept, const char *dir, const char *MP_NULLABLE rocks,
                                           mp_err *err)
{
    mp_source *source = mp_source_new(dir, rocks);
    mp_str rest = kept->scripts;
    part one;
    int failed = 0;
    while (failed == 0 && take_part(&rest, &one)) {
        bool is_rock = mp_str_is(one.word, "rock");
        if (is_rock && rocks == NULL)
            continue;
        failed = is_rock || mp_str_is(one.word, "script") ? mp_source_add(source, is_rock, one.name, one.text, err)
                                                          : mp_err_set(err, "it is damaged");
    }
    if (failed == 0 && !mp_str_is(rest, "end\n"))
        failed = mp_err_set(err, "it is damaged");
    mp_source_sort(source);
    if (failed == 0)
        return source;
    mp_source_unref(source);
    return NULL;
}

void mp_last_good_free(mp_last_good *MP_NULLABLE kept)
{
    if (kept == NULL)
        return;
    mp_buf_clear(&kept->text);
    free(kept);
}
