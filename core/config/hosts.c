/* hosts.c: warns of configurations whose gateway answers 403 to its own clients or operators, because of the name that
 * they use. */
#include "config.h"
#include "rpc/rpc.h"

static bool is_default(const mp_config *config, const char *key)
{
    return mp_config_shown(config, mp_config_key_at(key)) == NULL;
}

/* The first address of `listen` that other machines can reach; NULL: there is none. */
static const char *MP_NULLABLE far_address(const mp_config *config)
{
    for (char **where = config->listen; *where != NULL; where++)
        if (!mp_is_near(*where))
            return *where;
    return NULL;
}

static void put_doubt(mp_buf *report, const mp_config *config, const char *what, mp_str value, const char *hint)
{
    mp_put_visible(report, mp_str_of(config->name));
    mp_buf_printf(report, ": %s '%.*s'\n  hint: %s\n", what, MP_STR_ARG(value), hint);
}

void mp_config_put_refused_hosts(const mp_config *config, mp_buf *report)
{
    mp_str public_host = mp_origin_host(mp_str_of(config->public_url == NULL ? "" : config->public_url));
    const char *far = far_address(config);
    if (public_host.len > 0 && !mp_hosts_have((const char *const *)config->hosts, public_host))
        put_doubt(report, config, "'hosts' does not have the name of 'public_url', so requests with this Host get 403:",
                  mp_host_name(public_host), "add the name to hosts");
    else if (public_host.len == 0 && far != NULL && is_default(config, "hosts"))
        put_doubt(report, config,
                  "clients on other machines get 403, because 'hosts' has only names of this machine; 'listen' is",
                  mp_str_of(far), "write the names that clients use, as in hosts: [mcp.example.com, localhost]");
    bool has_no_names = config->admin_hosts == NULL && config->admin_tls.certificate != NULL;
    if (config->admin_listen != NULL && has_no_names && !mp_is_near(config->admin_listen))
        put_doubt(report, config,
                  "the dashboard opens by IP address alone, because there is no 'admin.hosts'; 'admin.listen' is",
                  mp_str_of(config->admin_listen),
                  "write the names of its certificate, as in admin: {hosts: [gateway.example.com]}");
}
