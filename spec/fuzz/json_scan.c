/* json_scan.c: any bytes through the scanner; a text that it accepts must be consistent in the cursor, in strings
 * and in numbers, and the result must not depend on the visitor. */
#include "json/json.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

static bool enter(void *ctx, unsigned level, mp_str key)
{
    (void)ctx;
    MUST(level >= 1 && level < MP_JSON_DEPTH && (key.len == 0 || key.ptr != NULL));
    return true;
}

static int member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    const mp_str *text = ctx;
    MUST(level >= 1 && level <= MP_JSON_DEPTH && (key.len == 0 || key.ptr != NULL));
    MUST(value.len > 0 && value.ptr >= text->ptr && value.ptr + value.len <= text->ptr + text->len);
    if (type == MP_JSON_NUMBER && mp_json_is_id(type, value))
        MUST(mp_json_id_eq(value, value));
    return 0;
}

static void check_string(mp_str inside)
{
    mp_str span = {inside.ptr - 1, inside.len + 2};
    mp_buf plain = {0}, again = {0};
    mp_json_unescape(&plain, span);
    MUST(mp_json_string_is(span, mp_buf_str(&plain)));
    mp_json_put_string(&again, mp_buf_str(&plain));
    MUST(mp_json_scan(mp_buf_str(&again), NULL, NULL, NULL) == MP_JSON_OK);
    MUST(mp_json_id_eq(span, mp_buf_str(&again)));
    mp_buf_clear(&plain);
    mp_buf_clear(&again);
}

static void check_number(mp_str lexeme)
{
    double n = mp_json_double(lexeme);
    mp_buf out = {0};
    if (mp_json_put_double(&out, n) == 0) {
        MUST(mp_json_scan(mp_buf_str(&out), NULL, NULL, NULL) == MP_JSON_OK);
        mp_buf_putc(&out, '\0');
        MUST(strtod(out.ptr, NULL) == n);
    }
    mp_buf_clear(&out);
    int64_t whole;
    if (mp_json_is_id(MP_JSON_NUMBER, lexeme) && mp_json_int(lexeme, &whole)) {
        mp_json_put_int(&out, whole);
        MUST(mp_json_id_eq(mp_buf_str(&out), lexeme));
        mp_buf_clear(&out);
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    mp_str text = {(const char *)data, size};
    mp_json_tally tally = {.most = SIZE_MAX}, few = {.most = 4};
    mp_json_visitor visitor = {enter, member, &text, &tally}, counter = {.tally = &few};
    mp_json_result counted = mp_json_scan(text, &counter, NULL, NULL);
    mp_json_fault fault;
    mp_json_result unseen = mp_json_scan(text, NULL, NULL, &fault);
    if (unseen == MP_JSON_BROKEN)
        MUST(fault.offset <= size);
    MUST(few.values <= few.most ? counted != MP_JSON_MANY : counted == MP_JSON_MANY && few.values == few.most + 1);
    mp_json_result seen = mp_json_scan(text, &visitor, NULL, &fault);
    MUST(seen == unseen || (unseen == MP_JSON_OK && seen == MP_JSON_REPEATED));
    if (unseen != MP_JSON_OK)
        return 0;

    mp_json_cursor cursor = {text.ptr, text.ptr + text.len};
    mp_json_token token;
    size_t values = 0;
    int depth = 0;
    while ((token = mp_json_next(&cursor)).type != MP_JSON_T_END) {
        depth += token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        depth -= token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        values += token.type != MP_JSON_T_CLOSE_ARRAY && token.type != MP_JSON_T_CLOSE_OBJECT;
        MUST(depth >= 0 && depth <= MP_JSON_DEPTH);
        if (token.type == MP_JSON_T_STRING)
            check_string(token.span);
        else if (token.type == MP_JSON_T_INTEGER || token.type == MP_JSON_T_FLOAT)
            check_number(token.span);
    }
    MUST(depth == 0 && values >= tally.values);
    return 0;
}
