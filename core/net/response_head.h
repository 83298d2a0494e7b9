/* response_head.h: writes libh2o's two response head formats without parsing the format. Private to core/net and its
 * spec. */
#ifndef MP_NET_RESPONSE_HEAD_H
#define MP_NET_RESPONSE_HEAD_H

#include <stdarg.h>
#include <stddef.h>

/* Writes the same text as vsnprintf. The two formats that libh2o 2.2.5 uses for each response are written by
 * copying, all others by vsnprintf. `size` is the capacity of `to`; for the two formats the text must fit, because
 * libh2o has sized `to` for it. Any thread. */
int mp_response_head(char *to, size_t size, const char *format, va_list args);

#endif
