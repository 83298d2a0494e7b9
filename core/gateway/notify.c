#define _GNU_SOURCE
#include "notify.h"
#include "telemetry/telemetry.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* messages about sockets that wait for room: two for each address of a large configuration */
#define MAX_WAITING 128
#define RETRY_MS 50    /* between attempts to send to a socket that has no room */
#define SETTLE_MS 1000 /* time for a manager that is busy; it handles a message in less than 1 ms */

/* The kinds of messages to the service manager. Of each kind but the first, only the last message waits, so that there
 * is always room for it. RELOAD is separate from STATE: a manager that has asked for a reload waits for both, in this
 * order. */
typedef enum { SOCKETS, RELOAD, STATE, ALIVE, MAIN } kind;

/* A message that waits for room in the manager's socket. It owns its descriptors. */
typedef struct message {
    struct message *MP_NULLABLE next;
    kind says;
    char *text;
    int *fds;
    int count;
} message;

static bool is_started, is_reloading, has_warned; /* has_warned: it was logged that messages are dropped */
static uint64_t alive_at;                         /* time of the last watchdog ping, in milliseconds; 0: never */
static uint64_t extended_at;                      /* ms at which mp_notify_leaving asked for time; 0: never */
static message *MP_NULLABLE waiting;              /* oldest first */
static int waiting_count, waiting_fds;            /* waiting_count: of the kind SOCKETS */

/* Sets the address of the manager's socket. Returns its size; 0: there is no manager. */
static socklen_t find_manager(struct sockaddr_un *address)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path == NULL ? 0 : strlen(path);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len < 2 || len >= sizeof address->sun_path || (path[0] != '/' && path[0] != '@'))
        return 0;
    memcpy(address->sun_path, path, len);
    if (path[0] == '@') /* $NOTIFY_SOCKET names a socket in the abstract namespace */
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

bool mp_notify_can_store(void)
{
    struct sockaddr_un address;
    return find_manager(&address) > 0;
}

/* False if the message may be sent later: the manager's socket has no room. */
static bool try_to_send(const message *sent)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * MP_NOTIFY_SOCKETS)];
        struct cmsghdr align;
    } room = {0};
    struct sockaddr_un address;
    struct iovec text = {sent->text, strlen(sent->text)};
    struct msghdr whole = {
        .msg_name = &address, .msg_namelen = find_manager(&address), .msg_iov = &text, .msg_iovlen = 1};
    if (sent->count > 0) {
        whole.msg_control = room.bytes;
        whole.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)sent->count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&whole);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)sent->count);
        memcpy(CMSG_DATA(head), sent->fds, sizeof(int) * (size_t)sent->count);
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno != EMFILE && errno != ENFILE;
    bool is_over = sendmsg(fd, &whole, MSG_NOSIGNAL) >= 0 ||
                   (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM && errno != EINTR && errno != ETOOMANYREFS);
    close(fd);
    return is_over; /* best effort: there may be no manager any more */
}

/* Frees the message to which `at` points. */
static void drop_message(message **at)
{
    message *one = *at;
    *at = one->next;
    waiting_count -= one->says == SOCKETS;
    waiting_fds -= one->count;
    for (int i = 0; i < one->count; i++)
        close(one->fds[i]);
    free(one->fds);
    free(one->text);
    free(one);
}

/* Frees the waiting messages of this kind: a newer one replaces them. */
static void drop_of_kind(kind says)
{
    for (message **at = &waiting; *at != NULL;)
        if ((*at)->says == says)
            drop_message(at);
        else
            at = &(*at)->next;
}

/* True if no message waits any more. */
static bool send_waiting(void)
{
    for (const message *first; (first = waiting) != NULL && try_to_send(first);)
        drop_message(&waiting);
    return waiting == NULL;
}

void mp_notify_end(void)
{
    while (waiting != NULL)
        drop_message(&waiting);
}

/* Takes ownership of the descriptors. */
static void send_with(kind says, const char *text, const int *fds, int count)
{
    struct sockaddr_un address;
    /* beside the sockets, one descriptor of a barrier may wait */
    bool has_room = says != SOCKETS || (waiting_count < MAX_WAITING && waiting_fds + count <= MP_NOTIFY_SOCKETS + 1);
    if (find_manager(&address) == 0 || !has_room) {
        for (int i = 0; i < count; i++)
            close(fds[i]);
        if (!has_room && !has_warned)
            mp_log(MP_WARN, "service manager not notified", mp_log_str("why", MP_STR("it does not read its socket")));
        has_warned = has_warned || !has_room;
        return;
    }
    if (says != SOCKETS)
        drop_of_kind(says);
    message *last = mp_new(sizeof *last), **end = &waiting;
    *last = (message){.says = says, .text = mp_dup(mp_str_of(text)), .count = count};
    if (count > 0) {
        last->fds = mp_new((size_t)count * sizeof *fds);
        memcpy(last->fds, fds, (size_t)count * sizeof *fds);
    }
    while (*end != NULL)
        end = &(*end)->next;
    *end = last;
    waiting_count += says == SOCKETS;
    waiting_fds += count;
    send_waiting();
}

static void send_fact(kind says, const char *text)
{
    if (is_started)
        send_with(says, text, MP_UNSET, 0);
}

static void send_state(const char *state)
{
    send_fact(STATE, state);
}

void mp_notify_ready(void)
{
    is_started = true;
    send_state("READY=1\nSTATUS=serving\n");
}

void mp_notify_reloading(void)
{
    char state[96];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu\n", (unsigned long long)mp_monotonic_us());
    send_fact(RELOAD, state);
    is_reloading = true;
}

void mp_notify_stopping(void)
{
    send_state("STOPPING=1\nSTATUS=draining\n");
}

void mp_notify_leaving(void)
{
    uint64_t now = mp_monotonic_ms();
    if (extended_at != 0 && now - extended_at < MP_NOTIFY_EXTEND_MS)
        return;
    extended_at = now;
    send_state("EXTEND_TIMEOUT_USEC=30000000\nSTATUS=leaving\n");
}

void mp_notify_leave(int pid)
{
    char state[64];
    snprintf(state, sizeof state, "MAINPID=%d\n", pid);
    send_fact(MAIN, state);
    is_started = false;
}

bool mp_notify_is_idle(void)
{
    return waiting == NULL;
}

void mp_notify_store(const char *name, const int *fds, int count)
{
    char text[512];
    snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%.300s\n", name);
    send_with(SOCKETS, text, fds, count);
}

void mp_notify_remove(const char *name)
{
    char text[512];
    snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%.300s\n", name);
    send_with(SOCKETS, text, MP_UNSET, 0);
}

/* The manager closes the end of a pipe that it gets with a barrier when it has handled all earlier messages; one that
 * does not know barriers closes it, too. */
void mp_notify_settle(void)
{
    int ends[2];
    if (!mp_notify_can_store() || pipe2(ends, O_CLOEXEC) != 0)
        return;
    send_with(SOCKETS, "BARRIER=1", &ends[1], 1);
    struct pollfd over = {.fd = ends[0], .events = POLLIN};
    for (uint64_t until = mp_monotonic_ms() + SETTLE_MS; mp_monotonic_ms() < until;) {
        bool is_sent = send_waiting();
        if (poll(&over, 1, is_sent ? SETTLE_MS : RETRY_MS) > 0)
            break;
    }
    close(ends[0]);
}

/* Half of the interval that the manager requires, as it recommends; 0: no watchdog pings are required. */
static uint64_t interval_ms(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *text = getenv("WATCHDOG_USEC");
    if (text == NULL || getenv("NOTIFY_SOCKET") == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    unsigned long long us = strtoull(text, NULL, 10);
    return us < 2000 ? 0 : us > 7200000000ULL ? 3600000 : us / 2000;
}

static int earlier(int wait_ms, int other_ms)
{
    return wait_ms >= 0 && wait_ms < other_ms ? wait_ms : other_ms;
}

int mp_notify_turn(int wait_ms)
{
    if (is_reloading) {
        is_reloading = false;
        send_state("READY=1\nSTATUS=serving\n");
    }
    if (!send_waiting())
        return earlier(wait_ms, RETRY_MS);
    uint64_t every = is_started ? interval_ms() : 0, now = mp_monotonic_us() / 1000;
    if (every == 0)
        return wait_ms;
    if (now >= alive_at + every) {
        alive_at = now;
        send_fact(ALIVE, "WATCHDOG=1\n");
    }
    return earlier(wait_ms, (int)(alive_at + every - now));
}
