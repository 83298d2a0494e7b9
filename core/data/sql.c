/* sql.c: prepares, binds and steps statements; writes and reads the values that two threads exchange. */
#include "data/sql.h"

/* -- values ------------------------------------------------------------------------------------------------------ */

void mp_sql_put_int(mp_buf *to, int64_t value)
{
    mp_buf_putc(to, 'i');
    mp_buf_put(to, (mp_str){(const char *)&value, sizeof value});
}

void mp_sql_put_real(mp_buf *to, double value)
{
    mp_buf_putc(to, 'r');
    mp_buf_put(to, (mp_str){(const char *)&value, sizeof value});
}

void mp_sql_put_bytes(mp_buf *to, char tag, mp_str bytes)
{
    uint32_t len = (uint32_t)bytes.len;
    mp_buf_putc(to, tag);
    mp_buf_put(to, (mp_str){(const char *)&len, sizeof len});
    mp_buf_put(to, bytes);
}

void mp_sql_put_null(mp_buf *to)
{
    mp_buf_putc(to, 'n');
}

int mp_sql_fail(mp_statement *statement, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    statement->failed = true;
    mp_buf_clear(&statement->result);
    mp_buf_vprintf(&statement->result, format, args);
    va_end(args);
    return -1;
}

/* -- prepared statements ----------------------------------------------------------------------------------------- */

void mp_sql_cache_clear(mp_sql_cache *cache)
{
    for (int i = 0; i < cache->count; i++)
        sqlite3_finalize(cache->of[i]);
    cache->count = 0;
}

/* Takes a prepared statement out of the cache. NULL if the cache has none for this SQL. */
static sqlite3_stmt *MP_NULLABLE take_cached(mp_sql_cache *cache, const char *sql)
{
    for (int i = 0; i < cache->count; i++) {
        sqlite3_stmt *found = cache->of[i];
        if (strcmp(sqlite3_sql(found), sql) != 0)
            continue;
        memmove(cache->of + i, cache->of + i + 1, sizeof *cache->of * (size_t)(--cache->count - i));
        return found;
    }
    return NULL;
}

static void give_cached(mp_sql_cache *cache, sqlite3_stmt *prepared)
{
    sqlite3_reset(prepared);
    sqlite3_clear_bindings(prepared);
    if (cache->count == MP_SQL_CACHED)
        sqlite3_finalize(cache->of[--cache->count]);
    memmove(cache->of + 1, cache->of, sizeof *cache->of * (size_t)cache->count++);
    cache->of[0] = prepared;
}

static bool is_blank(const char *sql)
{
    return sql[strspn(sql, " \t\r\n;")] == '\0';
}

/* -- parameters -------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_str name, bytes;
    char tag;
    int64_t integer;
    double real;
} value;

static mp_str read_bytes(const char **at)
{
    uint32_t len;
    memcpy(&len, *at, sizeof len);
    mp_str bytes = {*at + sizeof len, len};
    *at += sizeof len + len;
    return bytes;
}

static value read_param(const char **at)
{
    value v = {.name = MP_STR_NONE};
    ++*at; /* 't' */
    v.name = read_bytes(at);
    v.tag = *(*at)++;
    if (v.tag == 'i')
        memcpy(&v.integer, *at, sizeof v.integer);
    if (v.tag == 'r')
        memcpy(&v.real, *at, sizeof v.real);
    if (v.tag == 'i' || v.tag == 'r')
        *at += 8;
    if (v.tag == 't' || v.tag == 'b')
        v.bytes = read_bytes(at);
    return v;
}

static int bind_value(sqlite3_stmt *prepared, int index, const value *v)
{
    switch (v->tag) {
    case 'i':
        return sqlite3_bind_int64(prepared, index, v->integer);
    case 'r':
        return sqlite3_bind_double(prepared, index, v->real);
    case 't':
        return sqlite3_bind_text64(prepared, index, v->bytes.ptr, v->bytes.len, SQLITE_STATIC, SQLITE_UTF8);
    case 'b':
        return sqlite3_bind_blob64(prepared, index, v->bytes.ptr, v->bytes.len, SQLITE_STATIC);
    default:
        return sqlite3_bind_null(prepared, index);
    }
}

/* The index of a named parameter, which SQL writes with ':', '@' or '$' before it. */
static int index_of(sqlite3_stmt *prepared, mp_str name)
{
    for (int i = 1; i <= sqlite3_bind_parameter_count(prepared); i++) {
        const char *there = sqlite3_bind_parameter_name(prepared, i);
        if (there != NULL && mp_str_is(name, there + 1))
            return i;
    }
    return 0;
}

static int bind_all(sqlite3_stmt *prepared, mp_statement *statement)
{
    int wanted = sqlite3_bind_parameter_count(prepared);
    if (wanted != (int)statement->param_count)
        return mp_sql_fail(statement, "the SQL has %d parameters, and %u values were given", wanted,
                           statement->param_count);
    const char *at = statement->params.ptr;
    for (int i = 1; i <= wanted; i++) {
        value v = read_param(&at);
        int index = statement->has_names ? index_of(prepared, v.name) : i;
        if (index == 0)
            return mp_sql_fail(statement, "the SQL has no parameter '%.*s'", (int)v.name.len, v.name.ptr);
        if (bind_value(prepared, index, &v) != SQLITE_OK)
            return mp_sql_fail(statement, "a value is larger than %zu bytes, the limit of one value: split it",
                               MP_SQL_BYTES);
    }
    return 0;
}

/* -- errors ------------------------------------------------------------------------------------------------------ */

const char *mp_sql_words(sqlite3 *db, mp_sql_account *account)
{
    static const char *const refusals[] = {
        [MP_SQL_OVER_MEMORY] = "the memory limit of this database is reached (limits.sqlite.memory)",
        [MP_SQL_OVER_HEAP] =
            "the memory limit of all databases is reached (512 MiB), or this script leaves too little of it to others",
        [MP_SQL_OVER_PREPARE] = "preparing the statement takes more than 16 MiB: nest fewer views and subqueries",
        [MP_SQL_OVER_LENGTH] = "a statement is at most 64 KiB of SQL: pass values as parameters, or split it"};
    int code = sqlite3_errcode(db) & 0xff;
    mp_sql_refused over = account->refused_by;
    account->refused_by = MP_SQL_NOT_REFUSED;
    bool is_cause = code == SQLITE_TOOBIG ? over == MP_SQL_OVER_LENGTH : code == SQLITE_NOMEM;
    if (over != MP_SQL_NOT_REFUSED && is_cause)
        return refusals[over];
    const char *file = sqlite3_db_filename(db, "main");
    if (code == SQLITE_FULL)
        return file == NULL || *file == '\0'
                   ? "the memory limit of this database is reached (limits.sqlite.memory)"
                   : "database or disk is full, or a temporary table is over limits.sqlite.memory";
    return sqlite3_errmsg(db);
}

/* -- running ----------------------------------------------------------------------------------------------------- */

static void put_column(mp_buf *to, sqlite3_stmt *prepared, int column)
{
    const void *bytes;
    switch (sqlite3_column_type(prepared, column)) {
    case SQLITE_INTEGER:
        mp_sql_put_int(to, sqlite3_column_int64(prepared, column));
        return;
    case SQLITE_FLOAT:
        mp_sql_put_real(to, sqlite3_column_double(prepared, column));
        return;
    case SQLITE_TEXT:
        bytes = sqlite3_column_text(prepared, column);
        mp_sql_put_bytes(to, 't', (mp_str){bytes, (size_t)sqlite3_column_bytes(prepared, column)});
        return;
    case SQLITE_BLOB:
        bytes = sqlite3_column_blob(prepared, column);
        mp_sql_put_bytes(to, 'b', (mp_str){bytes, (size_t)sqlite3_column_bytes(prepared, column)});
        return;
    default:
        mp_sql_put_null(to);
    }
}

/* The bytes that put_column() needs for the columns of a row, at most. */
static size_t bytes_of_row(sqlite3_stmt *prepared, int columns)
{
    size_t bytes = 0;
    for (int i = 0; i < columns; i++) {
        int type = sqlite3_column_type(prepared, i);
        if (type == SQLITE_TEXT)
            /* converts the value to UTF-8, so that sqlite3_column_bytes counts bytes of UTF-8 */
            sqlite3_column_text(prepared, i);
        bool has_bytes = type == SQLITE_TEXT || type == SQLITE_BLOB;
        bytes += 1 + (has_bytes ? sizeof(uint32_t) + (size_t)sqlite3_column_bytes(prepared, i) : 8);
    }
    return bytes;
}

/* Makes room in the result for `more` bytes. Fails the statement if the result would pass MP_SQL_BYTES, or all results
 * together their limit. */
static int make_room(mp_statement *statement, size_t more)
{
    mp_buf *to = &statement->result;
    if (more > MP_SQL_BYTES || to->len > MP_SQL_BYTES - more)
        return mp_sql_fail(statement, "more than %zu bytes in the result", MP_SQL_BYTES);
    if (to->cap - to->len >= more)
        return 0;
    size_t before = to->cap, cap = 2 * before > to->len + more ? 2 * before : to->len + more;
    /* the old and the new buffer both exist while the bytes are moved */
    if (!mp_statement_hold(statement, statement->held + cap))
        return mp_sql_fail(
            statement, "too many bytes of SQL results and parameters are in memory, of this script or all (256 MiB)");
    to->ptr = mp_resize(to->ptr, cap);
    to->cap = cap;
    mp_statement_hold(statement, statement->held - before);
    return 0;
}

static size_t bytes_of_names(sqlite3_stmt *prepared, int columns)
{
    size_t bytes = 0;
    for (int i = 0; i < columns; i++)
        bytes += 1 + sizeof(uint32_t) + strlen(sqlite3_column_name(prepared, i));
    return bytes;
}

static int step_all(sqlite3 *db, sqlite3_stmt *prepared, mp_statement *statement, mp_sql_account *account)
{
    mp_buf *to = &statement->result;
    bool keeps = statement->kind == MP_SQL_QUERY;
    int columns = sqlite3_column_count(prepared), rc;
    statement->columns = keeps ? (uint32_t)columns : 0;
    if (keeps && make_room(statement, bytes_of_names(prepared, columns)) != 0)
        return -1;
    for (int i = 0; keeps && i < columns; i++)
        mp_sql_put_bytes(to, 't', mp_str_of(sqlite3_column_name(prepared, i)));
    while ((rc = sqlite3_step(prepared)) == SQLITE_ROW) {
        if (!keeps)
            continue;
        if (statement->rows++ == MP_SQL_ROWS)
            return mp_sql_fail(statement, "more than %lld rows", (long long)MP_SQL_ROWS);
        if (make_room(statement, bytes_of_row(prepared, columns)) != 0)
            return -1;
        for (int i = 0; i < columns; i++)
            put_column(to, prepared, i);
    }
    if (rc != SQLITE_DONE)
        return mp_sql_fail(statement, "%s", mp_sql_words(db, account));
    return 0;
}

/* Prepares the first statement of `sql`, within the bounds of the account. Returns SQLite's code. */
static int prepare_first(sqlite3 *db, const char *sql, unsigned flags, sqlite3_stmt **prepared, const char **rest,
                         mp_sql_account *account)
{
    account->prepares_from = account->used;
    int rc = sqlite3_prepare_v3(db, sql, -1, flags, prepared, rest);
    account->prepares_from = -1;
    if ((rc & 0xff) == SQLITE_TOOBIG)
        account->refused_by = MP_SQL_OVER_LENGTH;
    return rc;
}

int mp_sql_exec(sqlite3 *db, const char *sql, mp_sql_account *account)
{
    int rc = SQLITE_OK;
    while (rc == SQLITE_OK && !is_blank(sql)) {
        sqlite3_stmt *prepared = NULL;
        rc = prepare_first(db, sql, 0, &prepared, &sql, account);
        while (rc == SQLITE_OK && prepared != NULL && sqlite3_step(prepared) == SQLITE_ROW)
            ;
        int ended = sqlite3_finalize(prepared);
        rc = rc == SQLITE_OK ? ended : rc;
    }
    return rc;
}

/* Runs the first statement of `sql`. `*rest` is the text after it. */
static int run_one(sqlite3 *db, mp_sql_cache *cache, mp_statement *statement, const char *sql, const char **rest,
                   mp_sql_account *account)
{
    sqlite3_stmt *prepared = take_cached(cache, sql);
    *rest = "";
    if (prepared == NULL && prepare_first(db, sql, SQLITE_PREPARE_PERSISTENT, &prepared, rest, account) != SQLITE_OK)
        return mp_sql_fail(statement, "%s", mp_sql_words(db, account));
    if (prepared == NULL)
        return 0; /* the text was only a comment */
    bool is_alone = sql == statement->sql && is_blank(*rest);
    int rc;
    if (!is_alone && statement->kind == MP_SQL_QUERY)
        rc = mp_sql_fail(statement, "a query is one statement; db:exec runs several");
    else if (!is_alone && statement->param_count > 0)
        rc = mp_sql_fail(statement, "only one statement takes parameters");
    else if ((rc = bind_all(prepared, statement)) == 0)
        rc = step_all(db, prepared, statement, account);
    if (is_alone && rc == 0 && **rest == '\0')
        give_cached(cache, prepared);
    else
        sqlite3_finalize(prepared);
    return rc;
}

int mp_sql_run(sqlite3 *db, mp_sql_cache *cache, mp_statement *statement, mp_sql_account *account)
{
    int64_t before = sqlite3_total_changes64(db);
    const char *rest = statement->sql;
    do
        if (run_one(db, cache, statement, rest, &rest, account) != 0)
            return -1;
    while (!is_blank(rest));
    statement->changes = sqlite3_total_changes64(db) - before;
    statement->last_id = sqlite3_last_insert_rowid(db);
    return 0;
}
