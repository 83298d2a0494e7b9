/* upstream.h: the public header of core/upstream: MCP servers behind this gateway. */
#ifndef MP_UPSTREAM_H
#define MP_UPSTREAM_H

#include "upstream/upstream_config.h"

#endif
