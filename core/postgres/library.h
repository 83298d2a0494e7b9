/* library.h: libpq, which the first connection loads; and the two things that block: opening a connection, and
 * cancelling a statement. Each is done on a thread of its own, which ends with it: a server that does not answer holds
 * up nobody else. */
#ifndef MP_POSTGRES_LIBRARY_H
#define MP_POSTGRES_LIBRARY_H

#include "net/net.h"
#include <libpq-fe.h>

/* X(name) for the function PQname. */
#define MP_LIBPQ(X)                                                                                                    \
    X(connectStartParams)                                                                                              \
    X(connectPoll)                                                                                                     \
    X(status)                                                                                                          \
    X(errorMessage)                                                                                                    \
    X(finish)                                                                                                          \
    X(socket)                                                                                                          \
    X(setnonblocking)                                                                                                  \
    X(setNoticeReceiver)                                                                                               \
    X(sendQueryParams)                                                                                                 \
    X(sendPrepare)                                                                                                     \
    X(sendQueryPrepared)                                                                                               \
    X(enterPipelineMode)                                                                                               \
    X(exitPipelineMode)                                                                                                \
    X(pipelineSync)                                                                                                    \
    X(setSingleRowMode)                                                                                                \
    X(flush)                                                                                                           \
    X(consumeInput)                                                                                                    \
    X(isBusy)                                                                                                          \
    X(getResult)                                                                                                       \
    X(resultStatus)                                                                                                    \
    X(resultErrorField)                                                                                                \
    X(clear)                                                                                                           \
    X(ntuples)                                                                                                         \
    X(nfields)                                                                                                         \
    X(fname)                                                                                                           \
    X(ftype)                                                                                                           \
    X(getvalue)                                                                                                        \
    X(getlength)                                                                                                       \
    X(getisnull)                                                                                                       \
    X(cmdTuples)                                                                                                       \
    X(cmdStatus)                                                                                                       \
    X(transactionStatus)                                                                                               \
    X(notifies)                                                                                                        \
    X(freemem)                                                                                                         \
    X(libVersion)                                                                                                      \
    X(getCancel)                                                                                                       \
    X(cancel)                                                                                                          \
    X(freeCancel)

/* The same for functions of libpq 17 and newer, which the headers of older ones lack: X(name, result, parameter). */
typedef struct pg_cancel_conn PGcancelConn;
#define MP_LIBPQ_17(X)                                                                                                 \
    X(cancelCreate, PGcancelConn *, PGconn *)                                                                          \
    X(cancelStart, int, PGcancelConn *)                                                                                \
    X(cancelPoll, PostgresPollingStatusType, PGcancelConn *)                                                           \
    X(cancelSocket, int, const PGcancelConn *)                                                                         \
    X(cancelFinish, void, PGcancelConn *)

typedef struct {
#define MP_LIBPQ_MEMBER(name) __typeof__(PQ##name) *name;
    MP_LIBPQ(MP_LIBPQ_MEMBER)
#undef MP_LIBPQ_MEMBER
#define MP_LIBPQ_MEMBER(name, result, parameter) result (*MP_NULLABLE name)(parameter);
    MP_LIBPQ_17(MP_LIBPQ_MEMBER)
#undef MP_LIBPQ_MEMBER
} mp_libpq;

/* The functions, once a connection has been opened. */
extern mp_libpq mp_pq;

#define MP_LIBPQ_WORDS 40 /* more than the keywords of a connection and their values: behind them there is none */

/* -- the gate ------------------------------------------------------------------------------------------------------ */

/* A gate stands between libpq, which reads all that its socket has, and the socket of the server, and lets
 * MP_GATE_BYTES in at a time. It is a pair of sockets, one of which takes the place of the server's in libpq. The owner
 * of the gate moves the bytes. */

#define MP_GATE_BYTES 16384   /* that are let in at once: one or two milliseconds of work, if they are small messages */
#define MP_GATE_DESCRIPTORS 2 /* of a gate, beside the one that libpq has */

typedef struct {
    bool is_open;
    bool is_over; /* the server has closed the connection, and libpq is told so */
    int server;   /* its socket */
    int own;      /* our end of the pair */
    int libpq;    /* the other end, under the number that libpq knows */
} mp_gate;

/* Opens a gate in the place of libpq's socket. False: errno says why not, and nothing has changed. */
bool mp_gate_open(mp_gate *gate, int libpq);
/* Lets in what the server has sent, if libpq has read what was let in before. Returns how many bytes. */
size_t mp_gate_let_in(mp_gate *gate);
/* Bytes that were let in and that libpq has not read. */
int mp_gate_unread(const mp_gate *gate);
/* Sends what libpq has sent. True: some is left, and the server takes no more now. */
bool mp_gate_send(const mp_gate *gate);
/* Sends what is left, and closes the connection, whose other end libpq has closed. Nothing if the gate is not open. */
void mp_gate_close(mp_gate *gate);

/* -- errands ----------------------------------------------------------------------------------------------------------
 */

/* Work on a thread of its own. Its owner gives it up by mp_errand_drop. */
typedef struct mp_errand mp_errand;
struct mp_errand {
    mp_message message;
    mp_loop *MP_NULLABLE loop; /* NULL: nobody waits for it */
    void (*done)(mp_errand *errand);
    void *ctx;
    PGcancel *MP_NULLABLE cancel;      /* of libpq before 17 */
    PGcancelConn *MP_NULLABLE request; /* the same of libpq 17; both NULL: a connection is opened */
    char *words[MP_LIBPQ_WORDS];       /* keywords and values of the connection, in turn */
    char *MP_NULLABLE root;            /* of a Unix socket: the path that it must not lead out of */
    PGconn *MP_NULLABLE conn;          /* NULL: it could not be opened */
    mp_gate gate;                      /* of `conn` */
    mp_err why;
    bool is_stranded; /* it is over, and the loop had ended before */
};

/* Makes `errand` one that cancels what runs on the connection. False: it cannot be. */
bool mp_errand_to_cancel(mp_errand *errand, PGconn *conn);
/* Starts it: `done` runs once on the loop, and the errand is freed behind it. NULL: there are too many, or no thread
 * can be started. It owns what `errand` points to. */
mp_errand *MP_NULLABLE mp_errand_start(mp_loop *loop, const mp_errand *errand, void (*done)(mp_errand *errand),
                                       void *ctx);
/* `done` will not run; a connection that is being opened is closed. */
void mp_errand_drop(mp_errand *MP_NULLABLE errand);
/* As mp_postgres_stop, and mp_postgres_version. */
void mp_errands_stop(void);
int mp_libpq_version(void);
/* The last line of a message of libpq, without where the server is. */
void mp_libpq_explain(mp_err *why, const char *message);
/* The bytes of an error or notice that the server has sent. */
size_t mp_libpq_size(const PGresult *result);
/* Closes a connection with its gate. */
void mp_libpq_finish(PGconn *MP_NULLABLE conn, mp_gate *gate);

#endif
