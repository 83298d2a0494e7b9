#include "call_body.h"

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

const char *MP_NULLABLE mp_call_body_read(mp_str body, mp_call_body *to)
{
    static const char *const known[] = {"tools/call", "resources/read", "prompts/get", "completion/complete", NULL};
    enum { METHOD, PARAMS, REVISION, PRINCIPAL, MEMBERS };
    mp_body_member list[MEMBERS] = {
        {.name = "method"}, {.name = "params"}, {.name = "revision"}, {.name = "principal"}};
    mp_body_members of = {list, MEMBERS, false};
    if (!mp_body_members_read(body, &of) || of.has_other || !mp_body_member_is_text(&list[METHOD]) ||
        list[PARAMS].type != MP_JSON_OBJECT)
        return "send an object with method and params, and if needed revision and principal, as in "
               "{\"method\":\"tools/call\",\"params\":{\"name\":\"hello\",\"arguments\":{}}}";
    int i = 0;
    while (known[i] != NULL && !mp_json_string_is(list[METHOD].value, mp_str_of(known[i])))
        i++;
    if (known[i] == NULL)
        return "method is tools/call, resources/read, prompts/get or completion/complete";
    const mp_era *era = list[REVISION].value.len == 0 ? mp_era_newest() : NULL;
    for (size_t k = 0; era == NULL && k < mp_era_count; k++)
        if (mp_body_member_is_text(&list[REVISION]) &&
            mp_json_string_is(list[REVISION].value, mp_str_of(mp_eras[k].date)))
            era = &mp_eras[k];
    if (era == NULL)
        return "revision is the date of a revision that the gateway serves";
    to->era = era;
    mp_buf_put(&to->method, list[METHOD].value);
    mp_buf_put(&to->params, list[PARAMS].value);
    mp_body_member id[] = {{.name = "id"}};
    mp_body_members of_principal = {id, 1, false};
    if (list[PRINCIPAL].type == MP_JSON_OBJECT) {
        if (!mp_body_members_read(list[PRINCIPAL].value, &of_principal) || !mp_body_member_is_text(id))
            return "a principal is \"local\", or an object with id, and if needed scopes and claims";
        mp_json_unescape(&to->principal_id, id->value);
        mp_buf_put(&to->principal, list[PRINCIPAL].value);
    } else if (mp_body_member_is_text(&list[PRINCIPAL])) {
        if (mp_json_string_is(list[PRINCIPAL].value, MP_STR("local")))
            return NULL;
        mp_json_unescape(&to->principal_id, list[PRINCIPAL].value);
        mp_buf_put(&to->principal, MP_STR("{\"id\":"));
        mp_buf_put(&to->principal, list[PRINCIPAL].value);
        mp_buf_putc(&to->principal, '}');
    } else if (list[PRINCIPAL].value.len > 0) {
        return "a principal is \"local\", or an object with id, and if needed scopes and claims";
    }
    return NULL;
}

void mp_call_body_put_name(mp_buf *out, const mp_call_body *of)
{
    mp_body_member list[] = {{.name = "name"}, {.name = "uri"}};
    mp_body_members named = {list, 2, false};
    mp_json_unescape(out, mp_buf_str(&of->method));
    if (!mp_body_members_read(mp_buf_str(&of->params), &named))
        return;
    const mp_body_member *one = mp_body_member_is_text(&list[0]) ? &list[0] : &list[1];
    if (!mp_body_member_is_text(one))
        return;
    mp_buf_putc(out, ' ');
    mp_json_unescape(out, one->value);
}

void mp_call_body_clear(mp_call_body *of)
{
    mp_buf_clear(&of->method);
    mp_buf_clear(&of->params);
    mp_buf_clear(&of->principal);
    mp_buf_clear(&of->principal_id);
}
