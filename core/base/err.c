#include "err.h"
#include <stdarg.h>
#include <stdio.h>

int mp_err_set(mp_err *MP_NULLABLE err, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    err->hint[0] = '\0';
    return -1;
}

int mp_err_hint(mp_err *MP_NULLABLE err, const char *format, ...)
{
    if (err == NULL)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(err->hint, sizeof err->hint, format, args);
    va_end(args);
    return -1;
}
