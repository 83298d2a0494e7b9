/* forwarded.c: the client's address in X-Forwarded-For and Forwarded. Lists are read from the right, so that the part
 * that a client wrote is read last and cannot change the meaning of the part before it, not even by an open quotation
 * mark. */
#include "forwarded.h"

/* True if the quotation mark at `at` is escaped: an odd number of backslashes is before it. */
static bool is_escaped(mp_str text, size_t at)
{
    size_t slashes = 0;
    while (slashes < at && text.ptr[at - slashes - 1] == '\\')
        slashes++;
    return slashes % 2 == 1;
}

/* Cuts the last element off a list; `has_quotes`: commas in quoted texts separate no elements. False if the list has no
 * more. */
static bool cut_last(mp_str *list, bool has_quotes, mp_str *element)
{
    bool is_quoted = false;
    size_t at = list->len;
    if (list->ptr == NULL)
        return false;
    for (; at > 0; at--) {
        char c = list->ptr[at - 1];
        if (c == '"' && has_quotes && !is_escaped(*list, at - 1))
            is_quoted = !is_quoted;
        else if (c == ',' && !is_quoted)
            break;
    }
    *element = mp_str_trim(mp_str_from(*list, at));
    *list = at == 0 ? MP_STR_NONE : (mp_str){list->ptr, at - 1};
    return true;
}

/* RFC 7239 allows five digits, so that zeros may be in front. */
static bool is_port(mp_str text)
{
    unsigned unused;
    if (text.len > 5)
        return false;
    while (text.len > 1 && text.ptr[0] == '0')
        text = mp_str_from(text, 1);
    return mp_digits_read(text, 65535, &unused);
}

/* An address, with a port or without; an IPv6 address may be in brackets, and has to be if it has a port. A port that
 * is hidden ("_a1") is refused, as no proxy hides the port and shows the address. */
static bool read_node(mp_str text, mp_ip *ip)
{
    if (mp_ip_read(text, ip))
        return true;
    mp_str port = text, host;
    if (mp_str_starts(text, MP_STR("["))) {
        port = mp_str_from(text, 1);
        host = mp_str_cut(&port, ']');
        if (port.ptr == NULL || memchr(host.ptr, ':', host.len) == NULL)
            return false;
        return mp_ip_read(host, ip) && (port.len == 0 || (port.ptr[0] == ':' && is_port(mp_str_from(port, 1))));
    }
    host = mp_str_cut(&port, ':');
    return port.ptr != NULL && is_port(port) && mp_ip_read(host, ip);
}

/* Cuts the first pair (as in for=10.1.2.3) off an element of Forwarded. The value of a pair may be quoted. */
static mp_str cut_pair(mp_str *rest)
{
    bool is_quoted = false;
    size_t at = 0;
    for (; at < rest->len; at++) {
        char c = rest->ptr[at];
        if (c == '\\' && is_quoted)
            at++;
        else if (c == '"')
            is_quoted = !is_quoted;
        else if (c == ';' && !is_quoted)
            break;
    }
    if (at > rest->len)
        at = rest->len;
    mp_str pair = {rest->ptr, at};
    *rest = at == rest->len ? MP_STR_NONE : mp_str_from(*rest, at + 1);
    return mp_str_trim(pair);
}

/* Finds the value of the pair `for` in an element of Forwarded, and takes its quotation marks off. False unless exactly
 * one pair is named `for`. */
static bool find_for(mp_str element, mp_str *value)
{
    int count = 0;
    while (element.ptr != NULL) {
        mp_str text = cut_pair(&element), name = mp_str_cut(&text, '=');
        if (!mp_str_is_nocase(mp_str_trim(name), "for"))
            continue;
        count++;
        *value = text.ptr == NULL ? MP_STR("") : mp_str_trim(text);
    }
    if (count != 1)
        return false;
    if (value->len >= 2 && value->ptr[0] == '"' && value->ptr[value->len - 1] == '"')
        *value = (mp_str){value->ptr + 1, value->len - 2};
    return true;
}

void mp_forwarded_take(mp_forwarded *list, mp_str line, bool is_rfc7239)
{
    mp_str element;
    while (!list->is_over && cut_last(&line, is_rfc7239, &element)) {
        mp_ip ip;
        mp_str node = element;
        if (list->hops++ == MP_FORWARDED_HOPS || (is_rfc7239 && !find_for(element, &node)) || !read_node(node, &ip)) {
            list->is_over = list->is_unclear = true;
            return;
        }
        list->ip = ip;
        list->has_ip = true;
        list->is_over = !mp_proxies_have(list->proxies, &ip);
    }
}

mp_forwarded mp_forwarded_agree(const mp_forwarded *one, const mp_forwarded *other)
{
    bool is_same = one->has_ip == other->has_ip && (!one->has_ip || memcmp(&one->ip, &other->ip, sizeof one->ip) == 0);
    mp_forwarded both = *one;
    both.is_unclear = !is_same || one->is_unclear || other->is_unclear;
    both.has_ip = is_same && one->has_ip;
    return both;
}
