/* transfer.h: the interface between client.c and transfer.c. */
#ifndef MP_NET_TRANSFER_H
#define MP_NET_TRANSFER_H

#include "curl.h"
#include "net.h"

struct mp_client {
    mp_loop *loop;
    mp_client_limits limits;
    const mp_curl_api *curl; /* NULL until the first transfer */
    CURLM *multi;            /* NULL before the first transfer and after an idle period */
    mp_timer timer;          /* libcurl's timer */
    mp_timer idle;
    int64_t active; /* transfers that are not finished */
    size_t held;
};

/* Adds `easy` to libcurl's multi handle; -1 if libcurl refuses it. */
int mp_client_add(mp_client *client, CURL *easy, mp_err *err);
void mp_client_remove(mp_client *client, CURL *easy);

/* Called when libcurl has finished the transfer. */
void mp_transfer_end(mp_transfer *transfer, CURLcode result);

#endif
