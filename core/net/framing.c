/* framing.c: whether a request says plainly where it ends, and whom it is for. libh2o takes the first of two lengths, the
 * last of two Hosts, chunks before a length, and bare line feeds; whoever stands between a client and us may read them
 * otherwise, and see other requests. */
#include "http.h"

static bool next_line(mp_str *rest, mp_str *line)
{
    *line = mp_str_cut(rest, '\n');
    if (rest->ptr == NULL || line->len == 0 || line->ptr[line->len - 1] != '\r')
        return false;
    line->len--;
    return true;
}

bool mp_framing_is_plain(mp_str input)
{
    mp_str line;
    if (!next_line(&input, &line) || (line.len == 0 && !next_line(&input, &line))) /* an empty line may go before it */
        return false;
    int framed = 0, hosts = 0;
    while (next_line(&input, &line)) {
        if (line.len == 0)
            return framed <= 1 && hosts <= 1;
        mp_str name = mp_str_cut(&line, ':');
        framed += mp_str_is_nocase(name, "content-length") || mp_str_is_nocase(name, "transfer-encoding");
        hosts += mp_str_is_nocase(name, "host");
        if (name.len == 0 || name.ptr[0] == ' ' || name.ptr[0] == '\t') /* goes on with the line before */
            return false;
    }
    return false;
}
