/* response_head.c: exports __sprintf_chk from this executable, which libh2o calls twice for each response
 * (lib/http1.c: flatten_headers and the Server header). Parsing those two formats takes 2,900 instructions in libc;
 * copying their parts takes 430. For other formats, and other libraries of the process, the function behaves as
 * libc's. */
#undef _FORTIFY_SOURCE /* with it, stdio.h would replace the function that is defined here */
#include "response_head.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char status_format[] = "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: %s\r\nContent-Length: %zu\r\n";
static const char server_format[] = "Server: %s\r\n";

/* The address of each of libh2o's formats, known after the first call: comparing addresses is cheaper than comparing
 * texts. */
static _Atomic(const char *) status_address, server_address;

static bool is_format(const char *format, _Atomic(const char *) *address, const char *text)
{
    const char *known = atomic_load_explicit(address, memory_order_relaxed);
    if (known != NULL)
        return format == known;
    if (strcmp(format, text) != 0)
        return false;
    atomic_store_explicit(address, format, memory_order_relaxed);
    return true;
}

#define PUT(at, text) (memcpy((at), (text), sizeof(text) - 1), (at) + sizeof(text) - 1)

static char *put_text(char *at, const char *text)
{
    size_t len = strlen(text);
    memcpy(at, text, len);
    return at + len;
}

static char *put_number(char *at, size_t number)
{
    char digits[24], *first = digits + sizeof digits;
    do
        *--first = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    size_t len = (size_t)(digits + sizeof digits - first);
    memcpy(at, first, len);
    return at + len;
}

static int end_text(char *to, char *at)
{
    *at = '\0';
    return (int)(at - to);
}

int mp_response_head(char *to, size_t size, const char *format, va_list args)
{
    if (is_format(format, &status_address, status_format)) {
        char *at = PUT(to, "HTTP/1.1 ");
        at = put_number(at, (size_t)va_arg(args, int)); /* an HTTP status: 100 to 999 */
        at = PUT(at, " ");
        at = put_text(at, va_arg(args, const char *));
        at = PUT(at, "\r\nDate: ");
        at = put_text(at, va_arg(args, const char *));
        at = PUT(at, "\r\nConnection: ");
        at = put_text(at, va_arg(args, const char *));
        at = PUT(at, "\r\nContent-Length: ");
        at = put_number(at, va_arg(args, size_t));
        return end_text(to, PUT(at, "\r\n"));
    }
    if (is_format(format, &server_address, server_format)) {
        char *at = put_text(PUT(to, "Server: "), va_arg(args, const char *));
        return end_text(to, PUT(at, "\r\n"));
    }
    return vsnprintf(to, size, format, args);
}

/* Not defined under sanitizers, which check libc's function. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
__attribute__((visibility("default"))) int __sprintf_chk(char *to, int flag, size_t size, const char *format, ...);

int __sprintf_chk(char *to, int flag, size_t size, const char *format, ...)
{
    (void)flag;
    va_list args;
    va_start(args, format);
    int len = mp_response_head(to, size, format, args);
    va_end(args);
    if (len >= 0 && (size_t)len >= size)
        abort(); /* the text does not fit: abort, as libc does */
    return len;
}
#endif
