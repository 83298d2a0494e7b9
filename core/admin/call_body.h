/* call_body.h: the body of POST /api/call: which request an operator runs, at which revision and as whom. */
#ifndef MP_ADMIN_CALL_BODY_H
#define MP_ADMIN_CALL_BODY_H

#include "rpc/observe.h"

/* Zeroed before it is read. */
typedef struct {
    mp_buf method, params;          /* JSON: a string and an object */
    mp_buf principal, principal_id; /* JSON of its id, scopes and claims, and the id; empty: `local` */
    const mp_era *era;
} mp_call_body;

/* Reads the body of a request into `to`, which gets copies. NULL, or why the body is not valid. */
const char *MP_NULLABLE mp_call_body_read(mp_str body, mp_call_body *to);
/* Appends the method, and the tool, prompt or URI that params name: a text for the audit. */
void mp_call_body_put_name(mp_buf *out, const mp_call_body *of);
/* Frees the texts. */
void mp_call_body_clear(mp_call_body *of);

#endif
