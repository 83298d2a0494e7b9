#include "lib/seat.h"

#define KEPT 8 /* the last eighth is shared out among the scripts */

bool mp_seat_take(mp_link *taken, mp_seat *seat, unsigned holder, int64_t most, const mp_stat *refused)
{
    int64_t all = 0, held = 0;
    MP_EACH(const mp_seat, one, taken, link) {
        all += one->holder != 0;
        held += one->holder == holder;
    }
    if (holder != 0 && (all >= most || !mp_may_hold_one_more(held, 1, all, most - all, most / KEPT))) {
        mp_stat_add(refused, 1);
        return false;
    }
    seat->holder = holder;
    mp_link_put(taken, &seat->link);
    return true;
}
