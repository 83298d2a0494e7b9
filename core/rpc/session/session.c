/* session.c: the facts that a session stores about its client: the values from `initialize`, the level of log messages.
 */
#include "state.h"

void mp_card_free(mp_card *MP_NULLABLE card)
{
    if (card != NULL)
        mp_slab_free(card, sizeof *card + card->client.len + card->capabilities.len);
}

bool mp_session_set_card(mp_session *session, const mp_era *era, mp_str client, mp_str capabilities)
{
    mp_card *card = mp_slab_new(sizeof *card + client.len + capabilities.len);
    card->era = era;
    if (client.len > 0)
        memcpy(card->bytes, client.ptr, client.len);
    card->client = (mp_str){card->bytes, client.len};
    if (capabilities.len > 0)
        memcpy(card->bytes + client.len, capabilities.ptr, capabilities.len);
    card->capabilities = (mp_str){card->bytes + client.len, capabilities.len};
    mp_card *none = NULL;
    bool first = atomic_compare_exchange_strong(&session->card, &none, card);
    if (!first)
        mp_card_free(card);
    return first;
}

static const mp_card *card_of(const mp_session *session)
{
    return atomic_load_explicit(&((mp_session *)(uintptr_t)session)->card, memory_order_acquire);
}

const mp_era *MP_NULLABLE mp_session_era(const mp_session *session)
{
    const mp_card *card = card_of(session);
    return card == NULL ? NULL : card->era;
}

mp_str mp_session_client(const mp_session *session)
{
    const mp_card *card = card_of(session);
    return card == NULL ? MP_STR_NONE : card->client;
}

mp_str mp_session_capabilities(const mp_session *session)
{
    const mp_card *card = card_of(session);
    return card == NULL ? MP_STR_NONE : card->capabilities;
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
