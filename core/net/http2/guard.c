/* guard.c: reads each frame of an HTTP/2 connection before libh2o does. All rules about frames are in this file,
 * which is therefore long. libh2o reads frames through the function
 * pointer _read_expect of its connection; the guard takes that place, and calls libh2o's own function with what it lets
 * pass.
 *
 * What libh2o must not see:
 *   WINDOW_UPDATE, SETTINGS  can abort the process by an assertion about streams that end; their windows are raised
 *                            first, which makes the assertion true
 *   PRIORITY                 swallowed, and dependencies in HEADERS are removed: RFC 9113 deprecates both
 *   unknown frames           swallowed: libh2o would write a line to stderr for each
 *   floods                   each frame that is cheap to send and costs work or an answer takes credit. The account
 *                            is refilled with time and by complete answers. Without credit the connection ends with
 *                            GOAWAY ENHANCE_YOUR_CALM. */
#include "http2.h"

#define REFUSED(kind, text)                                                                                            \
    MP_COUNTER(http2_refused_##kind, "http2_refused", "frames", #kind, "HTTP/2 connections ended for " text)
REFUSED(ping, "PING frames")
REFUSED(settings, "SETTINGS frames, or a header table below 4096 bytes")
REFUSED(reset, "RST_STREAM frames")
REFUSED(priority, "PRIORITY frames")
REFUSED(data, "empty or small DATA frames")
REFUSED(headers, "too many or too large headers")
REFUSED(continuation, "CONTINUATION frames")
REFUSED(window, "small WINDOW_UPDATE frames")
REFUSED(unknown, "unknown frames, or GOAWAY frames")
REFUSED(streams, "streams that end with an error, or whose answers are not read")
REFUSED(protocol, "a violation of the protocol")
REFUSED(time, "a frame that took too long")
MP_REFUSED(refused_streams, "http2_streams", MP_LIMIT_REACHED,
           "requests above 100 at once over one connection of HTTP/2")

enum {
    FRAME_HEAD = 9,
    MAX_FRAME = 16384, /* libh2o refuses larger frames by their head */
    /* libh2o allows 100 streams at once. Streams that have been answered or reset still exist until the bytes written
     * before are taken by the socket. */
    MAX_STREAMS = 256,
    BLOCK_ROOM = 16384, /* a block of headers may be larger than MP_MAX_HEADERS by this: 431 is an answer */
    SMALL_DATA = 64,
    SMALL_WINDOW = 256,
    MIN_TABLE = 4096,
};

enum {
    CREDIT_CAP = 10000,
    CREDIT_PER_MS = 1,
    ANSWER_EARNS = 25,
    SMALL_COST = 1,
    FRAME_COST = 10, /* a ping, an empty DATA, a CONTINUATION */
    WORK_COST = 50,  /* SETTINGS, a reset, an error of a stream */
};

typedef struct {
    h2o_http2_conn_t *h2o; /* the connection that it came by */
    const uint8_t *head;
    size_t len; /* length of the payload */
    uint8_t type, flags;
    uint32_t id;
} frame;

enum { PASS = 0, SWALLOW = 1 }; /* negative: an error that ends the connection */

void mp_http2_count_refusal(mp_http2 *h2, const mp_stat *stat, const char *why)
{
    if (h2->is_refused)
        return;
    h2->is_refused = true;
    mp_stat_add(stat, 1);
    mp_refused(MP_CAUSE_HTTP2, mp_str_of(why), mp_log_str("address", mp_conn_peer(h2->conn)));
}

static int refuse_connection(mp_http2 *h2, const mp_stat *stat, int error, const char *reason, const char **why)
{
    mp_http2_count_refusal(h2, stat, reason);
    *why = reason;
    return error;
}

static int calm_connection(mp_http2 *h2, const mp_stat *stat, const char *reason, const char **why)
{
    return refuse_connection(h2, stat, H2O_HTTP2_ERROR_ENHANCE_YOUR_CALM, reason, why);
}

/* -- credit -------------------------------------------------------------------------------------------------------- */

static void refill_budget(mp_http2 *h2)
{
    uint64_t now = mp_loop_now(h2->conn->server->loop);
    int64_t more = (int64_t)(now - h2->credited_at) * CREDIT_PER_MS;
    h2->credited_at = now;
    h2->credit = h2->credit + more > CREDIT_CAP ? CREDIT_CAP : h2->credit + more;
}

void mp_http2_earn(mp_http2 *h2)
{
    if (h2->credit < CREDIT_CAP)
        h2->credit += ANSWER_EARNS;
}

/* Takes the cost from the account. Returns an error if the account is empty. */
static int charge_budget(mp_http2 *h2, int64_t cost, const mp_stat *stat, const char *reason, const char **why)
{
    h2->credit -= cost;
    if (h2->credit >= 0)
        return PASS;
    refill_budget(h2);
    return h2->credit >= 0 ? PASS : calm_connection(h2, stat, reason, why);
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

static uint32_t read_id(const uint8_t *bytes)
{
    return h2o_http2_decode32u(bytes) & 0x7fffffff;
}

/* Bytes of padding, with their length; the whole payload if the padding is larger than it. */
static size_t padding_of(const frame *f)
{
    if ((f->flags & H2O_HTTP2_FRAME_FLAG_PADDED) == 0)
        return 0;
    size_t padding = f->len == 0 ? 0 : 1 + (size_t)f->head[FRAME_HEAD];
    return padding < f->len ? padding : f->len;
}

/* Takes a frame of a body from the connection's window, as libh2o does for the frames that it sees. */
static int swallow_body(mp_http2 *h2, const frame *f)
{
    h2o_http2_conn_t *h2o = f->h2o;
    ssize_t most = (ssize_t)H2O_HTTP2_SETTINGS_HOST.initial_window_size;
    h2o->_input_window._avail -= (ssize_t)f->len;
    if (h2o->_input_window._avail * 2 < most) {
        h2o_http2_encode_window_update_frame(&h2o->_write.buf, 0, (int32_t)(most - h2o->_input_window._avail));
        h2o_http2_conn_request_write(h2o);
        h2o->_input_window._avail = most;
    }
    mp_http2_count_swallowed(h2, h2o, f->id, f->len);
    return SWALLOW;
}

static int check_data(mp_http2 *h2, const frame *f, const char **why)
{
    static const mp_early_refusal too_large = {MP_CAUSE_SIZE, 413, MP_STR("the request body is too large\n")};
    size_t bytes = f->len - padding_of(f);
    bool is_last = (f->flags & H2O_HTTP2_FRAME_FLAG_END_STREAM) != 0;
    int error = PASS;
    if (bytes < SMALL_DATA && !is_last)
        error = charge_budget(h2, bytes == 0 ? FRAME_COST : SMALL_COST, &mp_stat_http2_refused_data,
                              "a flood of empty or small DATA frames", why);
    if (error != PASS)
        return error;
    if (f->id != 0 && mp_http2_was_answered_early(h2, f->id))
        return swallow_body(h2, f);
    h2o_http2_stream_t *stream = h2o_http2_conn_get_stream(f->h2o, f->id);
    if (stream != NULL && stream->state == H2O_HTTP2_STREAM_STATE_RECV_BODY &&
        stream->_req_body->size + bytes > h2->conn->server->limits.body) {
        mp_http2_answer_early(h2, stream, &too_large);
        return swallow_body(h2, f);
    }
    if (stream != NULL && stream->state == H2O_HTTP2_STREAM_STATE_RECV_BODY)
        mp_body_budget_expect(&stream->_req_body, bytes);
    h2->taken += f->len;
    return PASS;
}

/* Removes the dependency in HEADERS: the scheduler's tree then has one level. One on itself is left to libh2o, which
 * refuses it. */
static void remove_dependency(const frame *f)
{
    static const uint8_t none[] = {0, 0, 0, 0, 15};
    size_t at = (f->flags & H2O_HTTP2_FRAME_FLAG_PADDED) != 0 ? 1 : 0;
    if ((f->flags & H2O_HTTP2_FRAME_FLAG_PRIORITY) == 0 || f->len < at + sizeof none)
        return;
    uint8_t *place = (uint8_t *)(uintptr_t)(f->head + FRAME_HEAD + at); /* in the socket's own input buffer */
    if (read_id(place) != f->id)
        memcpy(place, none, sizeof none);
}

static int check_block(mp_http2 *h2, const frame *f, const char **why)
{
    h2->block_bytes += f->len;
    h2->taken += f->len;
    h2->is_block_open = (f->flags & H2O_HTTP2_FRAME_FLAG_END_HEADERS) == 0;
    if (h2->block_bytes > MP_MAX_HEADERS + BLOCK_ROOM)
        return calm_connection(h2, &mp_stat_http2_refused_headers, "the request headers are too large", why);
    if (h2->is_block_swallowed) {
        h2->is_block_swallowed = h2->is_block_open;
        return SWALLOW;
    }
    return PASS;
}

static int check_headers(mp_http2 *h2, const frame *f, const char **why)
{
    if (kh_size(f->h2o->streams) >= MAX_STREAMS)
        return calm_connection(h2, &mp_stat_http2_refused_streams, "too many streams whose answers are not read", why);
    remove_dependency(f);
    h2->block_id = f->id;
    h2->block_bytes = 0;
    h2->is_last_frame = (f->flags & H2O_HTTP2_FRAME_FLAG_END_STREAM) != 0;
    h2->is_block_swallowed = h2->takes_no_streams;
    return check_block(h2, f, why);
}

static int check_continuation(mp_http2 *h2, const frame *f, const char **why)
{
    int error = charge_budget(h2, f->len < 1024 ? FRAME_COST : SMALL_COST, &mp_stat_http2_refused_continuation,
                              "a flood of CONTINUATION frames", why);
    return error != PASS ? error : check_block(h2, f, why);
}

/* libh2o asserts that a stream with a window of 0 or less that gets a positive one is not waiting for a write to
 * complete. A stream in END_STREAM may be: its window is not used any more. */
static void raise_window(h2o_http2_stream_t *stream)
{
    if (stream->state == H2O_HTTP2_STREAM_STATE_END_STREAM)
        stream->output_window._avail = 1 << 30;
}

static int check_window(mp_http2 *h2, const frame *f, const char **why)
{
    h2o_http2_stream_t *stream = h2o_http2_conn_get_stream(f->h2o, f->id);
    if (f->len != 4)
        return PASS; /* libh2o refuses the frame */
    if (stream != NULL && stream->state == H2O_HTTP2_STREAM_STATE_END_STREAM)
        return SWALLOW;
    return read_id(f->head + FRAME_HEAD) >= SMALL_WINDOW ? PASS
                                                         : charge_budget(h2, SMALL_COST, &mp_stat_http2_refused_window,
                                                                         "a flood of small WINDOW_UPDATE frames", why);
}

/* libh2o's HPACK encoder does not follow SETTINGS_HEADER_TABLE_SIZE: a client with a smaller table could not read the
 * answers. */
static bool has_small_table(const frame *f)
{
    for (size_t at = FRAME_HEAD; at + 6 <= FRAME_HEAD + f->len; at += 6)
        if (h2o_http2_decode16u(f->head + at) == H2O_HTTP2_SETTINGS_HEADER_TABLE_SIZE &&
            h2o_http2_decode32u(f->head + at + 2) < MIN_TABLE)
            return true;
    return false;
}

static int check_settings(mp_http2 *h2, const frame *f, const char **why)
{
    h2o_http2_stream_t *stream;
    bool is_ack = (f->flags & H2O_HTTP2_FRAME_FLAG_ACK) != 0;
    int error = charge_budget(h2, is_ack ? FRAME_COST : WORK_COST, &mp_stat_http2_refused_settings,
                              "a flood of SETTINGS frames", why);
    if (error != PASS)
        return error;
    if (!is_ack && has_small_table(f))
        return refuse_connection(h2, &mp_stat_http2_refused_settings, H2O_HTTP2_ERROR_COMPRESSION,
                                 "a header table below 4096 bytes is not supported", why);
    MP_HTTP2_EACH(f->h2o, stream)
    raise_window(stream);
    return PASS;
}

static int check_priority(mp_http2 *h2, const frame *f, const char **why)
{
    int error = charge_budget(h2, FRAME_COST, &mp_stat_http2_refused_priority, "a flood of PRIORITY frames", why);
    if (error != PASS)
        return error;
    bool is_bad = f->id == 0 || f->len != 5 || read_id(f->head + FRAME_HEAD) == f->id;
    return is_bad ? PASS : SWALLOW; /* libh2o refuses a bad one */
}

/* A GOAWAY without an error is the client's promise to open no more streams: those that are open continue. */
static int check_goaway(mp_http2 *h2, const frame *f, const char **why)
{
    bool is_error = f->id == 0 && f->len >= 8 && h2o_http2_decode32u(f->head + FRAME_HEAD + 4) != 0;
    if (!is_error)
        return charge_budget(h2, FRAME_COST, &mp_stat_http2_refused_unknown, "a flood of GOAWAY frames", why);
    h2->is_refused = true; /* the client ends the connection: no refusal to count */
    return H2O_HTTP2_ERROR_PROTOCOL_CLOSE_IMMEDIATELY;
}

/* True for frames of requests that arrived after the last GOAWAY and were ignored: libh2o would end the connection
 * because of them. */
static bool is_of_ignored_stream(const mp_http2 *h2, const frame *f)
{
    return h2->takes_no_streams && f->id > f->h2o->pull_stream_ids.max_open &&
           (f->type == H2O_HTTP2_FRAME_TYPE_DATA || f->type == H2O_HTTP2_FRAME_TYPE_RST_STREAM ||
            f->type == H2O_HTTP2_FRAME_TYPE_WINDOW_UPDATE);
}

static int check_frame(mp_http2 *h2, const frame *f, const char **why)
{
    if (!h2->has_settings && (f->type != H2O_HTTP2_FRAME_TYPE_SETTINGS || (f->flags & H2O_HTTP2_FRAME_FLAG_ACK) != 0))
        return refuse_connection(h2, &mp_stat_http2_refused_protocol, H2O_HTTP2_ERROR_PROTOCOL,
                                 "the first frame is not SETTINGS", why);
    h2->has_settings = true;
    if (h2->is_block_open && (f->type != H2O_HTTP2_FRAME_TYPE_CONTINUATION || f->id != h2->block_id))
        return refuse_connection(h2, &mp_stat_http2_refused_protocol, H2O_HTTP2_ERROR_PROTOCOL,
                                 "expected CONTINUATION frame", why);
    if (is_of_ignored_stream(h2, f))
        return f->type == H2O_HTTP2_FRAME_TYPE_DATA ? swallow_body(h2, f) : SWALLOW;
    switch (f->type) {
    case H2O_HTTP2_FRAME_TYPE_DATA:
        return check_data(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_HEADERS:
        return check_headers(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_PRIORITY:
        return check_priority(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_RST_STREAM:
        mp_http2_note_reset(h2, f->id);
        return charge_budget(h2, WORK_COST, &mp_stat_http2_refused_reset, "a flood of RST_STREAM frames", why);
    case H2O_HTTP2_FRAME_TYPE_SETTINGS:
        return check_settings(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_PUSH_PROMISE:
        return PASS; /* libh2o refuses the frame */
    case H2O_HTTP2_FRAME_TYPE_PING:
        return charge_budget(h2, FRAME_COST, &mp_stat_http2_refused_ping, "a flood of PING frames", why);
    case H2O_HTTP2_FRAME_TYPE_GOAWAY:
        return check_goaway(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_WINDOW_UPDATE:
        return check_window(h2, f, why);
    case H2O_HTTP2_FRAME_TYPE_CONTINUATION:
        return h2->is_block_open ? check_continuation(h2, f, why) : PASS;
    default: {
        int error = charge_budget(h2, FRAME_COST, &mp_stat_http2_refused_unknown, "a flood of unknown frames", why);
        return error == PASS ? SWALLOW : error;
    }
    }
}

/* Requests that libh2o has reset with this error so far, on all connections of the thread. */
static uint64_t reset_with(const h2o_http2_conn_t *h2o, int error)
{
    return h2o->super.ctx->http2.events.protocol_level_errors[-error];
}

/* Errors of single streams that libh2o has answered with RST_STREAM so far, on all connections of the thread. */
static uint64_t stream_errors(const h2o_http2_conn_t *h2o)
{
    const h2o_context_t *context = h2o->super.ctx;
    uint64_t sum = 0;
    for (size_t i = 0; i < H2O_HTTP2_ERROR_MAX; i++)
        sum += context->http2.events.protocol_level_errors[i];
    return sum;
}

/* After a complete block of headers: a request that announces a body over the limit is answered before the body. One
 * for which there is no room at all is refused without an answer, which would take memory. */
static void check_announced(mp_http2 *h2, const frame *f)
{
    static const mp_early_refusal too_large = {MP_CAUSE_SIZE, 413, MP_STR("the request body is too large\n")};
    h2o_http2_stream_t *stream = h2o_http2_conn_get_stream(f->h2o, f->id);
    if (stream == NULL || stream->state != H2O_HTTP2_STREAM_STATE_RECV_BODY)
        return;
    if (!mp_body_budget_has_room(h2->conn, true)) {
        mp_http2_refuse_stream(h2, stream);
        return;
    }
    uint64_t now = mp_loop_now(h2->conn->server->loop);
    /* The time is libh2o's for logging, which is not used: http2.c measures the age of the request by it. */
    stream->req.timestamps.request_begin_at = (struct timeval){(time_t)(now / 1000), (suseconds_t)(now % 1000 * 1000)};
    if (stream->_expected_content_length != SIZE_MAX &&
        stream->_expected_content_length > h2->conn->server->limits.body)
        mp_http2_answer_early(h2, stream, &too_large);
}

static ssize_t read_next(h2o_http2_conn_t *h2o, const uint8_t *bytes, size_t len, const char **why);

/* Calls libh2o's reader. It may set another one: the guard stays in front of that. */
static ssize_t pass_bytes(mp_http2 *h2, h2o_http2_conn_t *h2o, const uint8_t *bytes, size_t len, const char **why)
{
    h2o->_read_expect = h2->next;
    ssize_t result = h2->next(h2o, bytes, len, why);
    h2->next = h2o->_read_expect;
    h2o->_read_expect = read_next;
    if (result < 0 && result != H2O_HTTP2_ERROR_INCOMPLETE)
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_protocol, *why == NULL ? "a protocol error" : *why);
    return result;
}

/* libh2o has reset the stream of a frame. Frames after the end of a request are no refusal: they may have been on their
 * way. */
static void note_reset(mp_http2 *h2, const frame *f, bool is_malformed)
{
    if (is_malformed) {
        mp_conn_refused(h2->conn, MP_CAUSE_HTTP, MP_STR("a request of HTTP/2 is malformed: RFC 9113, 8.1.1"));
    } else if (f->type == H2O_HTTP2_FRAME_TYPE_HEADERS || f->type == H2O_HTTP2_FRAME_TYPE_CONTINUATION) {
        mp_stat_add(&mp_stat_refused_streams, 1);
        mp_refused(MP_CAUSE_HTTP2, MP_STR("the connection has more than 100 requests at once"),
                   mp_log_str("address", mp_conn_peer(h2->conn)));
    }
}

static ssize_t read_frame(mp_http2 *h2, const frame *f, const char **why)
{
    size_t whole = FRAME_HEAD + f->len;
    int verdict = check_frame(h2, f, why);
    if (verdict != PASS)
        return verdict == SWALLOW ? (ssize_t)whole : verdict;
    uint64_t before = stream_errors(f->h2o), malformed = reset_with(f->h2o, H2O_HTTP2_ERROR_PROTOCOL);
    ssize_t result = pass_bytes(h2, f->h2o, f->head, whole, why);
    if (result < 0)
        return result;
    uint64_t errors = stream_errors(f->h2o) - before;
    if (errors > 0) {
        note_reset(h2, f, reset_with(f->h2o, H2O_HTTP2_ERROR_PROTOCOL) > malformed);
        int error = charge_budget(h2, (int64_t)errors * WORK_COST, &mp_stat_http2_refused_streams,
                                  "a flood of requests that end with an error of their stream", why);
        if (error != PASS)
            return error;
    }
    bool is_block = f->type == H2O_HTTP2_FRAME_TYPE_HEADERS || f->type == H2O_HTTP2_FRAME_TYPE_CONTINUATION;
    if (is_block && !h2->is_block_open)
        check_announced(h2, f);
    return (ssize_t)whole;
}

static ssize_t read_preface(mp_http2 *h2, h2o_http2_conn_t *h2o, const uint8_t *bytes, size_t len, const char **why)
{
    size_t known = len < MP_HTTP2_PREFACE_BYTES ? len : MP_HTTP2_PREFACE_BYTES;
    if (memcmp(bytes, MP_HTTP2_PREFACE, known) != 0) {
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_protocol, "the preface of HTTP/2 is missing");
        return H2O_HTTP2_ERROR_PROTOCOL_CLOSE_IMMEDIATELY;
    }
    if (known < MP_HTTP2_PREFACE_BYTES)
        return H2O_HTTP2_ERROR_INCOMPLETE;
    h2->has_preface = true;
    return pass_bytes(h2, h2o, bytes, len, why);
}

/* Called in place of libh2o's reader: reads one frame, and returns its bytes or an error. */
static ssize_t read_next(h2o_http2_conn_t *h2o, const uint8_t *bytes, size_t len, const char **why)
{
    mp_http2 *h2 = mp_http2_of(h2o);
    if (h2 == NULL)
        return H2O_HTTP2_ERROR_INTERNAL;
    if (!h2->has_preface)
        return read_preface(h2, h2o, bytes, len, why);
    if (len < FRAME_HEAD)
        return H2O_HTTP2_ERROR_INCOMPLETE;
    frame f = {h2o, bytes, h2o_http2_decode24u(bytes), bytes[3], bytes[4], read_id(bytes + 5)};
    if (f.len > MAX_FRAME) {
        *why = "the frame is larger than 16384 bytes";
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_protocol, *why);
        return H2O_HTTP2_ERROR_FRAME_SIZE;
    }
    if (len < FRAME_HEAD + f.len)
        return H2O_HTTP2_ERROR_INCOMPLETE;
    if (h2o->state >= H2O_HTTP2_CONN_STATE_HALF_CLOSED)
        return (ssize_t)(FRAME_HEAD + f.len); /* libh2o would not end at a CONTINUATION */
    return read_frame(h2, &f, why);
}

void mp_http2_install_guard(mp_http2 *h2, h2o_http2_conn_t *h2o)
{
    h2->credit = CREDIT_CAP;
    h2->credited_at = mp_loop_now(h2->conn->server->loop);
    h2->next = h2o->_read_expect;
    h2o->_read_expect = read_next;
}
