/* libraries.h: the libraries that this binary consists of or loads. */
#ifndef MP_GATEWAY_LIBRARIES_H
#define MP_GATEWAY_LIBRARIES_H

#include "base/base.h"

/* Appends a table of the libraries that are linked in, and of those that this system loaded, with their versions. */
void mp_gateway_put_libraries(mp_buf *out);

#endif
