#include "json_members.h"

static int see_member(void *ctx, MP_UNUSED unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    mp_body_members *of = ctx;
    for (size_t i = 0; i < of->count; i++)
        if (mp_str_is(key, of->list[i].name)) {
            of->list[i].value = value;
            of->list[i].type = type;
            return 0;
        }
    of->has_other = true;
    return 0;
}

bool mp_body_members_read(mp_str text, mp_body_members *of)
{
    mp_json_type type = MP_JSON_NULL;
    mp_json_visitor visitor = {.member = see_member, .ctx = of};
    return mp_json_scan(text, &visitor, &type, NULL) == MP_JSON_OK && type == MP_JSON_OBJECT;
}

bool mp_body_member_is_text(const mp_body_member *one)
{
    return one->value.len > 0 && one->type == MP_JSON_STRING;
}
