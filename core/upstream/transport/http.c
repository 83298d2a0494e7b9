/* http.c: Streamable HTTP of all revisions: each message is a POST of its own, on the worker of its task, whose answer
 * is one JSON body or an event stream. Of redirects those are followed that keep method and body (307 and 308) and
 * the origin of the URL, once for each request. Compressed answers are refused, and what an upstream may have begun is
 * never sent twice. */
#define _GNU_SOURCE
#include "upstream/transport/listen_stream.h"

MP_COUNTER(upstream_resumed, "upstream_resumed", "", "",
           "event streams of upstreams that ended before the answer and were resumed after their last event")
MP_REFUSED(refused_upstream_resumptions, "upstream_resumptions", MP_FAULT,
           "event streams of upstreams that ended after they were resumed 5 times")
MP_GAUGE(upstream_requests, "upstream_requests", "", "",
         "HTTP requests to upstreams, also those that end a session or say that a call is cancelled")

/* times that one event stream is resumed: a server that loses its stream again and again would never end it */
#define MAX_RESUMPTIONS MP_LIMIT(upstream_resumptions, 5)
#define RESUME_MS 1000 /* ms before a stream is resumed, unless the upstream gave another time by `retry:` */
#define MAX_RETRY_MS 60000
/* ms after the answer for the rest of the body, so that the connection can be used again */
#define LINGER_MS 1000
#define FAREWELL_MS 2000              /* ms for DELETE and for messages whose answer nothing waits for */
#define ERROR_BODY ((size_t)64 << 10) /* bytes of an error's body that are read */

typedef struct {
    mp_link link, hot; /* in host->requests, host->hot */
    mp_upstream_host *host;
    mp_own_exchange *MP_NULLABLE exchange; /* a counted reference; NULL: nothing waits for the answer */
    mp_channel *channel;                   /* a counted reference */
    mp_transfer *MP_NULLABLE transfer;     /* NULL while the request waits before it resumes its stream */
    mp_str message;                        /* of the exchange, or of `own` */
    char *own;
    mp_buf body;
    mp_event_reader reader;
    mp_timer deadline;
    char *MP_NULLABLE last_id; /* id of the last event before the stream was resumed; NULL: none */
    uint64_t retry_ms;
    int resumptions;
    char *MP_NULLABLE moved; /* the URL that a redirect named; NULL: there was none */
    bool has_head, is_stream, is_in_pull, has_left;
    mp_own_exchange *MP_NULLABLE told_by; /* of a note: the exchange that it is about, a counted reference */
    bool is_note; /* a message without an answer; counted in `said` of the channel and of the host */
} request;

/* A request with an exchange that waits for it, and its transfer, while arrived bytes are read. */
typedef struct {
    request *of;
    mp_own_exchange *exchange;
    mp_transfer *transfer;
} arrival;

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* Separates the request from its exchange, if it has one. */
static void leave_exchange(request *it)
{
    mp_own_exchange *exchange = it->exchange;
    if (exchange == NULL)
        return;
    exchange->request = NULL;
    it->exchange = NULL;
    mp_exchange_unref(exchange);
}

static void free_request(request *it)
{
    mp_timer_stop(it->host->loop, &it->deadline);
    mp_link_drop(&it->link);
    mp_link_drop(&it->hot);
    mp_transfer_free(it->transfer);
    it->host->held -= it->body.len;
    mp_buf_clear(&it->body);
    mp_event_reader_clear(&it->reader);
    free(it->own);
    free(it->last_id);
    free(it->moved);
    leave_exchange(it);
    mp_exchange_unref(it->told_by);
    if (it->is_note) {
        it->host->said--;
        atomic_fetch_sub(&it->channel->said, 1);
    }
    mp_channel_unref(it->channel);
    free(it);
    mp_stat_add(&mp_stat_upstream_requests, -1);
}

static void on_deadline(mp_timer *timer)
{
    free_request(mp_container(timer, request, deadline));
}

/* Nothing waits for the answer any more: reads the rest of it for a moment. */
static void linger_for_end(request *it)
{
    leave_exchange(it);
    it->host->held -= it->body.len;
    it->body.len = 0;
    mp_timer_start(it->host->loop, &it->deadline, LINGER_MS, on_deadline);
    if (mp_link_is_alone(&it->hot))
        mp_link_put(&it->host->hot, &it->hot);
}

static void on_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    request *it = ctx;
    if (mp_link_is_alone(&it->hot))
        mp_link_put(&it->host->hot, &it->hot);
}

/* -- what has arrived ---------------------------------------------------------------------------------------------- */

/* The seconds or the date of Retry-After, in ms; -1: none. */
static int64_t retry_after(const mp_transfer *transfer)
{
    mp_str value = mp_http_header(transfer, "retry-after");
    char text[40];
    char *end;
    if (value.len == 0 || value.len >= sizeof text)
        return -1;
    memcpy(text, value.ptr, value.len);
    text[value.len] = '\0';
    long seconds = strtol(text, &end, 10);
    if (*end == '\0')
        return seconds < 0 ? 0 : seconds > 86400 ? 86400000 : (int64_t)seconds * 1000;
    struct tm at = {0};
    if (strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &at) == NULL)
        return -1;
    int64_t left = (int64_t)timegm(&at) - (int64_t)time(NULL);
    return left < 0 ? 0 : left > 86400 ? 86400000 : left * 1000;
}

mp_upstream_failure mp_http_status_failure(const mp_transfer *transfer, const mp_buf *body, mp_failure_reason reason,
                                           const char *why)
{
    char text[sizeof(mp_upstream_failure){0}.why];
    int status = mp_transfer_status(transfer);
    mp_str to = mp_http_shown_location(transfer);
    if (to.len > 0)
        snprintf(text, sizeof text, "%s (HTTP status %d, Location: %.*s)", why, status, MP_STR_ARG(to));
    else
        snprintf(text, sizeof text, "%s (HTTP status %d)", why, status);
    mp_upstream_failure failure = mp_upstream_failure_of(reason, true, text);
    mp_str head = mp_transfer_head(transfer);
    failure.status = status;
    failure.head = mp_dup(head);
    failure.head_len = head.len;
    failure.body_len = body->len < MP_FAILURE_BODY ? body->len : MP_FAILURE_BODY;
    failure.body = mp_dup((mp_str){body->ptr, failure.body_len});
    return failure;
}

mp_upstream_failure mp_http_lost_failure(const mp_transfer *transfer)
{
    const mp_err *err = mp_transfer_failure(transfer);
    mp_transfer_trouble trouble = mp_transfer_trouble_of(transfer);
    mp_failure_reason reason = trouble == MP_TRANSFER_REFUSED  ? MP_FAILURE_ADDRESS
                               : trouble == MP_TRANSFER_UNSENT ? MP_FAILURE_REFUSED
                                                               : MP_FAILURE_CLOSED;
    return mp_upstream_failure_of(reason, reason == MP_FAILURE_CLOSED,
                                  err == NULL ? "the connection ended" : err->text);
}

static void fail_with_status(const arrival *at, mp_failure_reason reason, const char *why)
{
    mp_upstream_failure failure = mp_http_status_failure(at->transfer, &at->of->body, reason, why);
    failure.retry_after_ms = retry_after(at->transfer);
    mp_exchange_fail(at->exchange, failure);
}

/* Fails the exchange of a transfer that has ended with a failure. */
static void fail_transfer(const arrival *at)
{
    mp_upstream_failure failure = mp_http_lost_failure(at->transfer);
    int status = mp_transfer_status(at->transfer);
    if (mp_transfer_trouble_of(at->transfer) == MP_TRANSFER_OTHER &&
        mp_http_header(at->transfer, "content-encoding").len > 0)
        failure.reason = MP_FAILURE_UNREADABLE;
    failure.status = status >= 300 ? status : 0;
    mp_exchange_fail(at->exchange, failure);
}

/* -- sessions ------------------------------------------------------------------------------------------------------ */

#define MAX_SESSION 1024 /* bytes of a session id */

static request *MP_NULLABLE tell_upstream(mp_upstream_host *host, mp_channel *channel, const char *method,
                                          mp_str message);

/* True for an id that can be sent as a header, and for none. */
static bool is_session(mp_str id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] < 0x21 || id.ptr[i] > 0x7e)
            return false;
    return id.len <= MAX_SESSION;
}

/* Keeps the session id that the head has. A channel whose `initialize` is sent again has
 * ended the session before. */
static void take_session(const arrival *at)
{
    mp_own_exchange *exchange = at->exchange;
    mp_channel *channel = at->of->channel;
    mp_str id = mp_http_header(at->transfer, "mcp-session-id");
    if (id.len == 0 || !is_session(id) || exchange->super.given != NULL)
        return;
    exchange->super.given = mp_dup(id);
    if (exchange->super.host != channel->worker)
        return;
    if (channel->given != NULL)
        tell_upstream(exchange->super.host, channel, "DELETE", MP_STR_NONE);
    free(channel->given);
    channel->given = mp_dup(id);
}

/* A session is opened by the answer that holds the result of `initialize`, and by no other. While that answer is an
 * event stream, requests of the upstream may come before the result, and their answers need the id already. */
static void settle_session(const arrival *at)
{
    mp_own_exchange *exchange = at->exchange;
    mp_channel *channel = at->of->channel;
    if (!exchange->is_opening || !exchange->has_answer)
        return;
    if (exchange->has_result) {
        take_session(at);
        return;
    }
    if (exchange->super.given != NULL && exchange->super.host == channel->worker) {
        free(channel->given);
        channel->given = NULL;
    }
    free(exchange->super.given);
    exchange->super.given = NULL;
}

static bool is_success(const mp_transfer *transfer)
{
    int status = mp_transfer_status(transfer);
    return status >= 200 && status < 300;
}

#define SHORT_ERROR 4096 /* bytes of an error's text: longer ones are not looked at */

/* True for an error that does not have the id of the request, as of a server that has lost its sessions. */
static bool is_error_of_none(mp_str body)
{
    mp_json_type type;
    mp_json_member error;
    return body.len <= SHORT_ERROR && mp_json_scan(body, NULL, &type, NULL) == MP_JSON_OK && type == MP_JSON_OBJECT &&
           mp_json_find_member(body, MP_STR("error"), &error);
}

/* Fails the exchange of a body with a status of success that has no answer to it. */
static void fail_without_answer(const arrival *at)
{
    const mp_buf *body = &at->of->body;
    const char *why = body->len == 0 ? "an empty answer" : "no answer to this request";
    mp_upstream_failure failure = mp_http_status_failure(at->transfer, body, MP_FAILURE_UNREADABLE, why);
    failure.retry_after_ms = retry_after(at->transfer);
    failure.is_known = is_error_of_none(mp_buf_str(body));
    mp_exchange_fail(at->exchange, failure);
}

static mp_transfer *MP_NULLABLE start_transfer(request *it, const char *method, mp_str body, mp_err *err);

/* Sends the request again if its answer redirects it. The transfer of `at` is freed then. */
static bool follow(const arrival *at)
{
    request *it = at->of;
    char *moved = it->moved != NULL ? NULL : mp_http_redirect(it->channel->part->url, at->transfer);
    if (moved == NULL)
        return false;
    it->moved = moved;
    it->host->held -= it->body.len;
    it->body.len = 0;
    it->has_head = it->is_stream = false;
    mp_transfer_free(at->transfer);
    mp_link_drop(&it->hot);
    mp_err err = {"", ""};
    it->transfer = start_transfer(it, "POST", it->message, &err);
    if (it->transfer == NULL)
        mp_exchange_fail_with(at->exchange, MP_FAILURE_REFUSED, err.text);
    return true;
}

/* Reads the answer from a body that has arrived whole. */
static void read_body(const arrival *at)
{
    mp_own_exchange *exchange = at->exchange;
    const mp_buf *body = &at->of->body;
    int status = mp_transfer_status(at->transfer);
    if (follow(at))
        return;
    if (!exchange->has_id) {
        fail_with_status(at, MP_FAILURE_STATUS, "the message was not accepted");
        return;
    }
    bool is_json = mp_http_has_type(at->transfer, "application/json");
    if (is_json && body->len > 0 && mp_exchange_message(exchange, status, mp_buf_str(body)) > 0) {
        settle_session(at);
        return;
    }
    if (!is_success(at->transfer))
        fail_with_status(at, MP_FAILURE_STATUS, "an HTTP error");
    else
        fail_without_answer(at);
}

/* Appends the bytes that have arrived to the body. False if the exchange has failed because of them. */
static bool collect_body(const arrival *at)
{
    mp_upstream_host *host = at->of->host;
    mp_buf *body = &at->of->body;
    size_t most = is_success(at->transfer) ? at->exchange->answer : ERROR_BODY;
    mp_str piece = mp_transfer_body(at->transfer);
    while (piece.len > 0) {
        bool fits = piece.len <= most - body->len, has_room = host->held + piece.len <= host->most_held;
        mp_str part = {piece.ptr, fits ? piece.len : most - body->len};
        mp_buf_put(body, part);
        host->held += part.len;
        if (!fits || !has_room) {
            if (is_success(at->transfer))
                mp_exchange_fail_with(at->exchange, MP_FAILURE_TOO_LARGE,
                                      fits ? "the answers in flight are larger than 128 MiB"
                                           : "the answer is larger than `answer`");
            else
                fail_with_status(at, MP_FAILURE_STATUS, "an HTTP error");
            return false;
        }
        mp_transfer_take(at->transfer);
        piece = mp_transfer_body(at->transfer);
    }
    return true;
}

static void pull_body(const arrival *at)
{
    if (!collect_body(at) || !mp_transfer_is_over(at->transfer))
        return;
    if (mp_transfer_failure(at->transfer) != NULL)
        fail_transfer(at);
    else
        read_body(at);
}

/* Gives the events of a piece to the exchange, until its answer is among them. */
static void read_events(const arrival *at, mp_str piece)
{
    request *it = at->of;
    mp_event event;
    mp_event_result result = MP_EVENT_NONE;
    while (!it->has_left && (result = mp_event_read(&it->reader, &piece, &event)) == MP_EVENT_COMPLETE)
        if (event.data.len > 0 && mp_str_is(event.kind, "message"))
            mp_exchange_message(at->exchange, mp_transfer_status(at->transfer), event.data);
    settle_session(at);
    if (it->has_left || result == MP_EVENT_NONE)
        return;
    mp_exchange_fail_with(at->exchange, MP_FAILURE_TOO_LARGE, "an event is larger than `answer`");
}

static void on_resume(mp_timer *timer);

/* The stream has ended before the answer. True if the stream will be resumed after its last event (S-28, S-30): then
 * the transfer is freed. */
static bool resume_later(const arrival *at)
{
    request *it = at->of;
    const char *revision = it->channel->revision;
    if (it->reader.id.len > 0) {
        free(it->last_id);
        it->last_id = mp_dup(mp_buf_str(&it->reader.id));
    }
    if (it->last_id == NULL || it->host->is_over || revision == NULL || strcmp(revision, MP_FIRST_STATELESS) >= 0)
        return false;
    if (it->resumptions >= MAX_RESUMPTIONS) {
        mp_stat_add(&mp_stat_refused_upstream_resumptions, 1);
        return false;
    }
    if (it->reader.has_retry)
        it->retry_ms = it->reader.retry_ms < MAX_RETRY_MS ? it->reader.retry_ms : MAX_RETRY_MS;
    else if (it->resumptions == 0)
        it->retry_ms = RESUME_MS;
    it->resumptions++;
    it->is_stream = it->has_head = false;
    mp_event_reader_clear(&it->reader);
    it->reader = (mp_event_reader){0};
    it->transfer = NULL;
    mp_transfer_free(at->transfer);
    mp_link_drop(&it->hot);
    mp_timer_start(it->host->loop, &it->deadline, it->retry_ms, on_resume);
    mp_stat_add(&mp_stat_upstream_resumed, 1);
    return true;
}

/* Reads events as long as the task takes them. The rest stays in the socket until resume_exchange(). */
static void pull_stream(const arrival *at)
{
    const request *it = at->of;
    const mp_link *untaken = &at->exchange->super.events;
    mp_str piece = MP_STR_NONE;
    while (!it->has_left && mp_link_is_alone(untaken) && (piece = mp_transfer_body(at->transfer)).len > 0) {
        read_events(at, piece);
        mp_transfer_take(at->transfer);
    }
    if (it->has_left || !mp_link_is_alone(untaken) || !mp_transfer_is_over(at->transfer))
        return;
    if (resume_later(at))
        return;
    if (mp_transfer_failure(at->transfer) != NULL)
        fail_transfer(at);
    else
        mp_exchange_fail_with(at->exchange, MP_FAILURE_CLOSED, "the event stream ended without the answer");
}

static void begin_answer(const arrival *at)
{
    request *it = at->of;
    mp_own_exchange *exchange = at->exchange;
    it->has_head = true;
    it->is_stream = is_success(at->transfer) && exchange->has_id &&
                    mp_http_has_type(at->transfer, "text/event-stream") &&
                    mp_http_header(at->transfer, "content-encoding").len == 0;
    it->reader.most = exchange->answer;
    mp_str id = mp_http_header(at->transfer, "mcp-session-id");
    if (exchange->is_opening && is_success(at->transfer) && !is_session(id))
        mp_exchange_settle(exchange, MP_FAILURE_UNREADABLE,
                           "a session id above 1,024 bytes, or with characters that no header may have");
    else if (it->is_stream && exchange->is_opening)
        take_session(at);
    if (is_success(at->transfer) && !exchange->has_id)
        mp_exchange_accepted(exchange, mp_transfer_status(at->transfer));
}

/* The upstream has forgotten the session of its question, so it gets no answer to it, and gives none. */
static void note_lost_session(const request *it)
{
    const char *session = mp_http_session(it->channel, true);
    mp_own_exchange *exchange = it->told_by;
    if (exchange == NULL || session == NULL || *session == '\0')
        return;
    mp_channel_lost(it->channel);
    if (!exchange->super.is_ended)
        mp_exchange_settle(exchange, MP_FAILURE_LOST, "the session of its question is lost");
}

/* Discards an answer that nothing waits for. May free the request. */
static void discard_rest(request *it, mp_transfer *transfer)
{
    if (mp_transfer_status(transfer) == 404)
        note_lost_session(it);
    while (mp_transfer_body(transfer).len > 0)
        mp_transfer_take(transfer);
    if (mp_transfer_is_over(transfer))
        free_request(it);
}

/* Handles a transfer that has no head: it has ended without an answer, or is still under way. May free the request. */
static void pull_nothing(const arrival *at)
{
    if (!mp_transfer_is_over(at->transfer))
        return;
    if (at->of->resumptions == 0)
        fail_transfer(at);
    else if (!resume_later(at))
        mp_exchange_fail_with(at->exchange, MP_FAILURE_CLOSED, "the event stream ended, and the upstream is gone");
}

/* Reads the bytes that have arrived for an exchange that waits. May free the request. */
static void pull_answer(const arrival *at)
{
    request *it = at->of;
    it->is_in_pull = true;
    if (!it->has_head)
        begin_answer(at);
    if (it->resumptions > 0 && !it->is_stream && !it->has_left)
        mp_exchange_fail_with(at->exchange, MP_FAILURE_CLOSED,
                              "the event stream ended without the answer, and was not resumed");
    else if (it->is_stream)
        pull_stream(at);
    else if (!it->has_left)
        pull_body(at);
    it->is_in_pull = false;
    if (!it->has_left)
        return;
    if (at->exchange->has_answer)
        linger_for_end(it);
    else
        free_request(it);
}

/* Reads the bytes that have arrived for a request. May free it. */
static void pull_events(request *it)
{
    mp_own_exchange *exchange = it->exchange;
    mp_transfer *transfer = it->transfer;
    if (transfer == NULL)
        return; /* the request waits before it resumes its stream */
    if (exchange == NULL) {
        discard_rest(it, transfer);
        return;
    }
    arrival at = {.of = it, .exchange = exchange, .transfer = transfer};
    if (mp_transfer_status(transfer) == 0)
        pull_nothing(&at);
    else
        pull_answer(&at);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* A transfer of the request, without its body. */
static mp_outgoing outgoing_of(request *it, const char *method, const char *const *headers)
{
    mp_outgoing outgoing = mp_http_outgoing(it->channel->part, headers);
    outgoing.method = method;
    if (it->moved != NULL)
        outgoing.url = it->moved;
    outgoing.ready = on_ready;
    outgoing.ctx = it;
    return outgoing;
}

static mp_transfer *MP_NULLABLE start_transfer(request *it, const char *method, mp_str body, mp_err *err)
{
    mp_http_headers all = {0};
    mp_http_put_headers(&all, it->host, it->channel, it->exchange);
    mp_outgoing outgoing = outgoing_of(it, method, all.list);
    outgoing.body = body;
    mp_transfer *transfer = mp_transfer_start(it->host->client, &outgoing, err);
    mp_http_clear_headers(&all);
    return transfer;
}

/* Starts a request. NULL: `err` has the reason. `exchange`: the exchange that waits for the answer; NULL: none. */
static request *MP_NULLABLE begin_request(mp_upstream_host *host, mp_channel *channel,
                                          mp_own_exchange *MP_NULLABLE exchange, const char *method, mp_str message,
                                          mp_err *err)
{
    const mp_upstream_part *part = channel->part;
    if (part->url == NULL) {
        mp_err_set(err, "the URL is not valid");
        return NULL;
    }
    request *it = mp_new(sizeof *it);
    it->host = host;
    it->channel = mp_channel_ref(channel);
    it->exchange = exchange == NULL ? NULL : mp_exchange_ref(exchange);
    it->message = message;
    if (exchange == NULL && message.len > 0) {
        it->own = mp_dup(message);
        it->message.ptr = it->own;
    }
    it->transfer = start_transfer(it, method, it->message, err);
    mp_stat_add(&mp_stat_upstream_requests, 1);
    mp_link_put(&host->requests, &it->link);
    if (it->transfer != NULL)
        return it;
    free_request(it);
    return NULL;
}

/* Resumes the event stream: asks for the events after the last one. */
static void on_resume(mp_timer *timer)
{
    request *it = mp_container(timer, request, deadline);
    mp_own_exchange *exchange = it->exchange;
    if (exchange == NULL) {
        free_request(it);
        return;
    }
    mp_err err = {"", ""};
    mp_http_headers all = {0};
    mp_buf last = {0};
    mp_http_put_headers(&all, it->host, it->channel, exchange);
    const char **list = mp_new((all.count + 2) * sizeof *list);
    for (size_t i = 0; i < all.count; i++)
        list[i] = all.list[i];
    mp_buf_printf(&last, "Last-Event-ID: %s%c", it->last_id, '\0');
    list[all.count] = last.ptr;
    mp_outgoing outgoing = outgoing_of(it, "GET", list);
    it->transfer = mp_transfer_start(it->host->client, &outgoing, &err);
    mp_http_clear_headers(&all);
    mp_buf_clear(&last);
    free(list);
    if (it->transfer == NULL)
        mp_exchange_fail_with(exchange, MP_FAILURE_CLOSED, err.text);
}

static void send_exchange(mp_own_exchange *exchange)
{
    mp_err err = {0};
    exchange->request =
        begin_request(exchange->super.host, exchange->super.channel, exchange, "POST", exchange->message, &err);
    if (exchange->request == NULL)
        mp_exchange_fail_with(exchange, MP_FAILURE_REFUSED, err.text);
    else
        atomic_store(&exchange->was_sent, true); /* for other threads, which must not use the transfer */
}

/* Sends a message whose answer nothing waits for. NULL: the request could not be started. */
static request *MP_NULLABLE tell_upstream(mp_upstream_host *host, mp_channel *channel, const char *method,
                                          mp_str message)
{
    mp_err err;
    request *it = host->is_over ? NULL : begin_request(host, channel, NULL, method, message, &err);
    if (it != NULL)
        mp_timer_start(host->loop, &it->deadline, FAREWELL_MS, on_deadline);
    return it;
}

static void say_message(mp_own_exchange *exchange, mp_str message, MP_UNUSED bool is_reply)
{
    request *it = tell_upstream(exchange->super.host, exchange->super.channel, "POST", message);
    if (it == NULL)
        return;
    it->is_note = true;
    it->told_by = mp_exchange_ref(exchange);
    it->host->said++;
    atomic_fetch_add(&it->channel->said, 1);
}

static void leave_http(mp_own_exchange *exchange)
{
    request *it = exchange->request;
    if (it == NULL)
        return;
    if (it->is_in_pull)
        it->has_left = true;
    else if (exchange->has_answer && !exchange->super.host->is_over)
        linger_for_end(it);
    else
        free_request(it);
}

static bool has_sent(const mp_own_exchange *exchange)
{
    const request *it = exchange->request;
    if (it == NULL)
        return false;
    const mp_transfer *transfer = it->transfer;
    return it->resumptions > 0 || (transfer != NULL && mp_transfer_trouble_of(transfer) != MP_TRANSFER_UNSENT);
}

static void resume_exchange(mp_own_exchange *exchange)
{
    request *it = exchange->request;
    if (it != NULL && mp_link_is_alone(&it->hot))
        mp_link_put(&it->host->hot, &it->hot);
}

static void close_channel(mp_channel *channel, bool is_lost)
{
    const char *session = mp_http_session(channel, true);
    if (channel->closing_host == channel->worker) {
        channel->is_closed = true;
        mp_listen_streams_close(channel);
    }
    if (!is_lost && session != NULL && *session != '\0')
        tell_upstream(channel->closing_host, channel, "DELETE", MP_STR_NONE);
}

/* True once no request is left. Requests whose exchange has not ended are freed by their tasks. */
static bool end_host(mp_upstream_host *host)
{
    return mp_link_is_alone(&host->requests);
}

static bool turn_host(mp_upstream_host *host)
{
    mp_link *link;
    bool did = false;
    for (int i = 0; i < 256 && (link = mp_link_take(&host->hot)) != NULL; i++) {
        pull_events(mp_container(link, request, hot));
        did = true;
    }
    return did;
}

static bool has_work(const mp_upstream_host *host)
{
    return !mp_link_is_alone(&host->hot);
}

static void free_host(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->requests))
        free_request(mp_container(host->requests.next, request, link));
}

const mp_upstream_transport mp_upstream_http = {.name = "http",
                                                .send = send_exchange,
                                                .say = say_message,
                                                .leave = leave_http,
                                                .resume = resume_exchange,
                                                .has_sent = has_sent,
                                                .close = close_channel,
                                                .turn = turn_host,
                                                .has_work = has_work,
                                                .end_host = end_host,
                                                .free_host = free_host};
