/* base.h: the public header of core/base: bytes, buffers, lists, maps, errors, clocks, UTF-8, edit distances,
 * bytes as text, locks of a scope, writes to files. */
#ifndef MP_BASE_H
#define MP_BASE_H

#include "buf.h"
#include "clock.h"
#include "edit_distance.h"
#include "encoding.h"
#include "err.h"
#include "limit.h"
#include "list.h"
#include "locked.h"
#include "map.h"
#include "nullable.h"
#include "pace.h"
#include "pattern.h"
#include "str.h"
#include "utf8.h"
#include "write_text.h"
/* The headers of the C library that nearly every file needs are included here; files include further ones themselves.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#endif
