#include "curl.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

#define MIN_VERSION 0x075700 /* 7.87: nothing older has been tried */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static mp_curl_api api;
static const char *failure = "";

#ifdef MP_PORTABLE /* libcurl is a part of the binary */
static void find_functions(void)
{
#define FIND(name) api.name = curl_##name;
    MP_CURL(FIND)
#undef FIND
}
#else
static void load_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    if (found == NULL)
        failure = "libcurl.so.4 lacks a function that is needed";
    memcpy(function, &found, sizeof found);
}

static void find_functions(void)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        failure = "libcurl.so.4 cannot be loaded";
        return;
    }
#define FIND(name) load_function(library, "curl_" #name, &api.name);
    MP_CURL(FIND)
#undef FIND
}
#endif

/* -- the certificates that a system trusts, for a libcurl that was built on another one -----------------------------
 */

static const char *const folders[] = {"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/openssl/certs"};
static const char *const files[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Arch, Alpine, Gentoo */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* their newest releases */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/ssl/cert.pem",
};

/* True if the folder has a certificate whose file is named by the hash of its subject, such as 02265526.0: others are
 * not found in a folder. */
static bool is_hashed(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;)
        found = strspn(entry->d_name, "0123456789abcdef") == 8 && strcmp(entry->d_name + 8, ".0") == 0;
    if (folder != NULL)
        closedir(folder);
    return found;
}

const char *MP_NULLABLE mp_find_authorities_file(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
}

mp_authorities mp_find_authorities(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (is_hashed(folders[i]))
            return (mp_authorities){.folder = folders[i]};
    return (mp_authorities){.file = mp_find_authorities_file()};
}

static void load_library(void)
{
    find_functions();
    if (*failure != '\0')
        return;
    if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        failure = "libcurl cannot be initialized";
        return;
    }
    const curl_version_info_data *version = api.version_info(CURLVERSION_NOW);
    if (version->version_num < MIN_VERSION)
        failure = "libcurl is too old: 7.87 or later is needed";
    api.authorities = mp_find_authorities();
}

const mp_curl_api *MP_NULLABLE mp_curl(mp_err *err)
{
    pthread_once(&once, load_library);
    if (*failure == '\0')
        return &api;
    mp_err_set(err, "%s", failure);
    mp_err_hint(err, "Debian: apt install libcurl4");
    return NULL;
}

const char *mp_curl_version(void)
{
    mp_err err;
    const mp_curl_api *curl = mp_curl(&err);
    return curl != NULL ? curl->version_info(CURLVERSION_NOW)->version : failure;
}

/* seconds for which the contents of a file of authorities are kept */
#define CA_KEPT_S ((long)MP_LIMIT(ca_kept_s, 10))

CURLcode mp_curl_trust(const mp_curl_api *curl, CURL *easy, const char *MP_NULLABLE ca)
{
    const char *file = ca != NULL ? ca : curl->authorities.file, *folder = ca != NULL ? NULL : curl->authorities.folder;
    CURLcode result = curl->easy_setopt(easy, CURLOPT_CAINFO, file);
    if (result == CURLE_OK && (ca != NULL || folder != NULL))
        result = curl->easy_setopt(easy, CURLOPT_CAPATH, folder);
    if (result == CURLE_OK && ca != NULL) /* its contents may be replaced */
        result = curl->easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, CA_KEPT_S);
    return result;
}

/* -- failures ------------------------------------------------------------------------------------------------------ */

/* The alerts that refuse a client certificate, as OpenSSL names them. */
static const char *const refusals[] = {"certificate", "unknown ca", "access denied"};

bool mp_curl_explain_refusal(const char *error, mp_err *why)
{
    const char *alert = strstr(error, "alert ");
    bool is_refusal = false;
    for (size_t i = 0; alert != NULL && i < sizeof refusals / sizeof *refusals; i++)
        is_refusal = is_refusal || strstr(alert, refusals[i]) != NULL;
    if (!is_refusal)
        return false;
    mp_err_set(why, "the server refuses the certificate of this side: %.100s", alert);
    mp_err_hint(why, "it may have expired, not be for clients (clientAuth), or be of an authority that is not trusted");
    return true;
}

static void explain_connect(int error, mp_err *why)
{
    if (error == ECONNREFUSED || error == 0)
        mp_err_set(why, "connection refused");
    else
        mp_err_set(why, "cannot connect: %s", strerror(error));
    if (error == ECONNREFUSED)
        mp_err_hint(why, "nothing listens at this port");
}

void mp_curl_explain(CURLcode result, int os_error, const char *error, mp_err *why)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
        mp_err_set(why, "host not found (DNS)");
        break;
    case CURLE_COULDNT_CONNECT:
        explain_connect(os_error, why);
        break;
    case CURLE_OPERATION_TIMEDOUT:
        mp_err_set(why, "the connection timed out");
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
        mp_err_set(why, "%s", *error != '\0' ? error : "the TLS handshake with the server failed");
        break;
    case CURLE_SSL_CACERT_BADFILE:
        mp_err_set(why, "the CA certificates cannot be read");
        mp_err_hint(why, "http.ca in moonpool.yaml names their file");
        break;
    case CURLE_GOT_NOTHING:
        mp_err_set(why, "the server closed the connection without a response");
        break;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        mp_err_set(why, "the connection closed before the response was complete");
        break;
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        mp_err_set(why, "the server sent an invalid HTTP response");
        break;
    default:
        mp_err_set(why, "the request failed");
    }
}
