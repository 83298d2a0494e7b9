/* buf.h: bytes that grow. `{0}` is an empty buffer; `clear` frees what it owns. Out of memory ends the process: it is
 * never a state to carry on from (what clients and scripts can make us hold is bounded elsewhere). */
#ifndef MP_BASE_BUF_H
#define MP_BASE_BUF_H

#include "str.h"
#include <stdarg.h>
#include <stdint.h>

typedef struct {
    char *ptr;
    size_t len, cap;
} mp_buf;

/* Zeroed memory, or the end of the process. */
void *mp_new(size_t size) __attribute__((malloc, returns_nonnull));
void *mp_resize(void *memory, size_t size) __attribute__((returns_nonnull));
/* A copy with a NUL behind it, owned by the caller. */
char *mp_dup(mp_str s) __attribute__((malloc, returns_nonnull));

void mp_buf_clear(mp_buf *buf);
/* Makes room for `more` bytes behind `len` and gives where they go; the caller adds to `len` what it wrote. */
char *mp_buf_room(mp_buf *buf, size_t more);
void mp_buf_put(mp_buf *buf, mp_str s);
void mp_buf_printf(mp_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mp_buf_vprintf(mp_buf *buf, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

static inline void mp_buf_putc(mp_buf *buf, char c)
{
    if (buf->len < buf->cap)
        buf->ptr[buf->len++] = c;
    else
        mp_buf_put(buf, (mp_str){&c, 1});
}

static inline mp_str mp_buf_str(const mp_buf *buf)
{
    return (mp_str){buf->ptr, buf->len};
}

#endif
