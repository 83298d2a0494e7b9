/* traces_check.c: checks the values of `traces`. */
#include "config.h"

int mp_config_check_collector(mp_str text, mp_err *err)
{
    if (mp_config_check_url(text, err) != 0) {
        mp_err_hint(err, "as in http://127.0.0.1:4318");
        return -1;
    }
    if (memchr(text.ptr, '?', text.len) != NULL)
        return mp_err_set(err, "/v1/traces is appended to it: it has no query");
    return 0;
}

int mp_config_check_propagate(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    if (mp_str_starts(text, MP_STR("*.")) && text.len > 2)
        text = mp_str_from(text, 2);
    for (size_t i = 0; i < text.len && !mp_str_is(text, "*"); i++) {
        char c = text.ptr[i];
        bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_plain && strchr("._:-", c) == NULL)
            return mp_err_set(err, "write upstreams, *, the name of a host, or *. and a domain");
    }
    return 0;
}

int mp_config_check_ratio(mp_str text, mp_err *err)
{
    char copy[17] = "", *end;
    mp_err_set(err, "%s", "");
    mp_err_hint(err, "a number from 0 (none) to 1 (all), as in 0.05");
    if (text.len >= sizeof copy)
        return -1;
    memcpy(copy, text.ptr, text.len);
    for (size_t i = 0; i < text.len; i++)
        if ((copy[i] < '0' || copy[i] > '9') && copy[i] != '.')
            return -1;
    double ratio = strtod(copy, &end);
    return *end == '\0' && end != copy && ratio >= 0 && ratio <= 1 ? 0 : -1;
}

int mp_config_check_header_token(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_plain && strchr("!#$%&'*+-.^_`|~", c) == NULL)
            return mp_err_set(err, "the name of a header has letters, digits and '-'");
    }
    if (text.len == 0 || mp_str_is_nocase(text, "content-type") || mp_str_is_nocase(text, "content-length") ||
        mp_str_is_nocase(text, "transfer-encoding") || mp_str_is_nocase(text, "host"))
        return mp_err_set(err, "the gateway sets this header itself");
    return 0;
}
