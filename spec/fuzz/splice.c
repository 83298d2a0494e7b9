/* splice.c: edits of an object, chosen by the first bytes, against a decoder of their own: the result is JSON, has each
 * member that the edits leave with its bytes, and no others. */
#include "json/json.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

enum { MOST = 512, NAMES = 4, EDITS = 3 };

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

typedef struct {
    char *name;
    size_t name_len;
    mp_str value;
} member;

typedef struct {
    member list[MOST];
    size_t count;
} members;

static int add_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    members *all = ctx;
    (void)type;
    if (level == 1)
        all->list[all->count++] = (member){mp_dup(key), key.len, value};
    return 0;
}

static mp_json_result read_members(mp_str text, members *all)
{
    all->count = 0;
    mp_json_visitor visitor = {.member = add_member, .ctx = all};
    mp_json_type type;
    mp_json_result result = mp_json_scan(text, &visitor, &type, NULL);
    return result == MP_JSON_OK && type != MP_JSON_OBJECT ? MP_JSON_BROKEN : result;
}

static void clear_members(members *all)
{
    for (size_t i = 0; i < all->count; i++)
        free(all->list[i].name);
}

static const member *find_member(const members *all, mp_str name)
{
    for (size_t i = 0; i < all->count; i++)
        if (mp_str_eq((mp_str){all->list[i].name, all->list[i].name_len}, name))
            return &all->list[i];
    return NULL;
}

static const mp_json_edit *find_edit(const mp_json_edit *edits, size_t count, mp_str name)
{
    for (size_t i = 0; i < count; i++)
        if (mp_str_eq(edits[i].name, name))
            return &edits[i];
    return NULL;
}

static void check_result(const members *before, const members *after, const mp_json_edit *edits, size_t count)
{
    size_t expected = 0;
    for (size_t i = 0; i < before->count; i++) {
        mp_str name = {before->list[i].name, before->list[i].name_len};
        const mp_json_edit *edit = find_edit(edits, count, name);
        if (edit != NULL && edit->kind == MP_JSON_DROP)
            continue;
        expected++;
        const member *found = find_member(after, edit != NULL && edit->kind == MP_JSON_RENAME ? edit->value : name);
        MUST(found != NULL);
        MUST(mp_str_eq(found->value, edit != NULL && edit->kind == MP_JSON_SET ? edit->value : before->list[i].value));
    }
    for (size_t i = 0; i < count; i++) {
        bool is_new = edits[i].kind == MP_JSON_SET && find_member(before, edits[i].name) == NULL;
        expected += is_new;
        MUST(!is_new || find_member(after, edits[i].name) != NULL);
    }
    MUST(expected == after->count);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const mp_str names[NAMES] = {{"a", 1}, {"b", 1}, {"", 0}, {"\"", 1}};
    static members before, after;
    mp_json_edit edits[EDITS];
    if (size < EDITS)
        return 0;
    size_t count = 0;
    for (size_t i = 0; i < EDITS; i++) {
        mp_json_edit edit = {(mp_json_edit_kind)(data[i] % 3), false, names[data[i] / 3 % NAMES],
                             data[i] % 3 == MP_JSON_RENAME ? names[data[i] / 12 % NAMES] : MP_STR("[0]")};
        if (find_edit(edits, count, edit.name) == NULL)
            edits[count++] = edit;
    }
    mp_str text = {(const char *)data + EDITS, size - EDITS};
    mp_buf out = {0};
    mp_json_result scanned = read_members(text, &before), result = mp_json_splice(&out, text, edits, count, NULL);
    if (result == MP_JSON_OK) {
        MUST(scanned == MP_JSON_OK && read_members(mp_buf_str(&out), &after) == MP_JSON_OK);
        check_result(&before, &after, edits, count);
        clear_members(&after);
    } else {
        MUST(out.len == 0 && (scanned != MP_JSON_OK || result == MP_JSON_REPEATED));
    }
    clear_members(&before);
    mp_buf_clear(&out);
    return 0;
}
