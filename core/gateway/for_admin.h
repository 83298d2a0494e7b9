/* for_admin.h: this process as the admin listener sees it. */
#ifndef MP_GATEWAY_FOR_ADMIN_H
#define MP_GATEWAY_FOR_ADMIN_H

#include "admin/admin.h"
#include "worker.h"

/* Once the workers are made. `shared` outlives the listener. */
mp_admin_gateway mp_gateway_for_admin(mp_worker_shared *shared);

#endif
