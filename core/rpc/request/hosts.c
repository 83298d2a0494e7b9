/* hosts.c: which values of Host and Origin are served: the guard against DNS rebinding (Z-1, Z-2). */
#include "request.h"
#include <string.h>

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

/* An entry with a port allows only that port. */
static bool is_listed(const mp_rpc_config *config, mp_str host)
{
    mp_str name = without_port(host);
    mp_str port = mp_str_from(host, name.len);
    if (name.len == 0 || (port.len > 0 && !is_port(port)))
        return false;
    for (const char *const *entry = config->hosts; *entry != NULL; entry++)
        if (strcmp(*entry, "*") == 0 || mp_str_is_nocase(name, *entry) || mp_str_is_nocase(host, *entry))
            return true;
    return false;
}

bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream)
{
    return is_listed(config, mp_stream_request(stream)->host);
}

bool mp_host_is_served(const mp_rpc_config *config, const mp_stream *stream)
{
    if (!mp_host_is_listed(config, stream))
        return false;
    int count;
    mp_str origin = mp_stream_known_header(stream, MP_HEADER_ORIGIN, &count);
    if (count == 0)
        return true;
    if (count > 1)
        return false;
    if (mp_origin_is_allowed(config, origin))
        return true;
    if (mp_str_starts(origin, MP_STR("http://")))
        return is_listed(config, mp_str_from(origin, 7));
    return mp_str_starts(origin, MP_STR("https://")) && is_listed(config, mp_str_from(origin, 8));
}

/* Clients of a worker say the same Host over and over: the one that was found listed last needs no search. */
bool mp_request_is_served(mp_rpc *rpc, const mp_stream *stream)
{
    mp_str host = mp_stream_request(stream)->host;
    int origins;
    mp_stream_known_header(stream, MP_HEADER_ORIGIN, &origins);
    if (origins == 0 && host.len > 0 && mp_str_eq(host, (mp_str){rpc->listed_host, rpc->listed_host_len}))
        return true;
    if (!mp_host_is_served(rpc->config, stream))
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
