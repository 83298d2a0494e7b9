/* holdings.c: who may have the last places of a room. They are for clients that hold few: fewer than there are such
 * places, or fewer than clients hold on average. A client alone has all the others. Clients that hold the rest together
 * get none of the places that become free until each other client that asks holds as many. */
#include "account.h"

bool mp_holdings_add(mp_holdings *holdings, unsigned client, int64_t all, int64_t kept)
{
    int64_t held = atomic_fetch_add_explicit(&holdings->of[client % MP_HOLDERS], 1, memory_order_relaxed);
    if (held == 0)
        atomic_fetch_add_explicit(&holdings->holders, 1, memory_order_relaxed);
    return held < kept || held * atomic_load_explicit(&holdings->holders, memory_order_relaxed) < all;
}

void mp_holdings_drop(mp_holdings *holdings, unsigned client)
{
    if (atomic_fetch_sub_explicit(&holdings->of[client % MP_HOLDERS], 1, memory_order_relaxed) == 1)
        atomic_fetch_sub_explicit(&holdings->holders, 1, memory_order_relaxed);
}
