#include "exposure.h"

/* The first address that others can reach; NULL when there is none. */
static const char *far_address(const mp_config *config)
{
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

void mp_exposure_warn(const mp_config *config, const mp_vm *vm)
{
    const char *far = far_address(config);
    if (config->auth_mode == MP_AUTH_NONE && mp_vm_has_auth_scripts(vm))
        mp_log(MP_WARN, "auth scripts are not asked", mp_log_str("why", MP_STR("auth: none")));
    if (config->auth_mode == MP_AUTH_NONE && far != NULL)
        mp_log(MP_WARN, "everybody is let in", mp_log_str("listen", mp_str_of(far)),
               mp_log_str("why", MP_STR("auth: none")));
}
