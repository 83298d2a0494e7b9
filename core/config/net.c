/* net.c: checks the syntax of net grants. lua/moonpool/lib/http/reach.lua applies them. */
#include "config.h"
#include <arpa/inet.h>

#define MAX_NAME_BYTES 253

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool is_address(mp_str host)
{
    char text[64] = "", bytes[16];
    if (host.len >= sizeof text)
        return false;
    if (host.len > 0)
        memcpy(text, host.ptr, host.len);
    return inet_pton(strchr(text, ':') == NULL ? AF_INET : AF_INET6, text, bytes) == 1;
}

/* True for "*", a name, or "*." followed by a name. */
static bool is_name(mp_str host)
{
    if (mp_str_is(host, "*"))
        return true;
    if (mp_str_starts(host, MP_STR("*.")))
        host = mp_str_from(host, 2);
    if (host.len > 0 && host.ptr[host.len - 1] == '.')
        host.len--;
    bool is_good = host.len > 0 && host.len <= MAX_NAME_BYTES && host.ptr[0] != '.';
    for (size_t i = 0; i < host.len && is_good; i++)
        is_good = is_name_char(host.ptr[i]) || (host.ptr[i] == '.' && host.ptr[i - 1] != '.');
    return is_good;
}

static bool is_number(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '.' && (text.ptr[i] < '0' || text.ptr[i] > '9'))
            return false;
    return true;
}

/* True for a ":port" suffix, or for an empty text. */
static bool is_port(mp_str port)
{
    int number = 0;
    if (port.ptr == NULL || mp_str_is(port, "*"))
        return true;
    for (size_t i = 0; i < port.len && port.len <= 5; i++) {
        if (port.ptr[i] < '0' || port.ptr[i] > '9')
            return false;
        number = number * 10 + (port.ptr[i] - '0');
    }
    return port.len > 0 && port.len <= 5 && number >= 1 && number <= 65535;
}

/* Cuts the word after the host off `text`. */
static int take_word(mp_str *text, bool *is_private, mp_err *err)
{
    mp_str host = mp_str_cut(text, ' '), word = *text;
    *text = host;
    *is_private = word.ptr != NULL;
    while (word.len > 0 && word.ptr[0] == ' ')
        word = mp_str_from(word, 1);
    if (!*is_private || mp_str_is(word, "private"))
        return 0;
    mp_err_set(err, "unexpected word '%.*s'", (int)(word.len > 64 ? 64 : word.len), word.ptr);
    return mp_err_hint(err, "only the word 'private' may follow");
}

int mp_config_check_net(mp_str text, mp_err *err)
{
    bool is_private, is_bracketed = false;
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i + 2 < text.len; i++)
        if (memcmp(text.ptr + i, "://", 3) == 0) {
            mp_err_set(err, "a URL is not allowed here");
            return mp_err_hint(err, "write host and port, as in api.example.com:443");
        }
    if (take_word(&text, &is_private, err) != 0)
        return -1;
    mp_str port = text, host;
    if (mp_str_starts(text, MP_STR("["))) {
        is_bracketed = true;
        port = mp_str_from(text, 1);
        host = mp_str_cut(&port, ']');
        if (port.ptr == NULL || (port.len > 0 && port.ptr[0] != ':'))
            return mp_err_set(err, "no port after ']'");
        port = port.len == 0 ? (mp_str){NULL, 0} : mp_str_from(port, 1);
    } else {
        host = mp_str_cut(&port, ':');
    }
    if (port.ptr != NULL && memchr(port.ptr, ':', port.len) != NULL) {
        mp_err_set(err, "more than one ':'");
        return mp_err_hint(err, "write an IPv6 address in brackets, as in [::1]:8080");
    }
    if (!is_port(port))
        return mp_err_set(err, "the port must be 1 to 65535, or *");
    if (is_address(host)) {
        if (!is_private)
            return 0;
        mp_err_set(err, "'private' applies to host names only");
        return mp_err_hint(err, "an IP address is granted as written; remove the word");
    }
    if (is_bracketed)
        return mp_err_set(err, "not an IPv6 address in the brackets");
    if (host.len > 0 && is_number(host)) {
        mp_err_set(err, "not an IPv4 address");
        return mp_err_hint(err, "write four numbers, as in 127.0.0.1");
    }
    if (!is_name(host))
        return mp_err_set(
            err,
            "a name consists of letters, digits, '-' and '.'; '*' may stand alone or before a domain: *.example.com");
    return 0;
}
