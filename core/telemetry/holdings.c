/* holdings.c: who may have the last places of a room, so that clients that fill it leave some to others. Of the last
 * part a client may have as many as are free for the others. The first half of it is also for clients that hold fewer
 * than clients hold on average: those that hold the rest together get none of the places that become free until each
 * other client that asks holds as many. A client alone has all places but the last part. */
#include "account.h"

#define NUMBERS (sizeof((mp_holdings){0}).of / sizeof(int64_t))

bool mp_may_hold_one_more(int64_t held, int64_t holders, int64_t all, int64_t free_places, int64_t kept)
{
    /* a client alone holds all, and so never fewer than the average: its numbers are read one after another, and while
     * other threads change them they may look as if it did */
    return free_places > kept || held < free_places || (free_places > kept / 2 && holders > 1 && held * holders < all);
}

int64_t mp_holdings_change(mp_holdings *holdings, unsigned client, int64_t more)
{
    int64_t before = atomic_fetch_add_explicit(&holdings->of[client % NUMBERS], more, memory_order_relaxed);
    int64_t held = before + more, holders = (held > 0) - (before > 0);
    if (holders != 0)
        atomic_fetch_add_explicit(&holdings->holders, holders, memory_order_relaxed);
    return held;
}

bool mp_holdings_add(mp_holdings *holdings, unsigned client, int64_t more, int64_t all, int64_t free, int64_t kept)
{
    int64_t held = mp_holdings_change(holdings, client, more) - more;
    int64_t holders = atomic_load_explicit(&holdings->holders, memory_order_relaxed);
    return mp_may_hold_one_more(held, holders, all, free, kept);
}

bool mp_holdings_take(mp_holdings *all, mp_account *account, unsigned client, int64_t n, int64_t most, int64_t kept)
{
    int64_t used = mp_account_used(account);
    if (mp_holdings_add(all, client, n, used, most - used, kept) && mp_account_take(account, n, most))
        return true;
    mp_holdings_change(all, client, -n);
    return false;
}

void mp_holdings_give(mp_holdings *all, mp_account *account, unsigned client, int64_t n)
{
    mp_holdings_change(all, client, -n);
    mp_account_give(account, n);
}

unsigned mp_holder_number(const char *name, size_t len)
{
    uint32_t number = 2166136261U; /* FNV-1a: who wants to be in another's share can have its name or address */
    for (size_t i = 0; i < len; i++)
        number = (number ^ (unsigned char)name[i]) * 16777619U;
    return (number >> 8) + 1;
}
