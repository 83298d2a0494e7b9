/* mcp.h: what a server and a client of MCP both know: the revisions and what differs between them, the codes of errors,
 * one JSON-RPC message, and events of text/event-stream. No network, no threads: each function works only on its
 * arguments.
 *
 *   era        one revision of the protocol, as a row of facts (era.def)
 *   envelope   one JSON-RPC message: where its members are in its bytes
 *   span       a JSON value's bytes inside the text that was scanned (json.h) */
#ifndef MP_MCP_H
#define MP_MCP_H

#include "json/json.h"
#include "telemetry/telemetry.h"

/* -- era.c: revisions ---------------------------------------------------------------------------------------------- */

/* What differs between revisions, in the order of era.def's columns:
 *   has_sessions      a client opens with `initialize`; a revision without sessions opens with nothing
 *   has_batches       a body may be an array of messages
 *   mirrors_headers   MCP-Protocol-Version repeats a value of _meta, Mcp-Method and Mcp-Name repeat members of the body
 *   hang_up_cancels   a client that closes the stream of an answer cancels the call
 *   has_priming       an event stream opens with an id and no data, and the server may close it for the client to come
 *                     back
 *   says_message      notifications/progress may have a `message` */
#define MP_ERA_FACTS(X)                                                                                                \
    X(has_sessions) X(has_batches) X(mirrors_headers) X(hang_up_cancels) X(has_priming) X(says_message)

typedef struct {
    const char *date;
#define MP_ERA_FACT(name) bool name;
    MP_ERA_FACTS(MP_ERA_FACT)
#undef MP_ERA_FACT
} mp_era;

extern const mp_era mp_eras[]; /* oldest first */
extern const size_t mp_era_count;
/* MP_ERA_DATES: all dates, oldest first, separated by spaces; a compile-time constant. */
extern const char mp_era_spaced_dates[];
#define MP_ERA_DATES (mp_era_spaced_dates + 1)
const mp_era *MP_NULLABLE mp_era_find(mp_str date); /* Returns NULL if the date is unknown. */
const mp_era *mp_era_newest(void);
/* Appends a JSON array of the dates without sessions. */
void mp_era_put_stateless(mp_buf *out);
/* The member of a request's params that the header Mcp-Name repeats; NULL if the header repeats none. */
const char *MP_NULLABLE mp_era_mirrored_member(mp_str method);

/* -- error.c: JSON-RPC errors -------------------------------------------------------------------------------------- */

enum {
#define ERROR_CODE(constant, name, code, status) MP_CODE_##constant = (code),
#include "error.def"
#undef ERROR_CODE
};

typedef struct {
    const char *name; /* name of the code in Lua */
    int code, status;
} mp_error_code;

extern const mp_error_code mp_error_codes[];
extern const size_t mp_error_code_count;
/* The HTTP status that carries an error with this code. `era` may be NULL if no revision is negotiated yet. */
int mp_error_status(const mp_era *MP_NULLABLE era, int code);
/* Appends {"jsonrpc":"2.0","id":…,"error":{…}}. An empty `id` is left out, never null (G-4). `data` is JSON or
 * empty. */
void mp_put_error(mp_buf *out, mp_str id, int code, mp_str message, mp_str data);

/* -- envelope.c: a message ----------------------------------------------------------------------------------------- */

typedef enum {
    MP_KIND_REQUEST,
    MP_KIND_NOTE, /* true if the message is a notification */
    MP_KIND_RESPONSE,
    MP_KIND_ARRAY,
    MP_KIND_BROKEN, /* the bytes are not JSON */
    MP_KIND_INVALID /* the bytes are JSON, but not a JSON-RPC message */
} mp_kind;

/* One argument of a tools/call, as bytes of the message. `type` is one of mp_json_token_type:
 *   STRING                   `value` is the text between the quotes; it has no escapes
 *   INTEGER, FLOAT           `value` is the number as it was written; a FLOAT has a fraction and no exponent
 *   NULL, FALSE, TRUE        `value` is the word
 *   OPEN_ARRAY, OPEN_OBJECT  `value` is all of the array or object, which repeats no key at any depth
 * or MP_FLAT_ESCAPED: a string with escapes; `value` has its quotes, and mp_json_copy_string unescapes it. */
typedef struct {
    mp_str name, value;
    uint8_t type;
} mp_flat;
#define MP_FLAT_ESCAPED 64
#define MP_FLAT_MAX 16

#define MP_ENVELOPE_ID 4096 /* limit of the bytes of an id or token of progress, which calls and MCP tasks keep */

/* All strings borrow from the text that was read, or from `scratch` if the sender used escapes. */
typedef struct {
    mp_kind kind;
    const char *MP_NULLABLE problem;        /* BROKEN, INVALID: the text of the error; a literal, or in `scratch` */
    int code;                               /* BROKEN, INVALID, ARRAY: code of the error */
    size_t offset;                          /* BROKEN: position of the error in bytes */
    bool has_many, may_answer, is_nameless; /* INVALID: too many values; no method before; an error without an id */
    bool is_broken_answer;                  /* BROKEN, INVALID: a message without a method */
    size_t weight; /* estimate of the bytes that the message takes as Lua values; may be too high, never much too low */
    mp_str id;     /* a span, as the sender wrote it; empty if unreadable or absent */
    mp_str method; /* the method's name, unescaped */
    mp_str params; /* the params: a span, or empty */
    mp_str name;   /* params.<mp_era_mirrored_member>, unescaped */
    bool has_name, version_is_string;
    mp_str version;   /* params._meta["io.modelcontextprotocol/protocolVersion"], unescaped */
    bool has_version; /* params._meta["io.modelcontextprotocol/protocolVersion"] is present, with a value of any type */
    bool has_capabilities;          /* params._meta["io.modelcontextprotocol/clientCapabilities"] is an object */
    mp_str progress_token;          /* span of params._meta.progressToken, a string or integer */
    mp_str traceparent, tracestate; /* params._meta.traceparent and .tracestate, if they are strings without escapes */
    mp_str answer;                  /* RESPONSE: span of the result or the error */
    bool is_error;                  /* RESPONSE: `answer` is the error */
    mp_str cancels;                 /* notifications/cancelled: span of params.requestId */
    size_t size;                    /* bytes of the message */
    mp_buf scratch;                 /* its memory is reused by the next message; the owner of the envelope frees it */
    bool is_flat; /* the message is a tools/call, and `flat` has its arguments: see mp_call_flat in rpc/call.h */
    bool has_arguments;
    mp_str client, trace; /* of _meta: spans of the object clientInfo and of the string traceparent, or empty */
    uint8_t flat_count;
    mp_flat flat[MP_FLAT_MAX]; /* only the first `flat_count` are written */
} mp_envelope;

/* Overwrites `envelope` with the message in `body`. A body of more than `max_values` JSON values is INVALID. */
void mp_envelope_read(mp_envelope *envelope, mp_str body, size_t max_values);
/* The two halves of mp_envelope_read, for specs and fuzzers. The quick reader (quick.c) takes most requests of
 * tools/call; of everything else, and of all that is wrong, it gives false. Where it gives true, the general reader
 * sets the same fields to the same values, but for `is_flat` and those behind it. */
bool mp_envelope_read_quickly(mp_envelope *envelope, mp_str body, size_t max_values);
void mp_envelope_read_any(mp_envelope *envelope, mp_str body, size_t max_values);
/* Begins an envelope for a message of `size` bytes: clears all but `flat` and the memory of `scratch`. */
void mp_envelope_clear(mp_envelope *envelope, size_t size);
/* The estimate `weight` for a message of `bytes` bytes that has `values` values, `tables` of which are arrays or
 * objects. */
size_t mp_envelope_weight(size_t bytes, size_t values, size_t tables);
/* Takes a member of params._meta: `value` is the span of a string, with its quotes. For the two readers. */
void mp_envelope_take_trace(mp_envelope *envelope, mp_str key, mp_str value);
/* The error text for an envelope that cannot be served: a literal, or in the envelope's `scratch`. */
const char *mp_envelope_problem(const mp_envelope *envelope);
/* Appends the JSON-RPC error that answers an envelope that cannot be served. `unit` names the carrier of the
 * message: "body" or "line". Counts REFUSED_VALUES. */
void mp_put_envelope_error(mp_buf *out, const mp_envelope *envelope, const char *unit);

/* -- sse.c: events ------------------------------------------------------------------------------------------------- */

#define MP_EVENT_FRAME 80 /* limit of the bytes that an event and its id add to the JSON */

/* Appends `json`, which has no line breaks, as an event. */
void mp_put_event(mp_buf *out, mp_str json);
/* Appends the id of the event that follows: event `seq` of the session's stream number `stream`. */
void mp_put_event_id(mp_buf *out, uint64_t stream, uint64_t seq);
/* Appends an event with an id and no data, so that a client can resume before the first message (S-29). */
void mp_put_priming(mp_buf *out, uint64_t stream, uint64_t seq);
/* Appends a `retry` field: the milliseconds that a client waits before it reconnects to a stream that was closed
 * (S-30). */
void mp_put_retry(mp_buf *out, uint64_t ms);

/* -- event_reader.c: events, as a client reads them ---------------------------------------------------------------- */

/* Reads text/event-stream in pieces of any size (G-11): lines end with LF, CR or CRLF, a byte order mark may be first,
 * `data` may have several lines, comments and unknown fields are ignored. Its buffers are reused, so an event costs no
 * allocation; after an event above 64 KiB they are freed.
 *
 *     mp_event_reader reader = {.most = 1 << 20};
 *     while ((result = mp_event_read(&reader, &bytes, &event)) == MP_EVENT_COMPLETE) …
 *     mp_event_reader_clear(&reader); */
typedef struct {
    size_t most; /* limit of the bytes of one line, and of the data of one event; set by the owner */
    /* the last `retry` field in ms, if there was one: how long a client waits before it reconnects */
    bool has_retry;
    uint32_t retry_ms;
    mp_buf id; /* the id that applies to the last event; empty: there was none, or it was empty */
    /* the other fields are the reader's own */
    mp_buf line, data, kind, next_id;
    uint8_t mark;  /* bytes of a byte order mark that were read so far; 4: bytes other than the mark were read */
    bool after_cr; /* a LF that follows belongs to the line end before it */
    bool has_data, has_next; /* the event has a `data` field; an `id` field came since the last empty line */
    bool is_given;           /* `data` and `kind` are those of the event that was given last */
    uint8_t failed;          /* the mp_event_result of a failure, which all later calls return */
} mp_event_reader;

typedef struct {
    mp_str kind; /* the `event` field; "message" if there is none */
    mp_str data;
} mp_event;

typedef enum {
    MP_EVENT_NONE, /* all bytes are read, and complete no further event */
    MP_EVENT_COMPLETE,
    MP_EVENT_LONG_LINE, /* a line is longer than `most` */
    MP_EVENT_TOO_LARGE  /* the data of an event is larger than `most` */
} mp_event_result;

/* Reads from the start of `*bytes` up to the end of the next event, and leaves the bytes behind it in `*bytes`. `event`
 * is valid until the next call. */
mp_event_result mp_event_read(mp_event_reader *reader, mp_str *bytes, mp_event *event);
/* Frees the buffers. */
void mp_event_reader_clear(mp_event_reader *reader);

#endif
