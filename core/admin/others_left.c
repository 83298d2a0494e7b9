#include "others_left.h"
#include "join.h"
#include "metrics.h"

size_t mp_left_split(mp_str status, mp_str texts[2])
{
    mp_str rest = status;
    size_t count = 0;
    while (rest.len > 0 && count < 2) {
        mp_str line = mp_str_cut(&rest, '\n');
        if (line.len > 0)
            texts[count++] = line;
    }
    return count;
}

static void add_left(mp_others_left *left, mp_str status, mp_str metrics)
{
    mp_str texts[3] = {mp_buf_str(&left->status)}, both[2] = {mp_buf_str(&left->metrics), metrics};
    mp_buf sum = {0}, text = {0};
    size_t first = left->status.len == 0, count = 1 + mp_left_split(status, texts + 1);
    if (count > 1) {
        mp_join_counters(&sum, texts + first, count - first);
        mp_buf_clear(&left->status);
        left->status = sum;
    }
    if (metrics.len > 0) {
        mp_join_metrics(&text, both, 2, mp_metrics_adds_up, true, false);
        mp_buf_clear(&left->metrics);
        left->metrics = text;
    }
}

static void drop_record(mp_others_left *left, int i)
{
    mp_buf_clear(&left->records[i].status);
    mp_buf_clear(&left->records[i].metrics);
    left->records[i] = left->records[--left->count];
}

mp_left_record *MP_NULLABLE mp_left_record_of(mp_others_left *left, uint16_t number, bool makes)
{
    for (int i = 0; i < left->count; i++)
        if (left->records[i].number == number)
            return &left->records[i];
    if (!makes || left->count > MP_OLDER_MOST)
        return NULL;
    left->records[left->count] = (mp_left_record){.number = number};
    return &left->records[left->count++];
}

void mp_left_keep(mp_left_record *of, bool is_status, mp_str text, mp_buf *counted)
{
    mp_buf *kept = is_status ? &of->status : &of->metrics;
    mp_str last = mp_buf_str(kept), texts[2];
    if (text.len > 0) {
        kept->len = 0;
        mp_buf_put(kept, text);
    } else if (is_status) {
        mp_join_counters(counted, texts, mp_left_split(last, texts));
    } else {
        mp_join_metrics(counted, &last, 1, mp_metrics_adds_up, true, false);
    }
}

void mp_left_settle(mp_others_left *left, const mp_processes *processes)
{
    for (int i = left->count - 1; i >= 0; i--) {
        const mp_left_record *of = &left->records[i];
        if (mp_processes_has(processes, of->number))
            continue;
        add_left(left, mp_buf_str(&of->status), mp_buf_str(&of->metrics));
        drop_record(left, i);
    }
}

bool mp_left_take_end(mp_others_left *left, uint16_t number, mp_str body)
{
    mp_left_record *MP_NULLABLE of = mp_left_record_of(left, number, true);
    if (of == NULL || of->has_ended)
        return false;
    mp_str rest = body, first = mp_str_cut(&rest, '\n'), second = mp_str_cut(&rest, '\n');
    add_left(left, (mp_str){first.ptr, first.len + 1 + second.len}, rest);
    of->has_ended = true;
    of->status.len = of->metrics.len = 0;
    return true;
}

void mp_left_clear(mp_others_left *left)
{
    while (left->count > 0)
        drop_record(left, 0);
    mp_buf_clear(&left->status);
    mp_buf_clear(&left->metrics);
}
