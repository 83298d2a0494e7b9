/* h2o_abi.h: the only file that includes h2o.h. Some members of libh2o's structs that moonpool uses are private to
 * libh2o, so the sizes of its structs are checked here (docs/dev/libh2o.md). */
#ifndef MP_LOOP_H2O_ABI_H
#define MP_LOOP_H2O_ABI_H

#include <h2o.h>

_Static_assert(sizeof(h2o_context_t) == 864 && sizeof(h2o_req_t) == 608 && sizeof(h2o_timeout_t) == 48 &&
                   sizeof(h2o_socket_t) == 96 && sizeof(h2o_globalconf_t) == 240 && sizeof(h2o_evloop_t) == 160,
               "libh2o 2.2.5 is laid out otherwise");

#endif
