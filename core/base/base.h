/* base.h: the public header of core/base: bytes, buffers, lists, maps, errors, clocks, UTF-8, edit distances,
 * hexadecimal digits, writes to files. */
#ifndef MP_BASE_H
#define MP_BASE_H

#include "base64url.h"
#include "buf.h"
#include "clock.h"
#include "edit_distance.h"
#include "err.h"
#include "hex.h"
#include "limit.h"
#include "list.h"
#include "map.h"
#include "nullable.h"
#include "pace.h"
#include "pattern.h"
#include "str.h"
#include "utf8.h"
#include "write_text.h"

#endif
