/* mark.c: see mark.h. A thread takes the bytes of many marks from the kernel at once. */
#include "mark.h"
#include <sys/random.h>

static __thread struct {
    unsigned char bytes[256]; /* up to 256 bytes come at once */
    size_t left;              /* the last `left` bytes are unused */
} pool;

/* Says which marks belong to the line that the calling thread logs. mp_mark_set_source sets it, once; the watchdog
 * may log before. */
static void (*_Atomic source)(mp_marks *marks);

uint64_t mp_mark_new(void)
{
    uint64_t mark = 0;
    while (mark == 0) {
        if (pool.left < sizeof mark) {
            if (getrandom(pool.bytes, sizeof pool.bytes, 0) != (ssize_t)sizeof pool.bytes)
                return mp_monotonic_us(); /* a kernel without random numbers: the mark still tells requests apart */
            pool.left = sizeof pool.bytes;
        }
        memcpy(&mark, pool.bytes + sizeof pool.bytes - pool.left, sizeof mark);
        pool.left -= sizeof mark;
    }
    return mark;
}

mp_mark_text mp_mark_text_of(uint64_t mark)
{
    static const char digits[] = "0123456789abcdef";
    mp_mark_text made;
    for (int i = 0; i < 16; i++)
        made.text[i] = digits[mark >> (60 - 4 * i) & 15];
    made.text[16] = '\0';
    return made;
}

bool mp_mark_read(mp_str text, uint64_t *mark)
{
    uint64_t read = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        if (text.len != 16 || (!is_digit && !(c >= 'a' && c <= 'f')))
            return false;
        read = read << 4 | (uint64_t)(is_digit ? c - '0' : c - 'a' + 10);
    }
    *mark = read;
    return read != 0;
}

void mp_mark_set_source(void (*running)(mp_marks *marks))
{
    atomic_store_explicit(&source, running, memory_order_relaxed);
}

void mp_mark_running(mp_marks *marks)
{
    void (*running)(mp_marks *) = atomic_load_explicit(&source, memory_order_relaxed);
    *marks = (mp_marks){0};
    if (running != NULL)
        running(marks);
}
