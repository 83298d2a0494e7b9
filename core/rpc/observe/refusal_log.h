/* refusal_log.h: the log of refused requests. The admin listener logs its refusals by functions of rpc/observe.h. */
#ifndef MP_RPC_OBSERVE_REFUSAL_LOG_H
#define MP_RPC_OBSERVE_REFUSAL_LOG_H

#include "rpc/role.h"

/* Logs the refusal of the message in rpc->envelope, where no HTTP request carries the message. */
void mp_log_refused_message(mp_rpc *rpc, mp_cause cause, const char *why);

#endif
