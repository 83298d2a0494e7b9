/* request.h: an HTTP request before its sender is known: its headers, Host and Origin checks, refusals and their
 * audit lines. The declarations that the gateway's admin listener uses are in rpc/observe.h. */
#ifndef MP_RPC_REQUEST_H
#define MP_RPC_REQUEST_H

#include "rpc/observe/refusal_log.h"

/* -- headers.c ----------------------------------------------------------------------------------------------------- */

bool mp_type_is_json(const mp_stream *stream);
/* True if Accept takes every one of the NULL-terminated media types. */
bool mp_accepts(const mp_stream *stream, const char *const *types);
/* True if Accept names text/event-stream itself, and no wildcard for it. */
bool mp_names_events(const mp_stream *stream);
/* True if Accept names text/event-stream before any other type. */
bool mp_prefers_events(const mp_stream *stream);
/* Decodes a value of the form =?base64?…?= to `out` (H-4, H-5); `text` gets the result. Any other `value` is given
 * as it is. -1 if the encoding is broken. */
int mp_header_text(mp_str value, mp_buf *out, mp_str *text);

/* True if `path` is the path of an endpoint; a '/' at the end of `path` does not count. NULL is the path of an endpoint
 * that is off. */
bool mp_path_is(mp_str path, const char *MP_NULLABLE endpoint);

/* -- hosts.c, cors.c ----------------------------------------------------------------------------------------------- */

/* True if Host is among `config->hosts`, and Origin is absent, among them, or among `config->origins`: the guard
 * against DNS rebinding (Z-1, Z-2). */
bool mp_request_is_served(mp_rpc *rpc, const mp_stream *stream);
/* For a request that is not served: the error text, which names the header and the configuration key, and the cause. */
const char *mp_host_refusal(const mp_rpc_config *config, const mp_stream *stream);
mp_cause mp_host_cause(const mp_rpc_config *config, const mp_stream *stream);
/* True if Host is among `config->hosts`. Does not look at Origin. */
bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream);
/* True if `config->origins` lets a page of this origin read answers. */
bool mp_origin_is_allowed(const mp_rpc_config *config, mp_str origin);
/* Adds the CORS headers that let the page at Origin read the answer, if the configuration allows it. If the request
 * is a preflight, answers it and returns true. */
bool mp_serve_preflight(mp_rpc *rpc, mp_stream *stream);

/* -- refuse.c ------------------------------------------------------------------------------------------------------ */

/* Answers with one JSON-RPC error and logs the refusal. `id` and `data` may be empty. */
void mp_refuse(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, int code, mp_str id, const char *message,
               mp_str data);
/* Answers with an invalid-request error and one more HTTP header. */
void mp_refuse_with(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, mp_header header, const char *message);
/* Answers 202 without a body: the notification or response was accepted. */
void mp_accept_note(mp_stream *stream);

/* Error texts for a request of a stateless revision whose version is missing or not served. */
extern const char mp_meta_is_missing[], mp_version_is_unsupported[];
/* The error text for a call that limits.answers has no room for. */
extern const char mp_answers_are_full[];
extern const char mp_outside[]; /* mp_rpc_is_outside() */
/* Appends the error data for a version that is missing or not served: the list of served versions, and `requested`,
 * which may be MP_STR_NONE. */
void mp_put_versions(mp_buf *out, mp_str requested);

/* As mp_refuse_with, with the header Retry-After. */
void mp_refuse_for(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, unsigned seconds, const char *message);
/* The seconds of Retry-After while the gateway stops: until the process has ended at the latest. */
unsigned mp_stopping_s(const mp_rpc *rpc);
/* True if the gateway takes no sessions, since it has not joined its cluster. It tries that every 2 s. */
static inline bool mp_rpc_is_outside(const mp_rpc *rpc)
{
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    return nodes != NULL && mp_nodes_is_refused(nodes);
}
#define MP_OUTSIDE_S 2

/* -- overload.c ---------------------------------------------------------------------------------------------------- */

void mp_pressure_begin(mp_rpc *rpc);
void mp_pressure_configure(mp_rpc *rpc);
void mp_pressure_end(mp_rpc *rpc);
/* True if the request in rpc->envelope is refused at once, because too much waits before it. An array of messages
 * counts as a call. */
bool mp_request_is_shed(mp_rpc *rpc);
/* mp_request_is_shed for a request of the method `method`. True: rpc->pressure.ahead is set. */
bool mp_method_is_shed(mp_rpc *rpc, mp_str method);
/* A request waited too long: the worker is overloaded from now on. */
void mp_pressure_rise(mp_rpc *rpc);
/* Counts a refusal and returns the seconds of its Retry-After. `ahead`: tasks that wait before it. */
unsigned mp_pressure_refuse(mp_rpc *rpc, size_t ahead);
/* False for requests that are never refused for overload: they are cheap, or end something. */
bool mp_method_may_be_shed(mp_str method);
extern const char mp_overloaded[];

#endif
