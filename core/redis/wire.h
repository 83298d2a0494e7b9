/* wire.h: the bytes of a connection: a socket, with TLS or without. */
#ifndef MP_REDIS_WIRE_H
#define MP_REDIS_WIRE_H

#include "base/base.h"

struct ssl_ctx_st;

typedef struct {
    int fd;                         /* -1: closed */
    struct ssl_st *MP_NULLABLE ssl; /* NULL: no TLS */
    bool wants_to_write;            /* TLS has to write before it goes on */
} mp_redis_wire;

/* Prepares TLS with the server `host` on a connected socket, with a context of mp_client_tls. */
void mp_redis_wire_start_tls(mp_redis_wire *wire, struct ssl_ctx_st *context, const char *host);
/* The handshake: 1: it is over; 0: to be called again when the socket is ready; -1 with the reason. */
int mp_redis_wire_shake_hands(mp_redis_wire *wire, mp_err *err);
/* The bytes that were read or written; 0: none now; -1 with the reason: no more can be. */
ssize_t mp_redis_wire_read(mp_redis_wire *wire, char *room, size_t size, mp_err *err);
ssize_t mp_redis_wire_write(mp_redis_wire *wire, const char *bytes, size_t size, mp_err *err);
/* True if bytes were received that the socket has no event for. */
bool mp_redis_wire_has_bytes(const mp_redis_wire *wire);
void mp_redis_wire_close(mp_redis_wire *wire);

#endif
