/* config.c: a counted copy of one upstream's configuration, and the comparison that decides whether channels stay over
 * a reload. */
#include "upstream/state.h"

const mp_upstream_limits mp_upstream_default_limits = {.channels = 1024, .processes = 64, .answer = (size_t)16 << 20};

/* Sets the normalized URL, and where its name may lead without `private`: `localhost` to this machine, an address to
 * itself, any other name to public addresses. */
static void set_url(mp_upstream_part *part)
{
    mp_url url;
    mp_err err;
    part->policy.kind = part->it.is_private ? MP_ADDRESS_POLICY_PRIVATE : MP_ADDRESS_POLICY_PUBLIC;
    if (part->it.url == NULL || mp_url_parse(&url, part->it.url, NULL, &err) != 0)
        return;
    if (mp_address_canonical(url.host, part->policy.address))
        part->policy.kind = MP_ADDRESS_POLICY_ADDRESS;
    else if (strcmp(url.host, "localhost") == 0)
        part->policy.kind = MP_ADDRESS_POLICY_LOOPBACK;
    part->url = mp_dup(mp_str_of(url.text));
    mp_url_clear(&url);
}

mp_upstream_part *mp_upstream_part_new(const mp_upstream_config *config, const mp_upstream_limits *limits)
{
    mp_upstream_part *part = mp_new(sizeof *part);
    atomic_init(&part->refs, 1);
    part->it = *config;
    part->limits = *limits;
    mp_upstream_config *it = &part->it;
    it->name = mp_dup(mp_str_of(config->name));
    it->url = mp_dup_text(config->url);
    it->argv = mp_copy_texts((const char *const *)config->argv);
    it->env = mp_copy_texts((const char *const *)config->env);
    it->cwd = mp_dup_text(config->cwd);
    it->headers = mp_copy_texts((const char *const *)config->headers);
    it->authorization = mp_dup_text(config->authorization);
    it->credential = mp_dup_text(config->credential);
    it->tls_ca = mp_dup_text(config->tls_ca);
    it->tls_certificate = mp_dup_text(config->tls_certificate);
    it->tls_key = mp_dup_text(config->tls_key);
    set_url(part);
    return part;
}

mp_upstream_part *mp_upstream_part_ref(mp_upstream_part *part)
{
    atomic_fetch_add_explicit(&part->refs, 1, memory_order_relaxed);
    return part;
}

void mp_upstream_part_unref(mp_upstream_part *MP_NULLABLE part)
{
    if (part == NULL || atomic_fetch_sub_explicit(&part->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_upstream_config *it = &part->it;
    free(it->name);
    free(it->url);
    mp_free_texts(it->argv);
    mp_free_texts(it->env);
    free(it->cwd);
    mp_free_texts(it->headers);
    free(it->authorization);
    free(it->credential);
    free(it->tls_ca);
    free(it->tls_certificate);
    free(it->tls_key);
    free(part->url);
    free(part);
}

static bool is_same_text(const char *MP_NULLABLE a, const char *MP_NULLABLE b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool is_same_list(char *const *MP_NULLABLE a, char *const *MP_NULLABLE b)
{
    size_t i = 0;
    if (a == NULL || b == NULL)
        return a == b;
    while (a[i] != NULL && b[i] != NULL && strcmp(a[i], b[i]) == 0)
        i++;
    return a[i] == NULL && b[i] == NULL;
}

bool mp_upstream_part_connects_like(const mp_upstream_part *part, const mp_upstream_config *b)
{
    const mp_upstream_config *a = &part->it;
    return a->kind == b->kind && a->revision == b->revision && a->is_private == b->is_private &&
           is_same_text(a->url, b->url) && is_same_list(a->argv, b->argv) && is_same_list(a->env, b->env) &&
           is_same_text(a->cwd, b->cwd) && is_same_list(a->headers, b->headers) &&
           is_same_text(a->authorization, b->authorization) && is_same_text(a->credential, b->credential) &&
           is_same_text(a->tls_ca, b->tls_ca) && is_same_text(a->tls_certificate, b->tls_certificate) &&
           is_same_text(a->tls_key, b->tls_key);
}
