/* link.c: a link is a socket of the kind SOCK_SEQPACKET: a packet has the kind of the message in its first byte, and
 * its descriptors beside it. */
#define _GNU_SOURCE
#include "link.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct waiting {
    struct waiting *MP_NULLABLE next;
    mp_buf bytes; /* the kind, then the body */
    int fds[MP_LINK_FDS];
    int count;
} waiting;

struct mp_process_link {
    int fd;
    bool is_broken; /* the other end is closed, or took nothing for too long */
    bool has_lost;  /* a message was dropped since the last one that had room */
    waiting *MP_NULLABLE first;
    int waiting_count;
    /* The message that was taken last. Some messages have keys in them, so each is wiped once it was sent or read. */
    size_t len;
    char bytes[MP_LINK_BYTES];
};

typedef union {
    char bytes[CMSG_SPACE(sizeof(int) * MP_LINK_FDS)];
    struct cmsghdr align;
} control;

int mp_process_link_pair(int ends[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends);
}

mp_process_link *mp_process_link_new(int fd)
{
    mp_process_link *link = mp_new(sizeof *link);
    link->fd = fd;
    return link;
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static void drop_first(mp_process_link *link, waiting *first)
{
    link->first = first->next;
    link->waiting_count--;
    close_all(first->fds, first->count);
    explicit_bzero(first->bytes.ptr, first->bytes.len);
    mp_buf_clear(&first->bytes);
    free(first);
}

void mp_process_link_free(mp_process_link *MP_NULLABLE link)
{
    if (link == NULL)
        return;
    mp_process_link_flush(link);
    for (waiting *first; (first = link->first) != NULL;)
        drop_first(link, first);
    close(link->fd);
    explicit_bzero(link->bytes, link->len);
    free(link);
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

/* False if the socket has no room. */
static bool try_to_send(mp_process_link *link, const waiting *one)
{
    control room = {0};
    struct iovec bytes = {one->bytes.ptr, one->bytes.len};
    struct msghdr whole = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (one->count > 0) {
        whole.msg_control = room.bytes;
        whole.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)one->count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)one->count);
        memcpy(CMSG_DATA(head), one->fds, sizeof(int) * (size_t)one->count);
    }
    if (sendmsg(link->fd, &whole, MSG_NOSIGNAL) >= 0)
        return true;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR || errno == ETOOMANYREFS)
        return false;
    link->is_broken = true;
    return true;
}

bool mp_process_link_flush(mp_process_link *link)
{
    for (waiting *first; (first = link->first) != NULL && (link->is_broken || try_to_send(link, first));)
        drop_first(link, first);
    return link->first == NULL;
}

void mp_process_link_send(mp_process_link *link, unsigned char kind, mp_str body, const int *fds, int count)
{
    waiting *last = mp_new(sizeof *last), **end = &link->first;
    last->count = count;
    if (count > 0)
        memcpy(last->fds, fds, (size_t)count * sizeof *fds);
    mp_buf_putc(&last->bytes, (char)kind);
    mp_buf_put(&last->bytes, body);
    while (*end != NULL)
        end = &(*end)->next;
    *end = last;
    if (++link->waiting_count > MP_LINK_QUEUE)
        link->is_broken = true;
    mp_process_link_flush(link);
}

bool mp_process_link_offer(mp_process_link *link, unsigned char kind, mp_str body, mp_str instead)
{
    if (link->waiting_count >= MP_LINK_OFFERS) {
        link->has_lost = true;
        return false;
    }
    if (link->has_lost)
        mp_process_link_send(link, kind, instead, MP_UNSET, 0);
    link->has_lost = false;
    mp_process_link_send(link, kind, body, MP_UNSET, 0);
    return true;
}

/* -- taking -------------------------------------------------------------------------------------------------------- */

static void take_descriptors(struct msghdr *whole, mp_link_message *message)
{
    for (struct cmsghdr *head = CMSG_FIRSTHDR(whole); head != NULL; head = CMSG_NXTHDR(whole, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(message->fds + message->count, CMSG_DATA(head), count * sizeof(int));
        message->count += (int)count;
    }
}

int mp_process_link_take(mp_process_link *link, mp_link_message *message)
{
    control room;
    struct iovec bytes = {link->bytes, sizeof link->bytes};
    struct msghdr whole = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = room.bytes, .msg_controllen = sizeof room.bytes};
    *message = (mp_link_message){.count = 0};
    explicit_bzero(link->bytes, link->len);
    link->len = 0;
    ssize_t got;
    while ((got = recvmsg(link->fd, &whole, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 && errno == EINTR)
        continue;
    if (got < 0 && errno == EAGAIN)
        return link->is_broken ? -1 : 0;
    if (got <= 0)
        return -1;
    link->len = (size_t)got;
    take_descriptors(&whole, message);
    if ((whole.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || link->bytes[0] == 0) {
        close_all(message->fds, message->count);
        return -1;
    }
    message->kind = (unsigned char)link->bytes[0];
    message->body = (mp_str){link->bytes + 1, (size_t)got - 1};
    return 1;
}

bool mp_process_link_is_closed(const mp_process_link *link)
{
    char byte;
    ssize_t got = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

int mp_process_link_await(mp_process_link *link, mp_link_message *message, uint64_t until_ms)
{
    for (;;) {
        int taken = mp_process_link_take(link, message);
        uint64_t now = mp_monotonic_ms();
        if (taken != 0 || now >= until_ms)
            return taken;
        struct pollfd one = {.fd = link->fd, .events = mp_process_link_events(link)};
        poll(&one, 1, (int)(until_ms - now));
        mp_process_link_flush(link);
    }
}

int mp_process_link_fd(const mp_process_link *link)
{
    return link->fd;
}

short mp_process_link_events(const mp_process_link *link)
{
    return (short)(link->first == NULL ? POLLIN : POLLIN | POLLOUT);
}
