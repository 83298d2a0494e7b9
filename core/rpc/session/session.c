/* session.c: the facts that a session stores about its client: the values from `initialize`, the level of log messages.
 */
#include "state.h"

void mp_client_info_free(mp_client_info *MP_NULLABLE client_info)
{
    if (client_info != NULL)
        mp_slab_free(client_info, sizeof *client_info + client_info->client.len + client_info->capabilities.len);
}

bool mp_session_set_client(mp_session *session, const mp_era *era, mp_str client, mp_str capabilities)
{
    mp_client_info *client_info = mp_slab_new(sizeof *client_info + client.len + capabilities.len);
    client_info->era = era;
    if (client.len > 0)
        memcpy(client_info->bytes, client.ptr, client.len);
    client_info->client = (mp_str){client_info->bytes, client.len};
    if (capabilities.len > 0)
        memcpy(client_info->bytes + client.len, capabilities.ptr, capabilities.len);
    client_info->capabilities = (mp_str){client_info->bytes + client.len, capabilities.len};
    mp_client_info *none = NULL;
    bool first = atomic_compare_exchange_strong(&session->client_info, &none, client_info);
    if (!first)
        mp_client_info_free(client_info);
    return first;
}

static const mp_client_info *client_info_of(const mp_session *session)
{
    return atomic_load_explicit(&((mp_session *)(uintptr_t)session)->client_info, memory_order_acquire);
}

const mp_era *MP_NULLABLE mp_session_era(const mp_session *session)
{
    const mp_client_info *client_info = client_info_of(session);
    return client_info == NULL ? NULL : client_info->era;
}

mp_str mp_session_client(const mp_session *session)
{
    const mp_client_info *client_info = client_info_of(session);
    return client_info == NULL ? MP_STR_NONE : client_info->client;
}

mp_str mp_session_capabilities(const mp_session *session)
{
    const mp_client_info *client_info = client_info_of(session);
    return client_info == NULL ? MP_STR_NONE : client_info->capabilities;
}

mp_str mp_session_id(const mp_session *session)
{
    return mp_str_of(session->id);
}

int mp_session_log_level(const mp_session *session)
{
    return atomic_load_explicit(&((mp_session *)(uintptr_t)session)->log_level, memory_order_relaxed);
}

void mp_session_set_log_level(mp_session *session, int level)
{
    atomic_store_explicit(&session->log_level, level, memory_order_relaxed);
}
