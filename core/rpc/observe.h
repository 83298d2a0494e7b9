/* observe.h: what operators see of the server role and do with it: lists, consoles, taps, records, lines of the audit
 * and the log, numbers. */
#ifndef MP_RPC_OBSERVE_H
#define MP_RPC_OBSERVE_H

#include "rpc/rpc.h"

/* -- for operators ------------------------------------------------------------------------------------------------- */

#define MP_SESSION_PAGES 16 /* pages of the list of sessions */

/* Appends the sessions of one page as JSON objects, separated by commas. Any thread; the table's locks are held while
 * sessions are counted, not while they are written. */
void mp_session_table_put_sessions(mp_session_table *table, unsigned page, uint64_t now_ms, mp_buf *out);
/* Ends the session with this mark (mp_session_mark_of) as its client would by DELETE. Returns the number of sessions
 * with the mark, and ends none unless it is 1. Any thread. */
int mp_session_table_end_session(mp_session_table *table, mp_str mark);

/* An operator's question to each worker: for its calls, those that have ended, or its event streams (no `serial` and
 * `mark`), or to end one, named by its worker and serial, a call also by its mark. Embedded in its owner. */
#define MP_STREAMS_PAGE 200
typedef struct mp_call_inquiry {
    /* Called on the thread of each worker. `json`: the calls of the worker as JSON objects, separated by commas.
     * `ended`: the call was found and is cancelled. Where the worker's loop has ended, `is_over`, on the thread that
     * frees it. */
    void (*answer)(struct mp_call_inquiry *inquiry, mp_str json, bool ended, bool is_over);
    unsigned worker;       /* number of the worker that serves the call or stream */
    uint64_t serial, mark; /* serial and mark of the call or stream */
    bool is_of_streams, is_of_ended;
    unsigned page;        /* of a list of streams: each worker puts MP_STREAMS_PAGE on one */
    atomic_bool has_more; /* some worker has streams on the next page */
} mp_call_inquiry;

/* -- console.c: a client inside the process -- */

/* An operator's client inside one worker, without a connection. It sends JSON-RPC messages and receives its own, one at
 * a time. */
typedef struct mp_console mp_console;

/* Each takes the `ctx` of the settings. */
typedef struct {
    /* A message for the client, on the thread of the worker. After mp_console_close() one more may come. `mark`: of the
     * call that it answers; 0: it is no answer of a call. */
    void (*send)(void *ctx, uint64_t mark, mp_str json);
    /* The console is freed: nothing is sent any more. On any thread. */
    void (*freed)(void *ctx);
} mp_console_hooks;

typedef struct {
    mp_str id;        /* id of the principal; empty where the caller is `local` */
    mp_str principal; /* JSON of its id, scopes and claims, for Lua; empty: `local` */
    mp_str caller;    /* whom the audit names */
    bool is_hidden;   /* neither counted, audited nor shown to taps: questions of the gateway's own pages */
    const mp_console_hooks *hooks;
    void *ctx;
} mp_console_settings;

/* `worker`: below mp_session_table_rpcs(). Copies the texts. These three functions: any one thread, without waiting. */
mp_console *mp_console_open(mp_session_table *table, unsigned worker, const mp_console_settings *settings);
/* True while a hidden console waits for its answer. */
bool mp_rpc_is_asked(const mp_rpc *rpc);
void mp_console_send(mp_console *console, mp_str json);
/* Cancels the console's calls. The console is freed later, and the caller must not use it again. `is_operator`: the
 * operator has demanded it; false: the reader has left. */
void mp_console_close(mp_console *console, bool is_operator);

/* The number of workers that serve. */
unsigned mp_session_table_rpcs(mp_session_table *table);
/* Asks the first `count` workers; each answers once. The caller keeps `inquiry` until all have. */
void mp_session_table_inquire(mp_session_table *table, unsigned count, mp_call_inquiry *inquiry);

/* -- taps: calls as they begin and end, for operators (observe/tap.c) ---------------------------------------------- */

#define MP_TAPS 8 /* the most open taps: each costs every call a comparison of its filter */

/* How arguments are shown: not at all, by their names, by the types and sizes of their values, or as they are. */
typedef enum { MP_TAP_NONE, MP_TAP_NAMES, MP_TAP_SHAPES, MP_TAP_FULL } mp_tap_arguments;

/* Patterns in which '*' stands for any text; NULL: all. `tool` is the name of the tool or prompt, or a resource's URI;
 * `session` a mark. With `outcome` or `slower_us` above 0 only ends of calls are admitted, and refusals. */
typedef struct {
    const char *MP_NULLABLE tool;
    const char *MP_NULLABLE principal;
    const char *MP_NULLABLE session;
    const char *MP_NULLABLE method;
    const char *MP_NULLABLE outcome;
    uint64_t slower_us;
    uint32_t sample; /* of 1,000,000 calls, these are admitted, with all of their events; 0: all calls */
    mp_tap_arguments arguments;
} mp_tap_filter;

/* `wake` runs on any thread, with a lock held: when the first event was queued or dropped after mp_tap_open or
 * mp_tap_rest, and when the queue has become long. It may post a message, nothing else. */
typedef struct {
    void (*wake)(void *ctx);
    void *ctx;
} mp_tap_hooks;

typedef struct {
    uint64_t sent, dropped; /* events since the tap was opened */
} mp_tap_totals;

typedef struct mp_tap mp_tap;

/* Copies `filter`. NULL if MP_TAPS taps are open. Any thread. */
mp_tap *MP_NULLABLE mp_tap_open(const mp_tap_filter *filter, const mp_tap_hooks *hooks);
/* Moves queued events to `out`, at most `most` bytes of them, as events of an event stream. After the last one follows
 * the number of events that were dropped, if there are any. True if events are left. On one thread, which closes the
 * tap, too. */
bool mp_tap_take(mp_tap *tap, size_t most, mp_buf *out);
/* Ends a reader's reading if no event has arrived since mp_tap_take: then returns true, and `wake` is called for the
 * next event. If it returns false, the reader takes events from time to time, and `wake` is called only for long
 * queues. */
bool mp_tap_rest(mp_tap *tap);
/* `wake` is not called after this. */
mp_tap_totals mp_tap_close(mp_tap *tap);

/* -- records: calls with what they got from outside, for `moonpool replay` (observe/record.c) ---------------------- */

typedef struct {
    /* patterns of names in which '*' stands for any text; ends with NULL. NULL or empty: none */
    char **MP_NULLABLE tools;
} mp_record_limits;

typedef struct {
    uint64_t last; /* the serial of the last line that was kept */
    uint64_t next; /* the serial of the last line that was read: `after` of the next page */
    uint64_t lost; /* lines after `after` that are not kept any longer */
    bool has_more; /* more lines follow those of this page */
    bool is_on;    /* calls are recorded */
    bool is_asked; /* a recording that mp_record_begin began is active */
} mp_record_page;

extern atomic_bool mp_record_on;

/* True if some calls are recorded: one load. */
static inline bool mp_record_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&mp_record_on, memory_order_relaxed), 0);
}

/* The functions of records may be called on any thread. */
void mp_record_configure(const mp_record_limits *wanted);
/* Stores the lines also in the file `path`, and reads the lines that are in it. Called once, after mp_record_configure,
 * before threads use records. */
int mp_record_open(const char *path, mp_err *err);
/* Records calls of the tools that match `pattern` for `ms`, at most `most` calls. False if such a recording runs. */
bool mp_record_begin(const char *pattern, uint64_t ms, uint64_t most);
/* Ends the recording of mp_record_begin. False if there was none. */
bool mp_record_end(void);
/* True if calls of this tool are recorded now. */
bool mp_record_wants(mp_str tool);
/* Like mp_record_wants, for a call that is recorded if so: it counts as one of a recording of mp_record_begin. */
bool mp_record_claim(mp_str tool);
size_t mp_record_call_bytes(void);
/* Stores a line of JSON. CUT: its call was over mp_record_call_bytes(). SKIPPED: the line only has the reason that the
 * call was not recorded. */
typedef enum { MP_RECORD_WHOLE, MP_RECORD_CUT, MP_RECORD_SKIPPED } mp_record_kind;
void mp_record_put(mp_str line, mp_record_kind kind);
/* Appends the lines whose serials are above `after`, the last `last` of them, up to `most` bytes, but always one line
 * if there is one. */
mp_record_page mp_record_read(uint64_t after, size_t last, size_t most, mp_buf *out);
size_t mp_record_count(void);

/* -- decisions before there is a call: the audit and the log ------------------------------------------------------- */

typedef struct {
    const char *event;
    int status;                                /* id of the call; 0: there is no call yet */
    const mp_principal *MP_NULLABLE principal; /* NULL: not known */
    mp_str session, why;                       /* may be empty; of the session's id, only a hash is written */
    mp_str caller;                             /* who used the admin listener; may be empty */
    bool tells_host;                           /* the line has Host and Origin, because one of them is the reason */
} mp_decision;

/* Writes an audit line, if an audit log is configured; its id is the mark of the request. `stream` still has its
 * request. */
void mp_audit_request(mp_stream *stream, const mp_decision *made);
extern const mp_decision mp_host_refused;

/* Logs a refused request at info, within the line budget of its reason, with the request's mark if it has one. `stream`
 * still has its request. */
void mp_log_refused(const mp_stream *stream, mp_cause cause, int status, mp_str why);

/* -- metrics ------------------------------------------------------------------------------------------------------- */

#define MP_MAX_TOOL_METRICS 1500 /* room for the times of tools */

typedef enum { MP_MEASURED_TOOL, MP_MEASURED_PROMPT, MP_MEASURED_RESOURCE, MP_MEASURED_KINDS } mp_measured;
/* The metrics of the tool, prompt or resource with this name; never freed, the same over reloads. Any thread. */
mp_thing_metrics *mp_thing_metrics_of(mp_measured kind, mp_str name);
#define MP_FAILURES 8 /* failures of a tool that are kept: the last ones */

/* A call of a tool, prompt or resource that did not succeed. */
typedef struct {
    uint64_t mark;       /* mark of the call */
    int64_t at;          /* in seconds since 1970 */
    uint64_t us;         /* time of the call */
    const char *outcome; /* outcome in one word; a literal */
    int code;            /* of the JSON-RPC error; 0: none */
} mp_tool_failure;

typedef struct {
    int64_t calls, errors;   /* calls that have ended, and those among them that did not succeed */
    uint64_t p50_us, p99_us; /* 0: not known, or not a tool */
    size_t failure_count;    /* number of `failures`, which are newest first */
    mp_tool_failure failures[MP_FAILURES];
} mp_tool_numbers;

/* The numbers of the tool, prompt or resource with this name; zeros if it was never used. Any thread. */
void mp_tool_numbers_of(mp_measured kind, mp_str name, mp_tool_numbers *numbers);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_workers_overloaded, mp_stat_replay_bytes, mp_stat_refused_origin, mp_stat_sessions_sse,
    mp_stat_sessions_http;

#endif
