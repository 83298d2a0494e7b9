/* sql_rules.c: the lists of the functions, modules and pragmas that a script's SQL may use, and a connection
 * restricted to them. The lists are enforced twice. The authorizer checks every statement as it is prepared. It does
 * not see expressions in the schema of a file, so a denied function is also replaced by one that fails, and a denied
 * module is dropped. The functions that are left have no effect outside of their database, so schemas are trusted
 * (FTS5 in triggers needs that). */
#include "data/sql_rules.h"
#include "data/sql_functions.h"

#define MAX_ARGUMENTS 3 /* most arguments of a denied function */

static const char *const allowed_functions[] = {
    /* scalar functions */
    "->", "->>", "abs", "changes", "char", "coalesce", "concat", "concat_ws", "format", "glob", "hex", "if", "ifnull",
    "iif", "instr", "last_insert_rowid", "length", "like", "likelihood", "likely", "lower", "ltrim", "max", "min",
    "nullif", "octet_length", "printf", "quote", "random", "randomblob", "replace", "round", "rtrim", "sign", "soundex",
    "sqlite_compileoption_get", "sqlite_compileoption_used", "sqlite_source_id", "sqlite_version", "substr",
    "substring", "total_changes", "trim", "typeof", "unhex", "unicode", "unistr", "unistr_quote", "unlikely", "upper",
    "zeroblob",
    /* functions of dates and times */
    "current_date", "current_time", "current_timestamp", "date", "datetime", "julianday", "strftime", "time",
    "timediff", "unixepoch",
    /* mathematical functions */
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "ceiling", "cos", "cosh", "degrees", "exp",
    "floor", "ln", "log", "log10", "log2", "mod", "pi", "pow", "power", "radians", "sin", "sinh", "sqrt", "tan", "tanh",
    "trunc",
    /* aggregate and window functions */
    "avg", "count", "cume_dist", "dense_rank", "first_value", "group_concat", "lag", "last_value", "lead", "median",
    "nth_value", "ntile", "percent_rank", "percentile", "percentile_cont", "percentile_disc", "rank", "row_number",
    "string_agg", "sum", "total",
    /* functions of JSON */
    "json", "json_array", "json_array_insert", "json_array_length", "json_error_position", "json_extract",
    "json_group_array", "json_group_object", "json_insert", "json_object", "json_pretty", "json_quote", "json_remove",
    "json_replace", "json_set", "json_type", "json_valid", "jsonb", "jsonb_array", "jsonb_array_insert",
    "jsonb_extract", "jsonb_group_array", "jsonb_group_object", "jsonb_insert", "jsonb_object", "jsonb_remove",
    "jsonb_replace", "jsonb_set", "subtype",
    /* functions of FTS5 */
    "bm25", "fts5_get_locale", "fts5_insttoken", "fts5_locale", "fts5_source_id", "highlight", "match", "snippet",
    /* functions of ALTER TABLE: SQLite itself refuses them in any other SQL */
    "sqlite_drop_column", "sqlite_rename_column", "sqlite_rename_quotefix", "sqlite_rename_table", "sqlite_rename_test",
    NULL};

static const char *const denied_functions[] = {
    "fts3_tokenizer", "load_extension",                          /* functions that call addresses or load code */
    "fts5",           "matchinfo",      "offsets",   "optimize", /* modules of C programs, and of FTS3 and FTS4 */
    "json_patch",     "jsonb_patch",                             /* quadratic time, and cannot be interrupted */
    "rtreecheck",     "rtreedepth",     "rtreenode", "sqlite_log", NULL}; /* functions for debugging SQLite */

static const char *const allowed_modules[] = {"fts5",       "fts5vocab",  "generate_series", "json_each", "json_tree",
                                              "jsonb_each", "jsonb_tree", "rtree",           "rtree_i32", NULL};

/* The modules with the prefix pragma_ are pragmas: the authorizer checks each when it runs. */
static const char *const denied_modules[] = {"bytecode", "dbstat",        "fts3",         "fts3tokenize", "fts4",
                                             "fts4aux",  "sqlite_dbpage", "sqlite_dbptr", "sqlite_stmt",  "tables_used",
                                             NULL};

static const char *const allowed_pragmas[] = {"analysis_limit",
                                              "application_id",
                                              "auto_vacuum",
                                              "collation_list",
                                              "compile_options",
                                              "data_version",
                                              "defer_foreign_keys",
                                              "encoding",
                                              "foreign_key_check",
                                              "foreign_key_list",
                                              "foreign_keys",
                                              "freelist_count",
                                              "function_list",
                                              "incremental_vacuum",
                                              "index_info",
                                              "index_list",
                                              "index_xinfo",
                                              "integrity_check",
                                              "module_list",
                                              "optimize",
                                              "page_count",
                                              "page_size",
                                              "pragma_list",
                                              "quick_check",
                                              "recursive_triggers",
                                              "table_info",
                                              "table_list",
                                              "table_xinfo",
                                              "user_version",
                                              "wal_checkpoint",
                                              NULL};

static const char *const denied_pragmas[] = {"automatic_index",
                                             "busy_timeout",
                                             "cache_size",
                                             "cache_spill",
                                             "case_sensitive_like",
                                             "cell_size_check",
                                             "checkpoint_fullfsync",
                                             "count_changes",
                                             "data_store_directory",
                                             "database_list",
                                             "default_cache_size",
                                             "empty_result_callbacks",
                                             "full_column_names",
                                             "fullfsync",
                                             "hard_heap_limit",
                                             "ignore_check_constraints",
                                             "journal_mode",
                                             "journal_size_limit",
                                             "legacy_alter_table",
                                             "legacy_file_format",
                                             "locking_mode",
                                             "lock_proxy_file",
                                             "max_page_count",
                                             "mmap_size",
                                             "parser_trace",
                                             "query_only",
                                             "read_uncommitted",
                                             "reverse_unordered_selects",
                                             "schema_version",
                                             "secure_delete",
                                             "short_column_names",
                                             "shrink_memory",
                                             "soft_heap_limit",
                                             "sql_trace",
                                             "stats",
                                             "synchronous",
                                             "temp_store",
                                             "temp_store_directory",
                                             "threads",
                                             "trusted_schema",
                                             "vdbe_addoptrace",
                                             "vdbe_debug",
                                             "vdbe_listing",
                                             "vdbe_trace",
                                             "wal_autocheckpoint",
                                             "writable_schema",
                                             NULL};

static const struct {
    const char *const *allowed, *const *denied;
} lists[] = {[MP_SQL_FUNCTION] = {allowed_functions, denied_functions},
             [MP_SQL_MODULE] = {allowed_modules, denied_modules},
             [MP_SQL_PRAGMA] = {allowed_pragmas, denied_pragmas}};

static bool holds(const char *const *list, const char *name)
{
    for (; *list != NULL; list++)
        if (strcasecmp(*list, name) == 0)
            return true;
    return false;
}

mp_sql_verdict mp_sql_judge(mp_sql_thing thing, const char *name)
{
    if (thing == MP_SQL_MODULE && strncasecmp(name, "pragma_", 7) == 0)
        return mp_sql_judge(MP_SQL_PRAGMA, name + 7);
    return holds(lists[thing].allowed, name)  ? MP_SQL_ALLOWED
           : holds(lists[thing].denied, name) ? MP_SQL_DENIED
                                              : MP_SQL_UNKNOWN;
}

static bool allows(mp_sql_thing thing, const char *MP_NULLABLE name)
{
    return name != NULL && mp_sql_judge(thing, name) == MP_SQL_ALLOWED;
}

const char *MP_NULLABLE mp_sql_refusal(int action, const char *one, const char *two)
{
    switch (action) {
    case SQLITE_ATTACH: /* VACUUM also needs ATTACH and DETACH */
    case SQLITE_DETACH:
        return "ATTACH, DETACH and VACUUM are not available to scripts";
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
        return "SQL may not begin or end a transaction: call db:transaction(f)";
    case SQLITE_FUNCTION:
        return allows(MP_SQL_FUNCTION, two) ? NULL : "this SQL function is not available to scripts";
    case SQLITE_CREATE_VTABLE:
    case SQLITE_DROP_VTABLE:
        return allows(MP_SQL_MODULE, two) ? NULL : "this kind of virtual table is not available to scripts";
    case SQLITE_PRAGMA:
        return allows(MP_SQL_PRAGMA, one) ? NULL : "this pragma is not available to scripts";
    default:
        return action >= 0 && action <= SQLITE_RECURSIVE ? NULL : "this kind of SQL is not available to scripts";
    }
}

/* The implementation of a denied function: fails with an error. */
static void refuse_function(sqlite3_context *context, MP_UNUSED int count, MP_UNUSED sqlite3_value **values)
{
    sqlite3_result_error(context, "this SQL function is not available to scripts", -1);
}

int mp_sql_restrict(sqlite3 *db)
{
    static const int switches[][2] = {{SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
                                      {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
                                      {SQLITE_DBCONFIG_DEFENSIVE, 1},
                                      {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
                                      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 1}};
    int rc = SQLITE_OK;
    for (size_t i = 0; i < sizeof switches / sizeof *switches && rc == SQLITE_OK; i++)
        rc = sqlite3_db_config(db, switches[i][0], switches[i][1], NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_drop_modules(db, (const char **)allowed_modules);
    for (const char *const *name = denied_functions; *name != NULL; name++)
        for (int count = -1; count <= MAX_ARGUMENTS && rc == SQLITE_OK; count++)
            rc = sqlite3_create_function_v2(db, *name, count, SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL, refuse_function,
                                            NULL, NULL, NULL);
    return rc == SQLITE_OK ? mp_sql_functions(db) : rc;
}
