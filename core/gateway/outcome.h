/* outcome.h: how the last reload went, and who waits to hear of the next. The main thread reloads, a worker finishes it, the
 * admin's thread asks and answers: any of them may call any of this. */
#ifndef MP_GATEWAY_OUTCOME_H
#define MP_GATEWAY_OUTCOME_H

#include "net/net.h"
#include <pthread.h>
#include <time.h>

#define MP_MOST_ASKED 64

typedef struct {
    pthread_mutex_t lock; /* guards all of it */
    int64_t generation;   /* that serves */
    bool is_ok;
    const char *by; /* what asks for the one that is under way */
    time_t at;      /* of the last one that changed or refused something; 0: none */
    mp_buf text, restart;
    mp_stream *waiting[MP_MOST_ASKED]; /* the admin's thread alone takes them out */
    size_t waiting_count, promised;    /* the first of these have their answer on its way */
} mp_outcome;

void mp_outcome_init(mp_outcome *outcome);
void mp_outcome_clear(mp_outcome *outcome);
/* `stream` waits for an answer; false when too many do. */
bool mp_outcome_wait(mp_outcome *outcome, mp_stream *stream);
/* One begins: `by` is a literal. */
void mp_outcome_begin(mp_outcome *outcome, const char *by);
/* How many wait for an answer that is not on its way: all of these asked before what begins now. */
size_t mp_outcome_waiting(mp_outcome *outcome);
/* A change serves, or the scripts that serve are those on the disk. */
void mp_outcome_keep(mp_outcome *outcome, int64_t generation, mp_str changes);
void mp_outcome_keep_errors(mp_outcome *outcome, mp_str report);
/* The keys of the configuration that changed and need a restart, by their names; may be empty. */
void mp_outcome_keep_restart(mp_outcome *outcome, mp_str keys);
/* Answers the first `asked` of those who wait, on the loop of the admin's listener. */
void mp_outcome_answer(mp_outcome *outcome, mp_loop *loop, size_t asked, bool is_ok, mp_str text);
/* Nothing is other than it was: errors, if there are any, or "nothing changed". */
void mp_outcome_answer_again(mp_outcome *outcome, mp_loop *loop, size_t asked);
/* Appends a JSON object: the generation, how the last reload went, what waits for a restart. */
void mp_outcome_describe(mp_outcome *outcome, mp_buf *out);

#endif
