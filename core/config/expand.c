/* expand.c: expands environment variables and the contents of files in values. */
#define _GNU_SOURCE 1
#include "expand.h"
#include "config.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_name_char(char c, bool first)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || (!first && c >= '0' && c <= '9');
}

bool mp_expand_has(mp_str text)
{
    return memmem(text.ptr, text.len, "${", 2) != NULL || memmem(text.ptr, text.len, "$$", 2) != NULL;
}

static int read_into(int fd, mp_str path, mp_buf *out, mp_err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return mp_err_set(err, "cannot read the file %.*s: %s", MP_STR_ARG(path), strerror(errno));
    if (!S_ISREG(info.st_mode))
        return mp_err_set(err, "%.*s is not a regular file", MP_STR_ARG(path));
    size_t begin = out->len;
    for (;;) {
        ssize_t n = read(fd, mp_buf_room(out, 4096), 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mp_err_set(err, "cannot read the file %.*s: %s", MP_STR_ARG(path), strerror(errno));
        if (n == 0)
            break;
        out->len += (size_t)n;
        if (out->len > MP_EXPAND_CAP)
            return mp_err_set(err, "the file %.*s is too large for a value (64KiB)", MP_STR_ARG(path));
    }
    if (out->len > begin && out->ptr[out->len - 1] == '\n')
        out->len--;
    if (out->len > begin && out->ptr[out->len - 1] == '\r')
        out->len--;
    if (out->len > begin && memchr(out->ptr + begin, '\0', out->len - begin) != NULL)
        return mp_err_set(err, "the file %.*s contains a NUL byte", MP_STR_ARG(path));
    return 0;
}

static int expand_file(mp_str path, const char *folder, mp_buf *out, mp_err *err)
{
    if (path.len == 0 || path.len >= 4096 || memchr(path.ptr, '\0', path.len) != NULL)
        return mp_err_set(err, "${file:} needs a path");
    char *full = mp_config_join(folder, path);
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    free(full);
    if (fd < 0) {
        mp_err_set(err, "cannot read the file %.*s: %s", MP_STR_ARG(path), strerror(errno));
        if (errno == ENOENT && path.ptr[0] != '/')
            mp_err_hint(err, "relative paths start at the folder of the configuration file");
        return -1;
    }
    int result = read_into(fd, path, out, err);
    close(fd);
    return result;
}

static int expand_variable(mp_str inside, mp_buf *out, mp_err *err)
{
    size_t len = 0;
    while (len < inside.len && is_name_char(inside.ptr[len], len == 0))
        len++;
    mp_str name = {inside.ptr, len}, rest = mp_str_from(inside, len);
    bool has_default = mp_str_starts(rest, MP_STR(":-")), must_be = mp_str_starts(rest, MP_STR(":?"));
    if (len == 0 || len > 255 || (rest.len > 0 && !has_default && !must_be)) {
        mp_err_set(err, "'${%.*s}' is not a variable", MP_STR_ARG(inside));
        return mp_err_hint(err,
                           "write ${NAME}, ${NAME:-default}, ${NAME:?message} or ${file:/path}; write $$ for a dollar");
    }
    char *terminated = mp_dup(name);
    const char *value = mp_environment_get(terminated);
    free(terminated);
    bool is_missing = value == NULL || (value[0] == '\0' && rest.len > 0);
    if (!is_missing) {
        mp_buf_put(out, mp_str_of(value));
    } else if (has_default) {
        mp_buf_put(out, mp_str_from(rest, 2));
    } else {
        mp_str message = mp_str_trim(mp_str_from(rest, 2));
        mp_err_set(err, "the environment variable %.*s is %s%s%.*s", MP_STR_ARG(name),
                   value == NULL ? "not set" : "empty", message.len > 0 ? ": " : "", MP_STR_ARG(message));
        return mp_err_hint(err, "set it, or write ${%.*s:-default}", MP_STR_ARG(name));
    }
    return 0;
}

int mp_expand(mp_str text, const char *folder, mp_buf *out, mp_str *where, mp_err *err)
{
    for (size_t i = 0; i < text.len;) {
        mp_str rest = mp_str_from(text, i);
        if (mp_str_starts(rest, MP_STR("$$"))) {
            mp_buf_putc(out, '$');
            i += 2;
        } else if (mp_str_starts(rest, MP_STR("${"))) {
            mp_str inside = mp_str_from(rest, 2);
            const char *end = memchr(inside.ptr, '}', inside.len);
            *where = rest;
            if (end == NULL) {
                mp_err_set(err, "'${' is never closed");
                return mp_err_hint(err, "end it with '}'; write $$ for a dollar");
            }
            inside.len = (size_t)(end - inside.ptr);
            where->len = inside.len + 3;
            if (memmem(inside.ptr, inside.len, "${", 2) != NULL)
                return mp_err_set(err, "'${' inside '${…}'");
            mp_scoped_buf found = {0};
            bool is_file = mp_str_starts(inside, MP_STR("file:"));
            int result = is_file ? expand_file(mp_str_from(inside, 5), folder, &found, err)
                                 : expand_variable(inside, &found, err);
            mp_buf_put(out, mp_buf_str(&found));
            if (result != 0)
                return -1;
            i += where->len;
        } else {
            mp_buf_putc(out, text.ptr[i++]);
        }
        if (out->len > MP_EXPAND_CAP) {
            *where = text;
            return mp_err_set(err, "the value is too long once expanded (64KiB)");
        }
    }
    return 0;
}
