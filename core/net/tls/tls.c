/* tls.c: settings that all TLS connections share, and the slot that holds a listener's current certificate. */
#include "context.h"
#include <strings.h>

/* lifetime of session tickets: a client that reconnects within it skips most of the handshake */
#define TICKET_SECONDS 7200

struct mp_tls_slot {
    pthread_mutex_t lock;
    mp_tls *tls;
};

SSL_CTX *mp_tls_context_new(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL)
        abort();
    SSL_CTX_set_security_level(context, 2);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20");
    SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                     SSL_OP_PRIORITIZE_CHACHA);
    /* Tickets are encrypted with keys of the context, which all workers share; the server stores no sessions. */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(context, (const unsigned char *)"moonpool", 8);
    SSL_CTX_set_timeout(context, TICKET_SECONDS);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(context, mp_tls_choose_protocol, NULL);
    X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN);
    mp_tls_notice_hellos(context);
    return context;
}

mp_tls *mp_tls_ref(mp_tls *tls)
{
    atomic_fetch_add(&tls->refs, 1);
    return tls;
}

void mp_tls_unref(mp_tls *MP_NULLABLE tls)
{
    if (tls == NULL || atomic_fetch_sub(&tls->refs, 1) != 1)
        return;
    SSL_CTX_free(tls->context);
    mp_tls_names_unref(tls->names);
    free(tls);
}

mp_tls *mp_tls_new(SSL_CTX *context, mp_tls_names *MP_NULLABLE names, int64_t expires)
{
    mp_tls *tls = mp_new(sizeof *tls);
    *tls = (mp_tls){.context = context, .names = names, .expires = expires};
    atomic_init(&tls->refs, 1);
    return tls;
}

mp_tls *mp_tls_with_names(const mp_tls *tls, mp_tls_names *names)
{
    SSL_CTX_up_ref(tls->context);
    return mp_tls_new(tls->context, names, tls->expires);
}

int64_t mp_tls_expires(const mp_tls *tls)
{
    return tls->expires;
}

bool mp_tls_get_ticket_keys(const mp_tls *tls, unsigned char keys[MP_TLS_TICKET_KEYS])
{
    return SSL_CTX_get_tlsext_ticket_keys(tls->context, keys, MP_TLS_TICKET_KEYS) == 1;
}

void mp_tls_set_ticket_keys(mp_tls *tls, const unsigned char keys[MP_TLS_TICKET_KEYS])
{
    unsigned char copy[MP_TLS_TICKET_KEYS]; /* the call needs a pointer that is not const */
    memcpy(copy, keys, sizeof copy);
    SSL_CTX_set_tlsext_ticket_keys(tls->context, copy, sizeof copy);
    explicit_bzero(copy, sizeof copy);
}

bool mp_tls_peer_is(const mp_tls_peer *MP_NULLABLE peer, const char *name)
{
    bool is = false;
    for (char **san = peer == NULL ? NULL : peer->sans; san != NULL && *san != NULL && !is; san++)
        is = strncmp(*san, "DNS:", 4) == 0 && strcasecmp(*san + 4, name) == 0;
    return is;
}

mp_tls_slot *mp_tls_slot_new(mp_tls *first)
{
    mp_tls_slot *slot = mp_new(sizeof *slot);
    pthread_mutex_init(&slot->lock, NULL);
    slot->tls = first;
    return slot;
}

void mp_tls_slot_set(mp_tls_slot *slot, mp_tls *tls)
{
    pthread_mutex_lock(&slot->lock);
    mp_tls *old = slot->tls;
    slot->tls = tls;
    pthread_mutex_unlock(&slot->lock);
    mp_tls_unref(old);
}

mp_tls *mp_tls_slot_get(mp_tls_slot *slot)
{
    MP_LOCKED(&slot->lock);
    return mp_tls_ref(slot->tls);
}

void mp_tls_slot_free(mp_tls_slot *MP_NULLABLE slot)
{
    if (slot == NULL)
        return;
    mp_tls_unref(slot->tls);
    pthread_mutex_destroy(&slot->lock);
    free(slot);
}
