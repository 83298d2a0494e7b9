/* client_request.c: requests to the client, in revisions with sessions. They are sent on the stream of the call that
 * makes them (S-8). Their answers come as POSTs of the same session, on any worker. The gateway chooses the ids, and
 * looks for an answer's id only within its session: another client cannot answer (B-31). */
#include "state.h"

MP_GAUGE(reply_bytes, "reply_bytes", "", "",
         "bytes of clients' answers to questions that are on their way to the worker of their call")
MP_COUNTER(dropped_replies, "dropped", "reason", "replies",
           "answers of clients to questions, over what waits for the worker of their call")

struct mp_client_request {
    mp_link link;       /* link in call->client_requests */
    mp_link in_session; /* guarded by the session's lock, like `id`, `rpc` and `serial` */
    mp_call *call;
    mp_session *session; /* of the call, which has a reference */
    mp_rpc *rpc;
    uint64_t serial;
    char id[32]; /* a JSON string: "\"ask-17-2\"" */
    void (*done)(void *ctx, bool is_error, mp_str answer);
    void *ctx;
};

/* Calls `done` with an error. */
static void fail_request(void (*done)(void *ctx, bool is_error, mp_str answer), void *ctx, const char *message)
{
    mp_scoped_buf error = {0};
    mp_buf_printf(&error, "{\"code\":%d,\"message\":\"%s\"}", MP_CODE_INTERNAL, message);
    done(ctx, true, mp_buf_str(&error));
}

static void put_request(mp_buf *out, const mp_client_request *ask, mp_str method, mp_str params)
{
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(out, mp_str_of(ask->id));
    mp_buf_put(out, MP_STR(",\"method\":"));
    mp_json_put_string(out, method);
    if (params.len > 0) {
        mp_buf_put(out, MP_STR(",\"params\":"));
        mp_buf_put(out, params);
    }
    mp_buf_putc(out, '}');
}

static void free_request(mp_client_request *ask)
{
    mp_session *session = ask->session;
    pthread_mutex_lock(&session->lock);
    mp_link_drop(&ask->in_session);
    pthread_mutex_unlock(&session->lock);
    mp_link_drop(&ask->link);
    free(ask);
}

mp_client_request *MP_NULLABLE mp_call_ask(mp_call *call, mp_str method, mp_str params,
                                           void (*done)(void *ctx, bool is_error, mp_str answer), void *ctx)
{
    mp_session *session = call->session;
    if (call->ended || call->is_detached || session == NULL || call->rpc->is_input_over ||
        (!mp_stream_is_open(call->stream) && call->feed == NULL && !session->is_sse))
        return NULL;
    mp_client_request *ask = mp_new(sizeof *ask);
    *ask = (mp_client_request){.call = call,
                               .session = session,
                               .rpc = call->rpc,
                               .serial = ++call->rpc->last_serial,
                               .done = done,
                               .ctx = ctx};
    snprintf(ask->id, sizeof ask->id, "\"ask-%u-%llu\"", call->rpc->index, (unsigned long long)ask->serial);
    mp_link_put(&call->client_requests, &ask->link);
    pthread_mutex_lock(&session->lock);
    mp_link_put(&session->client_requests, &ask->in_session);
    pthread_mutex_unlock(&session->lock);

    uint64_t serial = ask->serial;
    mp_buf request = {0};
    put_request(&request, ask, method, params);
    int sent = mp_call_send(call, mp_buf_str(&request));
    mp_buf_clear(&request);
    if (sent == 0)
        return ask;
    /* if the client is gone, the send has ended the call, which may have freed the request already: so it is searched
     */
    MP_EACH(mp_client_request, other, &call->client_requests, link)
        if (other->serial == serial) {
            free_request(ask);
            break;
        }
    return NULL;
}

/* Notifies the client that it need not answer a request of the call (Y-1, Y-3). `fails`: calls `done` with an error. */
static void cancel_request(mp_call *call, mp_client_request *ask, bool fails)
{
    mp_scoped_buf note = {0};
    void (*done)(void *, bool, mp_str) = ask->done;
    void *ctx = ask->ctx;
    mp_buf_printf(&note, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%s}}",
                  ask->id);
    free_request(ask);
    if (fails) /* before the send, which ends the call if the client is gone */
        fail_request(done, ctx, "the request was withdrawn");
    mp_call_send(call, mp_buf_str(&note));
}

static void cancel_requests(mp_call *call, bool fails)
{
    while (!mp_link_is_alone(&call->client_requests))
        cancel_request(call, mp_container(call->client_requests.next, mp_client_request, link), fails);
}

void mp_client_requests_cancel(mp_call *call)
{
    cancel_requests(call, false);
}

void mp_call_withdraw(mp_call *call)
{
    cancel_requests(call, true);
}

uint64_t mp_client_request_serial(const mp_client_request *request)
{
    return request->serial;
}

void mp_call_withdraw_one(mp_call *call, uint64_t serial)
{
    MP_EACH(mp_client_request, ask, &call->client_requests, link) {
        if (ask->serial != serial)
            continue;
        cancel_request(call, ask, false);
        return;
    }
}

void mp_client_requests_forget(mp_call *call)
{
    while (!mp_link_is_alone(&call->client_requests))
        free_request(mp_container(call->client_requests.next, mp_client_request, link));
}

static mp_client_request *MP_NULLABLE find_unanswered(mp_rpc *rpc)
{
    MP_EACH(mp_call, call, &rpc->calls, link) {
        MP_EACH(mp_client_request, ask, &call->client_requests, link)
            if (!mp_link_is_alone(&ask->in_session))
                return ask;
    }
    return NULL;
}

void mp_client_requests_fail(mp_rpc *rpc)
{
    for (mp_client_request *ask; (ask = find_unanswered(rpc)) != NULL;) {
        void (*done)(void *, bool, mp_str) = ask->done;
        void *ctx = ask->ctx;
        free_request(ask);
        fail_request(done, ctx, "the client has left");
    }
}

typedef struct {
    mp_rpc *rpc;
    uint64_t serial;
    bool is_error;
    size_t len;
    char answer[];
} reply_message;

/* Calls are few (limits.calls_in_flight), and each has few requests: a search is cheap beside the time a person needs
 * to answer. */
static mp_client_request *MP_NULLABLE find_ask(mp_rpc *rpc, uint64_t serial)
{
    MP_EACH(mp_call, call, &rpc->calls, link) {
        MP_EACH(mp_client_request, ask, &call->client_requests, link)
            if (ask->serial == serial)
                return ask;
    }
    return NULL;
}

static void deliver_reply(void *content, mp_loop *MP_NULLABLE loop)
{
    const reply_message *message = content;
    mp_account_give(&message->rpc->reply_bytes, (int64_t)message->len);
    mp_stat_add(&mp_stat_reply_bytes, -(int64_t)message->len);
    mp_client_request *ask = loop == NULL ? NULL : find_ask(message->rpc, message->serial);
    if (ask != NULL) {
        void (*done)(void *, bool, mp_str) = ask->done;
        void *ctx = ask->ctx;
        free_request(ask);
        done(ctx, message->is_error, (mp_str){message->answer, message->len});
    }
}

/* Sends the client's answer to the thread of its call. If too many bytes wait for that thread, which may be stuck, the
 * answer is replaced by an error. */
static void send_reply(const mp_client_request *ask, bool is_error, mp_str answer)
{
    mp_rpc *rpc = ask->rpc;
    if (!mp_account_take_posted(&rpc->reply_bytes, answer.len)) {
        mp_stat_add(&mp_stat_dropped_replies, 1);
        is_error = true;
        answer = MP_STR("{\"code\":-32603,\"message\":\"the worker of the call takes no answers now\"}");
        mp_account_add(&rpc->reply_bytes, (int64_t)answer.len);
    }
    mp_stat_add(&mp_stat_reply_bytes, (int64_t)answer.len);
    const reply_message message = {rpc, ask->serial, is_error, answer.len};
    mp_loop_send(rpc->loop, deliver_reply, &message, sizeof message, answer);
}

bool mp_session_answer(mp_session *session, mp_str id, bool is_error, mp_str answer)
{
    bool is_found = false;
    MP_LOCKED(&session->lock);
    for (mp_link *link = mp_link_first(&session->client_requests); link != &session->client_requests && !is_found;
         link = link->next) {
        mp_client_request *ask = mp_container(link, mp_client_request, in_session);
        is_found = mp_json_id_eq(mp_str_of(ask->id), id);
        if (is_found) {
            mp_link_drop(&ask->in_session); /* a second answer with the same id matches nothing */
            send_reply(ask, is_error, answer);
        }
    }
    return is_found;
}
