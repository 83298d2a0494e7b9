/* sql_text.c: SQL for spans: its texts, numbers and comments are replaced, because a script may have written a value
 * into a statement. */
#include "lib/sql_text.h"
#include <ctype.h>

/* The end of a text that begins and ends with `mark`; a doubled mark is part of it, as is what follows `escape`. */
static size_t skip_quoted(mp_str sql, size_t at, char mark, char escape)
{
    for (at++; at < sql.len; at++) {
        if (escape != '\0' && sql.ptr[at] == escape) {
            at++;
            continue;
        }
        if (sql.ptr[at] != mark)
            continue;
        if (at + 1 < sql.len && sql.ptr[at + 1] == mark)
            at++;
        else
            return at + 1;
    }
    return sql.len;
}

static size_t skip_until(mp_str sql, size_t at, mp_str mark)
{
    for (; at + mark.len <= sql.len; at++)
        if (memcmp(sql.ptr + at, mark.ptr, mark.len) == 0)
            return at + mark.len;
    return sql.len;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static size_t skip_word(mp_str sql, size_t at)
{
    while (at < sql.len && is_word(sql.ptr[at]))
        at++;
    return at;
}

/* A number, with its fraction and exponent. */
static size_t skip_number(mp_str sql, size_t at)
{
    while (at < sql.len && (is_word(sql.ptr[at]) || sql.ptr[at] == '.' ||
                            ((sql.ptr[at] == '+' || sql.ptr[at] == '-') && (sql.ptr[at - 1] | 0x20) == 'e')))
        at++;
    return at;
}

/* What begins and ends a text of PostgreSQL: $$ or $word$. */
static mp_str dollar_mark(mp_str sql, size_t at)
{
    size_t end = at + 1;
    if (sql.ptr[at] != '$' || (end < sql.len && isdigit((unsigned char)sql.ptr[end])))
        return MP_STR_NONE;
    while (end < sql.len && sql.ptr[end] != '$' && is_word(sql.ptr[end]))
        end++;
    return end < sql.len && sql.ptr[end] == '$' ? (mp_str){sql.ptr + at, end + 1 - at} : MP_STR_NONE;
}

static bool has(mp_str sql, size_t at, mp_str text)
{
    return mp_str_starts(mp_str_from(sql, at), text);
}

void mp_sql_put_plain(mp_buf *out, mp_str sql, size_t most)
{
    size_t start = out->len;
    for (size_t at = 0; at < sql.len && out->len - start < most;) {
        char c = sql.ptr[at];
        size_t from = at;
        if (c == '\'' || c == '"') { /* SQLite takes a text in double quotes for a value where no column has the name */
            at = skip_quoted(sql, at, c, '\0');
            mp_buf_putc(out, '?');
        } else if (has(sql, at, MP_STR("--"))) {
            at = skip_until(sql, at, MP_STR("\n"));
            mp_buf_putc(out, ' ');
        } else if (has(sql, at, MP_STR("/*"))) {
            at = skip_until(sql, at + 2, MP_STR("*/"));
        } else if (((c | 0x20) == 'x' || (c | 0x20) == 'e') && at + 1 < sql.len && sql.ptr[at + 1] == '\'') {
            at = skip_quoted(sql, at + 1, '\'', (c | 0x20) == 'e' ? '\\' : '\0'); /* e'…' is PostgreSQL's */
            mp_buf_putc(out, '?');
        } else if (dollar_mark(sql, at).len > 0) {
            mp_str mark = dollar_mark(sql, at);
            at = skip_until(sql, at + mark.len, mark);
            mp_buf_putc(out, '?');
        } else if (isdigit((unsigned char)c) ||
                   (c == '.' && at + 1 < sql.len && isdigit((unsigned char)sql.ptr[at + 1]))) {
            at = skip_number(sql, at + 1);
            mp_buf_putc(out, '?');
        } else if (is_word(c) || ((c == '?' || c == ':' || c == '@') && at + 1 < sql.len && is_word(sql.ptr[at + 1]))) {
            at = skip_word(sql, at + 1);
            mp_buf_put(out, (mp_str){sql.ptr + from, at - from});
        } else {
            mp_buf_putc(out, c);
            at++;
        }
    }
}

mp_str mp_sql_operation(mp_str sql, char room[MP_SQL_OPERATION])
{
    size_t at = 0, len = 0;
    while (at < sql.len && isspace((unsigned char)sql.ptr[at]))
        at++;
    for (; at < sql.len && len < MP_SQL_OPERATION && isalpha((unsigned char)sql.ptr[at]); at++)
        room[len++] = (char)toupper((unsigned char)sql.ptr[at]);
    return len == 0 ? MP_STR("SQL") : (mp_str){room, len};
}
