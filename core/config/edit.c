/* edit.c: adds entries to `upstreams:` in the text of moonpool.yaml and leaves every other byte as it is. The edited
 * text is parsed and compared with the text before it, so that a file whose layout is unusual is refused, never
 * damaged. */
#define _GNU_SOURCE 1
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDENT 2 /* spaces before the first entry of a new section */

static int refuse_edit(mp_buf *report, const char *name, const char *what, const char *hint)
{
    mp_put_visible(report, mp_str_of(name));
    mp_buf_printf(report, ": %s\n  hint: %s\n", what, hint);
    return -1;
}

/* -- lines of the file --------------------------------------------------------------------------------------------- */

/* Cuts the first line, with its line break, off `*rest`. */
static mp_str cut_line(mp_str *rest)
{
    const char *end = rest->len == 0 ? NULL : memchr(rest->ptr, '\n', rest->len);
    mp_str line = {rest->ptr, end == NULL ? rest->len : (size_t)(end - rest->ptr) + 1};
    *rest = mp_str_from(*rest, line.len);
    return line;
}

static size_t indent_of(mp_str line)
{
    size_t indent = 0;
    while (indent < line.len && line.ptr[indent] == ' ')
        indent++;
    return indent;
}

static bool is_blank(mp_str line)
{
    for (size_t i = 0; i < line.len; i++)
        if (strchr(" \t\r\n", line.ptr[i]) == NULL)
            return false;
    return true;
}

/* The offset behind the last line of the section whose key is in line `key_line`, counted from 1: behind the last line
 * that is indented deeper than `indent`, comments included. */
static size_t end_of_section(mp_str text, size_t key_line, size_t indent)
{
    mp_str rest = text;
    size_t offset = 0, end = 0;
    for (size_t n = 1; rest.len > 0; n++) {
        mp_str line = cut_line(&rest);
        offset += line.len;
        bool is_inside = indent_of(line) > indent;
        if (n > key_line && !is_blank(line) && !is_inside && line.ptr[indent_of(line)] != '#')
            break;
        if (n == key_line || (n > key_line && !is_blank(line) && is_inside))
            end = offset;
    }
    return end;
}

/* -- the place ----------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t offset; /* offset at which the entries are inserted */
    size_t indent; /* spaces before each line of the entries */
    bool needs_key;
    mp_str cut; /* bytes of the text that are left out: the braces of an empty map */
} place;

static char char_at(mp_str text, mp_yaml_mark at)
{
    mp_str line = mp_yaml_line(text, at.line);
    return at.column >= 1 && at.column <= line.len ? line.ptr[at.column - 1] : '\0';
}

static const mp_yaml_node *MP_NULLABLE child_of(const mp_yaml_node *map, const char *key)
{
    for (const mp_yaml_node *node = map->first; node != NULL; node = node->next)
        if (mp_str_is(node->key, key))
            return node;
    return NULL;
}

static bool is_null(const mp_yaml_node *node)
{
    return node->kind == MP_YAML_SCALAR && node->is_plain && mp_yaml_type_of(node->text) == MP_YAML_NULL;
}

/* The "{}" of an empty map, if nothing but spaces is between its braces. */
static mp_str empty_braces(mp_str text, const mp_yaml_node *map)
{
    mp_str line = mp_yaml_line(text, map->at.line);
    mp_str rest = mp_str_from(line, map->at.column - 1);
    size_t len = 1;
    while (len < rest.len && rest.ptr[len] == ' ')
        len++;
    return len < rest.len && rest.ptr[len] == '}' ? (mp_str){rest.ptr, len + 1} : MP_STR_NONE;
}

static int find_place(mp_str text, const char *name, const mp_yaml_node *MP_NULLABLE root, place *found, mp_buf *report)
{
    static const char in_braces[] = "write it with one key per line, or add the entry by hand: --dry-run prints it";
    *found = (place){.offset = text.len, .indent = INDENT, .needs_key = true};
    if (root == NULL || is_null(root))
        return 0;
    if (char_at(text, root->at) == '{')
        return refuse_edit(report, name, "the file is written in braces, which cannot be added to", in_braces);
    const mp_yaml_node *section = child_of(root, "upstreams");
    if (section == NULL)
        return 0;
    found->needs_key = false;
    size_t indent = section->key_at.column - 1;
    if (section->kind == MP_YAML_MAP && char_at(text, section->at) == '{') {
        found->cut = section->first == NULL ? empty_braces(text, section) : MP_STR_NONE;
        if (found->cut.len == 0)
            return refuse_edit(report, name, "'upstreams' is written in braces, which cannot be added to", in_braces);
    } else if (section->kind == MP_YAML_MAP) {
        found->indent = section->first->key_at.column - 1;
    } else {
        found->indent = indent + INDENT;
        found->cut = section->text.len == 0 ? MP_STR_NONE
                                            : mp_str_from(mp_yaml_line(text, section->at.line), section->at.column - 1);
        found->cut.len = section->text.len;
    }
    found->offset = end_of_section(text, section->key_at.line, indent);
    return 0;
}

/* -- the new text -------------------------------------------------------------------------------------------------- */

static void put_entries(mp_buf *out, mp_str entries, size_t indent, bool has_cr)
{
    while (entries.len > 0) {
        mp_str line = cut_line(&entries);
        if (line.len > 0 && line.ptr[line.len - 1] == '\n')
            line.len--;
        mp_buf_printf(out, "%*s%.*s%s", line.len == 0 ? 0 : (int)indent, "", MP_STR_ARG(line), has_cr ? "\r\n" : "\n");
    }
}

static void put_text(mp_buf *out, mp_str text, mp_str entries, const place *at)
{
    bool has_cr = text.len > 0 && memmem(text.ptr, text.len, "\r\n", 2) != NULL;
    const char *line_break = has_cr ? "\r\n" : "\n";
    size_t cut = at->cut.len == 0 ? at->offset : (size_t)(at->cut.ptr - text.ptr);
    mp_buf_put(out, (mp_str){text.ptr, cut});
    if (at->cut.len > 0) {
        while (out->len > 0 && out->ptr[out->len - 1] == ' ')
            out->len--;
        mp_buf_put(out, (mp_str){at->cut.ptr + at->cut.len, at->offset - cut - at->cut.len});
    }
    if (out->len > 0 && out->ptr[out->len - 1] != '\n')
        mp_buf_put(out, mp_str_of(line_break));
    if (at->needs_key)
        mp_buf_printf(out, "%supstreams:%s", out->len == 0 ? "" : line_break, line_break);
    put_entries(out, entries, at->indent, has_cr);
    mp_buf_put(out, mp_str_from(text, at->offset));
}

/* True if `after` is `before` with the upstreams `names` at its end. */
static bool is_added(const mp_config *before, const mp_config *after, const char *const *names)
{
    mp_scoped_buf keys = {0}, plan = {0}, expected = {0};
    mp_config_compare(before, after, true, &keys);
    mp_config_compare(before, after, false, &keys);
    mp_config_compare_upstreams(before, after, &plan);
    for (; *names != NULL; names++)
        mp_buf_printf(&expected, "%s+ %s", expected.len == 0 ? "" : "  ", *names);
    return keys.len == 0 && mp_str_eq(mp_buf_str(&plan), mp_buf_str(&expected));
}

int mp_config_add_upstreams(mp_str text, const char *name, mp_str entries, const char *const *names, mp_buf *out,
                            mp_buf *report)
{
    mp_yaml yaml;
    place at;
    size_t start = out->len;
    int result = -1;
    mp_config *before = mp_config_parse_unexpanded(text, name, report), *after = NULL;
    if (before != NULL && mp_yaml_parse(&yaml, text, name, report) == 0) {
        result = find_place(text, name, yaml.root, &at, report);
        mp_yaml_clear(&yaml);
    }
    if (result == 0) {
        put_text(out, text, entries, &at);
        after = mp_config_parse_unexpanded(mp_str_from(mp_buf_str(out), start), name, report);
        if (after == NULL || !is_added(before, after, names))
            result = refuse_edit(report, name, "the entry does not fit the layout of this file",
                                 "add it by hand: --dry-run prints it");
    }
    if (result != 0)
        out->len = start;
    mp_config_free(before);
    mp_config_free(after);
    return result;
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static int fail_edit(mp_buf *report, const char *path, const char *what)
{
    int why = errno;
    mp_put_visible(report, mp_str_of(path));
    mp_buf_printf(report, ": %s: %s\n", what, strerror(why));
    return -1;
}

int mp_config_replace_file(const char *link, mp_str text, mp_buf *report)
{
    char resolved[PATH_MAX];
    /* writes to the target of a symbolic link, so that the link stays */
    const char *path = realpath(link, resolved) == NULL ? link : resolved;
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    mp_scoped_buf other = {0};
    mp_buf_printf(&other, "%s.XXXXXX%c", path, '\0');
    int fd = mkostemp(other.ptr, O_CLOEXEC);
    mode_t mode = umask(0);
    umask(mode);
    bool is_written = fd >= 0 && mp_write_text(fd, text) == 0 && fsync(fd) == 0 &&
                      fchmod(fd, is_there ? info.st_mode & 07777 : 0666 & ~mode) == 0;
    if (is_written && is_there && (info.st_uid != geteuid() || info.st_gid != getegid()) &&
        fchown(fd, info.st_uid, info.st_gid) != 0)
        errno = 0; /* only root may keep the owner of another user's file */
    is_written = is_written && rename(other.ptr, path) == 0;
    int result = is_written ? 0 : fail_edit(report, path, "cannot write the file");
    if (fd >= 0) {
        if (!is_written)
            unlink(other.ptr);
        close(fd);
    }
    return result;
}

int mp_config_add_upstreams_to_file(const char *path, mp_str entries, const char *const *names, mp_buf *report)
{
    mp_scoped_buf text = {0}, out = {0};
    int result = mp_config_read_file(path, &text);
    if (result != 0 && errno == ENOENT)
        result = 0;
    else if (result != 0)
        fail_edit(report, path, "cannot read the configuration");
    if (result == 0)
        result = mp_config_add_upstreams(mp_buf_str(&text), path, entries, names, &out, report);
    if (result == 0)
        result = mp_config_replace_file(path, mp_buf_str(&out), report);
    return result;
}
