/* join.c: status and lists. */
#define _GNU_SOURCE /* for memmem */
#include "join.h"
#include "json/json.h"

/* -- sums of gauges and counters ----------------------------------------------------------------------------------- */

typedef enum { NEITHER, GAUGES, COUNTERS } sum_kind;

typedef struct {
    mp_str name; /* of its family's member; empty: the family has one number */
    int64_t sum;
} number;

typedef struct {
    sum_kind kind;
    mp_str name;
    number *numbers;
    size_t count;
} family;

/* An ordered list of members, in the order in which they first occur in the texts. */
typedef struct {
    family *families;
    size_t count;
    sum_kind at; /* the member of the text that is being read */
    family *MP_NULLABLE of;
} sums;

static family *family_of(sums *all, mp_str name)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->families[i].kind == all->at && mp_str_eq(all->families[i].name, name))
            return &all->families[i];
    all->families = mp_resize(all->families, (all->count + 1) * sizeof *all->families);
    family *made = &all->families[all->count++];
    *made = (family){.kind = all->at, .name = {mp_dup(name), name.len}, .numbers = mp_new(sizeof *made->numbers)};
    return made;
}

static void add_number(family *to, mp_str name, int64_t value)
{
    size_t i = 0;
    while (i < to->count && !mp_str_eq(to->numbers[i].name, name))
        i++;
    if (i == to->count) {
        to->numbers = mp_resize(to->numbers, (to->count + 1) * sizeof *to->numbers);
        to->numbers[to->count++] = (number){{mp_dup(name), name.len}, 0};
    }
    to->numbers[i].sum += value;
}

static bool enters_family(void *ctx, unsigned level, mp_str key)
{
    sums *all = ctx;
    if (level == 1)
        all->at = mp_str_is(key, "gauges") ? GAUGES : mp_str_is(key, "counters") ? COUNTERS : NEITHER;
    if (all->at == NEITHER || level > 2)
        return false;
    all->of = level == 2 ? family_of(all, key) : NULL;
    return true;
}

static int see_number(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    sums *all = ctx;
    family *MP_NULLABLE of = all->of;
    int64_t n;
    if (type != MP_JSON_NUMBER || level == 1 || !mp_json_int(value, &n))
        return 0;
    if (level == 2)
        add_number(family_of(all, key), MP_STR_NONE, n);
    else if (of != NULL)
        add_number(of, key, n);
    return 0;
}

static sums read_sums(const mp_str *texts, size_t count)
{
    sums all = {0};
    for (size_t i = 0; i < count; i++)
        mp_json_scan(texts[i], &(mp_json_visitor){.enter = enters_family, .member = see_number, .ctx = &all}, NULL,
                     NULL);
    return all;
}

static void free_sums(sums *all)
{
    for (size_t i = 0; i < all->count; i++) {
        family *each = &all->families[i];
        for (size_t n = 0; n < each->count; n++)
            free((void *)(uintptr_t)each->numbers[n].name.ptr);
        free((void *)(uintptr_t)each->name.ptr);
        free(each->numbers);
    }
    free(all->families);
}

static void put_family(mp_buf *out, const family *each)
{
    bool is_one = each->count == 1 && each->numbers[0].name.len == 0;
    mp_json_put_string(out, each->name);
    mp_buf_put(out, is_one ? MP_STR(":") : MP_STR(":{"));
    for (size_t n = 0, done = 0; n < each->count; n++) {
        if (!is_one && each->numbers[n].name.len == 0)
            continue; /* another version has one number for the whole family */
        if (done++ > 0)
            mp_buf_putc(out, ',');
        if (!is_one) {
            mp_json_put_string(out, each->numbers[n].name);
            mp_buf_putc(out, ':');
        }
        mp_json_put_int(out, each->numbers[n].sum);
    }
    if (!is_one)
        mp_buf_putc(out, '}');
}

static void put_sums(mp_buf *out, const sums *all, sum_kind kind)
{
    size_t done = 0;
    mp_buf_putc(out, '{');
    for (size_t i = 0; i < all->count; i++) {
        if (all->families[i].kind != kind)
            continue;
        if (done++ > 0)
            mp_buf_putc(out, ',');
        put_family(out, &all->families[i]);
    }
    mp_buf_putc(out, '}');
}

void mp_join_counters(mp_buf *out, const mp_str *texts, size_t count)
{
    sums all = read_sums(texts, count);
    mp_buf_put(out, MP_STR("{\"counters\":"));
    put_sums(out, &all, COUNTERS);
    mp_buf_put(out, MP_STR("}\n"));
    free_sums(&all);
}

int64_t mp_join_sum_of(mp_str text, const char *name)
{
    sums all = read_sums(&text, 1);
    int64_t sum = 0;
    for (size_t i = 0; i < all.count; i++)
        for (size_t n = 0; n < all.families[i].count && mp_str_is(all.families[i].name, name); n++)
            sum += all.families[i].numbers[n].sum;
    free_sums(&all);
    return sum;
}

/* -- a status ------------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_buf *out;
    const sums *all;
    mp_str upgrade;
} status;

static int put_member(void *ctx, unsigned level, mp_str key, MP_UNUSED mp_json_type type, mp_str value)
{
    status *of = ctx;
    if (level != 1)
        return 0;
    if (of->out->ptr[of->out->len - 1] != '{')
        mp_buf_putc(of->out, ',');
    mp_json_put_string(of->out, key);
    mp_buf_putc(of->out, ':');
    if (mp_str_is(key, "gauges"))
        put_sums(of->out, of->all, GAUGES);
    else if (mp_str_is(key, "counters"))
        put_sums(of->out, of->all, COUNTERS);
    else
        mp_buf_put(of->out, mp_str_is(key, "upgrade") ? of->upgrade : value);
    return 0;
}

bool mp_join_status(mp_buf *out, const mp_str *texts, size_t count, mp_str upgrade)
{
    sums all = read_sums(texts, count);
    status of = {out, &all, upgrade};
    mp_json_type type = MP_JSON_NULL;
    mp_buf_putc(out, '{');
    bool is_object =
        mp_json_scan(texts[0], &(mp_json_visitor){.member = put_member, .ctx = &of}, &type, NULL) == MP_JSON_OK &&
        type == MP_JSON_OBJECT;
    mp_buf_put(out, MP_STR("}\n"));
    free_sums(&all);
    return is_object;
}

/* -- lists --------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_str key, entries;          /* key: as JSON; entries: what is between the brackets */
    int64_t next, without_answer; /* -1: the list has no such member */
} list;

static int see_list(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    list *of = ctx;
    if (level == 1 && type == MP_JSON_ARRAY && of->entries.ptr == NULL) {
        of->entries = mp_str_trim((mp_str){value.ptr + 1, value.len - 2});
        of->key = (mp_str){mp_dup(key), key.len};
    } else if (level == 1 && type == MP_JSON_NUMBER) {
        if (mp_str_is(key, "next"))
            mp_json_int(value, &of->next);
        else if (mp_str_is(key, "workers_without_answer"))
            mp_json_int(value, &of->without_answer);
    }
    return 0;
}

static list read_list(mp_str text)
{
    list of = {.next = -1, .without_answer = -1};
    const mp_json_visitor visitor = {.member = see_list, .ctx = &of};
    if (mp_json_scan(text, &visitor, NULL, NULL) == MP_JSON_OK)
        return of;
    free((void *)(uintptr_t)of.key.ptr);
    return (list){.next = -1, .without_answer = -1};
}

/* Puts entries of another process: "0-17" is the name of a call there, and here "4711-0-17". No text inside of an entry
 * has such quotes. */
static void put_entries(mp_buf *out, mp_str entries, int pid)
{
    static const char *const names[] = {"{\"call\":\"", "{\"stream\":\""};
    while (entries.len > 0) {
        const char *at = NULL;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const char *found = memmem(entries.ptr, entries.len, names[i], strlen(names[i]));
            if (found != NULL && (at == NULL || found + strlen(names[i]) < at))
                at = found + strlen(names[i]);
        }
        size_t count = at == NULL ? entries.len : (size_t)(at - entries.ptr);
        mp_buf_put(out, (mp_str){entries.ptr, count});
        if (at != NULL)
            mp_buf_printf(out, "%d-", pid);
        entries = mp_str_from(entries, count);
    }
}

bool mp_join_lists(mp_buf *out, const mp_str *texts, const int *pids, size_t count, mp_str unanswered)
{
    list all = read_list(texts[0]);
    if (all.entries.ptr == NULL)
        return false;
    mp_buf_putc(out, '{');
    mp_json_put_string(out, all.key);
    mp_buf_put(out, MP_STR(":["));
    mp_buf_put(out, all.entries);
    bool has_one = all.entries.len > 0;
    for (size_t i = 1; i < count; i++) {
        list of = read_list(texts[i]);
        if (has_one && of.entries.len > 0)
            mp_buf_putc(out, ',');
        has_one = has_one || of.entries.len > 0;
        put_entries(out, of.entries, pids[i]);
        all.next = of.next > all.next ? of.next : all.next;
        all.without_answer += of.without_answer > 0 && all.without_answer >= 0 ? of.without_answer : 0;
        free((void *)(uintptr_t)of.key.ptr);
    }
    mp_buf_putc(out, ']');
    if (all.next >= 0)
        mp_buf_printf(out, ",\"next\":%lld", (long long)all.next);
    if (all.without_answer >= 0)
        mp_buf_printf(out, ",\"workers_without_answer\":%lld", (long long)all.without_answer);
    if (unanswered.len > 0)
        mp_buf_printf(out, ",%.*s", MP_STR_ARG(unanswered));
    mp_buf_put(out, MP_STR("}\n"));
    free((void *)(uintptr_t)all.key.ptr);
    return true;
}

void mp_join_unanswered(mp_buf *out, mp_str answer, mp_str unanswered)
{
    size_t len = answer.len;
    while (len > 0 && answer.ptr[len - 1] == '\n')
        len--;
    if (unanswered.len == 0 || len < 2 || answer.ptr[len - 1] != '}') {
        mp_buf_put(out, answer);
        return;
    }
    mp_buf_put(out, (mp_str){answer.ptr, len - 1});
    mp_buf_printf(out, "%s%.*s}\n", answer.ptr[len - 2] == '{' ? "" : ",", MP_STR_ARG(unanswered));
}
