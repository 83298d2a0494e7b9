/* switches.c: /api/switch of the admin listener: tools, prompts, resources and upstreams that operators switch off and
 * on. The library in Lua of one worker does it, and then that of all others (lua/moonpool/methods/operator.lua).
 * /api/approve: shows a definition of an upstream that is withheld because it was not approved, and approves it
 * (lua/moonpool/methods/approvals.lua). /api/cluster/drain, forget: asks a node to leave, or removes the records of a
 * node (lua/moonpool/lib/cluster_nodes.lua). */
#include "run.h"
#include "json/json.h"

#define MAX_NAME_BYTES 4096

typedef struct {
    const char *MP_NULLABLE kind; /* one of `kinds`; NULL: none was named yet */
    mp_str name;                  /* a JSON string */
    int on;                       /* -1: the text has no such member yet */
    bool is_wrong;
} request;

static const char *const kinds[] = {"tool", "prompt", "resource", "upstream"};

static int see_member(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    request *asked = ctx;
    const char *kind = NULL;
    if (depth > 1)
        return 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (mp_str_is(key, kinds[i]))
            kind = kinds[i];
    if (kind != NULL && asked->kind == NULL && type == MP_JSON_STRING && value.len <= MAX_NAME_BYTES) {
        asked->kind = kind;
        asked->name = value;
    } else if (mp_str_is(key, "on") && asked->on < 0 && (type == MP_JSON_TRUE || type == MP_JSON_FALSE)) {
        asked->on = type == MP_JSON_TRUE;
    } else {
        asked->is_wrong = true;
    }
    return 0;
}

static void put_common(mp_buf *out, mp_admin *admin, const mp_admin_caller *caller)
{
    bool is_kept = mp_admin_settings(admin)->config->store_file != NULL;
    mp_buf_put(out, is_kept ? MP_STR(",\"is_kept\":true,\"by\":") : MP_STR(",\"is_kept\":false,\"by\":"));
    mp_json_put_string(out, mp_str_of(*caller->name == '\0' ? "unknown" : caller->name));
}

void mp_api_switches(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("\"what\":\"switches\""));
    put_common(&out, admin, caller);
    mp_admin_ask(admin, stream, caller, mp_buf_str(&out));
}

void mp_api_switch(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    request asked = {.on = -1};
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf out = {0}, then = {0}, why = {0};
    bool is_object = mp_json_scan(mp_stream_request(stream)->body,
                                  &(mp_json_visitor){.member = see_member, .ctx = &asked}, &type, NULL) == MP_JSON_OK &&
                     type == MP_JSON_OBJECT;
    if (!is_object || asked.is_wrong || asked.kind == NULL || asked.on < 0) {
        mp_admin_refuse(stream, 400,
                        MP_STR("send an object with on, and the name of a tool, prompt, resource or upstream, as in "
                               "{\"tool\":\"refund\",\"on\":false}"));
        return;
    }
    mp_buf_printf(&why, "%s ", asked.kind);
    mp_json_unescape(&why, asked.name);
    mp_buf_put(&why, asked.on > 0 ? MP_STR(" on") : MP_STR(" off"));
    mp_buf_printf(&out, "\"what\":\"switch\",\"kind\":\"%s\",\"on\":%s,\"name\":", asked.kind,
                  asked.on > 0 ? "true" : "false");
    mp_buf_put(&out, asked.name);
    put_common(&out, admin, caller);
    mp_buf_printf(&then, "\"what\":\"follow switch\",\"kind\":\"%s\",\"name\":", asked.kind);
    mp_buf_put(&then, asked.name);
    mp_admin_ask_change(admin, stream, caller,
                        &(mp_admin_change){mp_buf_str(&out), mp_buf_str(&then), "switch requested",
                                           "switched by operator", mp_buf_str(&why)});
}

/* -- approvals ----------------------------------------------------------------------------------------------------- */

enum { UPSTREAM, KIND, NAME, HASH, MEMBERS };
static const char *const approval_members[MEMBERS] = {"upstream", "kind", "name", "hash"};

typedef struct {
    mp_str texts[MEMBERS]; /* JSON strings; empty: there is no such member */
    bool is_wrong;
} approval;

static int see_approval_member(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    approval *asked = ctx;
    int found = 0;
    while (found < MEMBERS && !mp_str_is(key, approval_members[found]))
        found++;
    if (depth > 1 || found == MEMBERS || type != MP_JSON_STRING || value.len > MAX_NAME_BYTES)
        asked->is_wrong = true;
    else
        asked->texts[found] = value;
    return 0;
}

void mp_api_approve(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    approval asked = {0};
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf out = {0}, why = {0};
    bool is_object =
        mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_approval_member, .ctx = &asked},
                     &type, NULL) == MP_JSON_OK &&
        type == MP_JSON_OBJECT;
    for (int i = 0; i < HASH; i++)
        asked.is_wrong = asked.is_wrong || asked.texts[i].len == 0;
    if (!is_object || asked.is_wrong) {
        mp_admin_refuse(stream, 400,
                        MP_STR("send an object with upstream, kind and name, and to approve the hash that you have "
                               "seen, as in {\"upstream\":\"github\",\"kind\":\"tool\",\"name\":\"find\"}"));
        return;
    }
    mp_buf_put(&out, MP_STR("\"what\":\"approve\""));
    for (int i = 0; i < MEMBERS; i++) {
        if (asked.texts[i].len == 0)
            continue;
        mp_buf_printf(&out, ",\"%s\":%.*s", approval_members[i], MP_STR_ARG(asked.texts[i]));
        if (i > 0)
            mp_buf_putc(&why, ' ');
        mp_json_unescape(&why, asked.texts[i]);
    }
    if (asked.texts[HASH].len > 0)
        mp_admin_ask_change(admin, stream, caller,
                            &(mp_admin_change){.params = mp_buf_str(&out),
                                               .requested = "approval requested",
                                               .done = "definition approved by operator",
                                               .why = mp_buf_str(&why)});
    else
        mp_admin_ask(admin, stream, caller, mp_buf_str(&out));
}

/* -- nodes of the cluster ------------------------------------------------------------------------------------------ */

static int see_node(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *name = ctx;
    if (depth <= 1 && mp_str_is(key, "node") && type == MP_JSON_STRING && value.len <= MAX_NAME_BYTES)
        *name = value;
    return 0;
}

static void change_node(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, const char *what,
                        const char *requested, const char *done)
{
    mp_str name = MP_STR_NONE;
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf out = {0}, why = {0};
    if (mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_node, .ctx = &name}, &type,
                     NULL) != MP_JSON_OK ||
        type != MP_JSON_OBJECT || name.len == 0) {
        mp_admin_refuse(stream, 400, MP_STR("send an object with the name of a node, as in {\"node\":\"b\"}"));
        return;
    }
    mp_buf_printf(&out, "\"what\":\"%s\",\"name\":%.*s", what, MP_STR_ARG(name));
    mp_json_unescape(&why, name);
    mp_admin_ask_change(
        admin, stream, caller,
        &(mp_admin_change){.params = mp_buf_str(&out), .requested = requested, .done = done, .why = mp_buf_str(&why)});
}

void mp_api_forget_node(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    change_node(admin, stream, caller, "forget node", "removal of a node requested", "node removed by operator");
}

void mp_api_drain_node(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    change_node(admin, stream, caller, "drain node", "drain of a node requested", "node drained by operator");
}
