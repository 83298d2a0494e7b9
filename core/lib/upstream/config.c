/* config.c: what lua/moonpool/upstream reads of the configuration: host.config.upstreams and host.limits.upstreams.
 * Neither has a secret that can be read: no URL, argument, variable, header or token. Only the gateway of a command
 * such as `moonpool doctor` reads the URL there. */
#include "lib/bindings.h"
#include "lib/fields.h"

/* Sets a field to a table of the values by their names; to nil if there are none.  [-0, +0, throws] */
static void set_pairs(lua_State *L, const char *name, const mp_pair *MP_NULLABLE pairs)
{
    if (pairs == NULL)
        return;
    lua_newtable(L);
    for (; pairs->name != NULL; pairs++)
        mp_field_text(L, pairs->name, pairs->value);
    lua_setfield(L, -2, name);
}

/* Sets the field `auth`: how the gateway gets tokens for the upstream. The secret is a secret of Lua, which prints as
 * ***.  [-0, +0, throws] */
static void set_auth(lua_State *L, const char *kind, const mp_upstream_token *token)
{
    static const char *const methods[] = {"auto", "basic", "post"};
    lua_newtable(L);
    mp_field_text(L, "kind", kind);
    mp_field_text(L, "issuer", token->issuer);
    mp_field_text(L, "token_url", token->token_url);
    mp_field_text(L, "client", token->client);
    mp_field_text(L, "scope", token->scope);
    mp_field_text(L, "audience", token->audience);
    mp_field_text(L, "resource", token->resource);
    mp_field_text(L, "method", methods[token->method]);
    mp_push_secret(L, mp_str_of(token->secret));
    lua_setfield(L, -2, "secret");
    lua_setfield(L, -2, "auth");
}

/* Pushes one upstream.  [-0, +1, throws] */
static void push_upstream(lua_State *L, const mp_upstream_entry *upstream, bool has_specs)
{
    static const char *const kinds[] = {"url", "command"};
    static const char *const revisions[] = {"auto", "modern", "legacy", "sse"};
    static const char *const owners[] = {NULL, "principal", "session", "call", "gateway"};
    static const char *const retries[] = {"read_only", "hinted", "never"};
    static const mp_lua_member numbers[] = {
        MP_MEMBER("circuit_failures", mp_upstream_entry, core.circuit_failures),
        MP_MEMBER("circuit_open_min_ms", mp_upstream_entry, core.circuit_open_min_ms),
        MP_MEMBER("circuit_open_max_ms", mp_upstream_entry, core.circuit_open_max_ms),
        MP_MEMBER("calls", mp_upstream_entry, core.calls),
        MP_MEMBER("waiting", mp_upstream_entry, core.waiting),
        MP_MEMBER("timeout_ms", mp_upstream_entry, core.timeout_ms),
        MP_MEMBER("timeout_total_ms", mp_upstream_entry, core.timeout_total_ms),
        MP_MEMBER("open_ms", mp_upstream_entry, core.open_ms),
        MP_MEMBER("list_wait_ms", mp_upstream_entry, core.list_wait_ms),
        MP_MEMBER("refresh_ms", mp_upstream_entry, core.refresh_ms),
        {0}};
    lua_newtable(L);
    mp_field_text(L, "name", upstream->core.name);
    mp_field_integer(L, "line", upstream->line);
    mp_field_text(L, "kind", kinds[upstream->core.kind]);
    mp_field_text(L, "revision", revisions[upstream->core.revision]);
    if (has_specs && upstream->core.url != NULL) { /* the workbench's user at the command line may see the URL */
        mp_field_text(L, "url", upstream->core.url);
        mp_field_text(L, "ca", upstream->core.tls_ca);
        mp_field_text(L, "credential",
                      upstream->bearer != NULL   ? "auth.bearer"
                      : upstream->basic != NULL  ? "auth.basic"
                      : upstream->header != NULL ? "auth.header"
                                                 : NULL);
        mp_field_bool(L, "has_headers", upstream->core.headers != NULL && upstream->core.headers[0] != NULL);
    }
    if (upstream->client_credentials.client != NULL)
        set_auth(L, "client_credentials", &upstream->client_credentials);
    else if (upstream->exchange.client != NULL)
        set_auth(L, "exchange", &upstream->exchange);
    mp_field_bool(L, "private", upstream->core.is_private);
    mp_field_text(L, "prefix", upstream->prefix);
    mp_field_texts(L, "only", upstream->only);
    mp_field_texts(L, "hide", upstream->hide);
    set_pairs(L, "rename", upstream->rename);
    set_pairs(L, "describe", upstream->describe);
    mp_field_texts(L, "pass", upstream->pass);
    mp_field_texts(L, "asks", upstream->asks);
    if (upstream->per != MP_UPSTREAM_PER_AUTO)
        mp_field_text(L, "per", owners[upstream->per]);
    mp_field_text(L, "retry", retries[upstream->retry]);
    mp_field_bool(L, "has_instructions", upstream->instructions == MP_UPSTREAM_INSTRUCTIONS_TRUE);
    mp_field_bool(L, "keeps_names", upstream->names == MP_UPSTREAM_NAMES_AS_IS);
    mp_field_bool(L, "wraps_uris", upstream->uris == MP_UPSTREAM_URIS_WRAP);
    mp_set_struct(L, numbers, upstream);
}

MP_LIBRARY(upstream_config)
{
    const struct {
        const char *name;
        int64_t value;
    } limits[] = {
        {"answer", (int64_t)config->upstream_limits.answer},
        {"queue", MP_UPSTREAM_QUEUE},
        {"list_items", MP_LIMIT(upstream_list_items, 10000)}, /* entries of one list */
        {"list_pages", MP_LIMIT(upstream_list_pages, 100)},   /* pages of one list */
        {"list_bytes", MP_UPSTREAM_LIST_BYTES},
        {"definition", MP_LIMIT(upstream_definition, 256 << 10)}, /* bytes of one tool, resource or prompt */
        {"name", MP_LIMIT(upstream_name, 64)},                    /* bytes of a name, with its prefix */
        {"questions", MP_LIMIT(upstream_questions, 8)},           /* unanswered questions of one call to its client */
        /* questions to one principal in a minute: people read them */
        {"questions_per_principal", MP_LIMIT(upstream_questions_per_principal, 32)},
        {"questions_per_result", MP_LIMIT(upstream_questions_per_result, 16)},
        {"questions_per_request", MP_UPSTREAM_QUESTIONS},
        {"rounds", MP_LIMIT(upstream_rounds, 10)}, /* times that an upstream answers one request with questions */
        /* tokens exchanged for callers that are kept, of all upstreams */
        {"caller_tokens", MP_LIMIT(upstream_caller_tokens, 4096)},
        {"links", MP_LIMIT(upstream_links, 1024)}, /* new links that one principal gets in an hour */
        /* new links of one upstream in an hour, of all principals */
        {"links_per_upstream", MP_LIMIT(upstream_links_per_upstream, 16384)},
        {"links_per_result", MP_LIMIT(upstream_links_per_result, 256)}, /* new links in one result */
        {"subscribed", MP_LIMIT(upstream_subscribed, 1024)}, /* resources of one upstream that clients subscribe to */
        /* resources of one upstream to which one principal subscribes: the first ones that it named */
        {"subscribed_per_principal", MP_LIMIT(upstream_subscribed_per_principal, 256)},
        /* MCP tasks of one upstream whose notifications the gateway subscribes to */
        {"subscribed_tasks", MP_LIMIT(upstream_subscribed_tasks, 256)},
        {"journal", MP_UPSTREAM_JOURNAL},
    };
    lua_newtable(L);
    for (lua_Integer i = 0;
         !config->is_replay && config->upstream_entries != NULL && config->upstream_entries[i] != NULL; i++) {
        push_upstream(L, config->upstream_entries[i], config->has_specs);
        lua_rawseti(L, -2, i + 1);
    }
    lua_newtable(L); /* names of upstreams alone: in a replay the record answers for them */
    for (lua_Integer i = 0; config->upstream_entries != NULL && config->upstream_entries[i] != NULL; i++) {
        lua_pushstring(L, config->upstream_entries[i]->core.name);
        lua_rawseti(L, -2, i + 1);
    }
    mp_set_member(L, -3, "config.upstream_names");
    mp_lib_of(L)->has_upstreams = lua_rawlen(L, -1) > 0;
    mp_set_member(L, -2, "config.upstreams");
    /* "keep": time for which the lists of an upstream that is down are still served */
    lua_newtable(L);
    mp_field_number(L, "keep", (double)MP_LIMIT(upstream_keep_ms, 600000) / 1000);
    mp_field_number(L, "pending", (double)MP_UPSTREAM_PENDING_MS / 1000);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        mp_field_integer(L, limits[i].name, limits[i].value);
    mp_set_member(L, -2, "limits.upstreams");
}
