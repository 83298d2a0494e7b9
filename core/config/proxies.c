/* proxies.c: the settings of an address about proxies in front of it, and warnings about them. */
#include "read.h"

char *const *MP_NULLABLE mp_config_proxies_of(const mp_config *config, size_t index)
{
    return config->listen_tls == NULL ? NULL : config->listen_tls[index].trusted_proxies;
}

bool mp_config_has_proxy_header(const mp_config *config, size_t index)
{
    return config->listen_tls != NULL && config->listen_tls[index].proxy_protocol == MP_PROXY_PROTOCOL_ON;
}

/* True if one of the proxies can be the peer of a connection to this address. Sockets of a unit may be of any kind. */
static bool can_connect(char *const *MP_NULLABLE proxies, const char *address)
{
    bool is_unix = mp_str_starts(mp_str_of(address), MP_STR("unix:"));
    bool can = proxies != NULL && mp_systemd_name(mp_str_of(address)).ptr != NULL;
    for (; proxies != NULL && *proxies != NULL; proxies++)
        can = can || (strcmp(*proxies, "unix") == 0) == is_unix;
    return can;
}

int mp_config_check_proxies(const mp_config *config, const char **path, mp_err *err)
{
    *path = "listen.proxy_protocol";
    for (size_t i = 0; config->listen[i] != NULL; i++) {
        const char *address = config->listen[i];
        if (!mp_config_has_proxy_header(config, i) || can_connect(mp_config_proxies_of(config, i), address))
            continue;
        mp_err_set(err, "'proxy_protocol' at %s needs 'trusted_proxies': %s", address,
                   "any client could write a PROXY header with an address of its choice");
        return strncmp(address, "unix:", 5) == 0
                   ? mp_err_hint(err, "trusted_proxies: [unix] trusts every process that may open the socket")
                   : mp_err_hint(err, "name the proxies, as in trusted_proxies: [10.1.2.3]; 0.0.0.0/0 and ::/0 trust "
                                      "every peer, where only proxies can connect");
    }
    return 0;
}

void mp_config_put_unseen_clients(const mp_config *config, mp_buf *report)
{
    const char *url = config->public_url;
    bool is_secure = url != NULL && strncmp(url, "https:", 6) == 0, is_seen = false;
    for (size_t i = 0; config->listen[i] != NULL; i++)
        is_seen = is_seen || mp_config_tls_of(config, i) != NULL || mp_config_proxies_of(config, i) != NULL;
    if (url == NULL || !is_secure || is_seen)
        return;
    mp_put_visible(report, mp_str_of(config->name));
    mp_buf_printf(
        report,
        ": no address of 'listen' has TLS or 'trusted_proxies', so all clients of '%s' have the address of a proxy\n"
        "  hint: name the proxy, as in listen: {address: \"%s\", trusted_proxies: [127.0.0.1]}\n",
        url, config->listen[0]);
}

void mp_config_put_unknown_scheme(const mp_config *config, mp_buf *report)
{
    size_t i = 0;
    while (config->listen[i] != NULL &&
           (mp_config_tls_of(config, i) != NULL || mp_config_proxies_of(config, i) == NULL))
        i++;
    if (config->listen[i] == NULL || config->public_url != NULL)
        return;
    mp_put_visible(report, mp_str_of(config->name));
    mp_buf_printf(
        report,
        ": clients reach '%s' through a proxy, and there is no 'public_url': the metadata that tell them where "
        "to get a token begin with http://\n"
        "  hint: write the address that clients use, as in public_url: https://mcp.example.com\n",
        config->listen[i]);
}
