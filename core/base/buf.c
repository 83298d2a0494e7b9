#include "buf.h"
#include <stdio.h>
#include <stdlib.h>

_Noreturn static void die_of_memory(size_t size)
{
    fprintf(stderr, "moonpool: out of memory (%zu bytes wanted)\n", size);
    abort();
}

void *mp_new(size_t size)
{
    void *memory = calloc(1, size == 0 ? 1 : size);
    if (memory == NULL)
        die_of_memory(size);
    return memory;
}

void *mp_resize(void *MP_NULLABLE memory, size_t size)
{
    memory = realloc(memory, size == 0 ? 1 : size);
    if (memory == NULL)
        die_of_memory(size);
    return memory;
}

char *mp_dup(mp_str s)
{
    char *copy = mp_new(s.len + 1);
    if (s.len > 0)
        memcpy(copy, s.ptr, s.len);
    return copy;
}

void mp_str_free(mp_str copy)
{
    char *bytes = (char *)(uintptr_t)copy.ptr;
    if (bytes != NULL)
        explicit_bzero(bytes, copy.len);
    free(bytes);
}

char *MP_NULLABLE mp_dup_text(const char *MP_NULLABLE text)
{
    return text == NULL ? NULL : mp_dup(mp_str_of(text));
}

size_t mp_count_texts(char *const *MP_NULLABLE list)
{
    size_t count = 0;
    while (list != NULL && list[count] != NULL)
        count++;
    return count;
}

char **MP_NULLABLE mp_copy_texts(const char *const *MP_NULLABLE list)
{
    if (list == NULL)
        return NULL;
    size_t count = mp_count_texts((char *const *)(uintptr_t)list);
    char **copy = mp_new((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = mp_dup(mp_str_of(list[i]));
    return copy;
}

void mp_free_texts(char **MP_NULLABLE list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

void mp_buf_clear(mp_buf *buf)
{
    free(buf->ptr);
    *buf = (mp_buf){0};
}

char *mp_buf_room(mp_buf *buf, size_t more)
{
    size_t need = buf->len + more;
    if (need > buf->cap) {
        size_t cap = buf->cap < 256 ? 256 : buf->cap * 2;
        if (cap < need)
            cap = need;
        buf->ptr = mp_resize(buf->ptr, cap);
        buf->cap = cap;
    }
    return buf->ptr + buf->len;
}

void mp_buf_grow_and_put(mp_buf *buf, mp_str s)
{
    memcpy(mp_buf_room(buf, s.len), s.ptr, s.len);
    buf->len += s.len;
}

void mp_buf_vprintf(mp_buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    size_t room = buf->cap - buf->len;
    int wanted = vsnprintf(room == 0 ? NULL : buf->ptr + buf->len, room, format, args);
    if (wanted >= 0 && (size_t)wanted >= room) {
        size_t size = (size_t)wanted + 1;
        vsnprintf(mp_buf_room(buf, size), size, format, again);
    }
    va_end(again);
    if (wanted > 0)
        buf->len += (size_t)wanted;
}

void mp_buf_printf(mp_buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mp_buf_vprintf(buf, format, args);
    va_end(args);
}
