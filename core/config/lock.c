/* lock.c: reads the file of `upstream_lock`: the definitions of upstreams that a person has approved, one a line:
 *
 *   github  tool  new  v2:sha256:<64 hexadecimal digits>  2026-11-22  {"description":"…","name":"new"}
 *
 * A name that contains a space, a quote or anything but ASCII is a JSON string. The date and the definition are for
 * people and for `moonpool lock`; the gateway compares hashes. A file that cannot be read, or a line that is wrong,
 * refuses the configuration: what was approved must not be served less strictly by mistake. */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LOCK_BYTES ((size_t)64 << 20)
#define HASH_DIGITS 64

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The length of the JSON string at the start of `text`, with its quotes; 0: it does not end. */
static size_t quoted_len(mp_str text)
{
    for (size_t i = 1; i < text.len; i++)
        if (text.ptr[i] == '\\')
            i++;
        else if (text.ptr[i] == '"')
            return i + 1;
    return 0;
}

/* Takes the next field off the line. */
static mp_str take_field(mp_str *line)
{
    while (line->len > 0 && is_space(line->ptr[0]))
        *line = mp_str_from(*line, 1);
    mp_str field = *line;
    size_t len = 0;
    if (field.len > 0 && field.ptr[0] == '"')
        len = quoted_len(field);
    else
        while (len < field.len && !is_space(field.ptr[len]))
            len++;
    field.len = len;
    *line = mp_str_from(*line, len);
    return field;
}

static bool is_kind(mp_str text)
{
    static const char *const kinds[] = {"tool", "prompt", "resource", "template", "instructions", "server"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (mp_str_is(text, kinds[i]))
            return true;
    return false;
}

static bool is_hash(mp_str text)
{
    const mp_str form = MP_STR("v2:"), prefix = MP_STR("sha256:");
    if (mp_str_starts(text, form)) /* lines that older versions wrote have none */
        text = mp_str_from(text, form.len);
    if (text.len != prefix.len + HASH_DIGITS || !mp_str_starts(text, prefix))
        return false;
    for (size_t i = prefix.len; i < text.len; i++)
        if (!((text.ptr[i] >= '0' && text.ptr[i] <= '9') || (text.ptr[i] >= 'a' && text.ptr[i] <= 'f')))
            return false;
    return true;
}

/* Appends "name TAB kind TAB key TAB hash LF". False if the line is wrong. */
static bool take_line(mp_buf *out, mp_str line)
{
    mp_str name = take_field(&line), kind = take_field(&line), key = take_field(&line), hash = take_field(&line);
    mp_err err;
    if (mp_config_check_upstream(name, &err) != 0 || !is_kind(kind) || key.len == 0 || !is_hash(hash))
        return false;
    mp_buf_put(out, name);
    mp_buf_putc(out, '\t');
    mp_buf_put(out, kind);
    mp_buf_putc(out, '\t');
    mp_buf_put(out, key);
    mp_buf_putc(out, '\t');
    mp_buf_put(out, hash);
    mp_buf_putc(out, '\n');
    return true;
}

static int refuse_lock(mp_buf *report, const char *path, size_t line, const char *what, const char *hint)
{
    mp_put_visible(report, mp_str_of(path));
    if (line > 0)
        mp_buf_printf(report, ":%zu", line);
    mp_buf_printf(report, ": %s\n  hint: %s\n", what, hint);
    return -1;
}

static int read_lines(mp_buf *out, const char *path, mp_str rest, mp_buf *report)
{
    for (size_t number = 1; rest.len > 0; number++) {
        mp_str line = mp_str_trim(mp_str_cut(&rest, '\n'));
        if (line.len == 0 || line.ptr[0] == '#')
            continue;
        if (!take_line(out, line))
            return refuse_lock(report, path, number, "this is not the line of an approved definition",
                               "`moonpool lock` writes the file; after a merge, remove the marks of the conflict");
    }
    return 0;
}

/* Reads the whole file. On -1 errno says why. */
static int read_file(const char *path, mp_buf *text)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return -1;
    ssize_t n = -1;
    if (fstat(fd, &info) == 0 && !S_ISREG(info.st_mode))
        errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    else
        while (text->len <= MAX_LOCK_BYTES &&
               ((n = read(fd, mp_buf_room(text, 65536), 65536)) > 0 || (n < 0 && errno == EINTR)))
            text->len += n > 0 ? (size_t)n : 0;
    int why = text->len > MAX_LOCK_BYTES ? EFBIG : errno;
    close(fd);
    errno = why;
    return n < 0 || text->len > MAX_LOCK_BYTES ? -1 : 0;
}

int mp_config_read_lock(mp_config *config, mp_buf *report)
{
    const char *path = config->upstream_lock;
    mp_scoped_buf text = {0}, out = {0};
    free(config->lock);
    config->lock = NULL;
    if (path == NULL || config->upstreams == NULL || config->upstreams[0] == NULL)
        return 0;
    int result = read_file(path, &text);
    if (result != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        result = 0;
    } else if (result != 0) {
        mp_put_visible(report, mp_str_of(path));
        mp_buf_printf(report, ": cannot read the approved definitions: %s\n", strerror(errno));
    } else {
        result = read_lines(&out, path, mp_buf_str(&text), report);
        if (result == 0)
            config->lock = mp_dup(mp_buf_str(&out));
    }
    return result;
}
