/* yaml_report.c: prints an error with its line of the file and a caret below. The line is quoted from the file, so
 * expanded values of ${…} are never shown; nor are secrets that stand in the file itself, since reports of reloads are
 * in the log and in /status. */
#define _GNU_SOURCE 1
#include "yaml.h"

#define ERRORS_TOLD 100
#define EXCERPT 100 /* maximum characters of a quoted line */

void mp_put_visible(mp_buf *out, mp_str text)
{
    for (size_t i = 0; i < text.len;) {
        size_t width = mp_utf8_visible_at(text, i);
        mp_buf_put(out, width == 0 ? text.ptr[i] == '\t' ? MP_STR(" ") : MP_STR("?") : (mp_str){text.ptr + i, width});
        for (i += width == 0 ? 1 : width; i < text.len && width == 0 && ((unsigned char)text.ptr[i] & 0xc0) == 0x80;)
            i++;
    }
}

/* Width of the line break at `i`, of the kinds that libyaml counts: CR, LF, CRLF, NEL, LS, PS; 0 if there is none. */
static size_t break_at(mp_str text, size_t i)
{
    mp_str rest = mp_str_from(text, i);
    if (mp_str_starts(rest, MP_STR("\r\n")))
        return 2;
    if (mp_str_starts(rest, MP_STR("\n")) || mp_str_starts(rest, MP_STR("\r")))
        return 1;
    if (mp_str_starts(rest, MP_STR("\xc2\x85")))
        return 2;
    return mp_str_starts(rest, MP_STR("\xe2\x80\xa8")) || mp_str_starts(rest, MP_STR("\xe2\x80\xa9")) ? 3 : 0;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

mp_str mp_yaml_line(mp_str text, size_t line)
{
    size_t begin = 0, i = 0;
    for (size_t n = 1; i < text.len;) {
        size_t width = break_at(text, i);
        if (width > 0 && n++ == line)
            break;
        i += width == 0 ? 1 : width;
        if (width > 0)
            begin = i;
    }
    return (mp_str){text.ptr + begin, i - begin};
}

mp_yaml_mark mp_yaml_mark_of(mp_str text, size_t offset)
{
    mp_yaml_mark mark = {1, 1};
    for (size_t i = 0; i < offset && i < text.len;) {
        size_t width = break_at(text, i);
        if (width > 0)
            mark = (mp_yaml_mark){mark.line + 1, 1};
        else
            mark.column += !is_continuation(text.ptr[i]);
        i += width == 0 ? 1 : width;
    }
    return mark;
}

/* The rest of `line` after its first `characters` characters. */
static mp_str skip_characters(mp_str line, size_t characters)
{
    size_t i = 0;
    for (; i < line.len && characters > 0; characters--)
        for (i++; i < line.len && is_continuation(line.ptr[i]);)
            i++;
    return mp_str_from(line, i);
}

/* The line with '*' for each character that is hidden. */
static mp_str mask_secrets(mp_str line, const char *hidden, mp_buf *room)
{
    for (size_t i = 0; i < line.len; i++)
        if (!hidden[i] || !is_continuation(line.ptr[i]))
            mp_buf_putc(room, hidden[i] ? '*' : line.ptr[i]);
    return mp_buf_str(room);
}

static void put_excerpt(mp_buf *out, mp_str line, size_t column)
{
    if (line.len == 0) /* its pointer may be NULL */
        return;
    size_t from = 0;
    while (from + 1 < column && from < line.len && (line.ptr[from] == ' ' || line.ptr[from] == '\t'))
        from++;
    if (column - from > EXCERPT * 3 / 4)
        from = column - EXCERPT / 2;
    mp_str shown = skip_characters(line, from), behind = skip_characters(shown, EXCERPT);
    shown.len -= behind.len;
    while (shown.len > 0 && (shown.ptr[shown.len - 1] == ' ' || shown.ptr[shown.len - 1] == '\t'))
        shown.len--;
    if (shown.len == 0)
        return;
    mp_buf_put(out, MP_STR("    "));
    mp_put_visible(out, shown);
    mp_buf_printf(out, "\n    %*s^\n", (int)(column - 1 - from), "");
}

void mp_yaml_error(mp_yaml *yaml, mp_yaml_mark at, const mp_err *err)
{
    if (++yaml->errors > ERRORS_TOLD)
        return;
    mp_put_visible(yaml->report, mp_str_of(yaml->name));
    if (at.line > 0)
        mp_buf_printf(yaml->report, ":%zu:%zu", at.line, at.column);
    mp_str line = at.line > 0 ? mp_yaml_line(yaml->text, at.line) : MP_STR("");
    char *secrets = mp_yaml_secrets(yaml->text);
    const char *hidden = at.line > 0 ? secrets + (line.ptr - yaml->text.ptr) : secrets;
    mp_scoped_buf masked = {0};
    mp_buf_put(yaml->report, MP_STR(": "));
    mp_yaml_put_message(yaml->report, mp_str_of(err->text), line, hidden);
    mp_buf_putc(yaml->report, '\n');
    if (at.line > 0)
        put_excerpt(yaml->report, mask_secrets(line, hidden, &masked), at.column);
    if (err->hint[0] != '\0') {
        mp_buf_put(yaml->report, MP_STR("  hint: "));
        mp_yaml_put_message(yaml->report, mp_str_of(err->hint), line, hidden);
        mp_buf_putc(yaml->report, '\n');
    }
    free(secrets);
}

void mp_yaml_end_report(mp_yaml *yaml)
{
    if (yaml->errors > ERRORS_TOLD) {
        mp_put_visible(yaml->report, mp_str_of(yaml->name));
        mp_buf_printf(yaml->report, ": and %zu more\n", yaml->errors - ERRORS_TOLD);
    }
}

mp_yaml_mark mp_yaml_place_of(const mp_yaml *yaml, const mp_yaml_node *node, mp_str part)
{
    mp_str rest = skip_characters(mp_yaml_line(yaml->text, node->at.line), node->at.column - 1);
    const char *found = part.len == 0 ? NULL : memmem(rest.ptr, rest.len, part.ptr, part.len);
    mp_yaml_mark at = node->at;
    for (const char *c = rest.ptr; found != NULL && c < found; c++)
        at.column += !is_continuation(*c);
    return at;
}
