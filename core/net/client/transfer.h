/* transfer.h: the interface between client.c and transfer.c. */
#ifndef MP_NET_TRANSFER_H
#define MP_NET_TRANSFER_H

#include "curl.h"
#include "net/net.h"
#include <sys/types.h>

#define MP_KEPT_HANDLES 16
/* How long addresses are kept by libcurl, in seconds: longer than a request waits for a connection. All handles have
 * the same, since each drops what is too old for it. */
#define MP_NAMES_S 3600L

/* A socket that is counted by mp_outgoing_take. `inode` is 0 if the descriptor is none. */
typedef struct {
    ino_t inode;
    unsigned holder;
} mp_counted_socket;

struct mp_client {
    mp_loop *loop;
    mp_client_limits limits;
    const mp_curl_api *MP_NULLABLE curl; /* NULL until the first transfer */
    CURLM *MP_NULLABLE multi;            /* NULL before the first transfer and after an idle period */
    mp_timer timer;                      /* libcurl's timer */
    bool is_due;                         /* the timer is to run at once */
    mp_timer idle;                       /* closes unused connections while no transfer runs */
    uint64_t idle_until;                 /* time of the loop from which on no unused connection is kept */
    uint64_t sweep_at;                   /* time of the loop of the next sweep, unless descriptors are tight before */
    mp_timer sweep;                      /* closes unused connections while other transfers run */
    CURL *MP_NULLABLE sweeper;           /* see begin_sweep; NULL: no sweep is under way */
    bool has_ended;                      /* a transfer has ended since the last sweep */
    int64_t active;                      /* transfers that are not finished */
    CURL *kept[MP_KEPT_HANDLES]; /* handles of transfers that were freed: the next ones cost less than new handles */
    int kept_count;
    size_t held;
    mp_counted_socket *MP_NULLABLE counted; /* by descriptor; NULL: counted_size is 0 */
    size_t counted_size;
};

/* A handle with libcurl's defaults; NULL if there is no memory for it. */
CURL *MP_NULLABLE mp_client_take(mp_client *client, const mp_curl_api *curl);
/* The counterpart of mp_client_take. The handle has been removed from the multi handle. */
void mp_client_give(mp_client *client, const mp_curl_api *curl, CURL *easy);
/* Counts a transfer that begins. */
void mp_client_enter(mp_client *client);
/* Adds `easy` to libcurl's multi handle; -1 if libcurl refuses it. */
int mp_client_add(mp_client *client, const mp_curl_api *curl, CURL *easy, mp_err *err);
/* The counterpart of mp_client_enter; `easy` may have been added. */
void mp_client_remove(mp_client *client, const mp_curl_api *curl, CURL *easy);

/* Called when libcurl has finished the transfer. */
void mp_transfer_end(mp_transfer *transfer, CURLcode result);

#endif
