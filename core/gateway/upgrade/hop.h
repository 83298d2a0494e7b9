/* hop.h: the socket by which other processes of the gateway send requests on to this one, after an upgrade. */
#ifndef MP_GATEWAY_HOP_H
#define MP_GATEWAY_HOP_H

#include "gateway/worker.h"

/* Listens at FOLDER/NUMBER.mcp.sock, with all workers, which serve or are about to. The folder must be set. Once, on
 * the main thread. */
int mp_hop_open(mp_worker_shared *shared, mp_err *err);
/* Removes the socket's file, if there is one. */
void mp_hop_close(mp_worker_shared *shared);

#endif
