/* passed.c: the table of passed sockets, their names, and the environment variables that describe them. */
#define _GNU_SOURCE
#include "passed.h"
#include "yaml.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_FD 3 /* $LISTEN_FDS counts from here */
#define STORED "moonpool/"
#define LISTED 8 /* names that an error lists */

mp_passed_socket *mp_passed_add(mp_passed *passed, mp_str name, int fd)
{
    mp_err err = {"", ""};
    mp_passed_socket *all = mp_new((size_t)(passed->count + 1) * sizeof *all), *one = &all[passed->count];
    if (passed->count > 0)
        memcpy(all, passed->all, (size_t)passed->count * sizeof *all);
    free(passed->all);
    passed->all = all;
    passed->count++;
    one->fd = fd;
    memcpy(one->name, name.ptr, name.len < sizeof one->name ? name.len : sizeof one->name - 1);
    if (mp_adopt(fd, &one->address, &err) != 0)
        snprintf(one->fault, sizeof one->fault, "%.60s", err.text);
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        one->fd = -1; /* the descriptor is not open, and the next file that is opened may get its number */
    return one;
}

/* -- the environment ----------------------------------------------------------------------------------------------- */

/* A number of $LISTEN_FDS or $LISTEN_PID; -1: it is none. */
static long number_of(const char *text)
{
    char *rest;
    errno = 0;
    long number = strtol(text, &rest, 10);
    return text[0] < '0' || text[0] > '9' || *rest != '\0' || errno != 0 ? -1 : number;
}

static void read_variables(mp_passed *passed)
{
    const char *count_text = getenv("LISTEN_FDS"), *pid_text = getenv("LISTEN_PID"), *names = getenv("LISTEN_FDNAMES");
    if (count_text == NULL)
        return;
    long count = number_of(count_text), pid = pid_text == NULL ? -1 : number_of(pid_text);
    if (pid != (long)getpid()) {
        snprintf(passed->refusal, sizeof passed->refusal,
                 "the sockets of LISTEN_FDS are for another process: LISTEN_PID is '%.20s', and this is process %ld",
                 pid_text == NULL ? "" : pid_text, (long)getpid());
        return;
    }
    if (count < 0 || count > MP_PASSED_MOST) {
        snprintf(passed->refusal, sizeof passed->refusal, "LISTEN_FDS is '%.20s', and must be 0 to %d", count_text,
                 MP_PASSED_MOST);
        return;
    }
    mp_str rest = mp_str_of(names == NULL ? "" : names);
    for (int i = 0; i < (int)count; i++) {
        mp_str name = names == NULL ? MP_STR_NONE : mp_str_cut(&rest, ':');
        mp_passed_add(passed, name.ptr == NULL ? MP_STR("unknown") : name, FIRST_FD + i); /* as sd_listen_fds(3) */
    }
}

void mp_passed_read(mp_passed *passed)
{
    static const char *const variables[] = {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID"};
    read_variables(passed);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

void mp_passed_free(mp_passed *passed)
{
    for (int i = 0; i < passed->count; i++)
        if (passed->all[i].fd >= 0)
            close(passed->all[i].fd);
    free(passed->all);
    *passed = (mp_passed){0};
}

/* -- names of socket units ----------------------------------------------------------------------------------------- */

mp_passed_socket *MP_NULLABLE mp_passed_find(const mp_passed *passed, mp_str name)
{
    for (int i = 0; i < passed->count; i++)
        if ((passed->all[i].fd >= 0 || passed->all[i].fault[0] != '\0') && mp_str_is(name, passed->all[i].name))
            return &passed->all[i];
    return NULL;
}

/* Appends each name of a socket unit once: "'a', 'b'". */
static void put_names(const mp_passed *passed, mp_buf *out)
{
    int listed = 0;
    for (int i = 0; i < passed->count; i++) {
        const mp_passed_socket *one = &passed->all[i];
        bool is_again = mp_stored_is(one);
        for (int k = 0; k < i && !is_again; k++)
            is_again = strcmp(passed->all[k].name, one->name) == 0;
        if (is_again)
            continue;
        if (++listed > LISTED) {
            mp_buf_put(out, MP_STR(" and others"));
            return;
        }
        mp_buf_printf(out, "%s'", listed == 1 ? "" : ", ");
        mp_put_visible(out, mp_str_of(one->name));
        mp_buf_putc(out, '\'');
    }
}

int mp_passed_refuse(const mp_passed *passed, mp_str name, mp_err *err)
{
    mp_scoped_buf names = {0};
    put_names(passed, &names);
    if (passed->refusal[0] != '\0') {
        mp_err_set(err, "systemd:%.*s: %s", MP_STR_ARG(name), passed->refusal);
        mp_err_hint(err, "a program between the service manager and the gateway must end by exec");
    } else if (names.len == 0) {
        mp_err_set(err, "systemd:%.*s: the service manager has passed no socket", MP_STR_ARG(name));
        mp_err_hint(err,
                    "start the service by its socket unit, as in systemctl start moonpool.socket, or write host:port");
    } else {
        mp_err_set(err, "systemd:%.*s: no socket has this name; the service manager has passed %.*s", MP_STR_ARG(name),
                   MP_STR_ARG(mp_buf_str(&names)));
        mp_err_hint(err, "the name is FileDescriptorName= of the socket unit, by default the name of the unit");
    }
    return -1;
}

const char *MP_NULLABLE mp_passed_far(const mp_passed *MP_NULLABLE passed, const char *where)
{
    mp_str name = mp_systemd_name(mp_str_of(where));
    for (int i = 0; passed != NULL && name.ptr != NULL && i < passed->count; i++) {
        const mp_passed_socket *one = &passed->all[i];
        if (mp_str_is(name, one->name) && one->fault[0] == '\0' && !one->address.is_loopback)
            return one->address.text;
    }
    return NULL;
}

/* -- names of stored sockets --------------------------------------------------------------------------------------- */

bool mp_stored_is(const mp_passed_socket *one)
{
    return strncmp(one->name, STORED, strlen(STORED)) == 0;
}

/* Appends the name without the file of a Unix socket. */
static void put_address(mp_buf *out, const mp_address *at)
{
    mp_buf_put(out, MP_STR(STORED));
    for (const unsigned char *c = (const unsigned char *)at->text; *c != '\0'; c++)
        mp_buf_printf(out, *c <= ' ' || *c >= 127 || strchr(":%#", *c) != NULL ? "%%%02X" : "%c", *c);
}

void mp_stored_name(char name[MP_PASSED_NAME], const mp_address *at)
{
    mp_scoped_buf out = {0};
    put_address(&out, at);
    if (at->is_unix)
        mp_buf_printf(&out, "#%llx.%llx", (unsigned long long)at->device, (unsigned long long)at->inode);
    name[0] = '\0';
    if (out.len < MP_PASSED_NAME)
        snprintf(name, MP_PASSED_NAME, "%.*s", MP_STR_ARG(mp_buf_str(&out)));
}

bool mp_stored_is_of(const mp_passed_socket *one, const mp_address *at)
{
    mp_scoped_buf text = {0};
    put_address(&text, at);
    size_t len = strcspn(one->name, "#");
    return len == text.len && memcmp(one->name, text.ptr, len) == 0;
}

const char *MP_NULLABLE mp_stored_fault(const mp_passed_socket *one)
{
    char name[MP_PASSED_NAME];
    if (one->fault[0] != '\0')
        return one->fault;
    mp_stored_name(name, &one->address); /* the name contains the inode of the file that is at the path now */
    if (strcmp(name, one->name) == 0)
        return NULL;
    return one->address.is_unix ? "the file of the socket was removed or replaced" : "it is bound to another address";
}
