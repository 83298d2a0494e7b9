#include "query_slots.h"
#include "json/json.h"

MP_GAUGE(admin_questions, "admin_questions", "", "", "requests to the admin listener that wait for workers")
MP_REFUSED(refused_admin_questions, "admin_questions", MP_LIMIT_REACHED,
           "requests to the admin listener while 16 wait for workers")
MP_COUNTER(admin_unanswered, "admin_unanswered", "", "",
           "questions of the admin listener that a worker did not answer within 2 s")

/* As many as a few operators and their scripts have at once. Each may wait MP_QUESTION_MS for a worker that is
 * stuck. */
#define MAX_WAITING MP_LIMIT(admin_questions, 16)

bool mp_admin_query_slots_take(mp_admin_query_slots *places, mp_stream *stream)
{
    if (places->waiting >= MAX_WAITING) {
        mp_stat_add(&mp_stat_refused_admin_questions, 1);
        mp_stream_answer(stream, 503, "application/json",
                         MP_STR("{\"error\":\"16 requests wait for the workers: ask again in a second\"}\n"), NULL, 0);
        return false;
    }
    places->waiting++;
    mp_stat_add(&mp_stat_admin_questions, 1);
    return true;
}

void mp_admin_query_slots_give(mp_admin_query_slots *places, unsigned unanswered)
{
    places->waiting--;
    mp_stat_add(&mp_stat_admin_questions, -1);
    mp_stat_add(&mp_stat_admin_unanswered, unanswered);
}

void mp_admin_refuse(mp_stream *stream, int status, mp_str why)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"error\":"));
    mp_json_put_string(&out, why);
    mp_buf_put(&out, MP_STR("}\n"));
    mp_stream_answer(stream, status, "application/json", mp_buf_str(&out), NULL, 0);
}
