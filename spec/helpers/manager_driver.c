/* manager_driver.c: a service manager for a spec: makes listening sockets, starts a program with them ($LISTEN_FDS),
 * reads its messages ($NOTIFY_SOCKET), stores its descriptors, and starts it again. Arguments: the program and its
 * arguments; "{ready}" among these is the number of a descriptor whose first line is printed. A command per line on
 * stdin, words separated by tabs; events on stdout, one per line:
 *
 *   tcp NAME PORT | unix NAME PATH | dgram NAME | bound NAME | file NAME     sockets of a socket unit; prints "socket
 *                                                                            NAME ADDRESS"
 *   drop NAME            closes them
 *   env NAME VALUE       a variable of the program, which replaces one that this driver would set; an empty value
 *                        removes it
 *   most N               descriptors that are stored at most (64)
 *   start                prints "started PID", later "ready …", "notify MESSAGE", "ended CODE"
 *   restart on | off     starts the program again whenever it ends
 *   signal NUMBER        to the program, or to the process that MAINPID= of its last message has named
 *   group on             when the main process ends, kills all processes that it has begun, as systemd does
 *   deaf                stops reading messages, and fills its socket: no message has room; prints "deaf"
 *   hear                reads on
 *   spoil NAME           replaces what is stored under the name by datagram sockets
 *   store                prints "store NAME=COUNT …", in the order of arrival
 *   end                  kills the program and ends */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 400
#define READY_FD 900

typedef struct {
    char name[300];
    int fd;
} descriptor;

static descriptor units[MOST], stored[MOST];
static int unit_count, stored_count, most = 64, variable_count;
static char *variables[32][2], **program;
static pid_t pid;
static int notify_fd, ready_fd = -1;
static char notify_path[128];
static bool restarts, is_deaf, kills_group;
static pid_t group;      /* of the processes that the program has begun */
static int main_fd = -1; /* of a main process that another one has begun; -1: none */

static void fail(const char *what)
{
    fprintf(stderr, "manager: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void add(descriptor *list, int *count, const char *name, int fd)
{
    if (fd < 0 || *count == MOST)
        fail(name);
    snprintf(list[*count].name, sizeof list[*count].name, "%s", name);
    list[(*count)++].fd = fd;
}

static void remove_all(descriptor *list, int *count, const char *name)
{
    int left = 0;
    for (int i = 0; i < *count; i++)
        if (strcmp(list[i].name, name) == 0)
            close(list[i].fd);
        else
            list[left++] = list[i];
    *count = left;
}

/* -- sockets of units ---------------------------------------------------------------------------------------------- */

/* `port` "any": a port that is free, on all addresses. */
static void make_tcp(const char *name, const char *port, int type, bool listens)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    at.sin_addr.s_addr = htonl(strcmp(port, "any") == 0 ? INADDR_ANY : INADDR_LOOPBACK);
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || (listens && listen(fd, 4096) != 0))
        fail("tcp");
    getsockname(fd, (struct sockaddr *)&at, &len);
    add(units, &unit_count, name, fd);
    printf("socket %s 127.0.0.1:%d\n", name, ntohs(at.sin_port));
}

static void make_unix(const char *name, const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + (path[0] == '@' ? 0 : 1));
    if (path[0] == '@')
        at.sun_path[0] = '\0';
    if (bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 4096) != 0)
        fail("unix");
    add(units, &unit_count, name, fd);
    printf("socket %s unix:%s\n", name, path);
}

/* -- the program --------------------------------------------------------------------------------------------------- */

static void run_program(int ready)
{
    char names[65536] = "", text[32];
    int fds[2 * MOST], count = 0;
    for (int i = 0; i < unit_count + stored_count; i++) {
        const descriptor *one = i < unit_count ? &units[i] : &stored[i - unit_count];
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", count == 0 ? "" : ":", one->name);
        fds[count++] = fcntl(one->fd, F_DUPFD, 1000); /* out of the way of the numbers that they get */
    }
    ready = fcntl(ready, F_DUPFD, 1000);
    for (int i = 0; i < count; i++)
        dup2(fds[i], 3 + i);
    dup2(ready, READY_FD);
    for (int fd = 1000; fd < 1000 + count + 1; fd++)
        close(fd);
    snprintf(text, sizeof text, "%d", (int)getpid());
    if (count > 0)
        setenv("LISTEN_PID", text, 1);
    snprintf(text, sizeof text, "%d", count);
    if (count > 0)
        setenv("LISTEN_FDS", text, 1), setenv("LISTEN_FDNAMES", names, 1);
    setenv("NOTIFY_SOCKET", notify_path, 1);
    for (int i = 0; i < variable_count; i++)
        variables[i][1][0] == '\0' ? unsetenv(variables[i][0]) : setenv(variables[i][0], variables[i][1], 1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (char **word = program; *word != NULL; word++)
        if (strcmp(*word, "{ready}") == 0)
            snprintf(*word, strlen("{ready}"), "%d", READY_FD);
    execv(program[0], program);
    fail(program[0]);
}

static void start(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        fail("pipe");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        run_program(ends[1]);
    }
    group = pid;
    close(ends[1]);
    if (ready_fd >= 0)
        close(ready_fd);
    ready_fd = ends[0];
    printf("started %d\n", (int)pid);
}

/* The main process has ended. */
static void end_main(const char *how)
{
    pid = 0;
    if (main_fd >= 0)
        close(main_fd);
    main_fd = -1;
    printf("ended %s\n", how);
    if (kills_group)
        kill(-group, SIGKILL);
    if (restarts)
        start();
}

static void reap(void)
{
    int status;
    char how[16];
    pid_t ended;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        if (ended != pid)
            continue;
        snprintf(how, sizeof how, "%d", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status));
        end_main(how);
    }
}

/* MAINPID= of the main process. */
static void follow(pid_t other)
{
    if (main_fd >= 0)
        close(main_fd);
    pid = other;
    main_fd = (int)syscall(SYS_pidfd_open, pid, 0U);
}

static void read_ready(void)
{
    char line[4096];
    ssize_t len = read(ready_fd, line, sizeof line - 1);
    if (len > 0) {
        line[len] = '\0';
        printf("%s", line);
    }
    close(ready_fd);
    ready_fd = -1;
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

static bool is_stored(int fd)
{
    struct stat one, other;
    fstat(fd, &one);
    for (int i = 0; i < stored_count; i++)
        if (fstat(stored[i].fd, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino)
            return true;
    return false;
}

static const char *value_of(const char *text, const char *key, char *room, size_t size)
{
    const char *at = strstr(text, key);
    if (at == NULL)
        return NULL;
    at += strlen(key);
    snprintf(room, size, "%.*s", (int)strcspn(at, "\n"), at);
    return room;
}

static void read_message(void)
{
    char text[4096], room[400];
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 253) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec part = {text, sizeof text - 1};
    struct msghdr whole = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t len = recvmsg(notify_fd, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (len < 0)
        return;
    text[len] = '\0';
    int fds[253], count = 0;
    pid_t sender = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&whole); head != NULL; head = CMSG_NXTHDR(&whole, head))
        if (head->cmsg_type == SCM_CREDENTIALS) {
            sender = ((struct ucred *)CMSG_DATA(head))->pid;
        } else if (head->cmsg_type == SCM_RIGHTS) {
            count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(head), sizeof(int) * (size_t)count);
        }
    for (char *c = text; sender != pid && *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    if (sender == getpid()) /* of fill_socket */
        return;
    if (sender != pid) { /* NotifyAccess=main */
        for (int i = 0; i < count; i++)
            close(fds[i]);
        printf("ignored %d %s\n", (int)sender, text);
        return;
    }
    if (value_of(text, "MAINPID=", room, sizeof room) != NULL)
        follow(atoi(room));
    const char *name = value_of(text, "FDNAME=", room, sizeof room);
    name = name == NULL ? "stored" : name;
    if (strstr(text, "FDSTOREREMOVE=1") != NULL)
        remove_all(stored, &stored_count, name);
    bool stores = strstr(text, "FDSTORE=1") != NULL && strlen(name) <= 255 && strchr(name, ':') == NULL;
    for (int i = 0; i < count; i++)
        if (stores && stored_count < most && !is_stored(fds[i]))
            add(stored, &stored_count, name, fds[i]);
        else
            close(fds[i]);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '\n' ? ' ' : *c;
    printf("notify %s[%d]\n", text, count);
}

/* How many messages have room is a setting of the system. */
static void fill_socket(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", notify_path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (sendto(fd, "", 0, 0, (struct sockaddr *)&at, sizeof at) == 0)
        ;
    if (errno != EAGAIN)
        fail("fill the notify socket");
    close(fd);
    printf("deaf\n");
}

/* -- commands ------------------------------------------------------------------------------------------------------ */

static void obey(char *line)
{
    char *words[3] = {"", "", ""};
    for (int i = 0; i < 3 && line != NULL; i++)
        words[i] = strsep(&line, "\t");
    const char *name = words[1];
    if (strcmp(words[0], "tcp") == 0)
        make_tcp(name, words[2], SOCK_STREAM, true);
    else if (strcmp(words[0], "bound") == 0)
        make_tcp(name, "0", SOCK_STREAM, false);
    else if (strcmp(words[0], "dgram") == 0)
        make_tcp(name, "0", SOCK_DGRAM, false);
    else if (strcmp(words[0], "unix") == 0)
        make_unix(name, words[2]);
    else if (strcmp(words[0], "file") == 0)
        add(units, &unit_count, name, open("/dev/null", O_RDONLY | O_CLOEXEC));
    else if (strcmp(words[0], "drop") == 0)
        remove_all(units, &unit_count, name);
    else if (strcmp(words[0], "env") == 0)
        variables[variable_count][0] = strdup(name), variables[variable_count++][1] = strdup(words[2]);
    else if (strcmp(words[0], "most") == 0)
        most = atoi(name);
    else if (strcmp(words[0], "start") == 0)
        start();
    else if (strcmp(words[0], "restart") == 0)
        restarts = strcmp(name, "on") == 0;
    else if (strcmp(words[0], "group") == 0)
        kills_group = true;
    else if (strcmp(words[0], "signal") == 0 && pid > 0)
        kill(pid, atoi(name));
    else if (strcmp(words[0], "deaf") == 0)
        is_deaf = true, fill_socket();
    else if (strcmp(words[0], "hear") == 0)
        is_deaf = false;
    else if (strcmp(words[0], "spoil") == 0) {
        for (int i = 0; i < stored_count; i++)
            if (strcmp(stored[i].name, name) == 0)
                dup3(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), stored[i].fd, O_CLOEXEC);
    } else if (strcmp(words[0], "store") == 0) {
        printf("store");
        for (int i = 0, count; i < stored_count; i += count) {
            for (count = 0; i + count < stored_count && strcmp(stored[i + count].name, stored[i].name) == 0;)
                count++;
            printf(" %s=%d", stored[i].name, count);
        }
        printf("\n");
    } else if (strcmp(words[0], "end") == 0) {
        if (group > 0)
            kill(-group, SIGKILL);
        unlink(notify_path);
        exit(0);
    }
}

/* False at the end of input. */
static bool read_commands(void)
{
    static char input[65536];
    static size_t used;
    ssize_t len = read(STDIN_FILENO, input + used, sizeof input - 1 - used);
    if (len <= 0)
        return false;
    used += (size_t)len;
    input[used] = '\0';
    char *line = input, *end;
    for (; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        obey(line);
    }
    used = strlen(line);
    memmove(input, line, used + 1);
    return true;
}

int main(int count, char **arguments)
{
    sigset_t set;
    program = arguments + 1;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* takes the exit code of a process whose parent has ended */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(notify_path, sizeof at.sun_path, "%s/notify.%d", getenv("PWD"), (int)getpid());
    snprintf(at.sun_path, sizeof at.sun_path, "%.100s", notify_path);
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (count < 2 || bind(notify_fd, (struct sockaddr *)&at, sizeof at) != 0)
        fail("notify socket");
    setsockopt(notify_fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = is_deaf ? -1 : notify_fd, .events = POLLIN},
                               {.fd = ready_fd, .events = POLLIN},
                               {.fd = main_fd, .events = POLLIN}};
        poll(fds, 5, -1);
        struct signalfd_siginfo info;
        if (fds[2].revents & POLLIN)
            read_message();
        if (fds[3].revents != 0)
            read_ready();
        if ((fds[0].revents != 0 && !read_commands()))
            obey((char[]){"end"});
        if (fds[1].revents != 0 && read(signals, &info, sizeof info) > 0)
            reap();
        if (fds[4].revents != 0 && main_fd == fds[4].fd)
            end_main("?"); /* its parent takes the exit code */
    }
}
