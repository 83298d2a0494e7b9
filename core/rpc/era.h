/* era.h: a revision as a row of facts; what its fields mean is lua/moonpool/era. */
#ifndef MP_RPC_ERA_H
#define MP_RPC_ERA_H

#include "rpc/rpc.h"

/* Where a request's body says what `Mcp-Name` must repeat (2026-07-28, protocol table of mirrored headers). */
typedef struct {
    const char *method, *member; /* the member of params */
} mp_mirrored_name;

/* The member of params that Mcp-Name mirrors for `method`; NULL when it mirrors none. */
const char *mp_era_mirrored_member(mp_str method);
/* The HTTP status that carries a JSON-RPC error (M-20 to M-24); before 2026-07-28 it is 200 (S-10). */
int mp_era_status(const mp_era *era, int code);

#endif
