/* era.c: the table of revisions, read from era.def. */
#include "mcp.h"

const mp_era mp_eras[] = {
#define ERA(...) {__VA_ARGS__},
#include "era.def"
#undef ERA
};
const size_t mp_era_count = sizeof mp_eras / sizeof *mp_eras;

#define DATE_LEN (sizeof "YYYY-MM-DD" - 1)
#define ERA(date, ...) _Static_assert(sizeof(date) - 1 == DATE_LEN, "mp_era_find compares dates of one length");
#include "era.def"
#undef ERA

#define ERA(date, ...) " " date
const char mp_era_spaced_dates[] =
#include "era.def"
    ;
#undef ERA

/* The member of a request's params that the header Mcp-Name repeats. */
#define ROW(method, member) {{method, sizeof method - 1}, member}
static const struct {
    mp_str method;
    const char *member;
} mirrored[] = {
    ROW("tools/call", "name"),  ROW("prompts/get", "name"),    ROW("resources/read", "uri"),
    ROW("tasks/get", "taskId"), ROW("tasks/update", "taskId"), ROW("tasks/cancel", "taskId"),
};

const mp_era *MP_NULLABLE mp_era_find(mp_str date)
{
    if (date.len != DATE_LEN)
        return NULL;
    for (size_t i = mp_era_count; i > 0; i--)
        if (memcmp(date.ptr, mp_eras[i - 1].date, DATE_LEN) == 0)
            return &mp_eras[i - 1];
    return NULL;
}

const mp_era *mp_era_newest(void)
{
    return &mp_eras[mp_era_count - 1];
}

void mp_era_put_stateless(mp_buf *out)
{
    const char *mark = "[";
    for (size_t i = 0; i < mp_era_count; i++)
        if (!mp_eras[i].has_sessions) {
            mp_buf_printf(out, "%s\"%s\"", mark, mp_eras[i].date);
            mark = ",";
        }
    mp_buf_putc(out, ']');
}

const char *MP_NULLABLE mp_era_mirrored_member(mp_str method)
{
    for (size_t i = 0; i < sizeof mirrored / sizeof *mirrored; i++)
        if (mp_str_eq(method, mirrored[i].method))
            return mirrored[i].member;
    return NULL;
}
