/* abi.h: the private structs of libh2o's HTTP/2. Only files of this folder include it. */
#ifndef MP_NET_HTTP2_ABI_H
#define MP_NET_HTTP2_ABI_H

#include "loop/h2o_abi.h"
#include "base/base.h"
#include <h2o/http2.h>
#include <h2o/http2_internal.h>

_Static_assert(sizeof(h2o_http2_conn_t) == 472 && sizeof(h2o_http2_stream_t) == 880 &&
                   sizeof(h2o_http2_settings_t) == 20 && offsetof(h2o_http2_conn_t, _read_expect) == 192 &&
                   offsetof(h2o_http2_stream_t, req) == 272,
               "libh2o 2.2.5 is laid out otherwise");

/* The connection of a request that came by HTTP/2. */
static inline h2o_http2_conn_t *mp_http2_conn_of(const h2o_req_t *req)
{
    return (h2o_http2_conn_t *)(void *)req->conn;
}

/* The stream of a request that came by HTTP/2. */
static inline h2o_http2_stream_t *mp_http2_stream_of(h2o_req_t *req)
{
    return mp_container(req, h2o_http2_stream_t, req);
}

#endif
