/* message.c: parts of a JSON-RPC message that its envelope does not have: a member of its params, the elements of an
 * array of messages. */
#include "upstream/transport.h"

mp_str mp_message_member(mp_str params, const char *name)
{
    mp_json_cursor cursor = {params.ptr, params.ptr + params.len};
    int depth = 0;
    bool is_key = true, is_next = false;
    if (params.len == 0 || mp_json_next(&cursor).type != MP_JSON_T_OPEN_OBJECT)
        return MP_STR_NONE;
    for (;;) {
        mp_json_token token = mp_json_next(&cursor);
        bool opens = token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        bool closes = token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (token.type == MP_JSON_T_END || (closes && depth == 0))
            return MP_STR_NONE;
        if (opens || closes)
            depth += opens ? 1 : -1;
        if (closes || depth > (opens ? 1 : 0)) /* the bracket is inside the value of a member, or ends it */
            continue;
        if (is_next) {
            bool is_text = token.type == MP_JSON_T_STRING;
            return opens ? MP_STR_NONE : (mp_str){token.span.ptr - is_text, token.span.len + 2 * is_text};
        }
        if (is_key)
            is_next = token.type == MP_JSON_T_STRING && mp_str_is(token.span, name);
        is_key = !is_key;
    }
}

mp_str mp_message_next(mp_json_cursor *cursor)
{
    int depth = 0;
    const char *begin = NULL;
    for (;;) {
        const char *before = cursor->at;
        mp_json_token token = mp_json_next(cursor);
        bool opens = token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        bool closes = token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (token.type == MP_JSON_T_END || (closes && depth == 0))
            return MP_STR_NONE;
        if (opens && depth++ == 0)
            begin = memchr(before, token.type == MP_JSON_T_OPEN_OBJECT ? '{' : '[', (size_t)(cursor->at - before));
        if (closes && --depth == 0)
            return (mp_str){begin, (size_t)(cursor->at - begin)};
    }
}
