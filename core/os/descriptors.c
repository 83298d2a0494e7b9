/* descriptors.c: the descriptors of connections to other servers and lookups, of programs, of databases of scripts and
 * of files of scripts with `trust: full`. Their number is limited, so that they leave those that no client may take. */
#include "sockets.h"
#include "telemetry/telemetry.h"

MP_ACCOUNT(outgoing_descriptors, "outgoing_descriptors", "", "",
           "descriptors of connections to other servers and lookups of their names, of programs, of databases of "
           "scripts and of files that scripts with trust: full have open")
MP_REFUSED(refused_descriptors, "descriptors", MP_LIMIT_REACHED,
           "connections to other servers, programs, databases and files of io that would take descriptors of the "
           "gateway's own, or of others")

/* Holders share the last quarter, and eight at least, a program and a database in a file: each has as many of these as
 * it leaves to others. */
#define KEPT 4
#define LEAST_KEPT 8

static _Atomic int64_t most_outgoing = INT64_MAX;
static mp_holdings holdings;

void mp_outgoing_limit(int64_t most)
{
    atomic_store_explicit(&most_outgoing, most, memory_order_relaxed);
}

bool mp_outgoing_take(int count, unsigned holder)
{
    int64_t most = atomic_load_explicit(&most_outgoing, memory_order_relaxed);
    int64_t kept = most / KEPT > LEAST_KEPT ? most / KEPT : LEAST_KEPT;
    bool is_taken = mp_holdings_take(&holdings, &mp_account_outgoing_descriptors, holder, count, most, kept);
    mp_stat_add(&mp_stat_refused_descriptors, !is_taken);
    return is_taken;
}

bool mp_outgoing_is_tight(void)
{
    int64_t most = atomic_load_explicit(&most_outgoing, memory_order_relaxed);
    return mp_account_used(&mp_account_outgoing_descriptors) >= most / 2;
}

void mp_outgoing_give(int count, unsigned holder)
{
    mp_holdings_give(&holdings, &mp_account_outgoing_descriptors, holder, count);
}
