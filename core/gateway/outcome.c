#include "outcome.h"
#include "json/json.h"
#include <stdlib.h>

#define MOST_TOLD 2048 /* bytes of what changed or is wrong, in the audit */

void mp_outcome_init(mp_outcome *outcome)
{
    *outcome = (mp_outcome){.generation = 1, .is_ok = true, .by = "files"};
    pthread_mutex_init(&outcome->lock, NULL);
}

void mp_outcome_clear(mp_outcome *outcome)
{
    for (size_t i = 0; i < outcome->waiting_count; i++)
        mp_stream_unref(outcome->waiting[i]);
    mp_buf_clear(&outcome->text);
    mp_buf_clear(&outcome->restart);
    pthread_mutex_destroy(&outcome->lock);
}

bool mp_outcome_wait(mp_outcome *outcome, mp_stream *stream)
{
    pthread_mutex_lock(&outcome->lock);
    bool has_room = outcome->waiting_count < MP_MOST_ASKED;
    if (has_room)
        outcome->waiting[outcome->waiting_count++] = mp_stream_ref(stream);
    pthread_mutex_unlock(&outcome->lock);
    return has_room;
}

void mp_outcome_begin(mp_outcome *outcome, const char *by)
{
    pthread_mutex_lock(&outcome->lock);
    outcome->by = by;
    pthread_mutex_unlock(&outcome->lock);
}

size_t mp_outcome_waiting(mp_outcome *outcome)
{
    pthread_mutex_lock(&outcome->lock);
    size_t count = outcome->waiting_count - outcome->promised;
    pthread_mutex_unlock(&outcome->lock);
    return count;
}

/* What came of a reload, and what asked for it. The log has the errors' own lines. */
static void audit(const mp_outcome *outcome, mp_str text)
{
    mp_buf line = {0};
    if (!mp_audit_is_on() || text.len == 0)
        return;
    mp_buf_printf(&line, "\"event\":\"reload\",\"by\":\"%s\",\"outcome\":\"%s\",\"generation\":", outcome->by,
                  outcome->is_ok ? "done" : "refused");
    mp_json_put_int(&line, outcome->generation);
    mp_buf_printf(&line, ",\"%s\":", outcome->is_ok ? "changes" : "why");
    mp_json_put_string(&line, (mp_str){text.ptr, text.len < MOST_TOLD ? text.len : MOST_TOLD});
    mp_audit_write(mp_buf_str(&line));
    mp_buf_clear(&line);
}

static void keep(mp_outcome *outcome, int64_t generation, bool is_ok, mp_str text)
{
    pthread_mutex_lock(&outcome->lock);
    if (generation != 0)
        outcome->generation = generation;
    outcome->is_ok = is_ok;
    outcome->at = time(NULL);
    outcome->text.len = 0;
    mp_buf_put(&outcome->text, text);
    audit(outcome, text);
    pthread_mutex_unlock(&outcome->lock);
}

void mp_outcome_keep(mp_outcome *outcome, int64_t generation, mp_str changes)
{
    keep(outcome, generation, true, changes);
}

void mp_outcome_keep_errors(mp_outcome *outcome, mp_str report)
{
    keep(outcome, 0, false, report);
}

void mp_outcome_keep_restart(mp_outcome *outcome, mp_str keys)
{
    pthread_mutex_lock(&outcome->lock);
    outcome->restart.len = 0;
    mp_buf_put(&outcome->restart, keys);
    pthread_mutex_unlock(&outcome->lock);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_message super;
    mp_outcome *outcome;
    bool is_ok;
    size_t asked;
    mp_buf text;
} answer;

static void deliver(mp_message *message, mp_loop *loop)
{
    answer *given = mp_container(message, answer, super);
    mp_outcome *outcome = given->outcome;
    mp_stream *streams[MP_MOST_ASKED];
    size_t count = 0;
    if (loop != NULL) {
        pthread_mutex_lock(&outcome->lock);
        count = given->asked;
        memcpy(streams, outcome->waiting, count * sizeof *streams);
        outcome->waiting_count -= count;
        outcome->promised -= count;
        memmove(outcome->waiting, outcome->waiting + count, outcome->waiting_count * sizeof *streams);
        pthread_mutex_unlock(&outcome->lock);
    }
    for (size_t i = 0; i < count; i++) {
        mp_stream_answer(streams[i], given->is_ok ? 200 : 422, "text/plain; charset=utf-8", mp_buf_str(&given->text),
                         NULL, 0);
        mp_stream_unref(streams[i]);
    }
    mp_buf_clear(&given->text);
    free(given);
}

void mp_outcome_answer(mp_outcome *outcome, mp_loop *loop, size_t asked, bool is_ok, mp_str text)
{
    answer *given = mp_new(sizeof *given);
    *given = (answer){{.deliver = deliver}, outcome, is_ok, asked, {0}};
    mp_buf_put(&given->text, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(&given->text, '\n');
    pthread_mutex_lock(&outcome->lock);
    outcome->promised += asked;
    pthread_mutex_unlock(&outcome->lock);
    mp_loop_post(loop, &given->super);
}

void mp_outcome_answer_again(mp_outcome *outcome, mp_loop *loop, size_t asked)
{
    mp_buf text = {0};
    pthread_mutex_lock(&outcome->lock);
    bool is_ok = outcome->is_ok;
    mp_buf_put(&text, is_ok ? MP_STR("nothing changed") : mp_buf_str(&outcome->text));
    if (is_ok && outcome->restart.len > 0)
        mp_buf_printf(&text, "  needs a restart: %.*s", MP_STR_ARG(mp_buf_str(&outcome->restart)));
    pthread_mutex_unlock(&outcome->lock);
    mp_outcome_answer(outcome, loop, asked, is_ok, mp_buf_str(&text));
    mp_buf_clear(&text);
}

void mp_outcome_describe(mp_outcome *outcome, mp_buf *out)
{
    pthread_mutex_lock(&outcome->lock);
    mp_buf_printf(out, "{\"generation\":%lld", (long long)outcome->generation);
    if (outcome->at != 0) {
        char when[32];
        struct tm parts;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&outcome->at, &parts));
        mp_buf_printf(out, ",\"at\":\"%s\",\"ok\":%s,\"%s\":", when, outcome->is_ok ? "true" : "false",
                      outcome->is_ok ? "changes" : "errors");
        mp_json_put_string(out, mp_buf_str(&outcome->text));
    }
    if (outcome->restart.len > 0) {
        mp_buf_put(out, MP_STR(",\"needs_restart\":"));
        mp_json_put_string(out, mp_buf_str(&outcome->restart));
    }
    mp_buf_putc(out, '}');
    pthread_mutex_unlock(&outcome->lock);
}
