#include "places.h"

MP_GAUGE(admin_questions, "admin_questions", "", "", "requests to the admin listener that wait for workers")
MP_COUNTER(refused_admin_questions, "refused", "reason", "admin_questions",
           "requests to the admin listener over admin.questions")
MP_COUNTER(admin_unanswered, "admin_unanswered", "", "",
           "questions of the admin listener that a worker did not answer within admin.question_time")

bool mp_admin_places_take(mp_admin_places *places, int64_t most, mp_stream *stream)
{
    if (places->waiting >= most) {
        mp_stat_add(&mp_stat_refused_admin_questions, 1);
        mp_stream_answer(stream, 503, "application/json",
                         MP_STR("{\"error\":\"too many requests wait for the workers: see admin.questions\"}\n"), NULL,
                         0);
        return false;
    }
    places->waiting++;
    mp_stat_add(&mp_stat_admin_questions, 1);
    return true;
}

void mp_admin_places_give(mp_admin_places *places, unsigned unanswered)
{
    places->waiting--;
    mp_stat_add(&mp_stat_admin_questions, -1);
    mp_stat_add(&mp_stat_admin_unanswered, unanswered);
}
