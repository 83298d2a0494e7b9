/* files.c: loads PEM files into TLS contexts, and reports problems with them in words. */
#define _GNU_SOURCE 1 /* for memmem */
#include "context.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_CAP ((size_t)1 << 20)
#define CHAIN_CAP 16
#define BUNDLE_CAP 1000
#define MIN_SECURITY_BITS 112 /* bits: RSA of 2048 bits, or a curve of 224 */

/* Adds a finding; the caller sets its text and hint. The last element is overwritten when the array is full. */
static mp_err *add_finding(mp_tls_findings *findings, mp_tls_file file, bool is_warning)
{
    size_t at = findings->count < MP_TLS_FINDINGS ? findings->count++ : MP_TLS_FINDINGS - 1;
    findings->all[at].file = file;
    findings->all[at].is_warning = is_warning;
    findings->all[at].err = (mp_err){"", ""};
    return &findings->all[at].err;
}

static bool has_errors(const mp_tls_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (!findings->all[i].is_warning)
            return true;
    return false;
}

static const char *openssl_says(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == NULL ? "unknown OpenSSL error" : reason;
}

/* -- files --------------------------------------------------------------------------------------------------------- */

/* Contents of a PEM file; a key's memory is wiped. */
typedef struct {
    const char *path;
    char *bytes; /* if `len` is not 0 */
    size_t len;
    mode_t mode;
} pem_file;

static void drop_file(pem_file *file)
{
    if (file->len > 0)
        OPENSSL_cleanse(file->bytes, file->len);
    free(file->bytes);
    file->bytes = MP_UNSET;
    file->len = 0;
}

static int read_file(pem_file *file, const char *path, mp_tls_file kind, mp_tls_findings *findings)
{
    struct stat info;
    *file = (pem_file){.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        int why = errno;
        mp_err *err = add_finding(findings, kind, false);
        if (why == ENOENT) {
            mp_err_set(err, "file not found: %s", path);
            return mp_err_hint(err, "relative paths start at the folder of the configuration file");
        }
        mp_err_set(err, "%s cannot be read: %s", path, strerror(why));
        return why == EACCES ? mp_err_hint(err, "the user that runs moonpool (%d) needs to read it", (int)geteuid())
                             : -1;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return mp_err_set(add_finding(findings, kind, false), "%s is %s, not a file", path,
                          S_ISDIR(info.st_mode) ? "a folder" : "a device or a pipe");
    }
    file->mode = info.st_mode;
    size_t room = info.st_size < 0 || (size_t)info.st_size > FILE_CAP ? FILE_CAP + 1 : (size_t)info.st_size + 1;
    file->bytes = mp_new(room); /* a file that grows meanwhile is read again: it has changed */
    ssize_t n;
    while (file->len < room &&
           ((n = read(fd, file->bytes + file->len, room - file->len)) > 0 || (n < 0 && errno == EINTR)))
        file->len += n > 0 ? (size_t)n : 0;
    close(fd);
    if (file->len <= FILE_CAP)
        return 0;
    drop_file(file);
    return mp_err_set(add_finding(findings, kind, false), "%s is larger than 1MiB: not a PEM file", path);
}

static bool mentions_text(const pem_file *file, const char *text)
{
    return memmem(file->bytes, file->len, text, strlen(text)) != NULL;
}

/* Reports that the file has no block of the wanted kind, and what it has instead. */
static int report_content(const pem_file *file, mp_tls_file kind, mp_tls_findings *findings)
{
    mp_err *err = add_finding(findings, kind, false);
    bool wants_key = kind == MP_TLS_KEY;
    const char *wanted = wants_key ? "private key" : "certificate";
    if (file->len == 0)
        return mp_err_set(err, "%s is empty", file->path);
    if (wants_key ? mentions_text(file, "-----BEGIN CERTIFICATE-----") : mentions_text(file, "PRIVATE KEY-----")) {
        mp_err_set(err, "%s has a %s, but no %s", file->path, wants_key ? "certificate" : "private key", wanted);
        return mp_err_hint(err, "are 'certificate' and 'key' the wrong way round?");
    }
    if (mentions_text(file, "-----BEGIN CERTIFICATE REQUEST-----")) {
        mp_err_set(err, "%s has a certificate signing request, but no %s", file->path, wanted);
        return mp_err_hint(err, "send the request to a certificate authority, and use the certificate that it returns");
    }
    if (mentions_text(file, "-----BEGIN PUBLIC KEY-----")) {
        mp_err_set(err, "%s has a public key, but no %s", file->path, wanted);
        return -1;
    }
    mp_err_set(err, "%s is not PEM: it has no line -----BEGIN %s-----", file->path,
               wants_key ? "PRIVATE KEY" : "CERTIFICATE");
    if ((unsigned char)file->bytes[0] == 0x30)
        return mp_err_hint(err,
                           "the file looks like DER: convert it with openssl %s -inform der -in FILE -out FILE.pem",
                           wants_key ? "pkey" : "x509");
    return -1;
}

static void free_certificates(STACK_OF(X509) * certificates)
{
    sk_X509_pop_free(certificates, X509_free);
}

/* Password callback: reports that the key has a passphrase, instead of prompting for it. */
static int no_passphrase(MP_UNUSED char *room, MP_UNUSED int size, MP_UNUSED int is_writing, void *ctx)
{
    *(bool *)ctx = true;
    return -1;
}

/* All certificates of the file, at least one. On failure adds a finding and returns NULL. */
static STACK_OF(X509) *MP_NULLABLE read_certificates(const char *path, mp_tls_file kind, int most,
                                                     mp_tls_findings *findings)
{
    pem_file file;
    if (read_file(&file, path, kind, findings) != 0)
        return NULL;
    STACK_OF(X509) *all = sk_X509_new_null();
    BIO *bio = BIO_new_mem_buf(file.bytes, (int)file.len);
    ERR_clear_error();
    X509 *one;
    bool is_encrypted = false;
    while (sk_X509_num(all) <= most && (one = PEM_read_bio_X509_AUX(bio, NULL, no_passphrase, &is_encrypted)) != NULL)
        sk_X509_push(all, one);
    bool is_over = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    int count = sk_X509_num(all), failed = 0;
    if (count > most)
        failed = mp_err_set(add_finding(findings, kind, false), "%s has more than %d certificates", path, most);
    else if (is_encrypted)
        failed = mp_err_set(add_finding(findings, kind, false),
                            "%s: certificate %d is encrypted: remove its encryption", path, count + 1);
    else if (!is_over)
        failed = mp_err_set(add_finding(findings, kind, false), "%s: certificate %d is damaged: %s", path, count + 1,
                            openssl_says());
    else if (count == 0)
        failed = report_content(&file, kind, findings);
    BIO_free(bio);
    drop_file(&file);
    if (failed == 0)
        return all;
    free_certificates(all);
    return NULL;
}

static EVP_PKEY *MP_NULLABLE read_key(const char *path, mp_tls_findings *findings)
{
    pem_file file;
    if (read_file(&file, path, MP_TLS_KEY, findings) != 0)
        return NULL;
    bool is_encrypted = false;
    BIO *bio = BIO_new_mem_buf(file.bytes, (int)file.len);
    ERR_clear_error();
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &is_encrypted);
    if (key == NULL && (is_encrypted || mentions_text(&file, "ENCRYPTED"))) {
        mp_err *err = add_finding(findings, MP_TLS_KEY, false);
        mp_err_set(err, "%s is encrypted: the gateway cannot ask for a passphrase", path);
        mp_err_hint(err, "remove the passphrase: openssl pkey -in FILE -out FILE.plain; then chmod 600 FILE.plain");
    } else if (key == NULL && !mentions_text(&file, "PRIVATE KEY-----")) {
        report_content(&file, MP_TLS_KEY, findings);
    } else if (key == NULL) {
        mp_err_set(add_finding(findings, MP_TLS_KEY, false), "%s: the key is damaged: %s", path, openssl_says());
    } else if ((file.mode & S_IROTH) != 0) {
        mp_err *err = add_finding(findings, MP_TLS_KEY, true);
        mp_err_set(err, "%s: every user of this machine can read this private key", path);
        mp_err_hint(err, "chmod 600, or 640 with a dedicated group");
    }
    BIO_free(bio);
    drop_file(&file);
    return key;
}

/* -- checks -------------------------------------------------------------------------------------------------------- */

static bool is_issued_by(X509 *one, X509 *issuer)
{
    return X509_check_issued(issuer, one) == X509_V_OK;
}

/* Checks that the certificate of the key comes first, and that each further one has issued the one before. */
static void judge_order(const char *path, const char *key_path, STACK_OF(X509) * chain, EVP_PKEY *key,
                        mp_tls_findings *findings)
{
    int count = sk_X509_num(chain), own = 0;
    while (own < count && X509_check_private_key(sk_X509_value(chain, own), key) != 1)
        own++;
    ERR_clear_error();
    if (own == count) {
        mp_err *err = add_finding(findings, MP_TLS_KEY, false);
        mp_err_set(err, "%s is not the key of the certificate in %s", key_path, path);
        mp_err_hint(err, "certificate and key must belong together; was only one of them renewed?");
        return;
    }
    if (own > 0) {
        mp_err *err = add_finding(findings, MP_TLS_CERTIFICATE, false);
        mp_err_set(err, "%s: the server's own certificate is number %d in the file", path, own + 1);
        mp_err_hint(err, "the server's certificate must come first, then its issuer, and so on");
        return;
    }
    for (int i = 0; i + 1 < count; i++)
        if (!is_issued_by(sk_X509_value(chain, i), sk_X509_value(chain, i + 1))) {
            mp_err *err = add_finding(findings, MP_TLS_CERTIFICATE, false);
            mp_err_set(err, "%s: certificate %d is not the issuer of certificate %d", path, i + 2, i + 1);
            mp_err_hint(err, "the server's certificate must come first, then its issuer, and so on");
            return;
        }
}

static void judge_strength(const char *path, EVP_PKEY *key, mp_tls_findings *findings)
{
    int type = EVP_PKEY_get_base_id(key), bits = EVP_PKEY_get_bits(key);
    mp_err *err;
    if (type != EVP_PKEY_RSA && type != EVP_PKEY_RSA_PSS && type != EVP_PKEY_EC && type != EVP_PKEY_ED25519 &&
        type != EVP_PKEY_ED448) {
        err = add_finding(findings, MP_TLS_KEY, false);
        mp_err_set(err, "%s: clients do not support keys of type %s", path, OBJ_nid2sn(type));
        mp_err_hint(err, "use RSA, EC or Ed25519");
    } else if (EVP_PKEY_get_security_bits(key) < MIN_SECURITY_BITS) {
        err = add_finding(findings, MP_TLS_KEY, false);
        mp_err_set(err, "%s: a key of %d bits is too weak", path, bits);
        mp_err_hint(err,
                    "RSA needs 2048 bits, EC 224: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1");
    }
}

static void put_day(char room[32], const ASN1_TIME *at)
{
    struct tm parts = {0};
    ASN1_TIME_to_tm(at, &parts);
    strftime(room, 32, "%Y-%m-%d", &parts);
}

/* Reports faults for which other nodes would reject the certificate. */
static void judge_for_nodes(const char *path, X509 *own, const char *name, mp_tls_findings *findings)
{
    mp_err *err;
    if (X509_check_host(own, name, 0, X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) != 1) {
        err = add_finding(findings, MP_TLS_CERTIFICATE, false);
        mp_err_set(err, "%s does not have the DNS name %s", path, name);
        mp_err_hint(
            err,
            "the certificates of all nodes have it as a subject alternative name; cluster.tls.name is another one");
    }
    if (X509_check_purpose(own, X509_PURPOSE_SSL_CLIENT, 0) != 1) {
        err = add_finding(findings, MP_TLS_CERTIFICATE, false);
        mp_err_set(err, "%s is not a certificate for clients", path);
        mp_err_hint(err, "nodes show it when they connect to each other: its extended key usage lacks clientAuth");
    }
}

/* Reports faults for which clients would reject the certificate. */
static void judge_for_clients(const char *path, X509 *own, bool is_node, mp_tls_findings *findings)
{
    char day[32];
    mp_err *err;
    if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0) {
        put_day(day, X509_get0_notAfter(own));
        err = add_finding(findings, MP_TLS_CERTIFICATE, true);
        mp_err_set(err, "%s expired on %s", path, day);
        mp_err_hint(err,
                    "clients refuse it; replace the file: the gateway loads the new certificate without a restart");
    } else if (X509_cmp_current_time(X509_get0_notBefore(own)) > 0) {
        put_day(day, X509_get0_notBefore(own));
        err = add_finding(findings, MP_TLS_CERTIFICATE, true);
        mp_err_set(err, "%s is not valid before %s", path, day);
        mp_err_hint(err, "clients refuse it until then; check this machine's clock");
    }
    if (X509_get_ext_by_NID(own, NID_subject_alt_name, -1) < 0) {
        err = add_finding(findings, MP_TLS_CERTIFICATE, true);
        mp_err_set(err, "%s names no host in its subject alternative names", path);
        mp_err_hint(err, "clients refuse it: they ignore the common name and need a subject alternative name");
    }
    if (X509_check_purpose(own, X509_PURPOSE_SSL_SERVER, 0) != 1) {
        err = add_finding(findings, MP_TLS_CERTIFICATE, !is_node);
        mp_err_set(err, "%s is not a certificate for servers", path);
        mp_err_hint(err, "clients refuse it: its extended key usage lacks serverAuth");
    }
}

/* -- loading ------------------------------------------------------------------------------------------------------- */

/* Nothing if no client certificates are requested. */
static void add_client_authorities(SSL_CTX *context, const mp_tls_files *files, mp_tls_findings *findings)
{
    const char *path = files->client_ca;
    STACK_OF(X509) *authorities = path == NULL ? NULL : read_certificates(path, MP_TLS_CLIENT_CA, BUNDLE_CAP, findings);
    if (authorities == NULL)
        return;
    X509_STORE *store = SSL_CTX_get_cert_store(context);
    for (int i = 0; i < sk_X509_num(authorities); i++) {
        X509_STORE_add_cert(store, sk_X509_value(authorities, i));
        SSL_CTX_add_client_CA(context, sk_X509_value(authorities, i));
    }
    free_certificates(authorities);
    int unless_optional = files->client_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | unless_optional, NULL);
}

/* Gives certificate and key to the context; with `is_trial` to a connection that is made for this and freed again, so
 * that the context stays as it was. */
static void use_pair(SSL_CTX *context, bool is_trial, const mp_tls_files *files, STACK_OF(X509) * chain, EVP_PKEY *key,
                     mp_tls_findings *findings)
{
    X509 *own = sk_X509_value(chain, 0);
    STACK_OF(X509) *others = sk_X509_new_null();
    SSL *ssl = is_trial ? SSL_new(context) : NULL;
    for (int i = 1; i < sk_X509_num(chain); i++)
        sk_X509_push(others, sk_X509_value(chain, i));
    ERR_clear_error();
    if ((ssl != NULL ? SSL_use_cert_and_key(ssl, own, key, others, 1)
                     : SSL_CTX_use_cert_and_key(context, own, key, others, 1)) != 1)
        mp_err_set(add_finding(findings, MP_TLS_CERTIFICATE, false), "%s cannot be used: %s", files->certificate,
                   openssl_says());
    sk_X509_free(others);
    SSL_free(ssl);
}

static mp_tls *MP_NULLABLE make_context(const mp_tls_files *files, STACK_OF(X509) * chain, EVP_PKEY *key,
                                        mp_tls_findings *findings)
{
    SSL_CTX *context = mp_tls_context_new();
    use_pair(context, false, files, chain, key, findings);
    if (!has_errors(findings))
        add_client_authorities(context, files, findings);
    if (!has_errors(findings))
        return mp_tls_new(context, NULL, mp_tls_not_after(sk_X509_value(chain, 0)));
    SSL_CTX_free(context);
    return NULL;
}

/* Reads certificate and key and checks that they belong together. With errors in `findings`, both may be NULL. */
static void read_pair(const mp_tls_files *files, STACK_OF(X509) *MP_NULLABLE *certificates, EVP_PKEY *MP_NULLABLE *own,
                      mp_tls_findings *findings)
{
    findings->count = 0;
    const char *node_name = files->node_name;
    STACK_OF(X509) *chain = *certificates =
        read_certificates(files->certificate, MP_TLS_CERTIFICATE, CHAIN_CAP, findings);
    EVP_PKEY *key = *own = read_key(files->key, findings);
    if (key != NULL)
        judge_strength(files->key, key, findings);
    if (chain != NULL && key != NULL)
        judge_order(files->certificate, files->key, chain, key, findings);
    if (chain != NULL && !has_errors(findings))
        judge_for_clients(files->certificate, sk_X509_value(chain, 0), node_name != NULL, findings);
    if (chain != NULL && node_name != NULL && !has_errors(findings))
        judge_for_nodes(files->certificate, sk_X509_value(chain, 0), node_name, findings);
}

static void drop_pair(STACK_OF(X509) *MP_NULLABLE chain, EVP_PKEY *MP_NULLABLE key)
{
    if (chain != NULL)
        free_certificates(chain);
    EVP_PKEY_free(key);
    ERR_clear_error();
}

mp_tls *MP_NULLABLE mp_tls_load(const mp_tls_files *files, mp_tls_findings *findings)
{
    STACK_OF(X509) * chain;
    EVP_PKEY *key;
    read_pair(files, &chain, &key, findings);
    mp_tls *tls =
        chain == NULL || key == NULL || has_errors(findings) ? NULL : make_context(files, chain, key, findings);
    drop_pair(chain, key);
    return tls;
}

/* The context of connections on which pairs are tried; it is made once, which takes half a millisecond. */
static SSL_CTX *trial;

static void make_trial(void)
{
    trial = mp_tls_context_new();
}

mp_tls_pair *MP_NULLABLE mp_tls_pair_load(const mp_tls_files *files, mp_tls_findings *findings)
{
    STACK_OF(X509) * chain;
    EVP_PKEY *key;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    read_pair(files, &chain, &key, findings);
    pthread_once(&once, make_trial);
    if (chain != NULL && key != NULL && !has_errors(findings))
        use_pair(trial, true, files, chain, key, findings);
    mp_tls_pair *pair = chain == NULL || key == NULL || has_errors(findings) ? NULL : mp_tls_pair_new(chain, key);
    drop_pair(chain, key);
    return pair;
}

mp_tls *MP_NULLABLE mp_tls_by_name(const mp_tls_files *files, mp_tls_names *names, mp_tls_findings *findings)
{
    SSL_CTX *context = mp_tls_context_new();
    findings->count = 0;
    mp_tls_bind_tickets(context);
    add_client_authorities(context, files, findings);
    ERR_clear_error();
    if (!has_errors(findings))
        return mp_tls_new(context, names, 0);
    SSL_CTX_free(context);
    mp_tls_names_unref(names);
    return NULL;
}

bool mp_tls_show(const mp_tls *tls, SSL_CTX *context)
{
    STACK_OF(X509) *issuers = NULL;
    SSL_CTX_get0_chain_certs(tls->context, &issuers);
    return SSL_CTX_use_cert_and_key(context, SSL_CTX_get0_certificate(tls->context),
                                    SSL_CTX_get0_privatekey(tls->context), issuers, 1) == 1;
}

const char *mp_tls_version(void)
{
    return OpenSSL_version(OPENSSL_VERSION_STRING);
}
