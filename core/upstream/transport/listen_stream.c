/* listen_stream.c: listen streams over HTTP: event streams for messages of an upstream that belong to no request. A
 * channel with a session has one GET; requests whose answer does not end (subscriptions/listen) are POSTs. They use an
 * HTTP client of their own, so that no call waits for the connection of one. All but the functions of upstream.h runs
 * on the thread of the channel's worker. */
#include "upstream/transport/listen_stream.h"

MP_GAUGE(upstream_listen_streams, "upstream_listen_streams", "", "",
         "listen streams of upstreams that are open or being opened")
MP_COUNTER(upstream_reopened, "upstream_reopened", "", "", "listen streams of upstreams that were opened again")

#define LEAST_PAUSE_MS 1000 /* ms before a GET that ended is sent again; doubles with each failure */
#define MOST_PAUSE_MS 60000
#define MOST_RETRY_MS 60000 /* the longest `retry:` of an upstream that is obeyed */
/* GETs in a row that may end within LEAST_PAUSE_MS; after that, a shorter `retry:` is not obeyed */
#define QUICK_ENDS 3

typedef struct {
    mp_link in_host, in_channel, hot; /* in host->listen_streams, channel->listen_streams, host->hot_listen_streams */
    mp_upstream_host *host;
    mp_channel *channel; /* a counted reference */
    int64_t id;          /* id of the request; 0: the GET of the channel */
    char *MP_NULLABLE message, *MP_NULLABLE revision, *MP_NULLABLE last_id;
    char **MP_NULLABLE headers;
    mp_transfer *MP_NULLABLE transfer; /* NULL while the stream waits before it is opened again */
    mp_event_reader reader;
    mp_timer again;
    unsigned failures;
    unsigned quick_ends; /* GETs in a row that ended within LEAST_PAUSE_MS */
    uint64_t opened_at;  /* ms */
    bool is_open, was_open;
    mp_link waiting; /* of mp_listen_stream_opening */
} listen_stream;

/* A task's request for a listen stream, and its wait for the head of the answer. */
struct mp_listen_stream_opening {
    atomic_int refs; /* a reference of the task, and one of the message or the list that has the struct */
    mp_upstream_host *host;
    mp_channel *channel;
    void (*MP_NULLABLE done)(void *ctx); /* NULL once the task has ended; for the task's thread */
    void *ctx;
    mp_message super;
    mp_link link; /* in listen_stream->waiting */
    int64_t id;
    char *MP_NULLABLE message, *MP_NULLABLE revision;
    char **MP_NULLABLE headers;
    /* HTTP status of the answer; 0: none yet. Written by the worker before it posts `super` to the task */
    int status;
};

static void unref_opening(mp_listen_stream_opening *opening)
{
    if (atomic_fetch_sub_explicit(&opening->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_channel_unref(opening->channel);
    free(opening->message);
    free(opening->revision);
    mp_free_texts(opening->headers);
    free(opening);
}

static void deliver_result(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_listen_stream_opening *opening = mp_container(message, mp_listen_stream_opening, super);
    if (loop != NULL && opening->done != NULL)
        opening->done(opening->ctx);
    unref_opening(opening);
}

/* Ends the wait of a task with the HTTP status of the answer; -1: there is none. */
static void answer_opening(mp_listen_stream_opening *opening, int status)
{
    opening->status = status;
    opening->super.deliver = deliver_result;
    mp_loop_post(opening->host->loop, &opening->super);
}

static void answer_all(listen_stream *it, int status)
{
    MP_EACH_TAKEN(mp_listen_stream_opening, opening, &it->waiting, link)
        if (it->host->is_over) /* the tasks have ended, and their hosts may be freed */
            unref_opening(opening);
        else
            answer_opening(opening, status);
}

static void free_listen_stream(listen_stream *it)
{
    answer_all(it, -1);
    mp_timer_stop(it->host->loop, &it->again);
    mp_link_drop(&it->in_host);
    mp_link_drop(&it->in_channel);
    mp_link_drop(&it->hot);
    mp_transfer_free(it->transfer);
    mp_event_reader_clear(&it->reader);
    mp_channel_unref(it->channel);
    free(it->message);
    free(it->revision);
    free(it->last_id);
    mp_free_texts(it->headers);
    free(it);
    mp_stat_add(&mp_stat_upstream_listen_streams, -1);
}

static void on_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    listen_stream *it = ctx;
    if (mp_link_is_alone(&it->hot))
        mp_link_put(&it->host->hot_listen_streams, &it->hot);
}

/* Sends the request. False: it cannot be sent. */
static bool begin_listen_stream(listen_stream *it)
{
    const mp_upstream_part *part = it->channel->part;
    mp_err err = {"", ""};
    if (part->url == NULL)
        return false;
    mp_http_headers all = {0};
    mp_buf revision = {0}, last = {0};
    mp_http_put_headers(&all, it->host, it->channel, NULL);
    const char **list = mp_new((all.count + mp_count_texts(it->headers) + 3) * sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < all.count; i++)
        list[count++] = all.list[i];
    if (it->revision != NULL && it->channel->revision == NULL) { /* the channel is being opened */
        mp_buf_printf(&revision, "MCP-Protocol-Version: %s%c", it->revision, '\0');
        list[count++] = revision.ptr;
    }
    if (it->last_id != NULL) {
        mp_buf_printf(&last, "Last-Event-ID: %s%c", it->last_id, '\0');
        list[count++] = last.ptr;
    }
    for (char *const *header = it->headers; header != NULL && *header != NULL; header++)
        list[count++] = *header;
    mp_outgoing outgoing = mp_http_outgoing(part, list);
    if (it->message != NULL) {
        outgoing.method = "POST";
        outgoing.body = mp_str_of(it->message);
    }
    outgoing.ready = on_ready;
    outgoing.ctx = it;
    mp_transfer *transfer = mp_transfer_start(it->host->stream_client, &outgoing, &err);
    it->transfer = transfer;
    mp_http_clear_headers(&all);
    mp_buf_clear(&revision);
    mp_buf_clear(&last);
    free(list);
    it->reader.most = part->limits.answer;
    return transfer != NULL;
}

/* -- the end of a stream ------------------------------------------------------------------------------------------- */

/* Ends a stream that is not opened again by itself, and reports it to Lua. */
static void give_up(listen_stream *it, int status)
{
    if (it->was_open)
        mp_observe_end(it->channel, it->id, status);
    free_listen_stream(it);
}

static void on_again(mp_timer *timer);

/* The time before the GET is sent again. After QUICK_ENDS streams that ended at once, it is never below LEAST_PAUSE_MS,
 * whatever `retry:` says. */
static uint64_t pause_of(listen_stream *it)
{
    bool is_quick = it->is_open && mp_loop_now(it->host->loop) < it->opened_at + LEAST_PAUSE_MS;
    it->quick_ends = is_quick ? it->quick_ends + 1 : 0;
    uint64_t ms = mp_backoff_ms(++it->failures, LEAST_PAUSE_MS, MOST_PAUSE_MS);
    if (!it->is_open || !it->reader.has_retry)
        return ms;
    if (it->quick_ends > QUICK_ENDS && it->reader.retry_ms < LEAST_PAUSE_MS)
        return LEAST_PAUSE_MS;
    return it->reader.retry_ms < MOST_RETRY_MS ? it->reader.retry_ms : MOST_RETRY_MS;
}

/* Sends the GET of a channel again after a pause, since it had worked before. */
static void pause_listen_stream(listen_stream *it)
{
    uint64_t ms = pause_of(it);
    if (it->reader.id.len > 0) {
        free(it->last_id);
        it->last_id = mp_dup(mp_buf_str(&it->reader.id));
    }
    mp_event_reader_clear(&it->reader);
    it->reader = (mp_event_reader){0};
    mp_transfer_free(it->transfer);
    it->transfer = NULL;
    it->is_open = false;
    mp_timer_start(it->host->loop, &it->again, ms, on_again);
}

static void on_again(mp_timer *timer)
{
    listen_stream *it = mp_container(timer, listen_stream, again);
    mp_stat_add(&mp_stat_upstream_reopened, 1);
    if (!begin_listen_stream(it))
        pause_listen_stream(it);
}

static void end_stream(listen_stream *it)
{
    if (it->id == 0 && it->was_open)
        pause_listen_stream(it);
    else
        give_up(it, 0);
}

/* -- what arrives -------------------------------------------------------------------------------------------------- */

/* Handles an answer that is no stream: a status of 4xx is final; after any other one the GET of a stream that had
 * worked is sent again. */
static void refuse_stream(listen_stream *it, int status)
{
    answer_all(it, status == 200 ? -1 : status);
    if (it->id == 0 && it->was_open && (status < 400 || status >= 500))
        pause_listen_stream(it);
    else
        give_up(it, status);
}

static void open_stream(listen_stream *it)
{
    bool was_open = it->was_open;
    it->is_open = it->was_open = true;
    it->opened_at = mp_loop_now(it->host->loop);
    it->failures = 0;
    answer_all(it, 200);
    if (was_open) /* messages between the two streams are lost */
        mp_observe_event(it->channel, MP_OBSERVED_GAP);
}

static void take_message(listen_stream *it, mp_str bytes)
{
    if (!mp_channel_message(it->channel, bytes))
        mp_channel_count_dropped(it->channel);
}

static bool read_events(listen_stream *it, mp_transfer *transfer)
{
    mp_event event;
    mp_str piece;
    while ((piece = mp_transfer_body(transfer)).len > 0) {
        mp_event_result result;
        while ((result = mp_event_read(&it->reader, &piece, &event)) == MP_EVENT_COMPLETE)
            if (event.data.len > 0 && mp_str_is(event.kind, "message"))
                take_message(it, event.data);
        if (result != MP_EVENT_NONE)
            return false;
        mp_transfer_take(transfer);
    }
    return true;
}

static void pull_events(listen_stream *it)
{
    mp_transfer *transfer = it->transfer;
    if (transfer == NULL)
        return;
    int status = mp_transfer_status(transfer);
    bool is_over = mp_transfer_is_over(transfer);
    if (status == 0 && !is_over)
        return;
    if (status == 0) {
        refuse_stream(it, -1);
        return;
    }
    if (status != 200 || !mp_http_has_type(transfer, "text/event-stream")) {
        refuse_stream(it, status);
        return;
    }
    if (!it->is_open)
        open_stream(it);
    if (!read_events(it, transfer) || is_over)
        end_stream(it);
}

bool mp_listen_streams_turn(mp_upstream_host *host)
{
    mp_link *link;
    bool did = false;
    for (int i = 0; i < 256 && (link = mp_link_take(&host->hot_listen_streams)) != NULL; i++) {
        pull_events(mp_container(link, listen_stream, hot));
        did = true;
    }
    return did;
}

void mp_listen_streams_close(mp_channel *channel)
{
    while (!mp_link_is_alone(&channel->listen_streams))
        free_listen_stream(mp_container(channel->listen_streams.next, listen_stream, in_channel));
}

void mp_listen_streams_end(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->listen_streams))
        free_listen_stream(mp_container(host->listen_streams.next, listen_stream, in_host));
}

/* -- wishes -------------------------------------------------------------------------------------------------------- */

static listen_stream *MP_NULLABLE find_listen_stream(const mp_channel *channel, int64_t id)
{
    MP_EACH(listen_stream, it, &channel->listen_streams, in_channel) {
        if (it->id == id)
            return it;
    }
    return NULL;
}

/* Makes a listen stream, and takes over the texts of the request. */
static listen_stream *listen_stream_new(mp_listen_stream_opening *opening)
{
    mp_channel *channel = opening->channel;
    listen_stream *it = mp_new(sizeof *it);
    it->host = channel->worker;
    it->channel = mp_channel_ref(channel);
    it->id = opening->id;
    it->message = opening->message;
    it->revision = opening->revision;
    it->headers = opening->headers;
    opening->message = opening->revision = NULL;
    opening->headers = NULL;
    it->again.fire = on_again;
    mp_link_put(&it->host->listen_streams, &it->in_host);
    mp_link_put(&channel->listen_streams, &it->in_channel);
    mp_stat_add(&mp_stat_upstream_listen_streams, 1);
    return it;
}

static void deliver_wish(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_listen_stream_opening *opening = mp_container(message, mp_listen_stream_opening, super);
    mp_channel *channel = opening->channel;
    if (loop == NULL) { /* the task has ended, too, and its host may be freed */
        unref_opening(opening);
        return;
    }
    if (channel->worker->is_over || channel->worker->end_by != 0 || channel->is_closed) {
        answer_opening(opening, -1);
        return;
    }
    /* the connection of such a transport carries all messages: it needs no stream */
    if (channel->transport->one_worker) {
        answer_opening(opening, 200);
        return;
    }
    listen_stream *it = find_listen_stream(channel, opening->id);
    if (it != NULL && it->is_open) {
        answer_opening(opening, 200);
        return;
    }
    bool is_new = it == NULL;
    if (is_new)
        it = listen_stream_new(opening);
    mp_link_init(&opening->link);
    mp_link_put(&it->waiting, &opening->link);
    if (is_new && !begin_listen_stream(it))
        free_listen_stream(it);
}

static char *MP_NULLABLE copy_text(mp_str text)
{
    return text.len == 0 ? NULL : mp_dup(text);
}

mp_listen_stream_opening *mp_channel_listen(mp_upstream_host *host, mp_channel *channel,
                                            const mp_listen_stream_options *options)
{
    mp_listen_stream_opening *opening = mp_new(sizeof *opening);
    atomic_init(&opening->refs, 2);
    opening->host = host;
    opening->channel = mp_channel_ref(channel);
    opening->done = options->done;
    opening->ctx = options->ctx;
    opening->id = options->id;
    opening->message = copy_text(options->message);
    opening->revision = copy_text(options->revision);
    opening->headers = mp_copy_texts(options->headers);
    opening->super.deliver = deliver_wish;
    mp_loop_post(channel->worker->loop, &opening->super);
    return opening;
}

int mp_listen_stream_status(const mp_listen_stream_opening *opening)
{
    return opening->status;
}

void mp_listen_stream_free(mp_listen_stream_opening *MP_NULLABLE opening)
{
    if (opening == NULL)
        return;
    opening->done = NULL;
    unref_opening(opening);
}

typedef struct {
    mp_channel *channel; /* a counted reference */
    int64_t id;
} leave_message;

static void deliver_leave(void *content, mp_loop *MP_NULLABLE loop)
{
    const leave_message *it = content;
    listen_stream *found = loop == NULL ? NULL : find_listen_stream(it->channel, it->id);
    if (found != NULL)
        free_listen_stream(found);
    mp_channel_unref(it->channel);
}

void mp_channel_unlisten(mp_channel *channel, int64_t id)
{
    const leave_message message = {mp_channel_ref(channel), id};
    mp_loop_send(channel->worker->loop, deliver_leave, &message, sizeof message, MP_STR_NONE);
}
