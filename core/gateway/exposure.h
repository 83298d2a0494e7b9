/* exposure.h: who may reach a gateway that asks nobody. */
#ifndef MP_GATEWAY_EXPOSURE_H
#define MP_GATEWAY_EXPOSURE_H

#include "config.h"

/* A gateway that is heard beyond this machine knows who asks, or its configuration says that it need not. -1, and a report, where
 * these scripts leave it open. */
int mp_exposure_check(const mp_config *config, const mp_vm *vm, mp_buf *report);
/* Likewise, where scripts that go have asked and these do not: whoever took them away may not have meant it. */
int mp_exposure_check_loss(const mp_config *config, const mp_vm *vm, mp_buf *report);
/* Logs what an operator may not have meant. */
void mp_exposure_warn(const mp_config *config, const mp_vm *vm);

#endif
