/* export.c: the exporter: a thread that sends ended traces to the collector, one request at a time. A request that may
 * succeed later is sent again, after the time that the collector asks for or after a growing one; meanwhile traces wait
 * in the queue, and those over its limits are dropped. No other thread ever waits for the collector. */
#include "json/json.h"
#include "state.h"
#include <sys/random.h>
#include <zlib.h>

/* spans wait for others for this time, unless a batch is full */
#define INTERVAL_MS ((uint64_t)MP_LIMIT(trace_interval_ms, 5000))

MP_COUNTER(spans_sent, "spans", "result", "sent", "spans that the collector has taken")
MP_COUNTER(spans_dropped, "spans", "result", "dropped",
           "spans above 8,192 or 16 MiB that wait for the collector, and those that waited when the gateway ended")
MP_COUNTER(spans_failed, "spans", "result", "failed", "spans that the collector refused, or did not take in time")
MP_COUNTER(span_requests, "span_requests", "", "", "requests with spans to the collector")
MP_COUNTER(span_retries, "span_retries", "", "", "requests with spans that were sent again")
MP_COUNTER(span_bytes_plain, "span_bytes", "form", "plain", "bytes of spans as JSON, before compression")
MP_COUNTER(span_bytes_sent, "span_bytes", "form", "sent",
           "bytes of bodies that were sent to the collector, without repetitions")
MP_ACCOUNT(spans_queued, "spans_queued", "", "", "spans that wait for the collector")
MP_ACCOUNT(span_bytes_queued, "span_bytes_queued", "", "", "bytes of the spans that wait for the collector")

#define BATCH_SPANS 512
#define MAX_ANSWER (64 << 10)
#define MAX_RETRY_MS 30000
#define MAX_RETRY_AFTER_S 300
#define GIVE_UP_MS 300000 /* ms in which a batch is tried again and again */
#define ENDING_RETRY_MS 200
/* spans that wait for the collector: 16 batches */
#define MAX_QUEUED MP_LIMIT(trace_queue, 8192)
#define MAX_QUEUED_BYTES MP_LIMIT(trace_queue_bytes, 16 << 20) /* bytes of the memory of traces in the queue */
/* ms that one request to the collector may take; then the batch is sent again */
#define TIMEOUT_MS ((uint64_t)MP_LIMIT(trace_timeout_ms, 10000))
#define GZIP_BITS (16 + MAX_WBITS) /* for deflateInit2: the header and the end of a gzip file */
#define GZIP_LEVEL 1               /* spans repeat so much that a higher one saves little more */
#define COMPLAIN_MS 60000          /* between two lines of the log about the collector */

/* The settings of the exporter that a configuration decides. */
typedef struct {
    char *url;      /* as in the configuration */
    char **headers; /* the first header is Content-Encoding, for compressed bodies */
    char *MP_NULLABLE ca;
    mp_buf resource;
} target;

typedef struct {
    mp_loop *loop;
    mp_client *client;
    pthread_t thread;
    target *to;
    mp_link queue;  /* list of mp_trace that wait to be sent */
    size_t waiting; /* spans in `queue` */
    mp_timer interval, limit, retry;
    bool is_due, is_ending;
    /* the batch: its body is kept until it was taken, or is given up */
    mp_buf body;
    bool is_packed; /* `body` is compressed */
    int64_t batch;  /* how many spans `body` contains; 0: there is no batch */
    uint64_t batch_since_ms;
    unsigned attempts;
    mp_transfer *MP_NULLABLE transfer; /* NULL: no request is in flight */
    char *MP_NULLABLE ca;              /* copy of the CA file's path, for `transfer` */
    uint64_t complained_at;
} exporter;

/* The process has one exporter, or none. Threads that end traces post to its loop. */
static exporter *MP_NULLABLE only; /* the only exporter; main thread */
static _Atomic(mp_loop *) inbox;
static char instance[33]; /* service.instance.id: random, the same over reloads; main thread */
static atomic_bool is_flushed = true;

/* -- the queue ----------------------------------------------------------------------------------------------------- */

/* False if the queue has no room for the trace: it is not counted. */
static bool queue_trace(const mp_trace *trace)
{
    if (!mp_account_take(&mp_account_spans_queued, trace->count, MAX_QUEUED))
        return false;
    if (mp_account_take(&mp_account_span_bytes_queued, (int64_t)mp_trace_bytes(trace), MAX_QUEUED_BYTES))
        return true;
    mp_account_give(&mp_account_spans_queued, trace->count);
    return false;
}

static void unqueue_trace(const mp_trace *trace)
{
    mp_account_give(&mp_account_spans_queued, trace->count);
    mp_account_give(&mp_account_span_bytes_queued, (int64_t)mp_trace_bytes(trace));
}

static void drop_trace(mp_trace *trace)
{
    mp_stat_add(&mp_stat_spans_dropped, trace->count);
    mp_trace_free(trace);
}

static void on_interval(mp_timer *timer)
{
    mp_container(timer, exporter, interval)->is_due = true;
}

static void deliver_trace(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_trace *trace = mp_container(message, mp_trace, message);
    exporter *e = only;
    if (loop == NULL || e == NULL) { /* the exporter has ended */
        unqueue_trace(trace);
        drop_trace(trace);
        return;
    }
    mp_link_put(&e->queue, &trace->link);
    e->waiting += (size_t)trace->count;
    if (e->interval.slot == 0 && !e->is_due)
        mp_timer_start(e->loop, &e->interval, INTERVAL_MS, on_interval);
}

void mp_export(mp_trace *trace)
{
    mp_loop *loop = atomic_load(&inbox);
    if (loop == NULL || !queue_trace(trace)) {
        drop_trace(trace);
        return;
    }
    trace->message.deliver = deliver_trace;
    mp_loop_post(loop, &trace->message);
}

/* -- the target ---------------------------------------------------------------------------------------------------- */

static target *target_new(const mp_trace_config *config)
{
    target *to = mp_new(sizeof *to);
    mp_scoped_buf url = {0};
    mp_str base = mp_str_of(config->otlp);
    while (base.len > 0 && base.ptr[base.len - 1] == '/')
        base.len--;
    mp_buf_put(&url, base);
    mp_buf_put(&url, MP_STR("/v1/traces"));
    to->url = mp_dup(mp_buf_str(&url));
    size_t count = 0;
    while (config->headers != NULL && config->headers[count] != NULL)
        count++;
    to->headers = mp_new((count + 3) * sizeof *to->headers);
    to->headers[0] = mp_dup(MP_STR("Content-Encoding: gzip"));
    to->headers[1] = mp_dup(MP_STR("Content-Type: application/json"));
    for (size_t i = 0; i < count; i++)
        to->headers[i + 2] = mp_dup(mp_str_of(config->headers[i]));
    to->ca = mp_dup_text(config->ca);
    mp_otlp_put_resource(&to->resource, config, instance);
    return to;
}

static void target_free(target *MP_NULLABLE to)
{
    if (to == NULL)
        return;
    for (char **header = to->headers; *header != NULL; header++)
        free(*header);
    free(to->headers);
    free(to->url);
    free(to->ca);
    mp_buf_clear(&to->resource);
    free(to);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* Compresses the body. If there is no memory for that, the body stays as it is. */
static void pack_body(exporter *e)
{
    z_stream z = {0};
    if (deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, GZIP_BITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return;
    mp_buf packed = {0};
    uLong most = deflateBound(&z, (uLong)e->body.len);
    z.next_in = (Bytef *)e->body.ptr;
    z.avail_in = (uInt)e->body.len;
    z.next_out = (Bytef *)mp_buf_room(&packed, most);
    z.avail_out = (uInt)most;
    e->is_packed = deflate(&z, Z_FINISH) == Z_STREAM_END;
    packed.len = z.total_out;
    deflateEnd(&z);
    if (e->is_packed) {
        mp_buf_clear(&e->body);
        e->body = packed;
    } else {
        mp_buf_clear(&packed);
    }
}

/* Makes the next batch of the traces that wait longest. */
static void make_batch(exporter *e)
{
    uint64_t offset_us = mp_clock_us(CLOCK_REALTIME) - mp_monotonic_us();
    e->body.len = 0;
    e->batch = 0;
    mp_otlp_begin(&e->body, mp_buf_str(&e->to->resource));
    for (mp_link *link; e->batch < BATCH_SPANS && (link = mp_link_take(&e->queue)) != NULL;) {
        mp_trace *trace = mp_container(link, mp_trace, link);
        if (e->batch > 0)
            mp_buf_putc(&e->body, ',');
        mp_otlp_put_trace(&e->body, trace, offset_us);
        e->batch += trace->count;
        e->waiting -= (size_t)trace->count;
        unqueue_trace(trace);
        mp_trace_free(trace);
    }
    mp_otlp_end(&e->body);
    mp_stat_add(&mp_stat_span_bytes_plain, (int64_t)e->body.len);
    e->is_packed = false;
    pack_body(e);
    mp_stat_add(&mp_stat_span_bytes_sent, (int64_t)e->body.len);
    e->attempts = 0;
    e->batch_since_ms = mp_loop_now(e->loop);
}

/* Logs trouble with the collector, at most once a minute. */
static void log_failure(exporter *e, const char *event, mp_str why)
{
    uint64_t now = mp_loop_now(e->loop);
    if (e->complained_at != 0 && now - e->complained_at < COMPLAIN_MS)
        return;
    e->complained_at = now;
    mp_log(MP_WARN, event, mp_log_str("why", why), mp_log_int("spans", e->batch),
           mp_log_str("hint", MP_STR("see traces.otlp; this is logged at most once a minute")));
}

static void end_batch(exporter *e, const mp_stat *counter, int64_t spans)
{
    mp_stat_add(counter, spans);
    e->batch = 0;
    mp_buf_clear(&e->body);
}

static void fail_batch(exporter *e, const char *event, mp_str why)
{
    log_failure(e, event, why);
    end_batch(e, &mp_stat_spans_failed, e->batch);
}

static void on_retry(mp_timer *timer)
{
    (void)timer; /* the turn that follows sends */
}

/* Sends the batch again later. `after_ms`: the Retry-After of the collector; 0: none. */
static void retry_later(exporter *e, uint64_t after_ms, mp_str why)
{
    log_failure(e, "traces not sent", why);
    uint64_t now = mp_loop_now(e->loop);
    if (now - e->batch_since_ms > GIVE_UP_MS) {
        fail_batch(e, "traces given up", why);
        return;
    }
    unsigned shift = e->attempts < 5 ? e->attempts : 5;
    uint64_t grown = UINT64_C(1000) << shift;
    if (grown > MAX_RETRY_MS)
        grown = MAX_RETRY_MS;
    uint8_t jitter = (uint8_t)(mp_monotonic_us() * 167);
    uint64_t wait = after_ms > 0 ? after_ms : grown / 2 + grown / 2 * jitter / 255;
    if (e->is_ending && wait > ENDING_RETRY_MS && after_ms == 0)
        wait = ENDING_RETRY_MS;
    e->attempts++;
    mp_timer_start(e->loop, &e->retry, wait, on_retry);
}

static void free_transfer(exporter *e, mp_transfer *transfer)
{
    mp_timer_stop(e->loop, &e->limit);
    mp_transfer_free(transfer);
    e->transfer = NULL;
    free(e->ca);
    e->ca = NULL;
}

static void on_limit(mp_timer *timer)
{
    exporter *e = mp_container(timer, exporter, limit);
    mp_transfer *MP_NULLABLE transfer = e->transfer;
    if (transfer == NULL || mp_transfer_is_over(transfer))
        return; /* the turn that follows reads the answer */
    free_transfer(e, transfer);
    retry_later(e, 0, MP_STR("the collector did not answer in time"));
}

/* Called when bytes of the answer have arrived. May run inside libcurl: the turn reads them. */
static void on_ready(MP_UNUSED mp_transfer *transfer, MP_UNUSED void *ctx) {}

static void send_batch(exporter *e)
{
    mp_err err = {0};
    mp_url url;
    if (mp_url_parse(&url, e->to->url, NULL, &err) != 0) {
        fail_batch(e, "traces not sent", mp_str_of(err.text));
        return;
    }
    mp_stat_add(e->attempts == 0 ? &mp_stat_span_requests : &mp_stat_span_retries, 1);
    e->ca = mp_dup_text(e->to->ca);
    mp_outgoing outgoing = {.method = "POST",
                            .url = url.text,
                            .headers = (const char *const *)e->to->headers + !e->is_packed,
                            .body = mp_buf_str(&e->body),
                            .most = MAX_ANSWER,
                            .is_repeatable = true,
                            .policy = {.kind = MP_ADDRESS_POLICY_PRIVATE},
                            .connect_ms = TIMEOUT_MS,
                            .ca = e->ca,
                            .ready = on_ready,
                            .ctx = e};
    e->transfer = mp_transfer_start(e->client, &outgoing, &err);
    mp_url_clear(&url);
    if (e->transfer == NULL) {
        free(e->ca);
        e->ca = NULL;
        retry_later(e, 0, mp_str_of(err.text));
        return;
    }
    mp_timer_start(e->loop, &e->limit, TIMEOUT_MS, on_limit);
}

/* The time of Retry-After in ms; 0: there is none, or it is a date. */
static uint64_t retry_after(const mp_transfer *transfer)
{
    mp_str head = mp_transfer_head(transfer);
    while (head.ptr != NULL && head.len > 0) {
        mp_str line = mp_str_cut(&head, '\n'), name = mp_str_cut(&line, ':');
        if (line.ptr == NULL || !mp_str_is_nocase(mp_str_trim(name), "retry-after"))
            continue;
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        int64_t seconds;
        line = mp_str_trim(line);
        if (!mp_json_int(line, &seconds) || seconds < 0)
            return 0;
        return (uint64_t)(seconds > MAX_RETRY_AFTER_S ? MAX_RETRY_AFTER_S : seconds) * 1000;
    }
    return 0;
}

/* The request is over: the batch was taken, is refused, or is sent again. */
static void read_answer(exporter *e, mp_transfer *transfer)
{
    const mp_err *failure = mp_transfer_failure(transfer);
    int status = failure == NULL ? mp_transfer_status(transfer) : 0;
    char why[MP_TRACEPARENT_BYTES];
    if (status >= 200 && status <= 299) {
        int64_t rejected = mp_otlp_rejected(mp_transfer_body(transfer));
        rejected = rejected > e->batch ? e->batch : rejected;
        free_transfer(e, transfer);
        if (rejected > 0)
            log_failure(e, "traces rejected in part", MP_STR("the collector rejected spans of a batch"));
        mp_stat_add(&mp_stat_spans_failed, rejected);
        end_batch(e, &mp_stat_spans_sent, e->batch - rejected);
        return;
    }
    bool may_succeed = status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
    uint64_t after_ms = status == 0 ? 0 : retry_after(transfer);
    if (failure != NULL)
        snprintf(why, sizeof why, "%.50s", failure->text);
    else
        snprintf(why, sizeof why, "the collector answered with status %d", status);
    free_transfer(e, transfer);
    if (may_succeed)
        retry_later(e, after_ms, mp_str_of(why));
    else
        fail_batch(e, "traces refused", mp_str_of(why));
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static bool has_batch(const exporter *e)
{
    return e->batch > 0 && e->retry.slot == 0;
}

static bool should_batch(const exporter *e)
{
    return e->batch == 0 && e->waiting > 0 && (e->is_due || e->is_ending || e->waiting >= BATCH_SPANS);
}

static bool has_work(void *ctx)
{
    const exporter *e = ctx;
    const mp_transfer *MP_NULLABLE transfer = e->transfer;
    if (transfer != NULL)
        return mp_transfer_is_over(transfer);
    return has_batch(e) || should_batch(e) ||
           (e->is_ending && e->batch == 0 && e->waiting == 0 && !atomic_load(&is_flushed));
}

static bool turn_exporter(void *ctx)
{
    exporter *e = ctx;
    mp_transfer *MP_NULLABLE transfer = e->transfer;
    if (transfer != NULL && mp_transfer_is_over(transfer))
        read_answer(e, transfer);
    if (e->transfer != NULL)
        return false;
    if (should_batch(e))
        make_batch(e);
    if (has_batch(e))
        send_batch(e);
    if (e->waiting == 0)
        e->is_due = false;
    if (e->is_ending && e->batch == 0 && e->waiting == 0)
        atomic_store(&is_flushed, true);
    return false;
}

static void *MP_NULLABLE run_exporter(void *ctx)
{
    exporter *e = ctx;
    mp_crash_thread("traces", 0);
    mp_stat_thread();
    mp_loop_run(e->loop);
    return NULL;
}

/* -- orders of the main thread ------------------------------------------------------------------------------------- */

/* `content` is a target, or NULL: flush. */
static void deliver_target(void *content, mp_loop *MP_NULLABLE loop)
{
    target *MP_NULLABLE to = *(target **)content;
    exporter *e = only;
    if (loop == NULL || e == NULL) {
        target_free(to);
    } else if (to == NULL) {
        e->is_ending = true;
        if (e->attempts > 0 && e->retry.slot != 0)
            mp_timer_start(e->loop, &e->retry, 0, on_retry);
    } else {
        target_free(e->to);
        e->to = to;
    }
}

static void send_target(const exporter *e, target *MP_NULLABLE to)
{
    mp_loop_send(e->loop, deliver_target, &to, sizeof to, MP_STR_NONE);
}

static void exporter_free(exporter *MP_NULLABLE e)
{
    if (e == NULL)
        return;
    mp_transfer *MP_NULLABLE transfer = e->transfer;
    if (transfer != NULL)
        free_transfer(e, transfer);
    mp_client_free(e->client);
    mp_loop_free(e->loop);
    MP_EACH_TAKEN(mp_trace, trace, &e->queue, link) {
        unqueue_trace(trace);
        drop_trace(trace);
    }
    mp_buf_clear(&e->body);
    target_free(e->to);
    free(e);
}

static int start_exporter(const mp_trace_config *config, mp_err *err)
{
    mp_loop *loop = mp_loop_new(err);
    if (loop == NULL)
        return -1;
    exporter *e = mp_new(sizeof *e);
    e->to = target_new(config);
    e->loop = loop;
    e->client = mp_client_new(
        loop,
        &(mp_client_limits){.requests = 2, .lookups = INT64_MAX, .per_host = 1, .held = 1 << 20, .idle_ms = 60000});
    mp_loop_on_turn(loop, turn_exporter, has_work, e);
    only = e;
    int code = pthread_create(&e->thread, NULL, run_exporter, e);
    if (code != 0) {
        only = NULL;
        exporter_free(e);
        return mp_err_set(err, "cannot start a thread for traces: %s", strerror(code));
    }
    atomic_store(&inbox, loop);
    return 0;
}

static void make_instance(void)
{
    uint8_t random[16] = {0};
    if (instance[0] != '\0' || getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return;
    *mp_hex_put(instance, random, sizeof random) = '\0';
}

int mp_traces_configure(const mp_trace_config *config, mp_err *err)
{
    make_instance();
    bool is_on = config->otlp != NULL;
    int result = 0;
    const exporter *e = only;
    if (is_on && e == NULL)
        result = start_exporter(config, err);
    else if (is_on)
        send_target(e, target_new(config));
    mp_trace_rules(config, is_on && result == 0);
    return result;
}

void mp_traces_flush(void)
{
    const exporter *e = only;
    if (e == NULL)
        return;
    atomic_store(&is_flushed, false);
    send_target(e, NULL);
}

bool mp_traces_are_flushed(void)
{
    return atomic_load(&is_flushed);
}

void mp_traces_stop(void)
{
    exporter *e = only;
    if (e == NULL)
        return;
    mp_loop_stop(e->loop);
    pthread_join(e->thread, NULL);
    int64_t lost = e->batch + (int64_t)e->waiting;
    mp_stat_add(&mp_stat_spans_dropped, e->batch);
    if (lost > 0)
        mp_log(MP_WARN, "traces lost", mp_log_int("spans", lost),
               mp_log_str("hint", MP_STR("the collector of traces.otlp did not take them before the gateway ended")));
    atomic_store(&inbox, NULL);
    exporter_free(e);
    only = NULL;
}
