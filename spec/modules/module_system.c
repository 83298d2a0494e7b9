/* module_system.c: modules.system, to try what comments say about the kernel, glibc, OpenSSL and PCRE2.
 *   shared_port()         two sockets with SO_REUSEPORT may have one port; true if a third without it is refused
 *   shares(count, tries)  for `tries` times, how many of `count` connections the first of two sockets of one port got
 *   shut_listener()       of two sockets of a port, the first shut down: how many of 20 connections the second got,
 *                         whether the port of the first is still taken, and how many of 60 the first got after it
 *                         listened again; true if one whose port the kernel had chosen then has another
 *   epoll_file(path)      the name of the error of adding a file to an epoll set, or nil
 *   ticks(ms)             signals of a timer of processor time with an interval of 1 ms, in that much of it; and the
 *                         kernel's ticks in that time
 *   old_error()           what SSL_get_error says of a read that only has to wait: without, and with an old failure in
 *                         the queue
 *   items(pattern, text)  how often PCRE2 calls back, and its code with a match limit of 1,000
 *   compiles(pattern)     true, or PCRE2's error */
#define _GNU_SOURCE
#define PCRE2_CODE_UNIT_WIDTH 8
#include "modules.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pcre2.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* -- sockets ------------------------------------------------------------------------------------------------------- */

static int bound(in_port_t port, int is_shared)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &is_shared, sizeof is_shared);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 128) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static in_port_t port_of(int fd)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &size) == 0 ? address.sin_port : 0;
}

/* Makes connections and returns how many of them `fd` got; the others stay in the queue of their socket until `other`
 * is emptied. */
static int connections(int fd, int other, in_port_t port, int count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int clients[128], got = 0, one;
    for (int i = 0; i < count; i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connect(clients[i], (struct sockaddr *)&address, sizeof address);
    }
    for (; (one = accept(fd, NULL, NULL)) >= 0; got++)
        close(one);
    while ((one = accept(other, NULL, NULL)) >= 0)
        close(one);
    for (int i = 0; i < count; i++)
        close(clients[i]);
    return got;
}

static int l_shared_port(lua_State *L)
{
    int first = bound(0, 1), second = bound(port_of(first), 1), third = bound(port_of(first), 0);
    lua_pushboolean(L, second >= 0);
    lua_pushboolean(L, third < 0 && errno == EADDRINUSE);
    close(first);
    close(second);
    return 2;
}

static int l_shares(lua_State *L)
{
    int count = (int)luaL_checkinteger(L, 1), tries = (int)luaL_checkinteger(L, 2);
    int first = bound(0, 1), second = bound(port_of(first), 1);
    lua_newtable(L);
    for (int i = 1; i <= tries; i++) {
        lua_pushinteger(L, connections(first, second, port_of(first), count));
        lua_rawseti(L, -2, i);
    }
    close(first);
    close(second);
    return 1;
}

static int l_shut_listener(lua_State *L)
{
    int chosen = bound(0, 1), first = bound(port_of(chosen), 1), second = bound(port_of(chosen), 1);
    in_port_t port = port_of(chosen);
    shutdown(chosen, SHUT_RDWR);
    listen(chosen, 128);
    in_port_t left = port_of(chosen);
    close(chosen);
    shutdown(first, SHUT_RDWR);
    lua_pushinteger(L, connections(second, first, port, 20));
    lua_pushboolean(L, port_of(first) == port);
    listen(first, 128);
    lua_pushinteger(L, connections(first, second, port, 60));
    lua_pushboolean(L, left != port);
    close(first);
    close(second);
    return 4;
}

static int l_epoll_file(lua_State *L)
{
    int set = epoll_create1(EPOLL_CLOEXEC), fd = open(luaL_checkstring(L, 1), O_RDONLY | O_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    int failed = epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    lua_pushstring(L, failed != 0 ? strerrorname_np(errno) : NULL);
    close(set);
    close(fd);
    return 1;
}

/* -- timers -------------------------------------------------------------------------------------------------------- */

static uint64_t ns_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int l_ticks(lua_State *L)
{
    uint64_t most = (uint64_t)luaL_checkinteger(L, 1) * 1000000, from = ns_of(CLOCK_THREAD_CPUTIME_ID);
    struct sigevent by = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec each = {{0, 1000000}, {0, 1000000}};
    struct timespec none = {0, 0}, tick;
    sigset_t waited, before;
    timer_t timer;
    lua_Integer count = 0;
    sigemptyset(&waited);
    sigaddset(&waited, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &waited, &before);
    timer_create(CLOCK_THREAD_CPUTIME_ID, &by, &timer);
    timer_settime(timer, 0, &each, NULL);
    while (ns_of(CLOCK_THREAD_CPUTIME_ID) - from < most)
        if (sigtimedwait(&waited, NULL, &none) == SIGUSR2)
            count++;
    timer_delete(timer);
    while (sigtimedwait(&waited, NULL, &none) == SIGUSR2)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    lua_pushinteger(L, count);
    lua_pushinteger(L, (lua_Integer)(most / (uint64_t)tick.tv_nsec));
    return 2;
}

/* -- libraries ----------------------------------------------------------------------------------------------------- */

static int waiting(SSL *ssl)
{
    char byte;
    return SSL_get_error(ssl, SSL_read(ssl, &byte, 1));
}

/* An error that comes after SSL_read began is what SSL_get_error looks at. */
static int l_old_error(lua_State *L)
{
    char byte;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl);
    BIO_set_mem_eof_return(SSL_get_rbio(ssl), -1);
    ERR_clear_error();
    lua_pushboolean(L, waiting(ssl) == SSL_ERROR_WANT_READ);
    int code = SSL_read(ssl, &byte, 1);
    ERR_raise(ERR_LIB_USER, 1);
    lua_pushboolean(L, SSL_get_error(ssl, code) == SSL_ERROR_SSL);
    ERR_clear_error();
    SSL_free(ssl);
    SSL_CTX_free(context);
    return 2;
}

static int count_item(pcre2_callout_block *block, void *count)
{
    (void)block;
    (*(lua_Integer *)count)++;
    return 0;
}

static int l_items(lua_State *L)
{
    int error;
    PCRE2_SIZE offset;
    size_t len;
    lua_Integer count = 0;
    const char *pattern = luaL_checkstring(L, 1), *text = luaL_checklstring(L, 2, &len);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE, &error, &offset, NULL);
    if (code == NULL)
        return luaL_error(L, "error %d at %d", error, (int)offset);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_set_callout(context, count_item, &count);
    pcre2_set_match_limit(context, 1000);
    int result = pcre2_match(code, (PCRE2_SPTR)text, len, 0, 0, data, context);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_code_free(code);
    lua_pushinteger(L, count);
    lua_pushinteger(L, result);
    return 2;
}

static int l_compiles(lua_State *L)
{
    int error;
    PCRE2_SIZE offset;
    PCRE2_UCHAR text[256];
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)luaL_checkstring(L, 1), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                     &error, &offset, NULL);
    if (code != NULL)
        lua_pushboolean(L, 1);
    else if (pcre2_get_error_message(error, text, sizeof text) >= 0)
        lua_pushstring(L, (const char *)text);
    pcre2_code_free(code);
    return 1;
}

int module_system(lua_State *L)
{
    static const luaL_Reg functions[] = {{"shared_port", l_shared_port},
                                         {"shares", l_shares},
                                         {"shut_listener", l_shut_listener},
                                         {"epoll_file", l_epoll_file},
                                         {"ticks", l_ticks},
                                         {"old_error", l_old_error},
                                         {"items", l_items},
                                         {"compiles", l_compiles},
                                         {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
