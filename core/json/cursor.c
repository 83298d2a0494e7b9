/* cursor.c: reads the tokens of a text that mp_json_scan accepted. Validates nothing again. */
#include "json/json.h"
#include "json/text.h"

static mp_json_token string_token(mp_json_cursor *cursor)
{
    const char *from = cursor->at + 1, *at = from;
    bool escaped = false;
    while (*(at = quote_or_escape(at, cursor->end)) == '\\') {
        escaped = true;
        at += 2;
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
            cursor->at++;
            break;
        default:
            return number_token(cursor);
        }
    }
    return (mp_json_token){MP_JSON_T_END, {cursor->end, 0}, false};
}
