/* http_sse.c: HTTP+SSE of 2024-11-05: one GET, whose event stream first names an address of the same origin and then
 * has all messages of the upstream; each of our messages is a POST to that address. The channel is lost when the stream
 * ends. */
#include "upstream/transport.h"

MP_GAUGE(upstream_streams, "upstream_streams", "", "", "event streams of upstreams that speak HTTP+SSE")

#define ERROR_BODY MP_FAILURE_BODY
#define FAREWELL_MS 2000 /* ms for a POST whose answer nothing waits for */
/* ms that a message about a request, such as a cancellation, waits until the request was accepted, so as not to
 * overtake it. Servers on java-sdk accept a request only when they answer it. */
#define ACCEPT_MS 250

typedef struct connection connection;

/* A message on its way to the upstream; exchange->request of its exchange. It waits until the address is known. */
typedef struct {
    mp_link link; /* in connection->posts, oldest first */
    connection *of;
    mp_own_exchange *MP_NULLABLE exchange; /* a counted reference; NULL: nothing waits for the result */
    mp_transfer *MP_NULLABLE transfer;     /* NULL: not begun */
    char *MP_NULLABLE moved;               /* the URL that a redirect named; NULL: there was none */
    char *own;                             /* a copy of the message, where there is no exchange */
    mp_str message;
    mp_buf body;  /* body of an answer that is an error */
    mp_buf after; /* a message that is sent once `message` was accepted, or after ACCEPT_MS: a cancellation */
    mp_timer deadline, patience;
    bool has_news;
} post;

struct connection {
    mp_link link; /* in host->streams */
    mp_upstream_host *host;
    mp_channel *channel; /* a counted reference */
    mp_transfer *stream;
    mp_event_reader reader;
    char *MP_NULLABLE moved;    /* the URL that a redirect of the GET named; NULL: there was none */
    char *MP_NULLABLE endpoint; /* normalized; NULL until the upstream has named it */
    mp_buf body;                /* body of the answer that refuses the GET */
    mp_link posts;
    bool has_news, is_over;
    bool is_closing; /* the channel has ended; messages without an answer are still sent */
};

/* -- memory -------------------------------------------------------------------------------------------------------- */

static void free_post(post *it)
{
    mp_link_drop(&it->link);
    mp_timer_stop(it->of->host->loop, &it->deadline);
    mp_timer_stop(it->of->host->loop, &it->patience);
    mp_transfer_free(it->transfer);
    mp_own_exchange *exchange = it->exchange;
    if (exchange != NULL && exchange->request == it)
        exchange->request = NULL;
    mp_exchange_unref(exchange);
    mp_buf_clear(&it->body);
    mp_buf_clear(&it->after);
    free(it->moved);
    free(it->own);
    free(it);
}

static void free_connection(connection *it)
{
    while (!mp_link_is_alone(&it->posts))
        free_post(mp_container(it->posts.next, post, link));
    mp_link_drop(&it->link);
    mp_transfer_free(it->stream);
    mp_event_reader_clear(&it->reader);
    mp_buf_clear(&it->body);
    mp_channel_unref(it->channel);
    free(it->moved);
    free(it->endpoint);
    free(it);
    mp_stat_add(&mp_stat_upstream_streams, -1);
}

static void on_deadline(mp_timer *timer)
{
    free_post(mp_container(timer, post, deadline));
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

static void on_stream_ready(mp_transfer *transfer, void *ctx);

static void on_post_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    ((post *)ctx)->has_news = true;
}

/* The GET of the event stream. NULL: `err` says why. */
static mp_transfer *MP_NULLABLE begin_stream(connection *it, mp_err *err)
{
    mp_http_headers all = {0};
    mp_http_put_headers(&all, it->host, it->channel, NULL);
    mp_outgoing outgoing = mp_http_outgoing(it->channel->part, all.list);
    if (it->moved != NULL)
        outgoing.url = it->moved;
    outgoing.ready = on_stream_ready;
    outgoing.ctx = it;
    mp_transfer *transfer = mp_transfer_start(it->host->stream_client, &outgoing, err);
    mp_http_clear_headers(&all);
    return transfer;
}

/* The POST of a message to the address that the upstream has named. NULL: `err` says why. */
static mp_transfer *MP_NULLABLE start_post(connection *it, const char *endpoint, post *one, mp_err *err)
{
    mp_http_headers all = {0};
    mp_http_put_headers(&all, it->host, it->channel, one->exchange);
    mp_outgoing outgoing = mp_http_outgoing(it->channel->part, all.list);
    outgoing.method = "POST";
    outgoing.url = endpoint;
    outgoing.body = one->message;
    outgoing.ready = on_post_ready;
    outgoing.ctx = one;
    mp_transfer *transfer = mp_transfer_start(it->host->client, &outgoing, err);
    mp_http_clear_headers(&all);
    return transfer;
}

/* Frees the post if it cannot be sent. */
static void begin_post(connection *it, const char *endpoint, post *one)
{
    mp_err err = {"", ""};
    mp_transfer *transfer = start_post(it, endpoint, one, &err);
    one->transfer = transfer;
    mp_own_exchange *exchange = one->exchange;
    if (transfer == NULL) {
        if (exchange != NULL)
            mp_exchange_ref(exchange);
        free_post(one);
        if (exchange != NULL)
            mp_exchange_fail_with(exchange, MP_FAILURE_REFUSED, err.text);
        mp_exchange_unref(exchange);
    } else if (exchange != NULL) {
        atomic_store(&exchange->was_sent, true);
    }
}

/* Adds the POST of a message. `exchange`: the exchange that waits for the result; NULL: none. */
static void add_post(connection *it, mp_own_exchange *MP_NULLABLE exchange, mp_str message)
{
    post *one = mp_new(sizeof *one);
    one->of = it;
    one->message = message;
    if (exchange != NULL) {
        one->exchange = mp_exchange_ref(exchange);
        exchange->request = one;
    } else {
        one->own = mp_dup(message);
        one->message.ptr = one->own;
        mp_timer_start(it->host->loop, &one->deadline, FAREWELL_MS, on_deadline);
    }
    mp_link_put(&it->posts, &one->link);
    const char *endpoint = it->endpoint;
    if (endpoint != NULL)
        begin_post(it, endpoint, one);
}

/* Sends the message that waits for the post. */
static void send_after(post *one)
{
    mp_timer_stop(one->of->host->loop, &one->patience);
    if (one->after.len > 0)
        add_post(one->of, NULL, mp_buf_str(&one->after));
    mp_buf_clear(&one->after);
}

static void on_patience(mp_timer *timer)
{
    send_after(mp_container(timer, post, patience));
}

static void begin_posts(connection *it, const char *endpoint)
{
    mp_link again = {0};
    mp_link_move(&it->posts, &again);
    MP_EACH_TAKEN(post, one, &again, link) {
        mp_link_put(&it->posts, &one->link);
        if (one->transfer == NULL)
            begin_post(it, endpoint, one);
    }
}

/* -- failures ------------------------------------------------------------------------------------------------------ */

/* The failure of a request that was answered with an error, or not at all. */
static mp_upstream_failure failure_of(const mp_transfer *transfer, const mp_buf *body, const char *what)
{
    bool has_head = mp_transfer_status(transfer) != 0 || mp_transfer_failure(transfer) == NULL;
    return has_head ? mp_http_status_failure(transfer, body, MP_FAILURE_STATUS, what) : mp_http_lost_failure(transfer);
}

/* The stream has ended, or never began: the next request for the channel's key opens another one. */
static void end_by_itself(connection *it, mp_failure_reason reason, const char *why)
{
    it->is_over = true;
    mp_channel_broken(it->channel, reason, why);
}

/* -- posts --------------------------------------------------------------------------------------------------------- */

static bool is_success(const mp_transfer *transfer)
{
    int status = mp_transfer_status(transfer);
    return status >= 200 && status < 300 && mp_transfer_failure(transfer) == NULL;
}

/* Appends the bytes that have arrived to `body`, up to ERROR_BODY; drops the rest. */
static void collect_body(mp_transfer *transfer, mp_buf *body)
{
    for (mp_str piece; (piece = mp_transfer_body(transfer)).len > 0; mp_transfer_take(transfer)) {
        size_t room = ERROR_BODY - body->len;
        mp_buf_put(body, (mp_str){piece.ptr, piece.len < room ? piece.len : room});
    }
}

/* Sends the post again if its answer redirects it, once. Frees the transfer then, and perhaps the post. */
static bool follow_post(post *one, mp_transfer *transfer)
{
    char *moved = one->moved != NULL ? NULL : mp_http_redirect(one->of->endpoint, transfer);
    if (moved == NULL)
        return false;
    one->moved = moved;
    one->body.len = 0;
    one->transfer = NULL;
    mp_transfer_free(transfer);
    begin_post(one->of, moved, one);
    return true;
}

/* Reads the bytes that have arrived for a post. May free it. */
static void pull_post(post *one, mp_transfer *transfer)
{
    collect_body(transfer, &one->body);
    if (!mp_transfer_is_over(transfer) || follow_post(one, transfer))
        return;
    mp_own_exchange *exchange = one->exchange;
    if (exchange != NULL)
        mp_exchange_ref(exchange);
    mp_upstream_failure failure = {0};
    bool is_good = is_success(transfer);
    if (!is_good)
        failure = failure_of(transfer, &one->body, "the message was not accepted");
    send_after(one);
    free_post(one);
    if (exchange == NULL) {
        mp_upstream_failure_clear(&failure);
        return;
    }
    if (!is_good) {
        if (!failure.may_have_run)
            atomic_store(&exchange->was_sent, false);
        mp_exchange_fail(exchange, failure);
    } else if (!exchange->has_id) {
        mp_exchange_accepted(exchange, 0);
    }
    mp_exchange_unref(exchange);
}

/* -- the stream ---------------------------------------------------------------------------------------------------- */

/* The address that the upstream gives, which must be of the origin that the configuration names; NULL: it is not. The
 * caller frees it. */
static char *MP_NULLABLE endpoint_of(const connection *it, mp_str data)
{
    const mp_upstream_part *part = it->channel->part;
    char *text = mp_dup(mp_str_trim(data));
    mp_url own = {0}, given = {0};
    mp_err err;
    char *endpoint = NULL;
    if (data.len > 0 && part->url != NULL && mp_url_parse(&own, part->url, NULL, &err) == 0 &&
        mp_url_parse(&given, text, part->url, &err) == 0 && strcmp(own.scheme, given.scheme) == 0 &&
        strcmp(own.host, given.host) == 0 && own.port == given.port)
        endpoint = mp_dup(mp_str_of(given.text));
    mp_url_clear(&own);
    mp_url_clear(&given);
    free(text);
    return endpoint;
}

static void take_endpoint(connection *it, mp_str data)
{
    char *endpoint = endpoint_of(it, data);
    it->endpoint = endpoint;
    if (endpoint != NULL)
        begin_posts(it, endpoint);
    else
        end_by_itself(it, MP_FAILURE_UNREADABLE, "the stream's endpoint is no address of the same origin");
}

static void take_event(connection *it, const mp_event *event)
{
    if (mp_str_is(event->kind, "endpoint") && it->endpoint == NULL) {
        take_endpoint(it, event->data);
    } else if (mp_str_is(event->kind, "message") && !mp_channel_message(it->channel, event->data)) {
        mp_channel_count_dropped(it->channel);
    }
}

static void pull_events(connection *it)
{
    for (mp_str piece; !it->is_over && (piece = mp_transfer_body(it->stream)).len > 0; mp_transfer_take(it->stream)) {
        mp_event event;
        mp_event_result result = MP_EVENT_NONE;
        while (!it->is_over && (result = mp_event_read(&it->reader, &piece, &event)) == MP_EVENT_COMPLETE)
            take_event(it, &event);
        if (!it->is_over && result != MP_EVENT_NONE)
            end_by_itself(it, MP_FAILURE_TOO_LARGE, "an event is larger than limits.upstreams.answer");
    }
}

/* The GET was refused: the exchanges that wait learn the status. */
static void refuse_stream(connection *it)
{
    const char *what = "the address has no event stream";
    MP_EACH_TAKEN(post, one, &it->posts, link) {
        mp_own_exchange *exchange = one->exchange;
        if (exchange != NULL)
            mp_exchange_ref(exchange);
        free_post(one);
        if (exchange == NULL)
            continue;
        mp_upstream_failure failure = failure_of(it->stream, &it->body, what);
        failure.may_have_run = false;
        mp_exchange_fail(exchange, failure);
        mp_exchange_unref(exchange);
    }
    end_by_itself(it, MP_FAILURE_CLOSED, what);
}

/* Asks for the stream again if the answer redirects the GET, once. The posts wait on. */
static bool follow_stream(connection *it)
{
    mp_err err;
    char *moved = it->moved != NULL ? NULL : mp_http_redirect(it->channel->part->url, it->stream);
    if (moved == NULL)
        return false;
    it->moved = moved;
    mp_transfer *stream = begin_stream(it, &err);
    if (stream == NULL)
        return false;
    mp_transfer_free(it->stream);
    it->stream = stream;
    it->body.len = 0;
    return true;
}

static void pull_stream(connection *it)
{
    bool is_over = mp_transfer_is_over(it->stream);
    if (it->is_over || (!is_over && mp_transfer_status(it->stream) == 0))
        return;
    if (mp_transfer_status(it->stream) == 200 && mp_http_has_type(it->stream, "text/event-stream")) {
        pull_events(it);
        if (is_over && !it->is_over)
            end_by_itself(it, MP_FAILURE_CLOSED, "the event stream ended");
        return;
    }
    collect_body(it->stream, &it->body);
    if ((is_over || it->body.len >= ERROR_BODY) && !follow_stream(it))
        refuse_stream(it);
}

static void on_stream_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    ((connection *)ctx)->has_news = true;
}

/* Begins the event stream of a channel. NULL: the exchange has failed. */
static connection *MP_NULLABLE connect_channel(mp_channel *channel, mp_own_exchange *exchange)
{
    const mp_upstream_part *part = channel->part;
    mp_err err = {"the URL is not valid", ""};
    connection *it = mp_new(sizeof *it);
    it->host = channel->worker;
    it->channel = mp_channel_ref(channel);
    it->reader.most = part->limits.answer;
    mp_transfer *stream = part->url == NULL ? NULL : begin_stream(it, &err);
    if (stream == NULL) {
        mp_channel_unref(it->channel);
        free(it);
        mp_exchange_fail_with(exchange, MP_FAILURE_REFUSED, err.text);
        return NULL;
    }
    it->stream = stream;
    mp_link_put(&it->host->streams, &it->link);
    mp_stat_add(&mp_stat_upstream_streams, 1);
    channel->connection = it;
    return it;
}

/* -- the transport ------------------------------------------------------------------------------------------------- */

static void send_exchange(mp_own_exchange *exchange)
{
    mp_channel *channel = exchange->super.channel;
    connection *it = channel->connection;
    if (it == NULL && !channel->is_closed) {
        it = connect_channel(channel, exchange);
        if (it == NULL)
            return;
    }
    if (it == NULL || it->is_over)
        mp_exchange_fail_with(exchange, MP_FAILURE_CLOSED, "the event stream has ended");
    else
        add_post(it, exchange, exchange->message);
}

/* A message about an exchange, such as a cancellation, should not overtake its request. A reply cannot: the upstream
 * has asked, and may accept the request only when it has the reply. */
static void say_message(mp_own_exchange *exchange, mp_str message, bool is_reply)
{
    connection *it = exchange->super.channel->connection;
    post *before = exchange->request;
    if (it == NULL || it->is_over)
        return;
    if (is_reply || before == NULL || before->after.len > 0) {
        add_post(it, NULL, message);
        return;
    }
    mp_buf_put(&before->after, message);
    mp_timer_start(it->host->loop, &before->patience, ACCEPT_MS, on_patience);
}

static void leave_exchange(mp_own_exchange *exchange)
{
    post *one = exchange->request;
    if (one == NULL)
        return;
    if (one->transfer == NULL || one->after.len == 0) {
        free_post(one);
        return;
    }
    /* The message is in the exchange's memory, so the post keeps its reference; the exchange takes no result any
     * more. */
    mp_timer_start(one->of->host->loop, &one->deadline, FAREWELL_MS, on_deadline);
    exchange->request = NULL;
}

/* True if a message that has no answer, such as a cancellation, was not sent completely. */
static bool has_words(const connection *it)
{
    MP_EACH(const post, one, &it->posts, link) {
        if (one->own != NULL || one->after.len > 0)
            return true;
    }
    return false;
}

static void close_connection(mp_channel *channel, connection *it, bool is_lost)
{
    bool was_over = it->is_over;
    if (!was_over)
        mp_channel_fail_all(channel, MP_FAILURE_CLOSED, "the channel was closed");
    it->is_over = true;
    it->is_closing = !was_over && !is_lost && has_words(it);
    if (!it->is_closing)
        free_connection(it);
}

static void close_channel(mp_channel *channel, bool is_lost)
{
    connection *it = channel->connection;
    channel->is_closed = true;
    channel->connection = NULL;
    if (it != NULL)
        close_connection(channel, it, is_lost);
    mp_channel_drop_exchanges(channel);
}

static bool turn_host(mp_upstream_host *host)
{
    bool did = false;
    for (mp_link *link = mp_link_first(&host->streams), *following; link != &host->streams; link = following) {
        following = link->next;
        connection *it = mp_container(link, connection, link);
        did = did || it->has_news;
        if (it->has_news) {
            it->has_news = false;
            pull_stream(it);
        }
        for (mp_link *at = mp_link_first(&it->posts), *next; at != &it->posts; at = next) {
            post *one = mp_container(at, post, link);
            mp_transfer *transfer = one->transfer;
            next = at->next;
            if (one->has_news && transfer != NULL) {
                one->has_news = false;
                pull_post(one, transfer);
                did = true;
                next = it->posts.next; /* failures may have freed others */
            }
        }
        following = link->next;
        if (it->is_closing && !has_words(it))
            free_connection(it);
    }
    return did;
}

static bool has_work(const mp_upstream_host *host)
{
    for (const mp_link *link = mp_link_first(&host->streams); link != &host->streams; link = link->next) {
        const connection *it = mp_container(link, const connection, link);
        if (it->has_news || (it->is_closing && !has_words(it)))
            return true;
        MP_EACH(const post, one, &it->posts, link)
            if (one->has_news)
                return true;
    }
    return false;
}

static bool end_host(mp_upstream_host *host)
{
    return mp_link_is_alone(&host->streams);
}

static void free_host(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->streams)) {
        connection *it = mp_container(host->streams.next, connection, link);
        if (it->is_closing)
            free_connection(it);
        else
            close_channel(it->channel, true);
    }
}

const mp_upstream_transport mp_upstream_sse = {.name = "sse",
                                               .one_worker = true,
                                               .send = send_exchange,
                                               .say = say_message,
                                               .leave = leave_exchange,
                                               .close = close_channel,
                                               .turn = turn_host,
                                               .has_work = has_work,
                                               .end_host = end_host,
                                               .free_host = free_host};
