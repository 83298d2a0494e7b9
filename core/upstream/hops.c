/* hops.c: the gateways that a request has come through, so that gateways that are upstreams of each other notice it.
 * Over HTTP they are in the header moonpool-hops, which core/rpc reads; a program gets them in the variable
 * MOONPOOL_HOPS. */
#include "upstream/state.h"

/* No key sets MAX_HOPS: it is the second defence against loops, after the instance of a gateway that comes back, and
 * all gateways of a row must have the same one, else which of them refuses would depend on the way. core/rpc/serve.c
 * and lua/moonpool/upstream/hops.lua have it, too. */
#define MAX_HOPS 8         /* gateways in a row, each of which calls the next one */
#define MAX_HOPS_BYTES 512 /* bytes of MOONPOOL_HOPS; a longer one is not from a gateway */

static bool is_list(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (strchr("0123456789abcdef, ", text.ptr[i]) == NULL)
            return false;
    return text.len > 0 && text.len <= MAX_HOPS_BYTES;
}

void mp_upstreams_read_hops(mp_upstreams *table)
{
    mp_str before = mp_str_of(getenv("MOONPOOL_HOPS"));
    mp_scoped_buf text = {0};
    if (is_list(before)) {
        for (mp_str rest = before; mp_str_cut(&rest, ',').ptr != NULL;)
            table->hop_count++;
        mp_buf_printf(&text, "%.*s,", MP_STR_ARG(before));
    }
    mp_buf_put(&text, mp_str_of(table->instance));
    table->hops = mp_dup(mp_buf_str(&text));
}

const char *mp_upstreams_hops(const mp_upstreams *table)
{
    return table->hops;
}

char *MP_NULLABLE mp_upstreams_hops_variable(const mp_upstreams *table)
{
    if (table->hop_count >= MAX_HOPS)
        return NULL;
    mp_scoped_buf text = {0};
    mp_buf_printf(&text, "MOONPOOL_HOPS=%s", table->hops);
    return mp_dup(mp_buf_str(&text));
}
