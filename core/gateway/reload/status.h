/* status.h: the result of the last reload, and the admin requests that wait for the next one. The main thread
 * reloads, the admin thread answers requests: both may call any function here. */
#ifndef MP_GATEWAY_RELOAD_STATUS_H
#define MP_GATEWAY_RELOAD_STATUS_H

#include "gateway/start/last_good_writer.h"
#include "gateway/worker.h"
#include <pthread.h>
#include <time.h>

#define MP_MAX_RELOAD_REQUESTS 64

typedef struct {
    pthread_mutex_t lock; /* protects all members */
    int64_t generation;   /* the generation that serves */
    bool is_ok;
    const char *by;       /* the cause of the running reload */
    uint64_t began_ms;    /* begin of the running reload, in monotonic ms */
    mp_reload_past *past; /* gets each result */
    time_t at;            /* time of the last reload that changed or refused anything; 0: none */
    mp_buf text, restart;
    mp_buf start; /* members of a JSON object: the files that were served at the start in place of files with errors;
                     empty: none */
    mp_last_good_writer *MP_NULLABLE writer; /* NULL: no generation is kept */
    mp_buf behind; /* the member of the JSON object that lists workers with earlier scripts; empty: none */
    mp_stream *waiting[MP_MAX_RELOAD_REQUESTS]; /* only the admin thread removes elements */
    size_t waiting_count, promised;             /* number of elements at the front whose answer is on its way */
} mp_reload_status;

void mp_reload_status_init(mp_reload_status *outcome);
void mp_reload_status_clear(mp_reload_status *outcome);
/* Adds `stream` to the waiting requests; false if too many wait. */
bool mp_reload_status_wait(mp_reload_status *outcome, mp_stream *stream);
/* A reload begins; `by` is a literal that names its cause. */
void mp_reload_status_begin(mp_reload_status *outcome, const char *by);
/* The number of waiting requests that have no answer on its way. All of them arrived before the reload that begins
 * now. */
size_t mp_reload_status_waiting(mp_reload_status *outcome);
/* A change is now served, or the serving scripts equal the files on the disk. */
void mp_reload_status_keep(mp_reload_status *outcome, int64_t generation, mp_str changes);
void mp_reload_status_keep_errors(mp_reload_status *outcome, mp_str report);
/* True if the report is about a lack of descriptors or memory, which can pass without a change of any file. */
bool mp_reload_status_is_starved(mp_str report);
/* Stores the names of the changed keys that need a restart; may be empty. */
void mp_reload_status_keep_restart(mp_reload_status *outcome, mp_str keys);
/* Stores which of the workers serve scripts from before `generation`. */
void mp_reload_status_keep_behind(mp_reload_status *outcome, mp_worker *const *workers, int count, int64_t generation);
/* Answers the first `asked` waiting requests with this HTTP status, on the loop of the admin listener. */
void mp_reload_status_answer(mp_reload_status *outcome, mp_loop *loop, size_t asked, int status, mp_str text);
/* Answers when a reload found nothing new: with the last errors if there are any, else "nothing changed". */
void mp_reload_status_answer_again(mp_reload_status *outcome, mp_loop *loop, size_t asked);
/* Appends a JSON object: the generation, the result of the last reload, the keys that need a restart. */
void mp_reload_status_describe(mp_reload_status *outcome, mp_buf *out);
/* Appends the generation and the result of the last reload in Prometheus's text format. */
void mp_reload_status_put_metrics(mp_reload_status *outcome, mp_buf *out);

#endif
