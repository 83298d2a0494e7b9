/* pattern.c: comparing a name with a pattern. */
#include "pattern.h"

bool mp_pattern_matches(const char *pattern, mp_str text)
{
    const char *star = NULL;
    size_t at = 0, after_star = 0;
    while (at < text.len) {
        if (*pattern == '*') {
            star = pattern++;
            after_star = at;
        } else if (*pattern != '\0' && *pattern == text.ptr[at]) {
            pattern++;
            at++;
        } else if (star != NULL) {
            pattern = star + 1;
            at = ++after_star;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
