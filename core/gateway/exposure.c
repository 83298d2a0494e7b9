#include "exposure.h"

/* The first address that others can reach, be it that of a proxy in front; NULL when there is none. */
static const char *far_address(const mp_config *config)
{
    if (config->public_url != NULL)
        return config->public_url;
    for (char **where = config->listen; *where != NULL; where++)
        if (!mp_is_near(*where))
            return *where;
    return NULL;
}

int mp_exposure_check(const mp_config *config, const mp_vm *vm, mp_buf *report)
{
    const char *far = config->auth_mode == MP_AUTH_NONE || mp_vm_has_auth(vm) ? NULL : far_address(config);
    if (far == NULL)
        return 0;
    mp_buf_printf(report,
                  "%s: %s is heard beyond this machine, and no script in %s/auth says who may come in\n"
                  "  hint: write one (moonpool new auth main), or 'auth: none' to let in everybody who reaches it\n",
                  config->name, far, config->scripts_path);
    return -1;
}

int mp_exposure_check_loss(const mp_config *config, const mp_vm *vm, mp_buf *report)
{
    if (config->auth_mode == MP_AUTH_NONE || mp_vm_has_auth(vm))
        return 0;
    mp_buf_printf(report,
                  "%s/auth: the last script is gone, and with it who says who may come in\n"
                  "  hint: put one back, or 'auth: none' in %s to let in everybody who reaches it\n",
                  config->scripts_path, config->name);
    return -1;
}

/* Who reaches it may read and reload. */
static void warn_of_admin(const mp_config *config)
{
    const mp_config_tls *tls = mp_config_admin_tls(config);
    bool asks = tls != NULL && tls->client_ca != NULL && tls->client == MP_CLIENT_REQUIRED;
    if (config->admin_listen == NULL || asks || mp_is_near(config->admin_listen))
        return;
    mp_log(MP_WARN, "the admin's listener is heard beyond this machine",
           mp_log_str("address", mp_str_of(config->admin_listen)),
           mp_log_str("hint", MP_STR("a loopback address, unix:/path, or admin.tls with client_ca")));
}

void mp_exposure_warn(const mp_config *config, const mp_vm *vm)
{
    warn_of_admin(config);
    const char *far = far_address(config);
    if (config->auth_mode == MP_AUTH_NONE && mp_vm_has_auth_scripts(vm))
        mp_log(MP_WARN, "auth scripts are not asked", mp_log_str("why", MP_STR("auth: none")));
    if (config->auth_mode == MP_AUTH_NONE && far != NULL)
        mp_log(MP_WARN, "everybody is let in", mp_log_str("listen", mp_str_of(far)),
               mp_log_str("why", MP_STR("auth: none")));
}
