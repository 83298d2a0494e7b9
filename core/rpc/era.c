#include "era.h"

const mp_era mp_eras[] = {
    /* date, has_sessions, has_batches, mirrors_headers, hang_up_cancels, has_priming */
    {"2024-11-05", true, false, false, false, false}, {"2025-03-26", true, true, false, false, false},
    {"2025-06-18", true, false, false, false, false}, {"2025-11-25", true, false, false, false, true},
    {"2026-07-28", false, false, true, true, false},
};
const size_t mp_era_count = sizeof mp_eras / sizeof *mp_eras;

static const mp_mirrored_name mirrored[] = {
    {"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
    {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"},
};

static const struct {
    int code, status;
} statuses[] = {
    {-32700, 400}, {-32600, 400}, {-32601, 404}, {-32602, 400}, {-32020, 400}, {-32021, 400}, {-32022, 400},
};

const mp_era *mp_era_find(mp_str date)
{
    for (size_t i = 0; i < mp_era_count; i++)
        if (mp_str_is(date, mp_eras[i].date))
            return &mp_eras[i];
    return NULL;
}

const char *mp_era_mirrored_member(mp_str method)
{
    for (size_t i = 0; i < sizeof mirrored / sizeof *mirrored; i++)
        if (mp_str_is(method, mirrored[i].method))
            return mirrored[i].member;
    return NULL;
}

int mp_era_status(const mp_era *era, int code)
{
    if (era == NULL || era->has_sessions)
        return 200;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return 200;
}
