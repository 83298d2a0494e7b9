/* transfer.h: what client.c and transfer.c see of each other. */
#ifndef MP_NET_TRANSFER_H
#define MP_NET_TRANSFER_H

#include "curl.h"
#include "net.h"

struct mp_client {
    mp_loop *loop;
    mp_client_limits limits;
    const mp_curl_api *curl; /* NULL until the first transfer */
    CURLM *multi;            /* NULL while nothing has been asked for a while */
    mp_timer timer;          /* libcurl's */
    mp_timer idle;
    int64_t active; /* transfers that are not over */
    size_t held;
};

/* Gives `easy` to libcurl; -1 when it cannot take it. */
int mp_client_add(mp_client *client, CURL *easy, mp_err *err);
void mp_client_remove(mp_client *client, CURL *easy);

/* libcurl is done with the transfer. */
void mp_transfer_end(mp_transfer *transfer, CURLcode result);

#endif
