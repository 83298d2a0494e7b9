/* others.h: the views of a gateway that consists of several processes (rpc/processes.h). From the first upgrade on each
 * process has a door, the Unix socket FOLDER/NUMBER.admin.sock, at which its admin thread answers for itself alone. The
 * newest process asks at the doors of all, its own included, and joins the answers; one that does not answer within a
 * second is told as such. An older one that still gets a request, by a connection that was open before, passes it on to
 * the newest.
 *
 * A process that ends leaves what it has counted with the newest, which adds it to its own: no counter falls. So does
 * what was last known of one that does not answer, or was killed. */
#ifndef MP_ADMIN_OTHERS_H
#define MP_ADMIN_OTHERS_H

#include "admin.h"

typedef enum {
    MP_VIEW_OWN,     /* each process answers with its own facts only */
    MP_VIEW_STATUS,  /* the answers of all processes are joined by join.h */
    MP_VIEW_METRICS, /* the answers are joined */
    MP_VIEW_LIST,    /* the answers are joined */
    MP_VIEW_ONE,     /* a thing by its name: only the process that has it carries the request out */
    MP_VIEW_ALL,     /* all processes carry the request out; the client gets the answer of the newest one */
    MP_VIEW_EVENTS,  /* the events of all, as they come */
    MP_VIEW_JOBS,    /* joined, see pages.h */
    MP_VIEW_NEWEST,  /* the newest answers for all */
    MP_VIEW_FOLLOWED /* the process that has the thing carries the request out, and answers with an event stream */
} mp_admin_view;

/* All functions are for the admin thread. */

/* Answers a request, now or later. False: this process is to answer for itself. `rest` is what follows the path of the
 * endpoint. */
bool mp_others_answer(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_admin_view view,
                      mp_str rest);
/* header of a process that asks at a door: its number. Without it, all processes are to answer */
#define MP_OTHERS_ASKER "moonpool-process"

/* In others_ask.c. True if the request comes from another process of the gateway, which adds up the answers of all;
 * this process then answers only for itself. */
bool mp_others_is_other(mp_admin *admin, const mp_stream *stream);
/* Appends the counts of processes that have ended, and have left them with this one. */
void mp_others_put_status(mp_admin *admin, mp_buf *out);
void mp_others_put_metrics(mp_admin *admin, mp_buf *out);
/* Takes the counts of another process, which ends. */
void mp_others_take_end(mp_admin *admin, mp_stream *stream);
/* This process ends: leaves its counts with the newest one, which takes at most a second. `left` runs then, or at once
 * if there is nothing to do. The workers have ended. */
void mp_others_leave(mp_admin *admin, void (*left)(mp_admin *admin));

#define MP_OTHERS_ANSWER ((size_t)64 << 20) /* bytes of an answer at most: a text of /metrics has 8 MiB */

/* In others_events.c. Answers with one event stream that joins those of all processes in `processes`. The first process
 * is this one, or the only one: the joined stream ends when its own stream ends. */
void mp_others_open_events(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller,
                           const mp_process_facts *processes, size_t count);
/* Ends all of these streams, as the thread has ended, or those of callers who have lost their role, and in an older
 * process those that it joins itself. */
void mp_others_review_events(mp_admin *admin, bool ends_all);
/* Answers with the event stream of the process with this pid alone. False: there is none. */
bool mp_others_open_process(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, int64_t pid);
/* The list of these streams, and the client for their requests. */
mp_link *mp_others_streams(mp_admin *admin);
mp_client *mp_others_client(mp_admin *admin);

typedef struct {
    mp_str target; /* path and query */
    mp_str caller; /* for the audit */
    bool is_open;  /* OpenMetrics */
    bool is_whole; /* all processes are to answer, by way of the newest */
} mp_others_question;

/* others_ask.c. A request at the door of a process; `how` has all but url, headers and unix_path. NULL: it cannot be
 * asked. */
mp_transfer *MP_NULLABLE mp_others_ask(mp_admin *admin, uint16_t number, const mp_outgoing *how,
                                       const mp_others_question *question);
/* "4711-0-17": a call of the process 4711, which calls it "0-17". The pid, or 0: the name is none of another
 * process. */
int mp_others_pid(mp_str name, mp_str *own_name);

#endif
