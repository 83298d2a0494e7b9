/* transfer.h: the interface between client.c and transfer.c. */
#ifndef MP_NET_TRANSFER_H
#define MP_NET_TRANSFER_H

#include "net/curl/handle.h"
#include "net/curl/lanes.h"
#include "net/net.h"
#include <sys/stat.h>

struct mp_client {
    mp_loop *loop;
    mp_client_limits limits;
    const mp_curl_api *MP_NULLABLE curl; /* NULL until the first transfer */
    mp_lanes lanes;
    int64_t active; /* transfers that are not finished */
    struct {
        mp_handle **handles; /* of transfers that were freed: the next ones cost less than new handles */
        int count, size;
        int64_t most, before; /* the most transfers at once in this window of time, and in the one before */
        mp_timer timer;       /* ends the window, and the handles that were not needed in two of them */
    } kept;
    size_t held;
    struct ssl_ctx_st *MP_NULLABLE tls; /* of mp_client_tls; NULL until it is first asked for */
    struct stat tls_ca;                 /* the file that it was made of, as it was then */
    char agent[48];                     /* a header: the version, without the commit that it was built from */
};

extern const mp_stat mp_stat_refused_address, mp_stat_refused_lookups;

/* A handle, with the options of an earlier request if it had one; NULL if there is no memory for it. */
mp_handle *MP_NULLABLE mp_client_take(mp_client *client, const mp_curl_api *curl);
/* The counterpart of mp_client_take. The handle is in no lane. */
void mp_client_give(mp_client *client, const mp_curl_api *curl, mp_handle *handle);
/* Counts a transfer that begins. */
void mp_client_enter(mp_client *client);
/* The counterpart of mp_client_enter. */
void mp_client_leave(mp_client *client);

/* The hooks of lanes. */
void mp_transfer_on_end(const mp_curl_api *curl, CURL *easy, CURLcode result);
bool mp_transfer_is_on_kept(const mp_curl_api *curl, CURL *easy);

#endif
