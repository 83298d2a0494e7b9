/* sql_functions.c: instr, replace and the trims in time linear in the length of the text. The progress handler does not
 * run during a call of a function: one call of SQLite's own functions on 16 MiB may take hours. */
#define _GNU_SOURCE 1
#include "base/base.h"
#include "data/sql_functions.h"

/* bytes of the second argument of a trim: each character of the text is compared with all of its characters */
#define MAX_TRIMMED_BYTES 256

typedef struct {
    const char *ptr;
    size_t len;
} span;

/* The text of a value, or its bytes where `raw`. ptr is NULL when there is no memory. */
static span read_value(sqlite3_value *value, bool raw)
{
    span s;
    s.ptr = raw ? sqlite3_value_blob(value) : (const char *)sqlite3_value_text(value);
    s.len = (size_t)sqlite3_value_bytes(value);
    if (s.ptr == NULL && s.len == 0)
        s.ptr = "";
    return s;
}

static bool is_null(int count, sqlite3_value **values)
{
    for (int i = 0; i < count; i++)
        if (sqlite3_value_type(values[i]) == SQLITE_NULL)
            return true;
    return false;
}

static size_t characters(span text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return count;
}

/* instr(text, part): the place of the first occurrence, from 1, in characters; in bytes if both are blobs. */
static void instr(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (is_null(count, values))
        return;
    bool raw = sqlite3_value_type(values[0]) == SQLITE_BLOB && sqlite3_value_type(values[1]) == SQLITE_BLOB;
    span text = read_value(values[0], raw), part = read_value(values[1], raw);
    if (text.ptr == NULL || part.ptr == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    /* A match of text begins at a character. Bytes from the middle of a character match only at the very beginning
     * of the text. */
    bool in_middle = !raw && part.len > 0 && ((unsigned char)*part.ptr & 0xc0) == 0x80;
    const char *at = memmem(text.ptr, in_middle && text.len > part.len ? part.len : text.len, part.ptr, part.len);
    if (at == NULL)
        sqlite3_result_int(context, 0);
    else
        sqlite3_result_int64(context, 1 + (sqlite3_int64)(raw ? (size_t)(at - text.ptr)
                                                              : characters((span){text.ptr, (size_t)(at - text.ptr)})));
}

static const char *find_part(const char *from, const char *end, span part)
{
    return part.len == 1 ? memchr(from, *part.ptr, (size_t)(end - from))
                         : memmem(from, (size_t)(end - from), part.ptr, part.len);
}

static size_t occurrences(span text, span part)
{
    size_t count = 0;
    const char *at, *end = text.ptr + text.len;
    for (const char *from = text.ptr; (at = find_part(from, end, part)) != NULL; from = at + part.len)
        count++;
    return count;
}

/* replace(text, part, by): the text itself if `part` is empty or begins with NUL, whatever `by` is, as in SQLite. */
static void replace_parts(sqlite3_context *context, MP_UNUSED int count, sqlite3_value **values)
{
    if (is_null(2, values))
        return;
    span text = read_value(values[0], false), part = read_value(values[1], false);
    if (text.ptr == NULL || part.ptr == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    if (part.len > 0 && *part.ptr == '\0')
        part.len = 0;
    if (part.len > 0 && is_null(1, values + 2))
        return;
    span by = part.len > 0 ? read_value(values[2], false) : part;
    if (by.ptr == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    size_t found = part.len == 0 ? 0 : occurrences(text, part);
    if (part.len == 0) {
        sqlite3_result_text64(context, text.ptr, text.len, SQLITE_TRANSIENT, SQLITE_UTF8);
        return;
    }
    size_t len = text.len - found * part.len + found * by.len; /* each is below 2^31: no overflow */
    if (len > (size_t)sqlite3_limit(sqlite3_context_db_handle(context), SQLITE_LIMIT_LENGTH, -1)) {
        sqlite3_result_error_toobig(context);
        return;
    }
    char *made = sqlite3_malloc64(len + 1), *to = made;
    if (made == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    const char *at, *from = text.ptr, *end = text.ptr + text.len;
    for (; (at = find_part(from, end, part)) != NULL; from = at + part.len) {
        memcpy(to, from, (size_t)(at - from));
        to += at - from;
        memcpy(to, by.ptr, by.len);
        to += by.len;
    }
    memcpy(to, from, (size_t)(end - from));
    made[len] = '\0';
    sqlite3_result_text64(context, made, len, sqlite3_free, SQLITE_UTF8);
}

/* The length of the character that begins at `at`; at least 1. */
static size_t width(span text, size_t at)
{
    size_t to = at + 1;
    while ((unsigned char)text.ptr[at] >= 0xc0 && to < text.len && ((unsigned char)text.ptr[to] & 0xc0) == 0x80)
        to++;
    return to - at;
}

/* The length of the character of `set` that `text` begins with, or ends with; 0 if there is none. */
static size_t edge(span text, span set, bool at_end)
{
    for (size_t i = 0, len; i < set.len; i += len) {
        len = width(set, i);
        if (len <= text.len && memcmp(at_end ? text.ptr + text.len - len : text.ptr, set.ptr + i, len) == 0)
            return len;
    }
    return 0;
}

enum { LEFT = 1, RIGHT = 2 };

/* trim(text [, characters]); the user data selects the ends to trim. */
static void trim_text(sqlite3_context *context, int count, sqlite3_value **values)
{
    if (is_null(count, values))
        return;
    intptr_t ends = (intptr_t)sqlite3_user_data(context);
    span text = read_value(values[0], false), set = count == 1 ? (span){" ", 1} : read_value(values[1], false);
    if (text.ptr == NULL || set.ptr == NULL) {
        sqlite3_result_error_nomem(context);
        return;
    }
    if (set.len > MAX_TRIMMED_BYTES) {
        sqlite3_result_error(context, "trim, ltrim and rtrim take at most 256 bytes of characters to remove", -1);
        return;
    }
    sqlite3 *db = sqlite3_context_db_handle(context);
    size_t len;
    while ((ends & LEFT) != 0 && (len = edge(text, set, false)) > 0 && !sqlite3_is_stopped(db))
        text = (span){text.ptr + len, text.len - len};
    while ((ends & RIGHT) != 0 && (len = edge(text, set, true)) > 0 && !sqlite3_is_stopped(db))
        text.len -= len;
    if (sqlite3_is_interrupted(db))
        sqlite3_result_error_code(context, SQLITE_INTERRUPT);
    else
        sqlite3_result_text64(context, text.ptr, text.len, SQLITE_TRANSIENT, SQLITE_UTF8);
}

int mp_sql_functions(sqlite3 *db)
{
    static const struct {
        const char *name;
        int arguments;
        intptr_t data;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } all[] = {{"instr", 2, 0, instr},
               {"replace", 3, 0, replace_parts},
               {"trim", 1, LEFT | RIGHT, trim_text},
               {"trim", 2, LEFT | RIGHT, trim_text},
               {"ltrim", 1, LEFT, trim_text},
               {"ltrim", 2, LEFT, trim_text},
               {"rtrim", 1, RIGHT, trim_text},
               {"rtrim", 2, RIGHT, trim_text}};
    int rc = SQLITE_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && rc == SQLITE_OK; i++)
        rc = sqlite3_create_function_v2(db, all[i].name, all[i].arguments,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS, (void *)all[i].data,
                                        all[i].run, NULL, NULL, NULL);
    return rc;
}
