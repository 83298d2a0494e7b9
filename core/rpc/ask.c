/* ask.c: requests to the client, before 2026-07-28: they go out on the stream of the call that asks (S-8), and their
 * answers come as POSTs of the same session, on whatever worker. Ids are ours, and an answer is matched within its session
 * alone: what another client sends can answer nothing of ours (B-31). */
#include "house.h"
#include "json/json.h"
#include <stdio.h>
#include <stdlib.h>

struct mp_ask {
    mp_link link;       /* in call->asks */
    mp_link in_session; /* under the session's lock, with `id`, `rpc` and `serial` */
    mp_call *call;
    mp_rpc *rpc;
    uint64_t serial;
    char id[32]; /* a JSON string: "\"ask-17-2\"" */
    void (*done)(void *ctx, bool is_error, mp_str answer);
    void *ctx;
};

static void put_request(mp_buf *out, const mp_ask *ask, mp_str method, mp_str params)
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

static void forget(mp_ask *ask)
{
    mp_session *session = ask->call->session;
    pthread_mutex_lock(&session->lock);
    mp_link_drop(&ask->in_session);
    pthread_mutex_unlock(&session->lock);
    mp_link_drop(&ask->link);
    free(ask);
}

mp_ask *mp_call_ask(mp_call *call, mp_str method, mp_str params, void (*done)(void *ctx, bool is_error, mp_str answer),
                    void *ctx)
{
    mp_session *session = call->session;
    if (call->ended || call->is_job || session == NULL || call->rpc->stdio.is_over ||
        (call->stream == NULL && call->feed == NULL && !session->is_sse))
        return NULL;
    mp_ask *ask = mp_new(sizeof *ask);
    *ask = (mp_ask){.call = call, .rpc = call->rpc, .serial = ++call->rpc->last_serial, .done = done, .ctx = ctx};
    snprintf(ask->id, sizeof ask->id, "\"ask-%u-%llu\"", call->rpc->index, (unsigned long long)ask->serial);
    mp_link_init(&ask->in_session);
    mp_link_init(&ask->link);
    mp_link_put(&call->asks, &ask->link);
    pthread_mutex_lock(&session->lock);
    mp_link_put(&session->asks, &ask->in_session);
    pthread_mutex_unlock(&session->lock);

    uint64_t serial = ask->serial;
    mp_buf request = {0};
    put_request(&request, ask, method, params);
    int sent = mp_call_send(call, mp_buf_str(&request));
    mp_buf_clear(&request);
    if (sent == 0)
        return ask;
    /* a client that left while we sent has ended the call, and with it the ask, where a hang-up cancels */
    for (mp_link *link = call->asks.next; link != &call->asks; link = link->next)
        if (mp_container(link, mp_ask, link)->serial == serial) {
            forget(ask);
            break;
        }
    return NULL;
}

/* Y-1, Y-3: whoever asked and no longer wants to know says so. `tell`: who waits goes on with an error. */
static void call_off(mp_call *call, bool tell)
{
    mp_buf note = {0};
    while (!mp_link_is_alone(&call->asks)) {
        mp_ask *ask = mp_container(call->asks.next, mp_ask, link);
        void (*done)(void *, bool, mp_str) = ask->done;
        void *ctx = ask->ctx;
        note.len = 0;
        mp_buf_printf(&note,
                      "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":%s}}",
                      ask->id);
        forget(ask);
        if (tell) /* before the client may turn out to be gone, which ends the call */
            done(ctx, true, MP_STR("{\"code\":-32603,\"message\":\"withdrawn\"}"));
        mp_call_send(call, mp_buf_str(&note));
    }
    mp_buf_clear(&note);
}

void mp_asks_call_off(mp_call *call)
{
    call_off(call, false);
}

void mp_call_withdraw(mp_call *call)
{
    call_off(call, true);
}

void mp_asks_forget(mp_call *call)
{
    while (!mp_link_is_alone(&call->asks))
        forget(mp_container(call->asks.next, mp_ask, link));
}

static mp_ask *find_unanswered(mp_rpc *rpc)
{
    for (mp_link *at = rpc->calls.next; at != &rpc->calls; at = at->next) {
        mp_call *call = mp_container(at, mp_call, link);
        for (mp_link *link = call->asks.next; link != &call->asks; link = link->next)
            if (!mp_link_is_alone(&mp_container(link, mp_ask, link)->in_session))
                return mp_container(link, mp_ask, link);
    }
    return NULL;
}

void mp_asks_give_up(mp_rpc *rpc)
{
    for (mp_ask *ask; (ask = find_unanswered(rpc)) != NULL;) {
        void (*done)(void *, bool, mp_str) = ask->done;
        void *ctx = ask->ctx;
        forget(ask);
        done(ctx, true, MP_STR("{\"code\":-32603,\"message\":\"the client answers nothing any more\"}"));
    }
}

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    uint64_t serial;
    bool is_error;
    size_t len;
    char answer[];
} reply;

/* Calls are few (limits.calls_in_flight), and each asks little: looking through them is cheap beside a person's answer. */
static mp_ask *find_ask(mp_rpc *rpc, uint64_t serial)
{
    for (mp_link *at = rpc->calls.next; at != &rpc->calls; at = at->next) {
        mp_call *call = mp_container(at, mp_call, link);
        for (mp_link *link = call->asks.next; link != &call->asks; link = link->next)
            if (mp_container(link, mp_ask, link)->serial == serial)
                return mp_container(link, mp_ask, link);
    }
    return NULL;
}

static void deliver_reply(mp_message *message, mp_loop *loop)
{
    reply *news = mp_container(message, reply, super);
    mp_ask *ask = loop == NULL ? NULL : find_ask(news->rpc, news->serial);
    if (ask != NULL) {
        void (*done)(void *, bool, mp_str) = ask->done;
        void *ctx = ask->ctx;
        forget(ask);
        done(ctx, news->is_error, (mp_str){news->answer, news->len});
    }
    free(news);
}

bool mp_session_answer(mp_session *session, mp_str id, bool is_error, mp_str answer)
{
    reply *news = NULL;
    pthread_mutex_lock(&session->lock);
    for (mp_link *link = session->asks.next; link != &session->asks && news == NULL; link = link->next) {
        mp_ask *ask = mp_container(link, mp_ask, in_session);
        if (!mp_json_id_eq(mp_str_of(ask->id), id))
            continue;
        news = mp_new(sizeof *news + answer.len);
        *news = (reply){{.deliver = deliver_reply}, ask->rpc, ask->serial, is_error, answer.len};
        memcpy(news->answer, answer.ptr, answer.len);
        mp_link_drop(&ask->in_session); /* the second answer is nobody's */
        break;
    }
    pthread_mutex_unlock(&session->lock);
    if (news != NULL)
        mp_loop_post(news->rpc->loop, &news->super);
    return news != NULL;
}
