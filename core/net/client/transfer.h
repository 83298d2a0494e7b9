/* transfer.h: the client and its transfers, for the files of this folder. A transfer goes by libcurl
 * (transfer.c), or, to other processes of this gateway, by connections of our own (inner.c): of a client, all of
 * them go the same way. */
#ifndef MP_NET_TRANSFER_H
#define MP_NET_TRANSFER_H

#include "net/curl/handle.h"
#include "lookup.h"
#include "net/curl/lanes.h"
#include "net/net.h"
#include <sys/stat.h>

#define MP_MAX_HEAD_BYTES ((size_t)64 << 10) /* of an answer */
#define MP_WINDOW ((size_t)64 << 10)         /* a stream stops reading when this many bytes were not taken */
#define MP_OPENED 8 /* sockets of one transfer that are watched: more than libcurl tries at once */

/* How the transfers of a client go. */
typedef struct {
    /* Begins the transfer, whose `how` is a copy that is valid until the function returns. -1: it cannot be started,
     * and this way has nothing in it. */
    int (*start)(mp_transfer *transfer, mp_err *err);
    void (*end)(mp_transfer *transfer);   /* aborts it if it runs, and frees what this way has in it */
    void (*go_on)(mp_transfer *transfer); /* reads on after a pause */
    void (*clear)(mp_client *client);     /* closes the connections; the transfers have ended */
} mp_way;

extern const mp_way mp_curl_way, mp_inner_way;

typedef struct mp_line mp_line;         /* a connection to another process */
typedef struct mp_receiver mp_receiver; /* another process, while there are transfers or connections to it */

struct mp_transfer {
    mp_client *client;
    mp_outgoing how; /* its `url`, `headers` and paths are not valid after the start */
    int status;
    mp_buf head, body;
    size_t got;     /* bytes of the body received so far */
    size_t counted; /* bytes in how.account: of the body, and of the request's headers */
    bool has_head, is_paused, is_over, was_refused, is_crowded;
    bool was_sent; /* the request was sent, or a part of it */
    /* is_unread: the server has refused this side's certificate; is_partial: sending has failed */
    bool is_unread, is_partial;
    mp_err *MP_NULLABLE failure; /* NULL: the transfer has not failed */
    union {
        struct { /* by libcurl */
            const mp_curl_api *curl;
            mp_handle *handle;
            mp_destination *destination;
            mp_lane *MP_NULLABLE lane;              /* NULL: it is in none yet, or no more */
            struct curl_slist *headers, *addresses; /* headers: in one block of memory, with their texts */
            mp_lookup *MP_NULLABLE lookup;          /* NULL: no lookup is in progress */
            mp_timer patience;                      /* time limit of the lookup, if connecting has one */
            mp_buf place; /* "+HOST:PORT:", to which the addresses are appended; empty: none are looked up */
            /* was_repeated: libcurl wanted to send it a second time; has_opened: at least one socket */
            bool was_repeated, has_opened, is_short;
            struct {
                curl_socket_t fd;
                ino_t inode;
            } opened[MP_OPENED]; /* the sockets that it has opened and that may be closed without a call of on_close */
            size_t opened_count;
        };
        struct {                               /* to another process */
            mp_receiver *MP_NULLABLE receiver; /* NULL: the transfer has ended */
            mp_line *MP_NULLABLE over;         /* NULL: it is not connected yet, or no more */
            mp_dial *MP_NULLABLE dial;         /* NULL: none is in progress */
            mp_timer limit;                    /* of connecting; or `ready` is to run for what came during the start */
            uint64_t until_ms;                 /* when connecting is given up */
            mp_buf out;                        /* the request's head, and a small body */
            size_t held;                       /* bytes of `out` that are counted */
            size_t put, size;                  /* bytes of the request that were written, and all */
            size_t parsed;                     /* bytes of `head` that make no whole head */
            size_t left;                       /* bytes of the body that are still to come, unless it is chunked */
            uint64_t decoder[2];               /* libh2o's phr_chunked_decoder */
            bool is_chunked, is_head;          /* is_head: the answer has no body */
            bool is_on_kept;                   /* the connection has had an earlier request */
            bool is_starting;                  /* mp_transfer_start has not returned */
            bool is_last;                      /* the connection is not kept after this answer */
            bool is_cut;                       /* writing has failed: what has come before is still read */
        };
    };
};

struct mp_client {
    mp_loop *loop;
    mp_client_limits limits;
    const mp_way *way;
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
    struct {
        struct ssl_ctx_st *MP_NULLABLE context; /* NULL until it is first asked for */
        struct stat ca;                         /* the file that it was made of, as it was then */
        mp_tls *MP_NULLABLE own;                /* whose certificate it shows; NULL: none */
    } tls;
    char agent[48]; /* a header: the version, without the commit that it was built from */
    struct {
        mp_link peers;  /* processes to which there are connections */
        int64_t kept;   /* connections without a request */
        mp_timer sweep; /* closes kept connections that are too old */
    } inner;
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

/* Records the reason of the failure; only the first one counts. */
void mp_transfer_fail(mp_transfer *transfer, const char *text, const char *hint);
/* Counts bytes that the transfer keeps. False if there is no room for them. */
bool mp_transfer_hold(mp_transfer *transfer, size_t len);
/* Keeps bytes of the body. False, and the transfer has failed: there is no room for them, or they are too many. */
bool mp_transfer_put(mp_transfer *transfer, mp_str bytes);
void mp_transfer_discard(mp_transfer *transfer); /* bytes of the body, which were taken */
/* OpenSSL's context for servers whose certificates are of `ca`, or of the system's authorities; with the certificate of
 * `own`, unless it is NULL. The client owns it. */
struct ssl_ctx_st *MP_NULLABLE mp_client_context(mp_client *client, const char *MP_NULLABLE ca, mp_tls *MP_NULLABLE own,
                                                 mp_err *err);

/* Takes bytes of an answer from another process. 1: it is complete; 0: more follows; -1: it is none, or has failed. */
int mp_inner_take(mp_transfer *it, char *bytes, size_t len);

/* The hooks of lanes. */
void mp_transfer_on_end(const mp_curl_api *curl, CURL *easy, CURLcode result);
bool mp_transfer_is_on_kept(const mp_curl_api *curl, CURL *easy);

#endif
