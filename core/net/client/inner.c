/* inner.c: requests to other processes of this gateway and to other nodes, which are of clients with `is_inner`:
 * HTTP/1.1 over a Unix socket, over TCP, or over TLS with a certificate on either side.
 *
 *   receiver  another process, while there are transfers or connections to it
 *   line      a connection to it: with a transfer, or kept for the next one
 *
 * The receiver is our own server: what it sends is read strictly, and every answer has a length or is chunked. A
 * request is written a second time, on a new connection, only if nothing of it was written, or its caller allows that.
 *
 * Above 400 lines: each step of a transfer may end it, and with it the connection. */
#include "net/tls/context.h"
#include "transfer.h"
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

MP_GAUGE(inner_connections, "inner_connections", "", "",
         "connections to other processes of the gateway, and to other nodes: in use, or kept for the next requests")

#define READ_BYTES 16384 /* that one read takes at most: what a record of TLS can hold */
#define SMALL_BODY 16384 /* a body up to this size is copied, so that it is written at once with the head */
#define CONNECT_MS 10000 /* for requests without a limit of their own */
#define AGAIN_MS 10      /* after which connecting to a Unix socket whose queue is full is tried again */
/* A kept Unix socket that was used later is not asked whether the peer has closed it: a write says so, and nothing was
 * sent then. By TCP, what is written is lost. */
#define PROBED_MS 2
#define MOST_KEPT 1024 /* kept connections of a worker: what all nodes together have at once in a busy second */

struct mp_receiver {
    mp_link link; /* in client->inner.peers */
    mp_link kept; /* lines without a transfer: the one that was used last is the last one */
    int64_t users;
    SSL_CTX *MP_NULLABLE tls;         /* counted; NULL: without TLS */
    SSL_SESSION *MP_NULLABLE session; /* counted: the next handshake begins with it; NULL: there is none */
    bool is_unix;
    char *MP_NULLABLE name; /* that its certificate must have; NULL: without TLS */
    char place[];           /* the path of a Unix socket, or HOST:PORT */
};

struct mp_line {
    mp_link link; /* in receiver->kept */
    mp_fdwatch watch;
    uint32_t events; /* that are watched; 0: none */
    mp_net_wire wire;
    mp_client *client;
    mp_receiver *receiver;
    SSL_CTX *MP_NULLABLE tls;          /* borrowed, only for comparison */
    mp_transfer *MP_NULLABLE transfer; /* NULL: it is kept */
    uint64_t used_ms;
    bool is_shaking, was_used, is_kept;
};

/* -- receivers ----------------------------------------------------------------------------------------------------- */

static void leave_receiver(mp_receiver *to)
{
    if (--to->users > 0)
        return;
    mp_link_drop(&to->link);
    SSL_SESSION_free(to->session);
    SSL_CTX_free(to->tls);
    free(to->name);
    free(to);
}

static bool is_text(const char *MP_NULLABLE text, mp_str s)
{
    return text == NULL ? s.ptr == NULL : mp_str_eq(mp_str_of(text), s);
}

/* The receiver of a request; `name` without TLS: ptr NULL. */
static mp_receiver *enter_receiver(mp_client *client, mp_str place, mp_str name, bool is_unix)
{
    mp_receiver *to = NULL;
    MP_EACH(mp_receiver, each, &client->inner.peers, link) {
        if (to == NULL && each->is_unix == is_unix && is_text(each->place, place) && is_text(each->name, name))
            to = each;
    }
    if (to == NULL) {
        to = mp_new(sizeof *to + place.len + 1);
        memcpy(to->place, place.ptr, place.len);
        to->name = name.ptr == NULL ? NULL : mp_dup(name);
        to->is_unix = is_unix;
        mp_link_put(&client->inner.peers, &to->link);
    }
    to->users++;
    return to;
}

/* Keeps what a server has sent for the next handshake. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    mp_receiver *to = ((mp_line *)SSL_get_app_data(ssl))->receiver;
    if (SSL_get_SSL_CTX(ssl) != to->tls)
        return 0;
    SSL_SESSION_free(to->session);
    to->session = session;
    return 1;
}

/* New connections to the receiver show the certificate, and trust the authorities, that the request names. -1: the
 * files cannot be used. */
static int set_context(mp_client *client, mp_receiver *to, const mp_outgoing *how, mp_err *err)
{
    SSL_CTX *context = mp_client_context(client, how->ca, how->tls, err);
    if (context == NULL)
        return -1;
    if (context == to->tls)
        return 0;
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context, on_session);
    SSL_CTX_up_ref(context);
    SSL_CTX_free(to->tls);
    SSL_SESSION_free(to->session);
    to->tls = context;
    to->session = NULL;
    return 0;
}

/* -- lines --------------------------------------------------------------------------------------------------------- */

/* The line is no longer among those that are kept, if it was. */
static void unlink_line(mp_line *line)
{
    if (line->is_kept)
        line->client->inner.kept--;
    line->is_kept = false;
    mp_link_drop(&line->link);
}

/* Closes a line that has failed: its session of TLS is not used again. */
static void drop_line(mp_line *line)
{
    unlink_line(line);
    mp_fdwatch_stop(line->client->loop, &line->watch);
    mp_net_wire_close(&line->wire);
    leave_receiver(line->receiver);
    mp_stat_add(&mp_stat_inner_connections, -1);
    free(line);
}

static void close_line(mp_line *line)
{
    SSL *ssl = line->wire.ssl;
    if (ssl != NULL)
        SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* as if both had said so */
    drop_line(line);
}

static bool is_old(const mp_line *line)
{
    return line->tls != line->receiver->tls ||
           mp_loop_now(line->client->loop) - line->used_ms >= line->client->limits.idle_ms;
}

static void on_sweep(mp_timer *timer)
{
    mp_client *client = mp_container(timer, mp_client, inner.sweep);
    uint64_t now = mp_loop_now(client->loop), next = UINT64_MAX;
    MP_EACH(mp_receiver, to, &client->inner.peers, link) {
        to->users++;
        MP_EACH(mp_line, line, &to->kept, link) {
            if (is_old(line))
                close_line(line);
            else if (line->used_ms < next)
                next = line->used_ms;
        }
        leave_receiver(to);
    }
    if (next != UINT64_MAX)
        mp_timer_start(client->loop, timer, next + client->limits.idle_ms - now, on_sweep);
}

static void keep_line(mp_line *line)
{
    mp_client *client = line->client;
    line->used_ms = mp_loop_now(client->loop);
    line->is_kept = true;
    client->inner.kept++;
    mp_link_put(&line->receiver->kept, &line->link);
    if (client->inner.sweep.slot == 0)
        mp_timer_start(client->loop, &client->inner.sweep, client->limits.idle_ms, on_sweep);
}

/* A line that is kept for the receiver, and that its peer has not closed; NULL: there is none. */
static mp_line *MP_NULLABLE take_kept(mp_receiver *to)
{
    while (!mp_link_is_alone(&to->kept)) {
        mp_line *line = mp_container(to->kept.prev, mp_line, link);
        bool is_fresh = to->is_unix && mp_loop_now(line->client->loop) - line->used_ms < PROBED_MS;
        if (!is_old(line) && (is_fresh || !mp_peer_left(line->wire.fd))) {
            unlink_line(line);
            return line;
        }
        close_line(line);
    }
    return NULL;
}

static void on_event(mp_fdwatch *watch, uint32_t events);

/* Watches what the line waits for. -1: there is no room for it. */
static int watch_line(mp_line *line)
{
    const mp_transfer *it = line->transfer;
    bool is_unsent = it != NULL && !line->is_shaking && it->put < it->size;
    uint32_t wanted = line->wire.wants_to_write || is_unsent ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (line->events == wanted)
        return 0;
    line->events = wanted;
    return mp_fdwatch_start(line->client->loop, &line->watch, line->wire.fd, wanted, on_event);
}

/* A new line on a connected socket. */
static mp_line *new_line(mp_client *client, mp_receiver *to, int fd)
{
    mp_line *line = mp_new(sizeof *line);
    line->client = client;
    line->receiver = to;
    line->wire.fd = fd;
    line->tls = to->tls;
    to->users++;
    mp_stat_add(&mp_stat_inner_connections, 1);
    if (line->tls == NULL)
        return line;
    mp_net_wire_start_tls(&line->wire, line->tls, MP_NEVER_NULL(to->name));
    SSL *ssl = line->wire.ssl;
    SSL_set_app_data(ssl, line);
    SSL_set_read_ahead(ssl, 1);
    if (to->session != NULL)
        SSL_set_session(ssl, to->session);
    line->is_shaking = true;
    return line;
}

/* -- the end of a transfer ----------------------------------------------------------------------------------------- */

static void give_out(mp_transfer *it)
{
    mp_buf_clear(&it->out);
    if (it->held > 0)
        mp_account_give(MP_NEVER_NULL(it->how.account), (int64_t)it->held);
    it->counted -= it->held;
    it->held = 0;
}

/* Gives back the connection, the dial, the timer and the bytes of the request; the answer stays. */
static void leave(mp_transfer *it)
{
    mp_receiver *to = it->receiver;
    mp_line *line = it->over;
    mp_timer_stop(it->client->loop, &it->limit);
    give_out(it);
    if (to == NULL)
        return;
    mp_dial_cancel(it->dial);
    if (line != NULL)
        close_line(line);
    leave_receiver(to);
    it->dial = NULL;
    it->over = NULL;
    it->receiver = NULL;
    it->client->active--;
}

static void on_told(mp_timer *timer)
{
    mp_transfer *it = mp_container(timer, mp_transfer, limit);
    it->how.ready(it, it->how.ctx);
}

/* The transfer is over: with its answer, or it has failed. */
static void finish(mp_transfer *it)
{
    leave(it);
    it->is_over = true;
    if (it->is_starting)
        mp_timer_start(it->client->loop, &it->limit, 0, on_told);
    else
        it->how.ready(it, it->how.ctx);
}

static void fail(mp_transfer *it, const char *why, const char *hint)
{
    mp_transfer_fail(it, why, hint);
    finish(it);
}

static void end_answer(mp_transfer *it)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    line->transfer = NULL;
    /* what is behind the answer, in the connection's own buffer of TLS, would be the answer to another request */
    bool has_more = mp_net_wire_has_bytes(&line->wire);
    if (!it->is_last && !has_more && it->put == it->size && it->client->inner.kept < MOST_KEPT &&
        watch_line(line) == 0) {
        keep_line(line);
        it->over = NULL;
    }
    finish(it);
}

static int open_line(mp_transfer *it);

/* The connection has ended, or cannot be used. */
static void lose(mp_transfer *it, const mp_err *why)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    bool is_shaking = line->is_shaking;
    mp_err refusal = {0};
    drop_line(line);
    it->over = NULL;
    if (it->is_on_kept && it->head.len == 0 && (it->put == 0 || it->how.is_repeatable)) {
        it->put = 0;
        it->was_sent = it->is_partial = false;
        if (open_line(it) != 0)
            finish(it);
        return;
    }
    it->is_unread = !it->has_head && mp_curl_explain_refusal(why->text, &refusal);
    if (it->is_unread)
        fail(it, refusal.text, refusal.hint);
    else if (!is_shaking && it->has_head)
        fail(it, "the connection closed before the response was complete", "");
    else
        fail(it, why->text, why->hint);
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */

/* Reads what has come of the answer, as long as there is room for it. */
static void read_answer(mp_transfer *it)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    char room[READ_BYTES];
    mp_err why = {0};
    bool has_news = false;
    for (;;) {
        it->is_paused = it->how.is_stream && it->body.len >= MP_WINDOW;
        if (it->is_paused)
            break;
        ssize_t count = mp_net_wire_read(&line->wire, room, sizeof room, &why);
        if (count < 0) {
            lose(it, &why);
            return;
        }
        int end = count > 0 ? mp_inner_take(it, room, (size_t)count) : 0;
        if (end > 0)
            end_answer(it);
        else if (end < 0)
            fail(it, "the server sent an invalid HTTP response", "");
        if (end != 0)
            return;
        if (it->has_head && it->put < it->size) { /* the rest is not sent: its receiver may free it from now on */
            it->size = it->put;
            it->is_last = true;
        }
        has_news = has_news || (count > 0 && it->has_head);
        if ((size_t)count < sizeof room && (count == 0 || !mp_net_wire_has_bytes(&line->wire)))
            break;
    }
    if (!it->is_paused && watch_line(line) != 0) {
        mp_err_set(&why, "the connection cannot be watched");
        lose(it, &why);
    } else if (has_news && it->how.is_stream && it->is_starting) {
        mp_timer_start(it->client->loop, &it->limit, 0, on_told);
    } else if (has_news && it->how.is_stream) {
        it->how.ready(it, it->how.ctx);
    }
}

/* -- the request --------------------------------------------------------------------------------------------------- */

/* Writes as much of the request as the connection takes. False: the transfer has ended, or goes another way. */
static bool write_request(mp_transfer *it)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    mp_err why = {0};
    while (it->put < it->size) {
        bool is_out = it->put < it->out.len;
        const char *from = is_out ? it->out.ptr + it->put : it->how.body.ptr + (it->put - it->out.len);
        ssize_t count = mp_net_wire_write(&line->wire, from, (is_out ? it->out.len : it->size) - it->put, &why);
        if (count < 0 && it->put > 0 && !it->is_cut) {
            it->is_cut = true;
            read_answer(it); /* why the server has closed the connection: a refusal, or an alert of TLS */
            return false;
        }
        if (count < 0) {
            lose(it, &why);
            return false;
        }
        if (count == 0)
            break;
        it->put += (size_t)count;
        it->was_sent = true;
        it->is_partial = it->put < it->size;
    }
    if (it->put == it->size && !it->how.is_repeatable)
        give_out(it);
    if (watch_line(line) == 0)
        return true;
    mp_err_set(&why, "the connection cannot be watched");
    lose(it, &why);
    return false;
}

/* Goes on with the handshake. False: it is not over, or has failed. */
static bool shake_hands(mp_transfer *it)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    mp_err why = {0};
    int status = mp_net_wire_shake_hands(&line->wire, &why);
    line->is_shaking = status == 0;
    if (status == 0 && watch_line(line) != 0)
        status = mp_err_set(&why, "the connection cannot be watched");
    if (status < 0)
        lose(it, &why);
    return status > 0;
}

static void go_on_with(mp_transfer *it)
{
    mp_line *line = MP_NEVER_NULL(it->over);
    if (line->is_shaking && !shake_hands(it))
        return;
    mp_timer_stop(it->client->loop, &it->limit);
    write_request(it);
}

static void on_event(mp_fdwatch *watch, uint32_t events)
{
    mp_line *line = mp_container(watch, mp_line, watch);
    mp_transfer *it = line->transfer;
    char byte;
    mp_err why = {0};
    if (it == NULL) { /* tickets of TLS, or its end: nothing else can come */
        if (mp_net_wire_read(&line->wire, &byte, 1, &why) != 0)
            close_line(line);
    } else if (it->is_paused) {
        mp_fdwatch_stop(line->client->loop, watch);
        line->events = 0;
    } else if (line->is_shaking) {
        go_on_with(it);
    } else if ((it->put == it->size || write_request(it)) && (events & ~(uint32_t)EPOLLOUT) != 0) {
        read_answer(it);
    }
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

static void use_line(mp_transfer *it, mp_line *line)
{
    it->is_on_kept = line->was_used;
    it->over = line;
    line->transfer = it;
    line->was_used = true;
    go_on_with(it);
}

static void on_dialed(void *ctx, int fd, const mp_err *why)
{
    mp_transfer *it = ctx;
    it->dial = NULL;
    if (fd < 0)
        fail(it, why->text, why->hint);
    else
        use_line(it, new_line(it->client, MP_NEVER_NULL(it->receiver), fd));
}

static void on_limit(mp_timer *timer);

/* Connects to a Unix socket, now or later: its queue may be full. -1: the transfer has failed. */
static int connect_unix(mp_transfer *it)
{
    mp_receiver *to = MP_NEVER_NULL(it->receiver);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(to->place);
    int fd = len < sizeof address.sun_path ? socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    if (fd >= 0)
        memcpy(address.sun_path, to->place, len);
    if (fd >= 0 && connect(fd, (struct sockaddr *)(void *)&address, sizeof address) == 0) {
        use_line(it, new_line(it->client, to, fd));
        return 0;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (error == EAGAIN) {
        mp_timer_start(it->client->loop, &it->limit, AGAIN_MS, on_limit);
        return 0;
    }
    mp_transfer_fail(it, error == ECONNREFUSED || error == ENOENT ? "connection refused" : strerror(error), "");
    return -1;
}

static void on_limit(mp_timer *timer)
{
    mp_transfer *it = mp_container(timer, mp_transfer, limit);
    if (mp_loop_now(it->client->loop) >= it->until_ms)
        fail(it, "the connection timed out", "");
    else if (connect_unix(it) != 0)
        finish(it);
}

/* -1: the transfer has failed. */
static int open_line(mp_transfer *it)
{
    mp_receiver *to = MP_NEVER_NULL(it->receiver);
    uint64_t ms = it->how.connect_ms > 0 ? it->how.connect_ms : CONNECT_MS;
    it->until_ms = mp_loop_now(it->client->loop) + ms;
    if (to->is_unix)
        return connect_unix(it);
    const char *end = strrchr(to->place, ':');
    mp_str host = {to->place, end == NULL ? strlen(to->place) : (size_t)(end - to->place)};
    if (host.len > 1 && *host.ptr == '[')
        host = (mp_str){host.ptr + 1, host.len - 2};
    char *name = mp_dup(host);
    it->dial = mp_dial_start(it->client, name, (uint16_t)(end == NULL ? 80 : atoi(end + 1)), &it->how.policy,
                             it->how.holder, on_dialed, it);
    free(name);
    mp_timer_start(it->client->loop, &it->limit, ms, on_limit);
    return 0;
}

/* -- the way ------------------------------------------------------------------------------------------------------- */

/* Makes the bytes of the request: all of them, unless its body is large. */
static void put_request(mp_transfer *it, mp_str host, const char *path)
{
    mp_buf *out = &it->out;
    mp_str body = it->how.body;
    mp_buf_printf(out, "%s %s HTTP/1.1\r\nHost: %.*s\r\n", it->how.method, *path == '\0' ? "/" : path,
                  MP_STR_ARG(host));
    for (const char *const *header = it->how.headers; *header != NULL; header++) {
        mp_str line = mp_str_of(*header);
        bool is_empty = line.ptr[line.len - 1] == ';' && memchr(line.ptr, ':', line.len) == NULL;
        mp_buf_put(out, (mp_str){line.ptr, line.len - (is_empty ? 1 : 0)});
        mp_buf_put(out, is_empty ? MP_STR(":\r\n") : MP_STR("\r\n"));
    }
    if (body.ptr != NULL)
        mp_buf_printf(out, "Content-Length: %zu\r\n", body.len);
    mp_buf_put(out, MP_STR("\r\n"));
    it->size = out->len + body.len;
    if (body.len <= SMALL_BODY)
        mp_buf_put(out, body);
}

static int start(mp_transfer *it, mp_err *err)
{
    mp_client *client = it->client;
    const mp_outgoing *how = &it->how;
    const char *at = strstr(how->url, "://") + 3;
    mp_str host = {at, strcspn(at, "/?#")};
    bool is_tls = strncmp(how->url, "https", 5) == 0, is_unix = how->unix_path != NULL;
    mp_str place = is_unix ? mp_str_of(how->unix_path) : how->connect_to != NULL ? mp_str_of(how->connect_to) : host;
    it->is_head = strcmp(how->method, "HEAD") == 0;
    put_request(it, host, at + host.len);
    if (how->account != NULL) {
        if (!mp_transfer_hold(it, it->out.len)) {
            leave(it);
            return mp_err_set(err, "no memory is left for it");
        }
        it->held = it->out.len;
    }
    mp_receiver *to = enter_receiver(client, place, is_tls ? host : MP_STR_NONE, is_unix);
    bool is_now = !is_tls || (client->tls.own == how->tls && client->tls.context == to->tls);
    mp_line *line = is_now ? take_kept(to) : NULL;
    bool is_ready = line != NULL || !is_tls || set_context(client, to, how, err) == 0;
    it->receiver = to;
    client->active++;
    if (!is_ready) {
        leave(it);
        return -1;
    }
    it->is_starting = true;
    if (line != NULL)
        use_line(it, line);
    else if (open_line(it) != 0)
        finish(it);
    it->is_starting = false;
    return 0;
}

static void go_on(mp_transfer *it)
{
    read_answer(it);
}

static void clear(mp_client *client)
{
    mp_timer_stop(client->loop, &client->inner.sweep);
    MP_EACH(mp_receiver, to, &client->inner.peers, link) {
        to->users++;
        MP_EACH(mp_line, line, &to->kept, link)
            close_line(line);
        leave_receiver(to);
    }
}

const mp_way mp_inner_way = {start, leave, go_on, clear};
