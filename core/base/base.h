/* base.h: the door of the lowest room: bytes, rings, maps, errors, the log, the counters. */
#ifndef MP_BASE_H
#define MP_BASE_H

#include "audit.h"
#include "base64url.h"
#include "buf.h"
#include "err.h"
#include "list.h"
#include "log.h"
#include "map.h"
#include "stats.h"
#include "str.h"
#include "visible.h"

#endif
