#include "upstream/upstream_config.h"
#include <stdlib.h>

mp_upstream_config *mp_upstream_config_new(mp_str name)
{
    mp_upstream_config *config = mp_new(sizeof *config);
    atomic_init(&config->refs, 1);
    config->name = mp_dup(name);
    return config;
}

mp_upstream_config *mp_upstream_config_ref(mp_upstream_config *config)
{
    atomic_fetch_add(&config->refs, 1);
    return config;
}

static void free_list(char **list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++)
        free(list[i]);
    free(list);
}

void mp_pairs_free(mp_pair *pairs)
{
    for (mp_pair *pair = pairs; pair != NULL && pair->name != NULL; pair++) {
        free(pair->name);
        free(pair->value);
    }
    free(pairs);
}

void mp_upstream_config_unref(mp_upstream_config *config)
{
    if (config == NULL || atomic_fetch_sub(&config->refs, 1) > 1)
        return;
    char *const texts[] = {config->name,        config->url, config->bearer, config->ca,
                           config->certificate, config->key, config->cwd,    config->prefix};
    char **const lists[] = {config->argv, config->only, config->hide, config->pass};
    mp_pair *const pairs[] = {config->headers, config->env, config->rename, config->describe};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        free_list(lists[i]);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        mp_pairs_free(pairs[i]);
    free(config);
}

/* A text with its NUL; a missing text is another value than an empty one. */
static void put_text(mp_buf *out, const char *text)
{
    mp_buf_putc(out, text == NULL ? '-' : '+');
    if (text != NULL)
        mp_buf_put(out, (mp_str){text, strlen(text) + 1});
}

static void put_pairs(mp_buf *out, const mp_pair *pairs)
{
    for (; pairs != NULL && pairs->name != NULL; pairs++) {
        put_text(out, pairs->name);
        put_text(out, pairs->value);
    }
    put_text(out, NULL);
}

void mp_upstream_config_put_connection(const mp_upstream_config *config, mp_buf *out)
{
    const char *const texts[] = {config->url,         config->bearer, config->ca,
                                 config->certificate, config->key,    config->cwd};
    mp_buf_putc(out, (char)('0' + config->kind));
    mp_buf_putc(out, (char)('0' + config->revision));
    mp_buf_putc(out, (char)('0' + config->is_private));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put_text(out, texts[i]);
    for (char **item = config->argv; item != NULL && *item != NULL; item++)
        put_text(out, *item);
    put_text(out, NULL);
    put_pairs(out, config->headers);
    put_pairs(out, config->env);
}
