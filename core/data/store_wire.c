/* store_wire.c: frames over non-blocking Unix sockets, with deadlines. */
#define _GNU_SOURCE
#include "data/store_wire.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

int mp_wire_address(const char *path, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address->sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address->sun_path, path, strlen(path));
    return 0;
}

bool mp_wire_is_own_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

int mp_wire_connect(const char *path)
{
    struct sockaddr_un address;
    if (mp_wire_address(path, &address) != 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        if (mp_wire_is_own_user(fd))
            return fd;
        errno = EPERM;
    }
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Waits until the socket is ready. False: the time is over. */
static bool await_socket(int fd, short events, uint64_t until_us)
{
    struct pollfd it = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = mp_monotonic_us(), left = until_us > now ? until_us - now : 0;
        struct timespec time = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
        int ready = ppoll(&it, 1, &time, NULL);
        if (ready != 0 && !(ready < 0 && errno == EINTR))
            return true;
        if (left == 0)
            return false;
    }
}

/* Fills `parts` with the bytes of the frame and its payload after the first `sent` ones. Returns the number of parts.
 */
static size_t rest_of(const mp_store_frame *frame, const mp_str parts[3], size_t sent, struct iovec rest[4])
{
    size_t count = 0;
    for (int i = 0; i < 4; i++) {
        mp_str part = i == 0 ? (mp_str){(const char *)frame, sizeof *frame} : parts[i - 1];
        if (sent >= part.len) {
            sent -= part.len;
            continue;
        }
        rest[count++] = (struct iovec){(void *)(uintptr_t)(part.ptr + sent), part.len - sent};
        sent = 0;
    }
    return count;
}

int mp_wire_send(int fd, const mp_store_frame *frame, const mp_str parts[3], uint64_t until_us, size_t *sent)
{
    struct iovec rest[4];
    struct msghdr message = {.msg_iov = rest};
    while ((message.msg_iovlen = rest_of(frame, parts, *sent, rest)) > 0) {
        ssize_t put = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put >= 0)
            *sent += (size_t)put;
        else if (errno == EAGAIN && !await_socket(fd, POLLOUT, until_us))
            return 0;
        else if (errno != EAGAIN && errno != EINTR)
            return -1;
    }
    return 1;
}

mp_store_frame mp_wire_frame(const mp_buf *in)
{
    mp_store_frame frame;
    memcpy(&frame, in->ptr, sizeof frame);
    return frame;
}

uint64_t mp_wire_payload(const mp_store_frame *frame, uint64_t most)
{
    uint64_t len = 0;
    const uint64_t parts[] = {frame->key_len, frame->text_len, frame->old_len};
    for (size_t i = 0; i < 3; i++) {
        if (parts[i] > most - len)
            return UINT64_MAX;
        len += parts[i];
    }
    return len;
}

/* The bytes that are missing of the frame. */
static size_t missing(const mp_buf *in)
{
    if (in->len < sizeof(mp_store_frame))
        return sizeof(mp_store_frame) - in->len;
    mp_store_frame frame = mp_wire_frame(in);
    return sizeof frame + (size_t)mp_wire_payload(&frame, SIZE_MAX / 2) - in->len;
}

#define READ_AT_ONCE ((size_t)256 << 10)

int mp_wire_read(int fd, mp_buf *in, uint64_t until_us)
{
    size_t left;
    while ((left = missing(in)) > 0) {
        if (left > READ_AT_ONCE)
            left = READ_AT_ONCE;
        ssize_t got = recv(fd, mp_buf_room(in, left), left, MSG_DONTWAIT);
        if (got > 0)
            in->len += (size_t)got;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return -1;
        else if (!await_socket(fd, POLLIN, until_us))
            return 0;
    }
    return 1;
}
