/* open_relay.h: refuses to start a gateway that is public without authentication. */
#ifndef MP_CONFIG_OPEN_RELAY_H
#define MP_CONFIG_OPEN_RELAY_H

#include "config.h"
#include "passed.h"

/* `passed`: the sockets that systemd:NAME names; NULL: they are not known, and not checked. */

/* True if other machines can reach a listener, perhaps through a proxy. */
bool mp_open_relay_is_exposed(const mp_config *config, const mp_passed *MP_NULLABLE passed);
/* A gateway that listens on a public address needs auth scripts, or a configuration with auth: none. Returns -1 and
 * a report if it has neither. */
int mp_open_relay_check(const mp_config *config, const mp_passed *MP_NULLABLE passed, const mp_vm *vm, mp_buf *report);
/* Refuses a reload that removes the last auth script of a public gateway, which may have been an accident. Returns
 * -1 and a report. */
int mp_open_relay_check_loss(const mp_config *config, const mp_vm *vm, mp_buf *report);
/* Logs warnings about settings that are legal but may be unintended. */
void mp_open_relay_warn(const mp_config *config, const mp_passed *MP_NULLABLE passed, const mp_vm *vm);

#endif
