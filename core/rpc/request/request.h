/* request.h: an HTTP request before its sender is known: what its headers mean, which hosts and pages are served, how it is refused,
 * and the lines of the log and the audit about that. rpc.h declares what the gateway's admin listener uses too. */
#ifndef MP_RPC_REQUEST_H
#define MP_RPC_REQUEST_H

#include "rpc/role.h"

/* -- headers.c ----------------------------------------------------------------------------------------------------- */

bool mp_type_is_json(const mp_stream *stream);
/* True if Accept takes every one of the NULL-terminated media types. */
bool mp_accepts(const mp_stream *stream, const char *const *types);
/* True if Accept names text/event-stream before anything else. */
bool mp_prefers_events(const mp_stream *stream);
/* The last value of `name` in a query; `count` gets how often it appears. */
mp_str mp_query_value(mp_str query, const char *name, int *count);
/* Decodes =?base64?…?= to `out` (H-4, H-5); `text` gets that, or a plain `value` as it is. -1 when the encoding is broken. */
int mp_header_text(mp_str value, mp_buf *out, mp_str *text);

/* -- hosts.c, cors.c ----------------------------------------------------------------------------------------------- */

/* True if Host is among `config->hosts`, whatever Origin says. */
bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream);
/* True if `config->origins` lets a page of this origin read answers. */
bool mp_origin_is_allowed(const mp_rpc_config *config, mp_str origin);
/* Adds the CORS headers that let the page at Origin read the answer, if the configuration allows it. Answers a preflight: true
 * when the request was one. */
bool mp_serve_preflight(mp_rpc *rpc, mp_stream *stream);

/* -- refuse.c ------------------------------------------------------------------------------------------------------ */

/* Answers with one JSON-RPC error, and writes a line of the log. `id` and `data` may be empty. */
void mp_refuse(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, int code, mp_str id, const char *message,
               mp_str data);
/* Answers with an invalid-request error and one more HTTP header. */
void mp_refuse_with(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, mp_header header, const char *message);
/* Answers 202 without a body: a notification or response was accepted. */
void mp_accept_note(mp_stream *stream);

/* The texts of the errors for a request of a stateless revision whose version is missing or not served. */
extern const char mp_meta_is_missing[], mp_version_has_sessions[];
/* Appends the data of those errors: the versions that are served, and `requested` unless its ptr is NULL. */
void mp_put_versions(mp_buf *out, mp_str requested);

/* -- refusal_log.c ------------------------------------------------------------------------------------------------- */

/* A hash of a session's id: log lines tell sessions apart by it, and it does not give access to the session. */
typedef struct {
    char text[9];
} mp_session_mark;
mp_session_mark mp_session_mark_of(mp_str id);

/* Logs that the message in rpc->envelope is refused, where no HTTP request carries it. */
void mp_log_refused_message(mp_rpc *rpc, mp_cause cause, const char *why);

#endif
