/* fields.c: the fields of a call that lua/moonpool and the log read. */
#include "state.h"
#include "rpc/request/hop.h"

#define AUTHORIZATION "authorization"

mp_str mp_call_method(const mp_call *call)
{
    return call->method;
}
uint64_t mp_call_mark(mp_call *call)
{
    /* the calls of a batch share a stream */
    if (call->mark == 0 && call->batch == NULL)
        call->mark = mp_stream_known_mark(call->stream);
    if (call->mark == 0)
        call->mark = mp_mark_new();
    return call->mark;
}
uint64_t mp_call_known_mark(const mp_call *call)
{
    return call->mark;
}
mp_str mp_call_params(const mp_call *call)
{
    return call->params;
}
mp_str mp_call_tool(const mp_call *call)
{
    return call->flat == NULL ? MP_STR_NONE : call->name;
}
const mp_flat *MP_NULLABLE mp_call_flat(const mp_call *call, size_t *count)
{
    *count = call->flat_count;
    return call->flat;
}
bool mp_call_said(const mp_call *call, mp_str *client, mp_str *trace)
{
    *client = call->said_client;
    *trace = call->said_trace;
    return call->has_arguments;
}
size_t mp_call_weight(const mp_call *call)
{
    return call->weight;
}
/* A call that arrived after `initialize` and before the answer to `initialize` gets the negotiated revision. */
const mp_era *MP_NULLABLE mp_call_era(const mp_call *call)
{
    return call->era == NULL && call->session != NULL ? mp_session_era(call->session) : call->era;
}
bool mp_call_is_shown(const mp_call *call)
{
    return call->console != NULL && !call->is_hidden && call->id.len > 0 && call->id.ptr[0] != '"';
}
mp_session *MP_NULLABLE mp_call_session(const mp_call *call)
{
    return call->session;
}
mp_str mp_call_progress_token(const mp_call *call)
{
    return call->progress_token;
}
mp_principal *mp_call_principal(const mp_call *call)
{
    return call->principal;
}
void *MP_NULLABLE mp_call_user(const mp_call *call)
{
    return call->user;
}
void mp_call_set_user(mp_call *call, void *MP_NULLABLE user)
{
    call->user = user;
}

mp_str mp_call_header(const mp_call *call, const char *name, int *count)
{
    const char *authorization = call->authorization;
    *count = call->rpc->stdio != NULL || call->console != NULL ? -1 : 0;
    if (authorization != NULL && strcmp(name, AUTHORIZATION) == 0) {
        *count = 1;
        return mp_str_of(authorization);
    }
    return mp_call_is_of_stream(call) ? mp_stream_header(call->stream, name, count) : MP_STR_NONE;
}

void mp_call_keep_token(mp_call *call, const mp_stream *stream)
{
    int count = 0;
    const mp_hop *hop = call->rpc->hop; /* the request that is being served came by another process */
    if (!call->rpc->config->keeps_tokens || call->authorization != NULL)
        return;
    mp_str value = hop != NULL ? hop->authorization : mp_stream_header(stream, AUTHORIZATION, &count);
    if (hop != NULL ? value.len > 0 : count == 1)
        call->authorization = mp_dup(value);
}

void mp_call_forget_token(mp_call *call)
{
    char *authorization = call->authorization;
    if (authorization == NULL)
        return;
    call->authorization = NULL;
    explicit_bzero(authorization, strlen(authorization));
    free(authorization);
}

bool mp_call_is_of_gateway(const mp_call *call)
{
    const mp_rpc_config *config = call->rpc->config;
    int count = 0;
    if (config->instance != NULL)
        mp_stream_known_header(call->stream, MP_HEADER_HOPS, &count);
    return config->instance != NULL && (count > 0 || config->is_child);
}

mp_str mp_call_address(const mp_call *call)
{
    mp_str address = mp_stream_address(call->stream);
    const mp_session *session = call->session;
    if (address.len > 0 || session == NULL)
        return address;
    /* the address is in the session over HTTP+SSE, and where the call's own connection is closed */
    return mp_str_of(session->peer);
}
