/* write_text.h: writes a text to a descriptor, however many calls of write it takes. */
#ifndef MP_BASE_WRITE_TEXT_H
#define MP_BASE_WRITE_TEXT_H

#include "str.h"
#include <errno.h>
#include <unistd.h>

/* For files, whose writes do not wait for a peer. Returns -1 with errno; a part may be written then. */
static inline int mp_write_text(int fd, mp_str text)
{
    while (text.len > 0) {
        ssize_t put = write(fd, text.ptr, text.len);
        if (put < 0 && errno != EINTR)
            return -1;
        text = mp_str_from(text, put < 0 ? 0 : (size_t)put);
    }
    return 0;
}

#endif
