#include "lib/upstream_entry.h"

mp_upstream_entry *mp_upstream_entry_new(mp_str name)
{
    mp_upstream_entry *entry = mp_new(sizeof *entry);
    entry->core.name = mp_dup(name);
    return entry;
}

size_t mp_pairs_count(const mp_pair *MP_NULLABLE pairs)
{
    size_t count = 0;
    while (pairs != NULL && pairs[count].name != NULL)
        count++;
    return count;
}

void mp_pairs_free(mp_pair *MP_NULLABLE pairs)
{
    for (mp_pair *pair = pairs; pair != NULL && pair->name != NULL; pair++) {
        free(pair->name);
        free(pair->value);
    }
    free(pairs);
}

static void free_token(mp_upstream_token *token)
{
    char *const texts[] = {token->issuer, token->token_url, token->client,  token->secret,
                           token->scope,  token->audience,  token->resource};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
}

void mp_upstream_entry_free(mp_upstream_entry *entry)
{
    const mp_upstream_config *core = &entry->core;
    char *const texts[] = {core->name,    core->url,     core->authorization,   core->credential,
                           core->cwd,     entry->bearer, entry->basic,          entry->header,
                           entry->prefix, core->tls_ca,  core->tls_certificate, core->tls_key};
    char **const lists[] = {core->argv, core->env, core->headers, entry->only, entry->hide, entry->pass, entry->asks};
    mp_pair *const pairs[] = {entry->headers, entry->env, entry->rename, entry->describe};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        mp_free_texts(lists[i]);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        mp_pairs_free(pairs[i]);
    free_token(&entry->client_credentials);
    free_token(&entry->exchange);
    free(entry);
}
