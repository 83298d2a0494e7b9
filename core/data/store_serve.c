/* store_serve.c: the thread that does the orders of other processes on the store, and takes a store over; and how this
 * process follows another. What one of them does to the store, the other undoes: so both are in one file. A client has
 * one operation at a time. */
#define _GNU_SOURCE
#include "data/store_wire.h"
#include "os/os.h"
#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

MP_COUNTER(store_clients_refused, "store_clients_refused", "", "",
           "other processes that the store did not serve: too many, or of another user")

#define MAX_CLIENTS 64                     /* a gateway has at most 33 processes */
#define MAX_KEY_BYTES ((uint64_t)64 << 10) /* beside the values that the store's limits allow */
#define PAUSE_MS 1
#define MAX_FRAMES 64 /* frames of one client that are served before the others have their turn */
#define KEPT_BYTES ((size_t)1 << 20)

typedef struct {
    int fd;
    mp_buf in, out;
    size_t sent;   /* bytes of `out` that were sent */
    uint64_t skip; /* bytes of an operation that is too large, still to be read and dropped */
    uint64_t most_piece;
    bool is_mover;
    bool is_told; /* the client was notified that the store is at another path */
} client;

struct mp_store_server {
    mp_store *store;
    char path[MP_STORE_PATH];
    int fd, wake;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_ending, is_moved;
    atomic_bool arrives; /* another process hands its store over */
    size_t count;
    client clients[MAX_CLIENTS];
};

/* -- a store that comes and goes ----------------------------------------------------------------------------------- */

int mp_store_follow(mp_store *store, const char *path, mp_err *err)
{
    if (!mp_store_link_try(store->link, path)) {
        mp_err_set(err, "store: the process at %s does not answer", path);
        return mp_err_hint(err, "it must serve its store, and be of this user");
    }
    mp_store_disown(store);
    return 0;
}

void mp_store_turn(mp_store *store, const char *path)
{
    char now[MP_STORE_PATH];
    mp_store_link_path(store->link, now);
    if (!mp_store_is_own(store) && strcmp(now, path) != 0)
        mp_store_link_turn(store->link, path);
}

static void apply_change(mp_store *store, const mp_store_change *change, mp_str key, mp_str text)
{
    entry *e;
    if (!change->is_gone)
        mp_store_put_back(store, key, text, change->until);
    else if ((e = mp_store_find_after(store, key, false)) != NULL && mp_str_eq(e->key, key))
        mp_store_forget(store, e);
}

bool mp_store_apply(mp_store *store, mp_str piece)
{
    mp_store_change change;
    MP_LOCKED(&store->lock);
    while (piece.len >= sizeof change) {
        memcpy(&change, piece.ptr, sizeof change);
        piece = mp_str_from(piece, sizeof change);
        if (change.key_len > piece.len || change.len > piece.len - change.key_len)
            break;
        mp_str key = {piece.ptr, change.key_len}, text = {piece.ptr + change.key_len, change.len};
        apply_change(store, &change, key, text);
        piece = mp_str_from(piece, change.key_len + change.len);
    }
    return piece.len == 0;
}

void mp_store_own(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    atomic_store_explicit(&store->first, mp_store_first(store), memory_order_relaxed);
    atomic_store(&store->is_own, true);
    pthread_mutex_unlock(&store->lock);
    mp_store_link_drop(store->link);
    if (store->file != NULL)
        mp_store_file_adopt(store->file);
}

void mp_store_disown(mp_store *store)
{
    mp_store_rest rest;
    pthread_mutex_lock(&store->lock);
    atomic_store(&store->is_own, false);
    mp_store_detach(store, &rest);
    pthread_mutex_unlock(&store->lock);
    mp_store_discard(&rest);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

static void put_answer(client *c, uint32_t kind, uint32_t result, int64_t n, mp_str text)
{
    const mp_store_frame frame = {.kind = kind, .what = result, .n = n, .text_len = text.len};
    mp_buf_put(&c->out, (mp_str){(const char *)&frame, sizeof frame});
    mp_buf_put(&c->out, text);
}

static void tell_place(const mp_store_server *server, client *c)
{
    char path[MP_STORE_PATH];
    mp_store_link_path(server->store->link, path);
    put_answer(c, MP_WIRE_MOVED, 0, 0, mp_str_of(path));
    c->is_told = true;
}

/* The result is appended behind the place of its frame, so that a large value is copied once. */
static void do_order(mp_store_server *server, client *c, const mp_store_frame *frame)
{
    const char *at = c->in.ptr + sizeof *frame;
    const mp_store_operation operation = {.kind = (mp_store_kind)frame->what,
                                          .key = {at, (size_t)frame->key_len},
                                          .text = {at + frame->key_len, (size_t)frame->text_len},
                                          .old = {at + frame->key_len + frame->text_len, (size_t)frame->old_len},
                                          .number = frame->number,
                                          .n = frame->n};
    if (frame->what >= MP_STORE_KINDS) {
        put_answer(c, MP_WIRE_REFUSED, 0, 0, MP_STR_NONE);
        return;
    }
    if (mp_monotonic_us() > frame->until_us) {
        put_answer(c, MP_WIRE_EXPIRED, 0, 0, MP_STR_NONE);
        return;
    }
    size_t begin = c->out.len;
    mp_store_frame answer = {.kind = MP_WIRE_DONE};
    mp_buf_put(&c->out, (mp_str){(const char *)&answer, sizeof answer});
    mp_store_result result = mp_store_run(server->store, &operation, &c->out, &answer.n);
    if (result == MP_STORE_AWAY && atomic_load(&server->is_moved)) {
        c->out.len = begin;
        tell_place(server, c);
        return;
    }
    answer.kind = result == MP_STORE_AWAY ? MP_WIRE_WAIT : MP_WIRE_DONE;
    answer.what = result;
    answer.text_len = c->out.len - begin - sizeof answer;
    memcpy(c->out.ptr + begin, &answer, sizeof answer);
}

/* -- frames -------------------------------------------------------------------------------------------------------- */

static uint64_t most_bytes(mp_store *store)
{
    MP_LOCKED(&store->lock);
    uint64_t most = store->most_bytes;
    return most + MAX_KEY_BYTES;
}

static bool is_moving(const mp_store_server *server)
{
    for (size_t i = 0; i < server->count; i++)
        if (server->clients[i].is_mover)
            return true;
    return false;
}

static bool begin_move(mp_store_server *server, client *c, const mp_store_frame *frame)
{
    bool may = !mp_store_is_own(server->store) && !atomic_load(&server->is_moved) && !is_moving(server);
    c->is_mover = may;
    if (may)
        atomic_store(&server->arrives, true);
    c->most_piece = frame->number;
    put_answer(c, may ? MP_WIRE_DONE : MP_WIRE_REFUSED, 0, 0, MP_STR_NONE);
    return true;
}

static bool end_move(mp_store_server *server, client *c)
{
    if (!c->is_mover)
        return false;
    c->is_mover = false;
    mp_store_own(server->store);
    atomic_store(&server->arrives, false); /* cleared after mp_store_own: see mp_store_arrives */
    return true;
}

bool mp_store_arrives(mp_store *store)
{
    MP_LOCKED(&store->lock);
    const mp_store_server *server = store->server;
    return server != NULL && atomic_load(&server->arrives);
}

/* False: the client is at fault, and its connection is closed. */
static bool take_frame(mp_store_server *server, client *c, const mp_store_frame *frame)
{
    switch (frame->kind) {
    case MP_WIRE_HELLO:
        put_answer(c, frame->number == MP_STORE_WIRE_VERSION ? MP_WIRE_HELLO : MP_WIRE_REFUSED, 0,
                   MP_STORE_WIRE_VERSION, MP_STR_NONE);
        return true;
    case MP_WIRE_ORDER:
        do_order(server, c, frame);
        return true;
    case MP_WIRE_MOVE:
        return begin_move(server, c, frame);
    case MP_WIRE_PIECE:
        if (!c->is_mover ||
            !mp_store_apply(server->store, (mp_str){c->in.ptr + sizeof *frame, (size_t)frame->text_len}))
            return false;
        put_answer(c, MP_WIRE_DONE, 0, 0, MP_STR_NONE);
        return true;
    case MP_WIRE_COMMIT:
        return end_move(server, c);
    default:
        return false;
    }
}

static bool refuse_large(client *c, const mp_store_frame *frame)
{
    uint64_t len = mp_wire_payload(frame, UINT64_MAX / 2);
    if (frame->kind != MP_WIRE_ORDER || len == UINT64_MAX)
        return false;
    put_answer(c, MP_WIRE_DONE, frame->what == MP_STORE_GET ? MP_STORE_NONE : MP_STORE_FULL, 0, MP_STR_NONE);
    c->skip = len - (c->in.len - sizeof *frame);
    c->in.len = 0;
    return true;
}

/* Discards bytes of an operation that is too large. */
static int skip_some(client *c)
{
    char waste[4096];
    ssize_t got = recv(c->fd, waste, c->skip < sizeof waste ? (size_t)c->skip : sizeof waste, MSG_DONTWAIT);
    if (got > 0)
        c->skip -= (uint64_t)got;
    return got > 0 ? 1 : got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Reads the header of a frame first, so that its size is known before memory is used for it. */
static int read_frame(mp_store_server *server, client *c)
{
    if (c->in.len < sizeof(mp_store_frame)) {
        size_t left = sizeof(mp_store_frame) - c->in.len;
        ssize_t got = recv(c->fd, mp_buf_room(&c->in, left), left, MSG_DONTWAIT);
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
        c->in.len += (size_t)got;
        if (c->in.len < sizeof(mp_store_frame))
            return 0;
    }
    mp_store_frame frame = mp_wire_frame(&c->in);
    uint64_t most = c->is_mover ? c->most_piece : most_bytes(server->store);
    if (mp_wire_payload(&frame, most) == UINT64_MAX)
        return refuse_large(c, &frame) ? 1 : -1;
    int got = mp_wire_read(c->fd, &c->in, 0);
    if (got != 1)
        return got;
    if (!take_frame(server, c, &frame))
        return -1;
    c->in.len = 0;
    if (c->in.cap > KEPT_BYTES)
        mp_buf_clear(&c->in);
    return 1;
}

/* -- clients ------------------------------------------------------------------------------------------------------- */

/* False: the connection is broken. */
static bool write_some(client *c)
{
    while (c->sent < c->out.len) {
        ssize_t put = send(c->fd, c->out.ptr + c->sent, c->out.len - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0)
            return errno == EAGAIN || errno == EINTR;
        c->sent += (size_t)put;
    }
    c->sent = c->out.len = 0;
    if (c->out.cap > KEPT_BYTES)
        mp_buf_clear(&c->out);
    return true;
}

static void drop_client(mp_store_server *server, size_t index)
{
    client *c = &server->clients[index];
    close(c->fd);
    mp_buf_clear(&c->in);
    mp_buf_clear(&c->out);
    if (c->is_mover) {
        mp_store_disown(server->store);
        atomic_store(&server->arrives, false);
    }
    *c = server->clients[--server->count];
}

static void accept_some(mp_store_server *server)
{
    int fd;
    while ((fd = accept4(server->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (server->count == MAX_CLIENTS || !mp_wire_is_own_user(fd)) {
            mp_stat_add(&mp_stat_store_clients_refused, 1);
            close(fd);
            continue;
        }
        server->clients[server->count++] = (client){.fd = fd};
    }
    if (errno != EAGAIN) /* no descriptor is free: the connection stays in the queue, and poll() would return at once */
        nanosleep(&(struct timespec){0, PAUSE_MS * 1000000L}, NULL);
}

/* Reads no further operation before the answer to the last one is sent. */
static bool serve_client(mp_store_server *server, client *c, short events)
{
    int got = 1;
    if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0 && !write_some(c))
        return false;
    for (int i = 0; i < MAX_FRAMES && got == 1 && c->out.len == 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0;
         i++) {
        got = c->skip > 0 ? skip_some(c) : read_frame(server, c);
        if (got < 0 || !write_some(c))
            return false;
    }
    return true;
}

static void tell_all(mp_store_server *server)
{
    for (size_t i = 0; i < server->count; i++) {
        client *c = &server->clients[i];
        if (c->is_told || c->is_mover)
            continue;
        tell_place(server, c);
        write_some(c);
    }
}

static void take_wake(mp_store_server *server)
{
    uint64_t value;
    if (read(server->wake, &value, sizeof value) > 0 && atomic_load(&server->is_moved))
        tell_all(server);
}

/* The last client first: what drop_client moves was served already. */
static void *MP_NULLABLE serve_links(void *arg)
{
    mp_store_server *server = arg;
    struct pollfd fds[MAX_CLIENTS + 2];
    mp_crash_thread("store server", 0);
    while (!atomic_load(&server->is_ending)) {
        size_t count = server->count;
        fds[0] = (struct pollfd){.fd = server->wake, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = server->fd, .events = POLLIN};
        for (size_t i = 0; i < count; i++)
            fds[i + 2] = (struct pollfd){.fd = server->clients[i].fd,
                                         .events = server->clients[i].out.len > 0 ? POLLOUT : POLLIN};
        if (poll(fds, (nfds_t)count + 2, -1) < 0) {
            if (errno != EINTR) /* EINVAL: the limit of descriptors is below their number: try again, but not at once */
                nanosleep(&(struct timespec){0, PAUSE_MS * 1000000L}, NULL);
            continue;
        }
        for (size_t i = count; i-- > 0;)
            if (fds[i + 2].revents != 0 && !serve_client(server, &server->clients[i], fds[i + 2].revents))
                drop_client(server, i);
        if (fds[1].revents != 0)
            accept_some(server);
        if (fds[0].revents != 0)
            take_wake(server);
    }
    while (server->count > 0)
        drop_client(server, server->count - 1);
    return NULL;
}

static void wake(mp_store_server *server)
{
    const uint64_t one = 1;
    if (write(server->wake, &one, sizeof one) < 0)
        return; /* the counter of the eventfd is full: the thread is awake already */
}

void mp_store_server_tell(mp_store_server *server)
{
    atomic_store(&server->is_moved, true);
    wake(server);
}

/* -- begin and end ------------------------------------------------------------------------------------------------- */

/* Opens the socket. No other user can ever connect to it, not even between bind() and chmod(). */
static int listen_at(mp_store_server *server, const char *path, mp_err *err)
{
    struct sockaddr_un address;
    if (mp_wire_address(path, &address) == 0 &&
        (server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0 &&
        fchmod(server->fd, 0600) == 0 && bind(server->fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        if (listen(server->fd, MAX_CLIENTS) == 0)
            return 0;
        unlink(path);
    }
    mp_err_set(err, "store: cannot listen at %s: %s", path, strerror(errno));
    return mp_err_hint(err, "this user needs permission to create files in that folder");
}

static int start_thread(mp_store_server *server, mp_err *err)
{
    int code = server->wake < 0 ? errno : mp_thread_start(&server->thread, serve_links, server);
    server->has_thread = code == 0;
    if (code != 0)
        unlink(server->path);
    return code == 0 ? 0 : mp_err_set(err, "store: cannot start a thread: %s", strerror(code));
}

int mp_store_serve(mp_store *store, const char *path, mp_err *err)
{
    mp_store_server *server = mp_new(sizeof *server);
    server->store = store;
    server->fd = -1;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(server->path, sizeof server->path, "%s", path);
    if (listen_at(server, path, err) != 0 || start_thread(server, err) != 0) {
        mp_store_server_free(server);
        return -1;
    }
    MP_LOCKED(&store->lock);
    store->server = server;
    return 0;
}

void mp_store_server_free(mp_store_server *MP_NULLABLE server)
{
    if (server == NULL)
        return;
    atomic_store(&server->is_ending, true);
    if (server->has_thread) {
        wake(server);
        pthread_join(server->thread, NULL);
        unlink(server->path);
    }
    if (server->fd >= 0)
        close(server->fd);
    if (server->wake >= 0)
        close(server->wake);
    free(server);
}
