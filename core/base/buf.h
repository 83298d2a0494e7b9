/* buf.h: growable byte buffers. `{0}` is an empty buffer; mp_buf_clear frees its memory. Running out of memory
 * aborts the process: callers never handle it. Limits on what clients and scripts may use are enforced elsewhere. */
#ifndef MP_BASE_BUF_H
#define MP_BASE_BUF_H

#include "str.h"
#include <stdarg.h>
#include <stdint.h>

typedef struct {
    char *ptr;
    size_t len, cap;
} mp_buf;

/* A variable's type: the buffer is cleared where its scope ends. Not for bytes that are kept or given away, and not
 * where a Lua error may leave the scope. */
#define mp_scoped_buf mp_buf __attribute__((cleanup(mp_buf_clear)))

/* Zeroed memory; free it with free(). */
void *mp_new(size_t size) __attribute__((malloc, returns_nonnull));
void *mp_resize(void *MP_NULLABLE memory, size_t size) __attribute__((returns_nonnull));
/* Copy of `s` with a NUL appended. The caller owns it. */
char *mp_dup(mp_str s) __attribute__((malloc, returns_nonnull));
void mp_str_free(mp_str copy); /* erases and frees a copy that mp_dup has made; nothing if `ptr` is NULL */
/* Copy of a text, which the caller owns; NULL for NULL. */
char *MP_NULLABLE mp_dup_text(const char *MP_NULLABLE text) __attribute__((malloc));
/* The number of texts in a list that ends with NULL; 0 for NULL. */
size_t mp_count_texts(char *const *MP_NULLABLE list);
/* A copy of a list of texts that ends with NULL, to be freed by mp_free_texts; NULL for NULL. */
char **MP_NULLABLE mp_copy_texts(const char *const *MP_NULLABLE list);
void mp_free_texts(char **MP_NULLABLE list);

void mp_buf_clear(mp_buf *buf);
/* Makes room for `more` bytes after the first `len` and returns a pointer to it. The caller adds to `len` the number
 * of bytes it wrote. */
char *mp_buf_room(mp_buf *buf, size_t more);
/* mp_buf_put, for what does not fit the memory that the buffer has. */
void mp_buf_grow_and_put(mp_buf *buf, mp_str s);
void mp_buf_printf(mp_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void mp_buf_vprintf(mp_buf *buf, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

static inline void mp_buf_put(mp_buf *buf, mp_str s)
{
    if (s.len > buf->cap - buf->len) {
        mp_buf_grow_and_put(buf, s);
    } else if (s.len > 0) {
        memcpy(buf->ptr + buf->len, s.ptr, s.len);
        buf->len += s.len;
    }
}

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
