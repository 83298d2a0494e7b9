/* envelope.h: one JSON-RPC message, located in its bytes by one scan. */
#ifndef MP_RPC_ENVELOPE_H
#define MP_RPC_ENVELOPE_H

#include "json/json.h"

typedef enum {
    MP_KIND_REQUEST,
    MP_KIND_NOTE,
    MP_KIND_RESPONSE,
    MP_KIND_ARRAY,
    MP_KIND_BROKEN,
    MP_KIND_INVALID
} mp_kind;

/* All strings borrow from the body, or from `scratch` where the client escaped what needs no escape. */
typedef struct {
    mp_kind kind;
    const char *problem; /* BROKEN, INVALID: what is wrong, a literal */
    size_t offset;       /* BROKEN: where */
    mp_str id;           /* a span, as the client wrote it; empty when unreadable or absent */
    mp_str method;       /* unescaped */
    mp_str params;       /* a span, or empty */
    mp_str name;         /* params.<the member that Mcp-Name mirrors>, unescaped */
    bool has_name;
    mp_str version;   /* params._meta["io.modelcontextprotocol/protocolVersion"], unescaped */
    bool has_version; /* the key is there, whatever its value */
    bool version_is_string;
    bool has_capabilities; /* params._meta["io.modelcontextprotocol/clientCapabilities"] is an object */
    mp_str progress_token; /* span of params._meta.progressToken, a string or integer */
    mp_str answer;         /* RESPONSE: span of the result or the error */
    bool is_error;         /* RESPONSE: it is the error */
    mp_str cancels;        /* notifications/cancelled: span of params.requestId */
    mp_buf scratch;        /* kept from message to message */
} mp_envelope;

/* Fills `envelope` from `body`; what it held before is forgotten. */
void mp_envelope_read(mp_envelope *envelope, mp_str body);

#endif
