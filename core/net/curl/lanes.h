/* lanes.h: the multi handles of libcurl over which the transfers of a client are spread. */
#ifndef MP_NET_LANES_H
#define MP_NET_LANES_H

#include "sockets.h"

#define MP_LANES 128 /* of one client */

typedef struct mp_lane mp_lane;

/* Where transfers go that may use the same connections, while one of them is in flight. */
typedef struct {
    mp_node node; /* by a text that is the same for these transfers */
    uint32_t users;
    uint64_t full[MP_LANES / 64]; /* lanes that take no more of these transfers, a bit each */
    uint16_t in_flight[MP_LANES]; /* by lane */
} mp_destination;

typedef struct {
    int64_t requests, per_host; /* as of mp_client_limits */
    uint64_t idle_ms;
} mp_lane_limits;

typedef struct {
    /* Runs when libcurl has finished a transfer, outside its functions: removes it. */
    void (*ended)(const mp_curl_api *curl, CURL *easy, CURLcode result);
    /* True if the transfer's request is on a connection that an earlier one has opened, and that it has not replaced.
     */
    bool (*is_on_kept)(const mp_curl_api *curl, CURL *easy);
} mp_lane_hooks;

typedef struct {
    mp_sockets sockets;
    mp_lane_limits limits;
    mp_lane_hooks hooks;
    mp_lane *MP_NULLABLE list[MP_LANES]; /* NULL: the lane is closed */
    int open;
    mp_link due; /* lanes whose timer of libcurl is to run at once */
    mp_map destinations;
} mp_lanes;

void mp_lanes_init(mp_lanes *lanes, mp_loop *loop, const mp_lane_limits *limits, const mp_lane_hooks *hooks);
/* Closes all lanes; their transfers have been removed. */
void mp_lanes_clear(mp_lanes *lanes);
void mp_lanes_configure(mp_lanes *lanes, const mp_lane_limits *limits);
/* Sends what was added, at once. */
void mp_lanes_drive(mp_lanes *lanes);

mp_destination *mp_lanes_enter(mp_lanes *lanes, mp_str key);
/* The counterpart of mp_lanes_enter. */
void mp_lanes_leave(mp_lanes *lanes, mp_destination *destination);
/* Adds a transfer to a lane, which is opened for `holder` if need be. Returns NULL if libcurl refuses it. */
mp_lane *MP_NULLABLE mp_lanes_add(mp_lanes *lanes, const mp_curl_api *curl, CURL *easy, mp_destination *destination,
                                  unsigned holder, mp_err *err);
/* The counterpart of mp_lanes_add. */
void mp_lanes_remove(mp_lane *lane, CURL *easy, mp_destination *destination);

#endif
