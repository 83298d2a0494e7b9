/* hand.c: the listening sockets at an upgrade, in the process that hands them to another one. */
#include "gateway/listeners/listeners.h"
#include "gateway/notify.h"

int mp_listeners_sockets(const mp_listeners *listeners, int i, int *fds, int most)
{
    const mp_bound *one = &listeners->all[i];
    mp_admin *MP_NULLABLE admin = listeners->admin;
    int count = 0;
    if (mp_listeners_is_admin(listeners, i))
        return admin == NULL ? 0 : mp_admin_sockets(admin, fds, most);
    for (int k = 0; k < listeners->worker_count && k < one->sockets && count < most; k++)
        count += mp_worker_sockets(listeners->workers[k], i, fds + count, most - count);
    return count;
}

void mp_listeners_share(const mp_listeners *listeners)
{
    for (int i = 0; i < listeners->count; i++)
        for (int k = 0; k < listeners->worker_count; k++)
            mp_worker_share(listeners->workers[k], i);
}

void mp_listeners_hold(const mp_listeners *listeners, const bool *which, bool is_held)
{
    mp_admin *MP_NULLABLE admin = listeners->admin;
    for (int i = 0; i < listeners->count; i++) {
        if (!which[i])
            continue;
        if (mp_listeners_is_admin(listeners, i) && admin != NULL)
            mp_admin_hold(admin, is_held);
        for (int k = 0; k < listeners->worker_count && !mp_listeners_is_admin(listeners, i); k++)
            mp_worker_hold(listeners->workers[k], i, is_held);
    }
}

void mp_listeners_leave(mp_listeners *listeners, const bool *taken)
{
    for (int i = 0; i < listeners->count; i++) {
        mp_bound *one = &listeners->all[i];
        if (taken[i]) {
            one->address.inode = 0; /* the other process removes the file */
            continue;
        }
        if (atomic_exchange(&one->is_stored, false))
            mp_notify_remove(one->name);
        mp_unlink_address(&one->address);
    }
    for (int k = 0; k < listeners->worker_count; k++)
        mp_worker_leave(listeners->workers[k]);
    mp_admin *MP_NULLABLE admin = listeners->admin;
    if (admin != NULL)
        mp_admin_leave(admin);
    listeners->may_store = false;
}
