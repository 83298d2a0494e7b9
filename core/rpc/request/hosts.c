/* hosts.c: which values of Host and Origin are served: the guard against DNS rebinding (Z-1, Z-2). */
#include "request.h"

/* "[::1]" of "[::1]:7300". */
static mp_str without_port(mp_str host)
{
    if (host.len > 0 && host.ptr[0] == '[') {
        const char *end = memchr(host.ptr, ']', host.len);
        return end == NULL ? host : (mp_str){host.ptr, (size_t)(end - host.ptr) + 1};
    }
    mp_str rest = host;
    return mp_str_cut(&rest, ':');
}

static bool is_port(mp_str port)
{
    if (port.len < 2 || port.len > 6 || port.ptr[0] != ':')
        return false;
    for (size_t i = 1; i < port.len; i++)
        if (port.ptr[i] < '0' || port.ptr[i] > '9')
            return false;
    return true;
}

mp_str mp_host_name(mp_str host)
{
    mp_str name = without_port(host);
    mp_str port = mp_str_from(host, name.len);
    return port.len > 0 && !is_port(port) ? MP_STR_NONE : name;
}

/* True if `name` is a name below `domain`, which begins with a dot: the domain behind one label or more. */
static bool is_below(mp_str name, mp_str domain)
{
    if (name.len <= domain.len)
        return false;
    size_t len = name.len - domain.len;
    for (size_t i = 0; i < len; i++) {
        char c = name.ptr[i];
        bool is_dot = c == '.' && i > 0 && name.ptr[i - 1] != '.' && i < len - 1;
        if (!is_dot && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' &&
            c != '_')
            return false;
    }
    return mp_str_is_nocase(mp_str_from(name, len), domain.ptr);
}

bool mp_hosts_have(const char *const *list, mp_str host)
{
    mp_str name = mp_host_name(host);
    for (const char *const *entry = list; name.len > 0 && entry != NULL && *entry != NULL; entry++)
        if (strcmp(*entry, "*") == 0 ||
            (**entry == '*' ? is_below(name, mp_str_of(*entry + 1)) : mp_str_is_nocase(name, *entry)))
            return true;
    return false;
}

mp_str mp_origin_host(mp_str origin)
{
    size_t scheme = mp_str_starts(origin, MP_STR("http://")) ? 7 : mp_str_starts(origin, MP_STR("https://")) ? 8 : 0;
    return scheme == 0 ? MP_STR_NONE : mp_str_from(origin, scheme);
}

bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream)
{
    return mp_hosts_have(config->hosts, mp_stream_request(stream)->host);
}

static bool is_served(const mp_rpc_config *config, const mp_stream *stream)
{
    if (!mp_host_is_listed(config, stream))
        return false;
    int count;
    mp_str origin = mp_stream_known_header(stream, MP_HEADER_ORIGIN, &count);
    if (count == 0)
        return true;
    if (count > 1)
        return false;
    return mp_origin_is_allowed(config, origin) || mp_hosts_have(config->hosts, mp_origin_host(origin));
}

/* Clients of a worker say the same Host over and over: the one that was found listed last needs no search. */
bool mp_request_is_served(mp_rpc *rpc, const mp_stream *stream)
{
    mp_str host = mp_stream_request(stream)->host;
    int origins;
    mp_stream_known_header(stream, MP_HEADER_ORIGIN, &origins);
    if (origins == 0 && host.len > 0 && mp_str_eq(host, (mp_str){rpc->listed_host, rpc->listed_host_len}))
        return true;
    if (!is_served(rpc->config, stream))
        return false;
    if (host.len <= sizeof rpc->listed_host) {
        memcpy(rpc->listed_host, host.ptr, host.len);
        rpc->listed_host_len = host.len;
    }
    return true;
}

const char *mp_host_refusal(const mp_rpc_config *config, const mp_stream *stream)
{
    return mp_host_is_listed(config, stream)
               ? "pages of this Origin are not served: see \"cors\" and \"hosts\" in the configuration"
               : "this Host is not served here: see \"hosts\" in the configuration";
}

mp_cause mp_host_cause(const mp_rpc_config *config, const mp_stream *stream)
{
    return mp_host_is_listed(config, stream) ? MP_CAUSE_ORIGIN : MP_CAUSE_HOST;
}
