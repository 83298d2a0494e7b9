/* fetch.h: one HTTP request of a command line, which has no event loop: it blocks the thread. Part of the public header
 * net.h. A gateway never calls it. */
#ifndef MP_NET_FETCH_H
#define MP_NET_FETCH_H

#include "base/base.h"

#define MP_FETCH_HEADERS 4

typedef struct {
    const char *method, *MP_NULLABLE url;
    const char *MP_NULLABLE socket; /* path of the Unix socket to connect to; NULL: connect to the URL's host */
    const char *MP_NULLABLE ca;     /* path of certificates to trust instead of the system's; NULL: those */
    const char *MP_NULLABLE text;   /* the request's body; NULL: none */
    int seconds;                    /* limit of seconds for the whole answer; 0: 600 */
    const char *headers[MP_FETCH_HEADERS + 1]; /* "Name: value"; end with NULL */
    /* takes the body of an answer with status 200 as it arrives, instead of `body`; false ends the request. NULL:
     * none */
    bool (*MP_NULLABLE on_bytes)(void *ctx, mp_str bytes);
    void *ctx;
} mp_fetch_options;

/* Sends the request, and appends the answer's body, of at most 64 MiB. Returns the status; -1 if there is no answer. */
int mp_fetch(const mp_fetch_options *options, mp_buf *body, mp_err *err);

#endif
