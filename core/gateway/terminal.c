/* terminal.c: writes to stdout without blocking. */
#include "terminal.h"
#include <poll.h>
#include <unistd.h>

void mp_terminal_print(mp_str text)
{
    char at[16];
    struct tm parts;
    time_t now = time(NULL);
    mp_scoped_buf line = {0};
    strftime(at, sizeof at, "%H:%M:%S", localtime_r(&now, &parts));
    mp_buf_printf(&line, "%s  ", at);
    mp_buf_put(&line, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(&line, '\n');
    mp_str left = mp_buf_str(&line);
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    while (left.len > 0 && poll(&out, 1, 0) == 1 && (out.revents & POLLOUT)) {
        ssize_t written = write(STDOUT_FILENO, left.ptr, left.len < 4096 ? left.len : 4096);
        if (written <= 0)
            break;
        left = mp_str_from(left, (size_t)written);
    }
}
