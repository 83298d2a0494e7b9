/* sockets.c: makes listening sockets from an address as users write it. */
#define _GNU_SOURCE 1 /* for POLLRDHUP */
#include "sockets.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* bytes of a connection in the kernel: all are read at once, before a limit is checked */
#define RECEIVE_BUFFER (256 * 1024)
/* after this time without a sign of life a client counts as gone: its machine or network has vanished */
#define DEAD_PEER_MS ((uint64_t)MP_LIMIT(dead_peer_ms, 30000))

typedef union {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
    struct sockaddr_storage room;
} address;

static int refuse_address(const char *where, mp_err *err)
{
    mp_err_set(err, "'%s' is not an address to listen on", where);
    return mp_err_hint(err, "write host:port as in 127.0.0.1:7300 or [::1]:7300, or unix:/path/to/socket");
}

/* Sets the error for an errno, with a hint for the user. */
static int explain_errno(const char *where, int error, mp_err *err)
{
    mp_err_set(err, "cannot listen on %s: %s", where, strerror(error));
    switch (error) {
    case EADDRINUSE:
        return mp_err_hint(err,
                           "another process listens there: stop it (ss -ltnp shows which), or choose another address");
    case EACCES:
    case EPERM:
        return mp_err_hint(
            err, "ports below 1024 and other users' directories need permission: choose another address, or grant it");
    case EADDRNOTAVAIL:
        return mp_err_hint(err, "this machine has no such address: `ip address` lists those it has");
    case EAFNOSUPPORT:
        return mp_err_hint(err, "this machine does not support this address family");
    case ENOENT:
    case ENOTDIR:
        return mp_err_hint(err, "the directory must exist");
    case ENOTSOCK:
        return mp_err_hint(err, "another file exists at that path: remove it, or choose another path");
    case EMFILE:
    case ENFILE:
        return mp_err_hint(err, "raise the limit of open files (ulimit -n)");
    default:
        return -1;
    }
}

void mp_unlink_address(mp_address *bound)
{
    struct stat found;
    const char *path = bound->text + strlen("unix:");
    if (bound->inode != 0 && lstat(path, &found) == 0 && found.st_dev == bound->device && found.st_ino == bound->inode)
        unlink(path);
    bound->inode = 0;
}

static void close_all(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

/* -- tcp ----------------------------------------------------------------------------------------------------------- */

/* Splits "host:port" and "[host]:port". */
static int split_address(const char *where, char *host, size_t size, unsigned long *port)
{
    const char *colon = strrchr(where, ':'), *begin = where, *end = colon;
    if (colon == NULL || colon == where || colon[1] < '0' || colon[1] > '9')
        return -1;
    char *rest;
    *port = strtoul(colon + 1, &rest, 10);
    if (*rest != '\0' || *port > 65535)
        return -1;
    if (*begin == '[') {
        begin++;
        end--;
        if (*end != ']')
            return -1;
    } else if (memchr(where, ':', (size_t)(colon - where)) != NULL) {
        return -1; /* an IPv6 address must be in brackets */
    }
    size_t len = (size_t)(end - begin);
    if (end <= begin || len >= size)
        return -1;
    memcpy(host, begin, len);
    host[len] = '\0';
    return 0;
}

static int resolve(const char *where, address *to, socklen_t *len, mp_err *err)
{
    char host[256];
    unsigned long port;
    if (split_address(where, host, sizeof host, &port) < 0)
        return refuse_address(where, err);
    struct addrinfo *found = NULL, wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    const char *name = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    int failed = getaddrinfo(name, NULL, &wanted, &found);
    if (failed != 0) {
        mp_err_set(err, "cannot listen on %s: %s", where, gai_strerror(failed));
        return mp_err_hint(err, "use an address of this machine, or localhost");
    }
    *len = found->ai_addrlen;
    memcpy(to, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    in_port_t order = htons((uint16_t)port);
    if (to->any.sa_family == AF_INET6)
        to->v6.sin6_port = order;
    else
        to->v4.sin_port = order;
    return 0;
}

static bool is_loopback(const address *at)
{
    if (at->any.sa_family == AF_INET)
        return ntohl(at->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&at->v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&at->v6.sin6_addr) && at->v6.sin6_addr.s6_addr[12] == 127);
}

static void describe(const address *at, mp_address *bound)
{
    char host[INET6_ADDRSTRLEN] = "";
    bool is_v6 = at->any.sa_family == AF_INET6;
    *bound = (mp_address){.is_loopback = is_loopback(at), .port = ntohs(is_v6 ? at->v6.sin6_port : at->v4.sin_port)};
    inet_ntop(at->any.sa_family, is_v6 ? (const void *)&at->v6.sin6_addr : (const void *)&at->v4.sin_addr, host,
              sizeof host);
    snprintf(bound->text, sizeof bound->text, is_v6 ? "[%s]:%u" : "%s:%u", host, bound->port);
}

static void set_option(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

/* Detects dead peers: by keepalive probes while the connection is idle, by TCP_USER_TIMEOUT while data is
 * unacknowledged. */
static void set_dead_peer(int fd)
{
    uint64_t ms = DEAD_PEER_MS;
    int most = (int)(ms > 3600000 ? 3600000 : ms), idle = most / 2000, between = most / 6000;
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle < 1 ? 1 : idle);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, between < 1 ? 1 : between);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, most);
}

/* Returns -1 with errno. */
static int bind_tcp(const address *at, socklen_t len, bool shared)
{
    int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (shared)
        set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER); /* accepted sockets inherit the buffer size */
    if (bind(fd, &at->any, len) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_tcp(const char *where, int count, int *fds, mp_address *bound, mp_err *err)
{
    address at;
    socklen_t len = 0;
    if (resolve(where, &at, &len, err) < 0)
        return -1;
    /* With SO_REUSEPORT a port that another moonpool process uses would be shared instead of refused, so bind once
     * without it first. */
    int probe = bind_tcp(&at, len, false);
    if (probe < 0)
        return explain_errno(where, errno, err);
    close(probe);
    /* A socket whose port the kernel chose loses it at a shutdown (mp_server_suspend). So one socket obtains a port
     * number, and the listening sockets are bound to that number. */
    int finder = bind_tcp(&at, len, true), error = errno, done = 0;
    if (finder < 0)
        return explain_errno(where, error, err);
    getsockname(finder, &at.any, &(socklen_t){sizeof at});
    for (; done < count; done++) {
        fds[done] = bind_tcp(&at, len, true);
        if (fds[done] >= 0)
            set_dead_peer(fds[done]);
        if (fds[done] < 0 || listen(fds[done], MP_BACKLOG) < 0)
            break;
    }
    error = errno;
    close(finder);
    if (done < count) {
        close_all(fds, fds[done] < 0 ? done : done + 1);
        return explain_errno(where, error, err);
    }
    describe(&at, bound);
    return 0;
}

/* -- unix ---------------------------------------------------------------------------------------------------------- */

/* Removes a socket file that no process listens on. A socket in use stays, and bind will fail. -1 with errno. */
static int remove_stale(const address *at, socklen_t len)
{
    struct stat found;
    if (lstat(at->local.sun_path, &found) < 0)
        return 0;
    if (!S_ISSOCK(found.st_mode)) {
        errno = ENOTSOCK;
        return -1;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    bool is_stale = connect(fd, &at->any, len) < 0 && errno == ECONNREFUSED;
    close(fd);
    return is_stale ? unlink(at->local.sun_path) : 0;
}

int mp_restrict_file(const char *where, const mp_socket_file *file, mp_err *err)
{
    const char *path = where + strlen("unix:");
    struct group *found = file->group == NULL ? NULL : getgrnam(file->group);
    if (file->group != NULL && found == NULL) {
        mp_err_set(err, "cannot listen on %s: there is no group '%s'", where, file->group);
        return mp_err_hint(err, "`getent group` lists the groups");
    }
    if (found != NULL && lchown(path, (uid_t)-1, found->gr_gid) != 0) {
        mp_err_set(err, "cannot listen on %s: its group cannot be '%s': %s", where, file->group, strerror(errno));
        return mp_err_hint(err, "the user of the gateway must be a member of the group");
    }
    return chmod(path, file->mode) == 0 ? 0 : explain_errno(where, errno, err);
}

static int listen_unix(const char *where, int count, const mp_socket_file *MP_NULLABLE file, int *fds,
                       mp_address *bound, mp_err *err)
{
    address at = {.local = {.sun_family = AF_UNIX}};
    const char *path = where + strlen("unix:");
    size_t size = strlen(path) + 1;
    if (size == 1)
        return refuse_address(where, err);
    if (size > sizeof at.local.sun_path || strlen(where) >= sizeof bound->text) {
        mp_err_set(err, "cannot listen on %s: the path is longer than %zu bytes", where, sizeof at.local.sun_path - 1);
        return mp_err_hint(err, "choose a shorter path");
    }
    memcpy(at.local.sun_path, path, size);
    fds[0] = -1;
    if (remove_stale(&at, sizeof at.local) == 0)
        fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fds[0] < 0)
        return explain_errno(where, errno, err);
    /* the file is made with the permissions of the socket, less the umask: none until they are set */
    bool is_bound = (file == NULL || fchmod(fds[0], 0) == 0) && bind(fds[0], &at.any, sizeof at.local) == 0;
    if (is_bound && file != NULL && mp_restrict_file(where, file, err) != 0) { /* before a client can connect */
        close(fds[0]);
        unlink(path);
        return -1;
    }
    if (!is_bound || listen(fds[0], MP_BACKLOG) < 0) {
        int error = errno;
        close(fds[0]);
        if (is_bound)
            unlink(path);
        return explain_errno(where, error, err);
    }
    for (int i = 1; i < count; i++) {
        fds[i] = fcntl(fds[0], F_DUPFD_CLOEXEC, 0);
        if (fds[i] < 0) {
            int error = errno;
            close_all(fds, i);
            unlink(path);
            return explain_errno(where, error, err);
        }
    }
    struct stat made;
    *bound = (mp_address){.is_loopback = true, .is_unix = true};
    if (lstat(path, &made) == 0) {
        bound->device = made.st_dev;
        bound->inode = made.st_ino;
    }
    memcpy(bound->text, where, strlen(where) + 1);
    return 0;
}

int mp_listen(const char *where, int count, const mp_socket_file *MP_NULLABLE file, int *fds, mp_address *bound,
              mp_err *err)
{
    if (strncmp(where, "unix:", strlen("unix:")) == 0)
        return listen_unix(where, count, file, fds, bound, err);
    return listen_tcp(where, count, fds, bound, err);
}

/* -- sockets that another process has bound ------------------------------------------------------------------------ */

/* A NUL, with which a name in the abstract namespace begins, is written as '@'. */
static void describe_unix(const address *at, socklen_t len, mp_address *bound)
{
    size_t from = offsetof(struct sockaddr_un, sun_path), size = len > from ? len - from : 0;
    const char *path = at->local.sun_path;
    struct stat found;
    *bound = (mp_address){.is_loopback = true, .is_unix = true};
    bool is_abstract = size > 0 && path[0] == '\0';
    size = is_abstract ? size : strnlen(path, size);
    memcpy(bound->text, "unix:", strlen("unix:"));
    memcpy(bound->text + strlen("unix:"), path, size);
    for (char *c = bound->text + strlen("unix:"); c < bound->text + strlen("unix:") + size; c++)
        *c = *c == '\0' ? '@' : *c;
    if (!is_abstract && size > 0 && lstat(bound->text + strlen("unix:"), &found) == 0) {
        bound->device = found.st_dev;
        bound->inode = found.st_ino;
    }
}

int mp_adopt(int fd, mp_address *bound, mp_err *err)
{
    address at = {0};
    socklen_t len = sizeof at;
    int type = 0, listens = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) != 0)
        return mp_err_set(err, errno == ENOTSOCK ? "it is no socket" : "it is not open");
    if (type != SOCK_STREAM)
        return mp_err_set(err, type == SOCK_DGRAM ? "it is a datagram socket" : "it is no stream socket");
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &(socklen_t){sizeof listens});
    if (getsockname(fd, &at.any, &len) != 0 ||
        (at.any.sa_family != AF_INET && at.any.sa_family != AF_INET6 && at.any.sa_family != AF_UNIX))
        return mp_err_set(err, "it is neither a TCP nor a Unix socket");
    if (listens == 0)
        return mp_err_set(err, "it does not listen");
    if (at.any.sa_family == AF_UNIX)
        describe_unix(&at, len, bound);
    else
        describe(&at, bound);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return mp_err_set(err, "%s", strerror(errno));
    return 0;
}

void mp_listener_tune(int fd, const mp_address *bound)
{
    if (bound->is_unix)
        return;
    set_option(fd, SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER);
    set_dead_peer(fd);
}

mp_str mp_systemd_name(mp_str where)
{
    mp_str prefix = MP_STR("systemd:");
    return mp_str_starts(where, prefix) ? mp_str_from(where, prefix.len) : MP_STR_NONE;
}

int mp_address_of(const char *where, mp_address *at)
{
    address found;
    socklen_t len = 0;
    mp_err err;
    *at = (mp_address){.is_loopback = true, .is_unix = strncmp(where, "unix:", strlen("unix:")) == 0};
    if (mp_systemd_name(mp_str_of(where)).ptr != NULL || (!at->is_unix && resolve(where, &found, &len, &err) < 0))
        return -1;
    if (!at->is_unix)
        describe(&found, at);
    else if (strlen(where) < sizeof at->text)
        memcpy(at->text, where, strlen(where) + 1);
    else
        return -1;
    return 0;
}

bool mp_is_near(const char *where)
{
    address at;
    socklen_t len;
    mp_err err;
    if (strncmp(where, "unix:", strlen("unix:")) == 0 || mp_systemd_name(mp_str_of(where)).ptr != NULL)
        return true;
    return resolve(where, &at, &len, &err) == 0 && is_loopback(&at);
}

bool mp_peer_left(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLRDHUP};
    return poll(&poller, 1, 0) > 0;
}
