/* lists.c: GET /api/tools, prompts and resources of the admin listener, and one of them: questions to a worker (run.h),
 * whose Lua state knows what it serves. */
#include "run.h"
#include "json/json.h"

#define MAX_NAME_BYTES 4096
#define MAX_PAGE 1000000

/* True for UTF-8 without NUL. */
static bool is_utf8(mp_str text)
{
    unsigned length;
    for (const char *at = text.ptr, *end = text.ptr + text.len; at < end; at += length)
        if ((length = mp_utf8_length(at, end)) == 0 || *at == '\0')
            return false;
    return true;
}

/* Appends the percent-decoded text. False if it is too long, not encoded as it must be, or no UTF-8. */
static bool decode_percent(mp_str text, bool is_query, mp_buf *out)
{
    for (size_t i = 0; i < text.len && out->len < MAX_NAME_BYTES; i++) {
        char c = is_query && text.ptr[i] == '+' ? ' ' : text.ptr[i];
        if (c == '%') {
            int high = i + 2 < text.len ? mp_hex_digit(text.ptr[i + 1]) : -1;
            int low = high < 0 ? -1 : mp_hex_digit(text.ptr[i + 2]);
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        mp_buf_putc(out, c);
    }
    return out->len < MAX_NAME_BYTES && is_utf8(mp_buf_str(out));
}

static void put_member(mp_buf *out, const char *name, mp_str text)
{
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, text);
}

/* A list: the query may have page=N and search=TEXT. */
static void ask_list(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, const char *what)
{
    mp_str query = mp_stream_request(stream)->query;
    mp_scoped_buf out = {0}, text = {0};
    mp_buf_printf(&out, "\"what\":\"%s\"", what);
    const char *wrong = NULL;
    while (query.len > 0 && wrong == NULL) {
        mp_str value = mp_str_cut(&query, '&'), key = mp_str_cut(&value, '=');
        int64_t page;
        text.len = 0;
        if (mp_str_is(key, "page")) {
            if (mp_json_int(value, &page) && page >= 0 && page <= MAX_PAGE)
                mp_buf_printf(&out, ",\"page\":%lld", (long long)page);
            else
                wrong = "page is a number from 0 on";
        } else if (mp_str_is(key, "search") && decode_percent(value, true, &text)) {
            put_member(&out, "search", mp_buf_str(&text));
        } else {
            wrong = "the query may have page and search";
        }
    }
    if (wrong != NULL)
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
    else
        mp_admin_ask(admin, stream, caller, mp_buf_str(&out));
}

void mp_api_tools(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    ask_list(admin, stream, caller, "tools");
}

void mp_api_prompts(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    ask_list(admin, stream, caller, "prompts");
}

void mp_api_resources(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    ask_list(admin, stream, caller, "resources");
}

static void ask_one(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, const char *what, bool is_query,
                    mp_str encoded)
{
    mp_scoped_buf name = {0}, out = {0};
    if (encoded.len == 0 || !decode_percent(encoded, is_query, &name)) {
        mp_admin_refuse(stream, 400, MP_STR("the name is too long, or not percent-encoded UTF-8"));
    } else {
        mp_buf_printf(&out, "\"what\":\"%s\"", what);
        put_member(&out, "name", mp_buf_str(&name));
        mp_admin_ask(admin, stream, caller, mp_buf_str(&out));
    }
}

void mp_api_tool(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    ask_one(admin, stream, caller, "tool", false, rest);
}

void mp_api_prompt(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    ask_one(admin, stream, caller, "prompt", false, rest);
}

void mp_api_resource(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_str query = mp_stream_request(stream)->query, key = MP_STR("uri=");
    ask_one(admin, stream, caller, "resource", true,
            mp_str_starts(query, key) ? mp_str_from(query, key.len) : MP_STR_NONE);
}

void mp_api_tasks(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    ask_list(admin, stream, caller, "MCP tasks");
}

static bool is_mark(mp_str rest)
{
    bool is_hex = rest.len >= 8 && rest.len <= MP_ID;
    for (size_t i = 0; i < rest.len && is_hex; i++)
        is_hex = mp_hex_digit(rest.ptr[i]) >= 0;
    return is_hex;
}

/* `rest`: the first digits of the task's id, at least 8. */
void mp_api_end_task(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    if (!is_mark(rest)) {
        mp_admin_refuse(stream, 404,
                        MP_STR("a task is named by the first 8 digits of its id: GET /api/tasks lists them"));
        return;
    }
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("\"what\":\"cancel task\""));
    put_member(&out, "name", rest);
    mp_admin_ask_change(admin, stream, caller,
                        &(mp_admin_change){.params = mp_buf_str(&out),
                                           .requested = "task cancellation requested",
                                           .done = "task cancelled by operator",
                                           .why = {rest.ptr, 8}});
}

/* -- sign-ins ------------------------------------------------------------------------------------------------------ */

void mp_api_sign_ins(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    ask_list(admin, stream, caller, "sign-ins");
}

static void end_sign_ins(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, const char *member,
                         mp_str name)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("\"what\":\"end sign-ins\""));
    put_member(&out, member, name);
    mp_admin_ask_change(admin, stream, caller,
                        &(mp_admin_change){.params = mp_buf_str(&out),
                                           .requested = "end of sign-ins requested",
                                           .done = "signed out by operator",
                                           .why = name});
}

/* `rest`: the sign-in's mark. */
void mp_api_end_sign_in(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    if (is_mark(rest))
        end_sign_ins(admin, stream, caller, "name", rest);
    else
        mp_admin_refuse(stream, 404, MP_STR("a sign-in is named by its mark: GET /api/sign-ins lists them"));
}

static int see_user(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *user = ctx;
    if (depth <= 1 && mp_str_is(key, "user") && type == MP_JSON_STRING && value.len <= MAX_NAME_BYTES)
        *user = value;
    return 0;
}

void mp_api_end_sign_ins(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_str user = MP_STR_NONE;
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf name = {0};
    if (mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_user, .ctx = &user}, &type,
                     NULL) != MP_JSON_OK ||
        type != MP_JSON_OBJECT || user.len == 0) {
        mp_admin_refuse(stream, 400, MP_STR("send an object with the name of a user, as in {\"user\":\"ann\"}"));
        return;
    }
    mp_json_unescape(&name, user);
    end_sign_ins(admin, stream, caller, "user", mp_buf_str(&name));
}
