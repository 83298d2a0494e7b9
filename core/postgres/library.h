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
    X(getCancel)                                                                                                       \
    X(cancel)                                                                                                          \
    X(freeCancel)

typedef struct {
#define MP_LIBPQ_MEMBER(name) __typeof__(PQ##name) *name;
    MP_LIBPQ(MP_LIBPQ_MEMBER)
#undef MP_LIBPQ_MEMBER
} mp_libpq;

/* The functions, once a connection has been opened. */
extern mp_libpq mp_pq;

#define MP_LIBPQ_WORDS 40 /* more than the keywords of a connection and their values: behind them there is none */

/* Work on a thread of its own. Its owner gives it up by mp_errand_drop. */
typedef struct mp_errand mp_errand;
struct mp_errand {
    mp_message message;
    mp_loop *MP_NULLABLE loop; /* NULL: nobody waits for it */
    void (*done)(mp_errand *errand);
    void *ctx;
    PGcancel *MP_NULLABLE cancel; /* NULL: a connection is opened */
    char *words[MP_LIBPQ_WORDS];  /* keywords and values of the connection, in turn */
    PGconn *MP_NULLABLE conn;     /* NULL: it could not be opened */
    mp_err why;
    bool is_stranded; /* it is over, and the loop had ended before */
};

/* Starts it: `done` runs once on the loop, and the errand is freed behind it. NULL: there are too many, or no thread
 * can be started. The strings of `words` and `cancel` are the errand's. */
mp_errand *MP_NULLABLE mp_errand_start(mp_loop *loop, const mp_errand *errand, void (*done)(mp_errand *errand),
                                       void *ctx);
/* `done` will not run; a connection that is being opened is closed. */
void mp_errand_drop(mp_errand *MP_NULLABLE errand);
/* The last line of a message of libpq, without where the server is. */
void mp_libpq_explain(mp_err *why, const char *message);

#endif
