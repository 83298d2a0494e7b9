/* cursor.c: reads the tokens of a text that mp_json_scan accepted. Validates nothing again. */
#include "json/json.h"
#include "json/text.h"

static mp_json_token string_token(mp_json_cursor *cursor)
{
    const char *from = cursor->at + 1, *at = from;
    bool escaped = false;
    while (*(at = quote_or_escape(at, cursor->end)) == '\\') {
        escaped = true;
        do
            at += 2;
        while (*at == '\\');
    }
    cursor->at = at + 1;
    return (mp_json_token){MP_JSON_T_STRING, {from, (size_t)(at - from)}, escaped};
}

static mp_json_token number_token(mp_json_cursor *cursor)
{
    const char *from = cursor->at, *at = from;
    mp_json_token_type type = MP_JSON_T_INTEGER;
    for (; at < cursor->end; at++) {
        char c = *at;
        if (c == '.' || c == 'e' || c == 'E')
            type = MP_JSON_T_FLOAT;
        else if ((c < '0' || c > '9') && c != '-' && c != '+')
            break;
    }
    cursor->at = at;
    return (mp_json_token){type, {from, (size_t)(at - from)}, false};
}

static mp_json_token token(mp_json_cursor *cursor, mp_json_token_type type, size_t length)
{
    const char *from = cursor->at;
    cursor->at += length;
    return (mp_json_token){type, {from, length}, false};
}

mp_json_token mp_json_next(mp_json_cursor *cursor)
{
    while (cursor->at < cursor->end) {
        switch (*cursor->at) {
        case '"':
            return string_token(cursor);
        case '{':
            return token(cursor, MP_JSON_T_OPEN_OBJECT, 1);
        case '}':
            return token(cursor, MP_JSON_T_CLOSE_OBJECT, 1);
        case '[':
            return token(cursor, MP_JSON_T_OPEN_ARRAY, 1);
        case ']':
            return token(cursor, MP_JSON_T_CLOSE_ARRAY, 1);
        case 't':
            return token(cursor, MP_JSON_T_TRUE, 4);
        case 'f':
            return token(cursor, MP_JSON_T_FALSE, 5);
        case 'n':
            return token(cursor, MP_JSON_T_NULL, 4);
        case ' ':
        case '\t':
        case '\n':
        case '\r':
        case ',':
        case ':':
            do
                cursor->at++;
            while (cursor->at < cursor->end && *cursor->at == ' ');
            break;
        default:
            return number_token(cursor);
        }
    }
    return (mp_json_token){MP_JSON_T_END, {cursor->end, 0}, false};
}

mp_str mp_json_skip(mp_json_cursor *cursor, mp_json_token token)
{
    const char *from = token.span.ptr - (token.type == MP_JSON_T_STRING);
    for (int depth = 0;; token = mp_json_next(cursor)) {
        depth += token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        depth -= token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (depth == 0)
            return (mp_str){from, (size_t)(cursor->at - from)};
    }
}

bool mp_json_next_member(mp_json_cursor *cursor, mp_json_member *it)
{
    mp_json_token key = mp_json_next(cursor);
    if (key.type != MP_JSON_T_STRING)
        return false;
    it->key = key.span;
    it->value = mp_json_next(cursor);
    it->span = mp_json_skip(cursor, it->value);
    return true;
}

bool mp_json_find_member(mp_str object, mp_str name, mp_json_member *it)
{
    if (object.len == 0)
        return false;
    mp_json_cursor cursor = {object.ptr + 1, object.ptr + object.len};
    while (mp_json_next_member(&cursor, it))
        if (mp_json_string_is((mp_str){it->key.ptr - 1, it->key.len + 2}, name))
            return true;
    return false;
}
