/* envelope.c: the quick reader of messages against the general one, on messages that are changed. Where the quick
 * reader takes one, both say the same, every span lies in the message, and the arguments are those that the cursor
 * finds in the params. */
#include "mcp/mcp.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

static mp_str text;

static void check_inside(mp_str span)
{
    MUST(span.len == 0 || (span.ptr >= text.ptr && span.ptr + span.len <= text.ptr + text.len));
}

static void check_equal(mp_str a, mp_str b)
{
    check_inside(a);
    MUST(mp_str_eq(a, b));
}

/* Reads one value with the cursor and returns its first token; `depth` levels are skipped. */
static mp_json_token skip_value(mp_json_cursor *cursor)
{
    mp_json_token first = mp_json_next(cursor), token = first;
    for (int depth = 0;;) {
        depth += token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        depth -= token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (depth == 0)
            return first;
        token = mp_json_next(cursor);
    }
}

static void check_argument(const mp_flat *flat, mp_json_token name, mp_json_token value, const char *end)
{
    MUST(!name.escaped && name.span.ptr == flat->name.ptr && name.span.len == flat->name.len);
    if (value.type == MP_JSON_T_STRING) {
        MUST(flat->type == (value.escaped ? MP_FLAT_ESCAPED : MP_JSON_T_STRING));
        MUST(flat->value.ptr == value.span.ptr - value.escaped);
        MUST(flat->value.len == value.span.len + (value.escaped ? 2 : 0));
    } else {
        MUST(flat->type == value.type && flat->value.ptr == value.span.ptr && flat->value.ptr + flat->value.len == end);
    }
}

static void check_flat(const mp_envelope *quick)
{
    mp_json_cursor cursor = {quick->params.ptr, quick->params.ptr + quick->params.len};
    size_t found = 0;
    MUST(mp_json_next(&cursor).type == MP_JSON_T_OPEN_OBJECT);
    for (mp_json_token key; (key = mp_json_next(&cursor)).type == MP_JSON_T_STRING;) {
        if (!mp_str_is(key.span, "arguments")) {
            skip_value(&cursor);
            continue;
        }
        mp_json_next(&cursor); /* the opening brace */
        for (mp_json_token name; (name = mp_json_next(&cursor)).type == MP_JSON_T_STRING; found++) {
            MUST(found < quick->flat_count);
            mp_json_token value = skip_value(&cursor);
            check_argument(&quick->flat[found], name, value, cursor.at);
            for (size_t i = 0; i < found; i++)
                MUST(!mp_str_eq(quick->flat[i].name, name.span));
        }
    }
    MUST(found == quick->flat_count);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    mp_envelope quick = {0}, general = {0};
    size_t values = size > 0 && data[0] == ' ' ? 12 : 100000;
    text = (mp_str){(const char *)data, size};
    if (mp_envelope_read_quickly(&quick, text, values)) {
        mp_envelope_read_any(&general, text, values);
        MUST(general.kind == MP_KIND_REQUEST && quick.kind == MP_KIND_REQUEST);
        MUST(quick.problem == general.problem && quick.offset == general.offset && !quick.has_many);
        MUST(quick.weight == general.weight && quick.size == general.size);
        check_equal(quick.id, general.id);
        check_equal(quick.params, general.params);
        check_equal(quick.name, general.name);
        check_equal(quick.version, general.version);
        check_equal(quick.progress_token, general.progress_token);
        check_equal(quick.answer, general.answer);
        check_equal(quick.cancels, general.cancels);
        MUST(mp_str_is(quick.method, "tools/call") && mp_str_eq(quick.method, general.method));
        MUST(quick.has_name == general.has_name && quick.has_version == general.has_version);
        MUST(quick.version_is_string == general.version_is_string && quick.is_error == general.is_error);
        MUST(quick.has_capabilities == general.has_capabilities && quick.is_flat);
        check_flat(&quick);
    }
    mp_buf_clear(&quick.scratch);
    mp_buf_clear(&general.scratch);
    return 0;
}
