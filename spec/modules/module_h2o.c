/* module_h2o.c: modules.h2o, a server of the linked libh2o without what core/net puts around it, to try what comments
 * say about it.
 *   ask(bytes, is_silent, limit)   sends bytes to a handler. Returns all that came back, and what the handler saw of
 *                                  each request, as "authority path path_normalized headers body". A silent one does
 *                                  not answer: returns "", and whether the request had ended some time after the client
 *                                  closed the connection. `limit`: of the bytes of a body
 *   headers(bytes)                 as ask, but what the handler saw of each request is a line "name: value" for each
 *                                  header
 *   parse(bytes)                   what is read of a head, which is in memory of exactly its size: the name and the
 *                                  value of its first header; or "refused" or "incomplete"
 *   leave(bytes)                   sends bytes, and is gone before they are read
 *   after_loop()                   what kind of descriptor the number is that lies in memory after the struct of an
 *                                  event loop
 *   events(ready, most)            the number of events of one run of a loop that takes `most` at most and has `ready`;
 *                                  and the number that the loop says
 *   most_events(us, events, slow, has_left)  how many events the gateway's loop takes in the turn after one of that
 * time and so many events, behind so many slow ones before(sockets, watches)       how many sockets the gateway's loop
 * has served when it serves the last of the watched descriptors; all are ready from the beginning registrations(steps)
 * what a loop reads of a socket in these steps, and what it has registered for it in epoll after each of its runs */
#include "loop/state.h"
#include "modules.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS 10
#define TURN_MS 20

static h2o_globalconf_t config;
static h2o_context_t context;
static h2o_accept_ctx_t accepting;
static char seen[4096];
static bool is_silent, has_ended, shows_headers;

/* of the parser in libh2o, whose header is not installed */
struct phr_header {
    const char *name;
    size_t name_len;
    const char *value;
    size_t value_len;
};
int phr_parse_request(const char *bytes, size_t len, const char **method, size_t *method_len, const char **path,
                      size_t *path_len, int *minor_version, struct phr_header *headers, size_t *count, size_t last_len);

static void on_dispose(void *unused)
{
    (void)unused;
    has_ended = true;
}

static void show_headers(const h2o_headers_t *headers)
{
    for (size_t i = 0, used = strlen(seen); i < headers->size && used < sizeof seen; used += strlen(seen + used), i++)
        snprintf(seen + used, sizeof seen - used, "%.*s: %.*s\n", (int)headers->entries[i].name->len,
                 headers->entries[i].name->base, (int)headers->entries[i].value.len, headers->entries[i].value.base);
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    size_t used = strlen(seen);
    if (shows_headers)
        show_headers(&req->headers);
    else
        snprintf(seen + used, sizeof seen - used, "%.*s %.*s %.*s %zu %.*s\n", (int)req->authority.len,
                 req->authority.base, (int)req->path.len, req->path.base, (int)req->path_normalized.len,
                 req->path_normalized.base, req->headers.size, (int)req->entity.len,
                 req->entity.base == NULL ? "" : req->entity.base);
    h2o_mem_alloc_shared(&req->pool, 1, on_dispose);
    if (is_silent)
        return 0;
    req->res.status = 200;
    req->res.reason = "OK";
    h2o_send_inline(req, H2O_STRLIT("done"));
    return 0;
}

static void start(void)
{
    if (accepting.ctx != NULL)
        return;
    h2o_config_init(&config);
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("configured")), 65535);
    h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req = on_request;
    h2o_context_init(&context, h2o_evloop_create(), &config);
    accepting.ctx = &context;
    accepting.hosts = config.hosts;
}

static void run(int fd, luaL_Buffer *got)
{
    char bytes[4096];
    for (int i = 0; i < TURNS; i++) {
        h2o_evloop_run(context.loop, TURN_MS);
        for (ssize_t n; fd >= 0 && (n = read(fd, bytes, sizeof bytes)) > 0;)
            luaL_addlstring(got, bytes, (size_t)n);
    }
}

static int l_ask(lua_State *L)
{
    size_t len;
    int ends[2];
    luaL_Buffer got;
    const char *bytes = luaL_checklstring(L, 1, &len);
    is_silent = lua_toboolean(L, 2);
    has_ended = false;
    seen[0] = '\0';
    start();
    config.max_request_entity_size = (size_t)luaL_optinteger(L, 3, 1 << 20);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0 ||
        write(ends[0], bytes, len) != (ssize_t)len)
        return luaL_error(L, "%s", strerror(errno));
    luaL_buffinit(L, &got);
    h2o_evloop_run(context.loop, 0); /* sets its clock */
    h2o_accept(&accepting, h2o_evloop_socket_create(context.loop, ends[1], 0));
    run(ends[0], &got);
    close(ends[0]);
    run(-1, &got);
    luaL_pushresult(&got);
    if (is_silent)
        lua_pushboolean(L, has_ended);
    else
        lua_pushstring(L, seen);
    return 2;
}

static int l_headers(lua_State *L)
{
    shows_headers = true;
    lua_settop(L, 1);
    l_ask(L); /* pushes what came back, and what was seen */
    shows_headers = false;
    return 1;
}

static int l_parse(lua_State *L)
{
    size_t len, method_len, path_len, count = 1;
    const char *bytes = luaL_checklstring(L, 1, &len), *method, *path;
    char *own = malloc(len);
    int minor;
    struct phr_header header = {0};
    if (own == NULL)
        return luaL_error(L, "no memory");
    memcpy(own, bytes, len);
    int end = phr_parse_request(own, len, &method, &method_len, &path, &path_len, &minor, &header, &count, 0);
    if (end > 0) {
        lua_pushlstring(L, header.name, header.name_len);
        lua_pushlstring(L, header.value, header.value_len);
    } else {
        lua_pushstring(L, end == -1 ? "refused" : "incomplete");
    }
    free(own);
    return end > 0 ? 2 : 1;
}

static int l_leave(lua_State *L)
{
    size_t len;
    int ends[2];
    const char *bytes = luaL_checklstring(L, 1, &len);
    start();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0 ||
        write(ends[0], bytes, len) != (ssize_t)len)
        return luaL_error(L, "%s", strerror(errno));
    close(ends[0]);
    h2o_evloop_run(context.loop, 0);
    h2o_accept(&accepting, h2o_evloop_socket_create(context.loop, ends[1], 0));
    run(-1, NULL);
    return 0;
}

static int served;

static void on_event(h2o_socket_t *socket, const char *error)
{
    (void)error;
    served++;
    h2o_socket_close(socket);
}

static int l_events(lua_State *L)
{
    int ready = (int)luaL_checkinteger(L, 1), epoll;
    h2o_evloop_t *loop = h2o_evloop_create();
    loop->max_events = (int)luaL_checkinteger(L, 2);
    for (int i = 0, ends[2]; i < ready; i++) {
        if (pipe(ends) != 0)
            return luaL_error(L, "no pipe");
        close(ends[1]);
        h2o_socket_read_start(h2o_evloop_socket_create(loop, ends[0], H2O_SOCKET_FLAG_DONT_READ), on_event);
    }
    served = 0;
    h2o_evloop_run(loop, 0);
    lua_pushinteger(L, served);
    lua_pushinteger(L, loop->num_events);
    while (served < ready)
        h2o_evloop_run(loop, 0);
    memcpy(&epoll, (char *)loop + sizeof *loop, sizeof epoll);
    h2o_evloop_destroy(loop);
    close(epoll);
    return 2;
}

static char received[16];

static void on_bytes(h2o_socket_t *socket, const char *error)
{
    size_t len = strlen(received);
    snprintf(received + len, sizeof received - len, "%.*s%s", (int)socket->input->size, socket->input->bytes,
             error != NULL ? "!" : "");
    h2o_buffer_consume(&socket->input, socket->input->size);
}

/* Takes each letter of a text as a step: r reads, s stops reading, w lets one byte come (the number of the step), c
 * closes the peer, t runs the loop once. Returns what was read, "!" for an end, and for each run what the loop's epoll
 * descriptor had registered for the socket after it: its events, or 0. */
static int l_registrations(lua_State *L)
{
    const char *steps = luaL_checkstring(L, 1);
    int ends[2], epoll, runs = 0;
    char path[64], line[256], key[32];
    h2o_evloop_t *loop = h2o_evloop_create();
    memcpy(&epoll, (char *)loop + sizeof *loop, sizeof epoll);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return luaL_error(L, "%s", strerror(errno));
    h2o_socket_t *socket = h2o_evloop_socket_create(loop, ends[1], 0);
    received[0] = '\0';
    lua_newtable(L);
    for (const char *step = steps; *step != '\0'; step++) {
        if (*step == 'r') {
            h2o_socket_read_start(socket, on_bytes);
        } else if (*step == 's') {
            h2o_socket_read_stop(socket);
        } else if (*step == 'c') {
            close(ends[0]);
            ends[0] = -1;
        } else if (*step == 'w') {
            char byte = (char)('0' + (step - steps) % 10);
            if (write(ends[0], &byte, 1) != 1)
                return luaL_error(L, "%s", strerror(errno));
        } else {
            h2o_evloop_run(loop, 0);
            unsigned events = 0;
            snprintf(path, sizeof path, "/proc/self/fdinfo/%d", epoll);
            snprintf(key, sizeof key, "tfd: %8d events: %%x", ends[1]);
            FILE *file = fopen(path, "r");
            while (file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, key, &events) != 1)
                continue;
            if (file != NULL)
                fclose(file);
            lua_pushinteger(L, events & (EPOLLIN | EPOLLOUT));
            lua_rawseti(L, -2, ++runs);
        }
    }
    lua_pushstring(L, received);
    lua_insert(L, -2);
    h2o_socket_close(socket);
    h2o_evloop_run(loop, 0);
    if (ends[0] >= 0)
        close(ends[0]);
    h2o_evloop_destroy(loop);
    close(epoll);
    return 2;
}

static int l_most_events(lua_State *L)
{
    unsigned slow = (unsigned)luaL_checkinteger(L, 3);
    lua_pushinteger(L, mp_loop_most_events(&slow, (uint64_t)luaL_checkinteger(L, 1), (unsigned)luaL_checkinteger(L, 2),
                                           lua_toboolean(L, 4)));
    return 1;
}

#define MOST_WATCHES 200

static mp_loop *watching;
static int watches_left, served_before;

static void on_watch(mp_fdwatch *watch, uint32_t events)
{
    (void)events;
    mp_fdwatch_stop(watching, watch);
    watches_left--;
    served_before = served;
}

static bool stop_when_served(void *ctx)
{
    int *sockets = ctx;
    if (watches_left == 0 && served == *sockets)
        mp_loop_stop(watching);
    return true;
}

static int l_before(lua_State *L)
{
    int sockets = (int)luaL_checkinteger(L, 1), watches = (int)luaL_checkinteger(L, 2), fds[MOST_WATCHES];
    mp_fdwatch watch[MOST_WATCHES] = {0};
    luaL_argcheck(L, watches <= MOST_WATCHES, 2, "too many");
    mp_err err;
    watching = mp_loop_new(&err);
    if (watching == NULL)
        return luaL_error(L, "no loop");
    for (int i = 0, ends[2]; i < sockets; i++) {
        if (pipe(ends) != 0)
            return luaL_error(L, "no pipe");
        close(ends[1]);
        h2o_socket_read_start(h2o_evloop_socket_create(watching->h2o, ends[0], H2O_SOCKET_FLAG_DONT_READ), on_event);
    }
    for (int i = 0; i < watches; i++) {
        fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fds[i] < 0 || mp_fdwatch_start(watching, &watch[i], fds[i], EPOLLIN, on_watch) != 0)
            return luaL_error(L, "no watch");
    }
    served = 0;
    watches_left = watches;
    mp_loop_on_turn(watching, stop_when_served, NULL, &sockets);
    mp_loop_run(watching);
    mp_loop_free(watching);
    for (int i = 0; i < watches; i++)
        close(fds[i]);
    lua_pushinteger(L, served_before);
    return 1;
}

static int l_after_loop(lua_State *L)
{
    char path[64], kind[64];
    start();
    snprintf(path, sizeof path, "/proc/self/fd/%d", *(int *)(context.loop + 1));
    ssize_t len = readlink(path, kind, sizeof kind);
    lua_pushlstring(L, kind, len < 0 ? 0 : (size_t)len);
    return 1;
}

/* The kind of the loop's epoll descriptor once the loop was destroyed. */
static int l_after_destroy(lua_State *L)
{
    char path[64], kind[64];
    h2o_evloop_t *loop = h2o_evloop_create();
    snprintf(path, sizeof path, "/proc/self/fd/%d", *(int *)(loop + 1));
    h2o_evloop_destroy(loop);
    ssize_t len = readlink(path, kind, sizeof kind);
    lua_pushlstring(L, kind, len < 0 ? 0 : (size_t)len);
    return 1;
}

int module_h2o(lua_State *L)
{
    static const luaL_Reg functions[] = {{"ask", l_ask},
                                         {"headers", l_headers},
                                         {"parse", l_parse},
                                         {"events", l_events},
                                         {"most_events", l_most_events},
                                         {"registrations", l_registrations},
                                         {"leave", l_leave},
                                         {"after_loop", l_after_loop},
                                         {"after_destroy", l_after_destroy},
                                         {"before", l_before},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
