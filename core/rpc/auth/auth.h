/* auth.h: requests whose authentication is pending, and how clients find out where credentials come from (RFC 9728). */
#ifndef MP_RPC_AUTH_H
#define MP_RPC_AUTH_H

#include "rpc/call/state.h"

/* Starts the authentication of a request, which ends in mp_serve_as or a refusal. */
void mp_authn_begin(mp_rpc *rpc, mp_stream *stream);
/* Begins the answer to a request for a page of sign-in, without authentication. False if the request has another path,
 * or a Host that is not served. */
bool mp_page_begin(mp_rpc *rpc, mp_stream *stream);
/* For a request that another process has authenticated: takes ownership of `hop`. */
void mp_authn_begin_hop(mp_rpc *rpc, mp_stream *stream, mp_hop *hop);
/* Auth scripts were reloaded: starts the authentication of every pending request again. `old_ctx` is the hooks'
 * context from before the reload. */
void mp_authn_restart_all(mp_rpc *rpc, void *old_ctx);
/* Refuses every pending request with 503. */
void mp_authn_cancel_all(mp_rpc *rpc, const char *why);

/* Where there are metadata: answers a request for them (RFC 9728), from any origin. False if the request has another
 * path. */
bool mp_serve_metadata(mp_rpc *rpc, mp_stream *stream);
/* Where there is a folder of challenges of ACME: answers a request for one. False if the request is for something else.
 */
bool mp_serve_challenge(mp_rpc *rpc, mp_stream *stream);
/* Appends scheme and host as clients see them: as the process says that has sent the request on, from
 * public_url, or from the request's Host, which is among `hosts`. False if Host has a character that no host name
 * has. */
bool mp_put_base(const mp_rpc *rpc, const mp_stream *stream, mp_buf *out);
/* Appends the value of WWW-Authenticate. `error` may be NULL, `scopes` may be empty. */
void mp_put_challenge(mp_rpc *rpc, const mp_stream *stream, mp_buf *out, const char *MP_NULLABLE error, mp_str scopes);

/* Refuses an `initialize` because of a limit of the sessions, with HTTP 429 and Retry-After if the status is still to
 * be sent. */
void mp_call_refuse_session(mp_call *call,
                            bool is_outside); /* is_outside: mp_rpc_is_outside(); else there are too many */

#endif
