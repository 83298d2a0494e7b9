/* held.c: the event streams that belong to a session, and what is sent on them from other threads. */
#include "house.h"
#include <stdlib.h>

void mp_put_event(mp_buf *out, mp_str json)
{
    mp_buf_put(out, MP_STR("event: message\ndata: "));
    mp_buf_put(out, json);
    mp_buf_put(out, MP_STR("\n\n"));
}

/* The stream is over, for whatever reason: nobody reads. On the thread of held->rpc. */
static void let_go(mp_held *held)
{
    mp_session *session = held->session;
    pthread_mutex_lock(&session->lock);
    bool current = session->held == held;
    if (current)
        session->held = NULL;
    pthread_mutex_unlock(&session->lock);
    atomic_store_explicit(&session->used_at, mp_loop_now(held->rpc->loop), memory_order_relaxed);

    bool slow = mp_stream_was_slow(held->stream);
    mp_stream_on_gone(held->stream, NULL, NULL);
    mp_stream_unref(held->stream);
    mp_link_drop(&held->link);
    free(held);
    if (current && session->is_sse) /* E-6: the end of its stream is the end of the session */
        mp_session_close(session, slow ? MP_STAT_CLOSED_SLOW : MP_STAT_CLOSED_GONE);
    mp_session_unref(session);
}

static void on_gone(void *ctx, mp_stream *stream)
{
    (void)stream;
    let_go(ctx);
}

/* Asked under the session's lock: `held` leaves the session before its socket is closed, so `fd` is its own. */
static bool is_read(const mp_held *held)
{
    return held->fd >= 0 && !mp_peer_left(held->fd);
}

bool mp_session_has_reader(mp_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool has = session->held != NULL && is_read(session->held);
    pthread_mutex_unlock(&session->lock);
    return has;
}

int mp_held_start(mp_rpc *rpc, mp_session *session, mp_stream *stream)
{
    mp_held *held = mp_new(sizeof *held);
    *held = (mp_held){
        .session = session, .stream = stream, .fd = mp_stream_fd(stream), .rpc = rpc, .was_idle = !session->is_sse};
    pthread_mutex_lock(&session->lock);
    bool refused = session->closed || (session->held != NULL && is_read(session->held));
    if (!refused) {
        session->held = held;
        session->rpcs |= UINT64_C(1) << rpc->index;
    }
    pthread_mutex_unlock(&session->lock);
    if (refused) {
        free(held);
        return -1;
    }
    mp_session_ref(session);
    mp_stream_ref(stream);
    mp_link_put(&rpc->held, &held->link);
    mp_stream_on_gone(stream, on_gone, held);
    return 0;
}

/* The stream of `session` if it is this rpc's; such a one only this thread can end. */
static mp_held *held_here(mp_rpc *rpc, mp_session *session)
{
    pthread_mutex_lock(&session->lock);
    mp_held *held = session->held;
    if (held != NULL && held->rpc != rpc)
        held = NULL;
    pthread_mutex_unlock(&session->lock);
    return held;
}

static void end_held(mp_held *held)
{
    mp_stream *stream = mp_stream_ref(held->stream);
    let_go(held);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    mp_session *session;
    size_t len;
    char json[];
} letter;

static void send_here(mp_rpc *rpc, mp_session *session, mp_str json)
{
    if (rpc->stdio.pipe != NULL) {
        mp_stdio_send(rpc, json);
        return;
    }
    mp_held *held = held_here(rpc, session);
    if (held == NULL) {
        mp_stat_add(MP_STAT_DROPPED_GONE, 1);
        return;
    }
    mp_buf event = {0};
    mp_put_event(&event, json);
    mp_stream_send(held->stream, mp_buf_str(&event));
    mp_buf_clear(&event);
}

static void deliver_letter(mp_message *message, mp_loop *loop)
{
    letter *mail = mp_container(message, letter, super);
    if (loop != NULL)
        send_here(mail->rpc, mail->session, (mp_str){mail->json, mail->len});
    mp_session_unref(mail->session);
    free(mail);
}

void mp_session_send(mp_rpc *from, mp_session *session, mp_str json)
{
    pthread_mutex_lock(&session->lock);
    mp_rpc *to = session->held == NULL ? from : session->held->rpc;
    pthread_mutex_unlock(&session->lock);
    if (to == from) {
        send_here(from, session, json);
        return;
    }
    letter *mail = mp_new(sizeof *mail + json.len);
    mail->super.deliver = deliver_letter;
    mail->rpc = to;
    mail->session = mp_session_ref(session);
    mail->len = json.len;
    memcpy(mail->json, json.ptr, json.len);
    mp_loop_post(to->loop, &mail->super);
}

void mp_rpc_forget(mp_rpc *rpc, mp_session *session)
{
    mp_held *held = held_here(rpc, session);
    if (held != NULL)
        end_held(held);
    for (mp_link *link = rpc->calls.next, *next; link != &rpc->calls; link = next) {
        next = link->next;
        mp_call *call = mp_container(link, mp_call, link);
        if (call->session == session && !call->opens_session)
            mp_call_cancel(call, "the session ended", MP_STAT_TOOL_GONE, MP_CANCEL_TELL);
    }
}

/* While draining: streams that carry no call end now, HTTP+SSE ones once their last call is answered. */
void mp_held_drain(mp_rpc *rpc, bool all)
{
    for (mp_link *link = rpc->held.next, *next; link != &rpc->held; link = next) {
        next = link->next;
        mp_held *held = mp_container(link, mp_held, link);
        mp_session *session = held->session;
        bool is_idle = !session->is_sse || atomic_load(&session->calls) == 0;
        bool was_idle = held->was_idle;
        held->was_idle = is_idle;
        if (!all && !(is_idle && was_idle))
            continue;
        if (session->is_sse)
            mp_session_close(session,
                             MP_STAT_CLOSED_SHUTDOWN); /* ours to name; else let_go would say its client left */
        end_held(held);
    }
}
