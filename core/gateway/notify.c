#define _GNU_SOURCE
#include "notify.h"
#include "base/base.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static bool is_started, is_reloading;
static uint64_t alive_at; /* time of the last watchdog ping, in milliseconds; 0: never */

static void send_state(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = path == NULL ? 0 : strlen(path);
    if (!is_started || len < 2 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') /* $NOTIFY_SOCKET names a socket in the abstract namespace */
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
    (void)sent; /* best effort: the service manager may not read the datagram */
    close(fd);
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
    send_state(state);
    is_reloading = true;
}

void mp_notify_stopping(void)
{
    send_state("STOPPING=1\nSTATUS=draining\n");
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

int mp_notify_turn(int wait_ms)
{
    if (is_reloading) {
        is_reloading = false;
        send_state("READY=1\nSTATUS=serving\n");
    }
    uint64_t every = is_started ? interval_ms() : 0, now = mp_monotonic_us() / 1000;
    if (every == 0)
        return wait_ms;
    if (now >= alive_at + every) {
        alive_at = now;
        send_state("WATCHDOG=1\n");
    }
    int left = (int)(alive_at + every - now);
    return wait_ms >= 0 && wait_ms < left ? wait_ms : left;
}
