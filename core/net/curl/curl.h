/* curl.h: libcurl, loaded by the first request that needs it. Its dependencies are some
 * twenty libraries more, and most scripts never use it. The portable binary has a libcurl of its own in it. */
#ifndef MP_NET_CURL_H
#define MP_NET_CURL_H

#include "telemetry/telemetry.h"
#include <curl/curl.h>

/* How long addresses are kept by libcurl, in seconds: longer than a request waits for a connection. All handles have
 * the same, since each drops what is too old for it. */
#define MP_NAMES_S 3600L

/* Certificate authorities. At most one of the two members is set; if none is, no server is trusted. */
typedef struct {
    const char *MP_NULLABLE folder; /* looked up by a certificate's hash when it is needed */
    const char *MP_NULLABLE file;   /* read as a whole, on systems without such a folder, as Fedora */
} mp_authorities;

mp_authorities mp_find_authorities(void);
/* The file of a system that has all of them in one; NULL: there is none. */
const char *MP_NULLABLE mp_find_authorities_file(void);

/* X(name) for the function curl_name. */
#define MP_CURL(X)                                                                                                     \
    X(global_init)                                                                                                     \
    X(version_info)                                                                                                    \
    X(free)                                                                                                            \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_getinfo)                                                                                                    \
    X(easy_perform)                                                                                                    \
    X(easy_strerror)                                                                                                   \
    X(easy_pause)                                                                                                      \
    X(easy_reset)                                                                                                      \
    X(easy_cleanup)                                                                                                    \
    X(slist_append)                                                                                                    \
    X(slist_free_all)                                                                                                  \
    X(multi_init)                                                                                                      \
    X(multi_setopt)                                                                                                    \
    X(multi_assign)                                                                                                    \
    X(multi_add_handle)                                                                                                \
    X(multi_remove_handle)                                                                                             \
    X(multi_socket_action)                                                                                             \
    X(multi_info_read)                                                                                                 \
    X(multi_cleanup)                                                                                                   \
    X(url)                                                                                                             \
    X(url_set)                                                                                                         \
    X(url_get)                                                                                                         \
    X(url_cleanup)

typedef struct {
#define MP_CURL_MEMBER(name) __typeof__(curl_##name) *name;
    MP_CURL(MP_CURL_MEMBER)
#undef MP_CURL_MEMBER
    mp_authorities authorities; /* of this system */
} mp_curl_api;

/* Returns NULL if no suitable libcurl is found; `err` says what to install. Any thread. */
const mp_curl_api *MP_NULLABLE mp_curl(mp_err *err);
/* Its version, or why there is none. */
const char *mp_curl_version(void);
/* Lets a request trust the certificates in the file `ca`, and no others; NULL: those of this system. */
CURLcode mp_curl_trust(const mp_curl_api *curl, CURL *easy, const char *MP_NULLABLE ca);

/* True if libcurl's text of an error says that the server has refused this side's certificate. With TLS 1.3 it may do
 * so after a request was sent, of which it has read nothing then. */
bool mp_curl_explain_refusal(const char *error, mp_err *why);
/* Why a transfer has failed, for people. */
void mp_curl_explain(CURLcode result, int os_error, const char *error, mp_err *why);

/* For a look at a socket by its number: one that was closed without a call of on_close (see review_opened in
 * transfer.c) may be a file of another thread by now. `statement` must do nothing to that file. ThreadSanitizer, which
 * would report the look, does not see what it reads. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define MP_UNSEEN_READS(statement)                                                                                     \
    do {                                                                                                               \
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);                                                                  \
        statement;                                                                                                     \
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);                                                                    \
    } while (0)
#else
#define MP_UNSEEN_READS(statement) statement
#endif

#endif
