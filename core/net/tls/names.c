/* names.c: certificates by the DNS names in them. Each pair is kept as bytes; the objects that OpenSSL makes of them
 * take several times that memory, and exist for the pairs that were used last. */
#include "context.h"
#include <openssl/err.h>
#include <openssl/x509v3.h>

/* pairs whose objects exist: busy names among thousands, in a few megabytes */
#define OBJECTS ((size_t)MP_LIMIT(tls_objects, 512))
#define NAME_CAP 255 /* bytes of a DNS name */

struct mp_tls_pair {
    atomic_int refs;
    int64_t expires;
    unsigned char fingerprint[MP_TLS_BINDING];
    char **names;
    mp_buf certificates, own; /* DER: the certificates, the key */
    mp_link link;             /* in `used.list` while the objects exist; protected by its lock, like these */
    STACK_OF(X509) *MP_NULLABLE chain;
    EVP_PKEY *MP_NULLABLE key;
};

typedef struct {
    mp_node node;
    mp_tls_pair *pair;
} named_pair;

struct mp_tls_names {
    atomic_int refs;
    mp_map map;
    named_pair *nodes;
    mp_tls_pair **pairs;
    size_t count;
    mp_tls_pair *MP_NULLABLE other;
};

/* The pairs that have objects, that used longest ago first. */
static struct {
    pthread_mutex_t lock;
    mp_link list;
    size_t count;
} used = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -- pairs --------------------------------------------------------------------------------------------------------- */

static void put_lower(char *to, mp_str from)
{
    for (size_t i = 0; i < from.len; i++)
        to[i] = (char)(from.ptr[i] >= 'A' && from.ptr[i] <= 'Z' ? from.ptr[i] + ('a' - 'A') : from.ptr[i]);
}

static char **names_of(X509 *certificate)
{
    GENERAL_NAMES *all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int count = all == NULL ? 0 : sk_GENERAL_NAME_num(all);
    char **names = mp_new(((size_t)count + 1) * sizeof *names);
    size_t used_names = 0;
    for (int i = 0; i < count; i++) {
        int type;
        const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(all, i), &type);
        mp_str name = {(const char *)ASN1_STRING_get0_data(value), (size_t)ASN1_STRING_length(value)};
        if (type != GEN_DNS || name.len == 0 || name.len > NAME_CAP || memchr(name.ptr, '\0', name.len) != NULL)
            continue;
        put_lower(names[used_names++] = mp_dup(name), name);
    }
    GENERAL_NAMES_free(all);
    return names;
}

mp_tls_pair *mp_tls_pair_new(STACK_OF(X509) * certificates, EVP_PKEY *key)
{
    mp_tls_pair *pair = mp_new(sizeof *pair);
    X509 *own = sk_X509_value(certificates, 0);
    unsigned len = 0;
    atomic_init(&pair->refs, 1);
    pair->expires = mp_tls_not_after(own);
    pair->names = names_of(own);
    X509_digest(own, EVP_sha256(), pair->fingerprint, &len);
    for (int i = 0; i < sk_X509_num(certificates); i++) {
        X509 *one = sk_X509_value(certificates, i);
        unsigned char *der = (unsigned char *)mp_buf_room(&pair->certificates, (size_t)i2d_X509(one, NULL));
        pair->certificates.len += (size_t)i2d_X509(one, &der);
    }
    pair->own.ptr = mp_new(pair->own.cap = (size_t)i2d_PrivateKey(key, NULL));
    unsigned char *der = (unsigned char *)pair->own.ptr;
    pair->own.len = (size_t)i2d_PrivateKey(key, &der);
    return pair;
}

static mp_tls_pair *ref(mp_tls_pair *pair)
{
    atomic_fetch_add(&pair->refs, 1);
    return pair;
}

/* The caller has the lock. */
static void drop_objects(mp_tls_pair *pair)
{
    if (pair->chain == NULL)
        return;
    sk_X509_pop_free(pair->chain, X509_free);
    EVP_PKEY_free(pair->key);
    pair->chain = NULL;
    pair->key = NULL;
    mp_link_drop(&pair->link);
    used.count--;
}

void mp_tls_pair_unref(mp_tls_pair *MP_NULLABLE pair)
{
    if (pair == NULL || atomic_fetch_sub(&pair->refs, 1) != 1)
        return;
    pthread_mutex_lock(&used.lock);
    drop_objects(pair);
    pthread_mutex_unlock(&used.lock);
    OPENSSL_cleanse(pair->own.ptr, pair->own.len);
    mp_buf_clear(&pair->own);
    mp_buf_clear(&pair->certificates);
    mp_free_texts(pair->names);
    free(pair);
}

int64_t mp_tls_pair_expires(const mp_tls_pair *pair)
{
    return pair->expires;
}

char *const *mp_tls_pair_names(const mp_tls_pair *pair)
{
    return pair->names;
}

static STACK_OF(X509) *MP_NULLABLE read_certificates(mp_str der)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    const unsigned char *at = (const unsigned char *)der.ptr, *end = at + der.len;
    for (X509 *one; at < end && (one = d2i_X509(NULL, &at, (long)(end - at))) != NULL;)
        sk_X509_push(all, one);
    if (at == end)
        return all;
    sk_X509_pop_free(all, X509_free);
    return NULL;
}

/* The objects of a pair that was used lately; false: there are none. */
static bool find_objects(mp_tls_pair *pair, STACK_OF(X509) *MP_NULLABLE *certificates, EVP_PKEY *MP_NULLABLE *key)
{
    MP_LOCKED(&used.lock);
    if (pair->chain == NULL)
        return false;
    mp_link_drop(&pair->link);
    mp_link_put(&used.list, &pair->link);
    *certificates = X509_chain_up_ref(pair->chain);
    *key = pair->key;
    EVP_PKEY_up_ref(*key);
    return true;
}

static void keep_objects(mp_tls_pair *pair, STACK_OF(X509) * certificates, EVP_PKEY *key)
{
    MP_LOCKED(&used.lock);
    if (pair->chain != NULL) /* another thread was faster */
        return;
    pair->chain = X509_chain_up_ref(certificates);
    pair->key = key;
    EVP_PKEY_up_ref(key);
    mp_link_put(&used.list, &pair->link);
    if (++used.count > OBJECTS)
        drop_objects(mp_container(mp_link_first(&used.list), mp_tls_pair, link));
}

bool mp_tls_pair_take(mp_tls_pair *pair, STACK_OF(X509) *MP_NULLABLE *certificates, EVP_PKEY *MP_NULLABLE *key)
{
    if (find_objects(pair, certificates, key))
        return true;
    const unsigned char *der = (const unsigned char *)pair->own.ptr;
    *key = d2i_AutoPrivateKey(NULL, &der, (long)pair->own.len);
    *certificates = read_certificates(mp_buf_str(&pair->certificates));
    if (*key == NULL || *certificates == NULL)
        return false;
    keep_objects(pair, *certificates, *key);
    return true;
}

/* -- names --------------------------------------------------------------------------------------------------------- */

static void put_name(mp_tls_names *names, size_t at, char *name, mp_tls_pair *pair)
{
    named_pair *one = &names->nodes[at];
    one->node.key = mp_str_of(name);
    one->pair = pair;
    if (mp_map_find(&names->map, one->node.key) == NULL)
        mp_map_put(&names->map, &one->node);
}

mp_tls_names *mp_tls_names_new(mp_tls_pair *const *pairs, size_t count, mp_tls_pair *MP_NULLABLE other)
{
    mp_tls_names *names = mp_new(sizeof *names);
    size_t all = 0, at = 0;
    atomic_init(&names->refs, 1);
    mp_map_init(&names->map);
    for (size_t i = 0; i < count; i++)
        all += mp_count_texts(pairs[i]->names);
    names->nodes = mp_new((all + 1) * sizeof *names->nodes);
    names->pairs = mp_new((count + 1) * sizeof(mp_tls_pair *));
    names->count = count;
    names->other = other == NULL ? NULL : ref(other);
    for (size_t i = 0; i < count; i++) {
        names->pairs[i] = ref(pairs[i]);
        for (char **name = pairs[i]->names; *name != NULL; name++)
            put_name(names, at++, *name, pairs[i]);
    }
    return names;
}

mp_tls_names *mp_tls_names_ref(mp_tls_names *names)
{
    atomic_fetch_add(&names->refs, 1);
    return names;
}

void mp_tls_names_unref(mp_tls_names *MP_NULLABLE names)
{
    if (names == NULL || atomic_fetch_sub(&names->refs, 1) != 1)
        return;
    mp_map_clear(&names->map);
    for (size_t i = 0; i < names->count; i++)
        mp_tls_pair_unref(names->pairs[i]);
    mp_tls_pair_unref(names->other);
    free(names->pairs);
    free(names->nodes);
    free(names);
}

static mp_tls_pair *MP_NULLABLE find_lower(const mp_tls_names *names, char *name, size_t len)
{
    const mp_node *node = mp_map_find(&names->map, (mp_str){name, len});
    char *dot = memchr(name, '.', len);
    if (node == NULL && dot != NULL && dot > name) {
        char kept = dot[-1];
        dot[-1] = '*';
        node = mp_map_find(&names->map, (mp_str){dot - 1, len - (size_t)(dot - 1 - name)});
        dot[-1] = kept;
    }
    return node == NULL ? NULL : ((const named_pair *)(const void *)node)->pair;
}

mp_tls_pair *MP_NULLABLE mp_tls_names_find(const mp_tls_names *names, mp_str name)
{
    char lower[NAME_CAP];
    if (name.len == 0 || name.len > sizeof lower)
        return NULL;
    put_lower(lower, name);
    return find_lower(names, lower, name.len);
}

/* The name in a ClientHello (RFC 6066, section 3); MP_STR_NONE: there is none. */
static mp_str asked_name(SSL *ssl)
{
    const unsigned char *at;
    size_t len;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &at, &len) != 1 || len < 5 ||
        at[2] != TLSEXT_NAMETYPE_host_name)
        return MP_STR_NONE;
    size_t name_len = (size_t)at[3] << 8 | at[4];
    if (name_len > len - 5)
        return MP_STR_NONE;
    mp_str name = {(const char *)at + 5, name_len};
    if (name.len > 1 && name.ptr[name.len - 1] == '.')
        name.len--;
    return name;
}

static bool use_pair(SSL *ssl, mp_tls_pair *pair)
{
    STACK_OF(X509) *certificates = NULL;
    EVP_PKEY *key = NULL;
    bool is_used = false;
    ERR_clear_error();
    if (mp_tls_pair_take(pair, &certificates, &key)) {
        X509 *own = sk_X509_shift(certificates);
        is_used = SSL_use_cert_and_key(ssl, own, key, certificates, 1) == 1;
        X509_free(own);
    }
    sk_X509_pop_free(certificates, X509_free);
    EVP_PKEY_free(key);
    return is_used;
}

int mp_tls_names_choose(const mp_tls_names *names, SSL *ssl, unsigned char binding[MP_TLS_BINDING])
{
    unsigned char bytes[MP_TLS_BINDING + NAME_CAP];
    mp_str name = asked_name(ssl);
    if (name.len > NAME_CAP)
        name = MP_STR_NONE;
    mp_tls_pair *pair = mp_tls_names_find(names, name);
    if (pair == NULL)
        pair = names->other;
    if (pair == NULL)
        return SSL_AD_UNRECOGNIZED_NAME;
    if (!use_pair(ssl, pair))
        return SSL_AD_INTERNAL_ERROR;
    memcpy(bytes, pair->fingerprint, MP_TLS_BINDING);
    put_lower((char *)bytes + MP_TLS_BINDING, name);
    return EVP_Digest(bytes, MP_TLS_BINDING + name.len, binding, NULL, EVP_sha256(), NULL) == 1 ? 0
                                                                                                : SSL_AD_INTERNAL_ERROR;
}
