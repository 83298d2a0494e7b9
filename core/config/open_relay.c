#include "open_relay.h"

/* The first listening address that other machines can reach, also through a proxy (public_url, trusted_proxies);
 * NULL if there is none. */
static const char *MP_NULLABLE far_address(const mp_config *config, const mp_passed *MP_NULLABLE passed)
{
    const char *far = config->public_url;
    for (size_t i = 0; config->listen[i] != NULL && far == NULL; i++) {
        const char *where = config->listen[i];
        bool is_far = !mp_is_near(where) || mp_config_proxies_of(config, i) != NULL;
        far = is_far ? where : mp_passed_far(passed, where);
    }
    return far;
}

bool mp_open_relay_is_exposed(const mp_config *config, const mp_passed *MP_NULLABLE passed)
{
    return far_address(config, passed) != NULL;
}

int mp_open_relay_check(const mp_config *config, const mp_passed *MP_NULLABLE passed, const mp_vm *vm, mp_buf *report)
{
    const char *far = config->auth_mode == MP_AUTH_NONE || mp_lib_has_auth(vm) ? NULL : far_address(config, passed);
    if (far == NULL)
        return 0;
    bool is_proxied = far != config->public_url && mp_is_near(far);
    mp_buf_printf(report,
                  "%s: %s is reachable from other machines%s, but %s/auth has no authentication script\n"
                  "  hint: write an auth script (moonpool new auth main), or set 'auth: none' to serve every client "
                  "without authentication\n",
                  config->name, far, is_proxied ? " through 'trusted_proxies'" : "", config->scripts_path);
    return -1;
}

int mp_open_relay_check_loss(const mp_config *config, const mp_vm *vm, mp_buf *report)
{
    if (config->auth_mode == MP_AUTH_NONE || mp_lib_has_auth(vm))
        return 0;
    mp_buf_printf(
        report,
        "%s/auth: the last authentication script was removed, but the gateway is reachable from other machines\n"
        "  hint: restore the script, or set 'auth: none' in %s to serve every client without authentication\n",
        config->scripts_path, config->name);
    return -1;
}

void mp_open_relay_warn(const mp_config *config, const mp_passed *MP_NULLABLE passed, const mp_vm *vm)
{
    const char *far = far_address(config, passed);
    if (config->auth_mode == MP_AUTH_NONE && mp_lib_has_auth_scripts(vm))
        mp_log(MP_WARN, "auth disabled, auth scripts ignored", mp_log_str("why", MP_STR("auth: none")));
    if (config->auth_mode == MP_AUTH_NONE && far != NULL)
        mp_log(MP_WARN, "auth disabled, listening publicly", mp_log_str("listen", mp_str_of(far)),
               mp_log_str("why", MP_STR("auth: none")));
}
