/* wire.c: the system functions of the workbench. A *wire* is two descriptors, one to read and one to write: a connection, or the stdin and
 * stdout of a child process. */
#define _GNU_SOURCE /* for pipe2 */
#include "lib/wire.h"
#include "lib/fields.h"
#include "vm/engine.h"
#include "lib/wire_tls.h"
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WIRE "moonpool.wire"
#define MAX_ARGUMENTS 16

extern char **environ;

typedef struct {
    int in, out; /* -1 once closed; a connection has one descriptor for both */
    pid_t pid;   /* the child process; 0: none */
    mp_wire_tls *tls;
} wire;

static wire *push_wire(lua_State *L)
{
    wire *w = lua_newuserdatauv(L, sizeof *w, 0);
    *w = (wire){-1, -1, 0, NULL};
    luaL_setmetatable(L, WIRE);
    return w;
}

static void close_out(wire *w)
{
    if (w->out >= 0 && w->out != w->in)
        close(w->out);
    else if (w->out >= 0)
        shutdown(w->out, SHUT_WR);
    w->out = -1;
}

/* -- interrupts ------------------------------------------------------------------------------------------------ */

/* A pipe that the signal handler writes a byte to, which ends a wait in poll. -1 until catch_interrupts() is called. */
static int interrupts[2] = {-1, -1};

static void on_interrupt(int sign)
{
    (void)sign;
    int saved = errno;
    ssize_t written = write(interrupts[1], "!", 1);
    (void)written;
    errno = saved;
}

/* catch_interrupts(): from now on the first SIGINT or SIGTERM ends a wait in wire:read, which then gives nil and "interrupted"; the
 * second ends the process. True; or nil, why.  [-0, +1|2, throws] */
static int l_catch_interrupts(lua_State *L)
{
    /* No SA_RESTART: a signal also ends a read from the terminal. */
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    if (interrupts[0] < 0) {
        if (pipe2(interrupts, O_CLOEXEC | O_NONBLOCK) != 0)
            return mp_push_failure(L, strerror(errno));
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* -- opening --------------------------------------------------------------------------------------------------- */

/* connect(host, port): a wire; or nil, why.  [-0, +1|2, throws] */
static int l_connect(lua_State *L)
{
    const char *host = luaL_checkstring(L, 1), *port = luaL_checkstring(L, 2);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    wire *w = push_wire(L);
    int wrong = getaddrinfo(host, port, &hints, &list);
    if (wrong != 0)
        return mp_push_failure(L, gai_strerror(wrong));
    wrong = ECONNREFUSED;
    for (const struct addrinfo *a = list; a != NULL && w->in < 0; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
            w->in = w->out = fd;
            break;
        }
        wrong = errno;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(list);
    return w->in >= 0 ? 1 : mp_push_failure(L, strerror(wrong));
}

/* connect_unix(path): a wire to the Unix socket; or nil, why.  [-0, +1|2, throws] */
static int l_connect_unix(lua_State *L)
{
    size_t len;
    const char *path = luaL_checklstring(L, 1, &len);
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    if (len >= sizeof where.sun_path)
        return mp_push_failure(L, "the path of the socket is too long");
    memcpy(where.sun_path, path, len);
    wire *w = push_wire(L);
    w->in = w->out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->in < 0 || connect(w->in, (const struct sockaddr *)&where, sizeof where) != 0)
        return mp_push_failure(L, strerror(errno));
    return 1;
}

/* wire:secure(host, ca | nil): starts TLS on the connection. True; or nil, why, hint.  [-0, +1|3, throws] */
static int l_secure(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    mp_err err = {"", ""};
    w->tls = mp_wire_tls_open(w->in, luaL_checkstring(L, 2), luaL_optstring(L, 3, NULL), &err);
    if (w->tls == NULL) {
        mp_push_failure(L, err.text);
        lua_pushstring(L, err.hint[0] == '\0' ? NULL : err.hint);
        return 3;
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* spawn{argument, …}: starts this program (moonpool) as a child process with these arguments. A wire to it; or nil, why.  [-0, +1|2, throws] */
static int l_spawn(lua_State *L)
{
    char *argv[MAX_ARGUMENTS + 2] = {(char *)"moonpool"};
    int to[2], from[2];
    lua_settop(L, 1);
    luaL_checkstack(L, MAX_ARGUMENTS, NULL);
    for (lua_Integer i = 1; i <= MAX_ARGUMENTS && lua_rawgeti(L, 1, i) == LUA_TSTRING; i++)
        argv[i] = (char *)lua_tostring(L, -1); /* the stack holds a reference to the string */
    wire *w = push_wire(L);
    if (pipe2(to, O_CLOEXEC) != 0)
        return mp_push_failure(L, strerror(errno));
    w->out = to[1];
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]);
        return mp_push_failure(L, strerror(errno));
    }
    w->in = from[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    posix_spawnattr_t
        attributes; /* a process group of its own, so that Ctrl-C at the terminal does not reach the child */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int wrong = posix_spawn(&w->pid, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (wrong == 0)
        return 1;
    w->pid = 0;
    return mp_push_failure(L, strerror(wrong));
}

/* -- reading and writing ------------------------------------------------------------------------------------------------- */

/* wire:write(bytes): true; or nil, why.  [-0, +1|2, throws] */
static int l_write(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    mp_err err;
    for (size_t done = 0; done < len;) {
        ssize_t got = w->tls == NULL ? write(w->out, bytes + done, len - done)
                                     : mp_wire_tls_write(w->tls, bytes + done, len - done, &err);
        if (got < 0 && w->tls != NULL)
            return mp_push_failure(L, err.text);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mp_push_failure(L, strerror(errno));
        done += (size_t)got;
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* wire:read(seconds): some bytes; "" at the end; or nil, why.  [-0, +1|2, throws] */
static int l_read(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    lua_Number seconds = luaL_optnumber(L, 2, -0.001);
    struct pollfd watched[2] = {{.fd = w->in, .events = POLLIN}, {.fd = interrupts[0], .events = POLLIN}};
    char buffer[16384];
    int ready;
    ssize_t got = -1;
    mp_err err;
    if (w->tls != NULL && mp_wire_tls_has_more(w->tls))
        watched[0].events = POLLIN | POLLOUT; /* poll returns at once */
    do
        ready = poll(watched, 2, (int)(seconds * 1000)); /* poll ignores a descriptor of -1 */
    while (ready < 0 && errno == EINTR);
    if (ready > 0 && watched[1].revents != 0 && read(interrupts[0], buffer, sizeof buffer) > 0)
        return mp_push_failure(L, "interrupted");
    if (ready == 0)
        return mp_push_failure(L, "no answer in time");
    do
        got =
            w->tls == NULL ? read(w->in, buffer, sizeof buffer) : mp_wire_tls_read(w->tls, buffer, sizeof buffer, &err);
    while (w->tls == NULL && got < 0 && errno == EINTR);
    if (got < 0)
        return mp_push_failure(L, w->tls == NULL ? strerror(errno) : err.text);
    lua_pushlstring(L, buffer, (size_t)got);
    return 1;
}

/* wire:finish(): ends the writing direction; the other side reads the end.  [-0, +0, throws] */
static int l_finish(lua_State *L)
{
    close_out(luaL_checkudata(L, 1, WIRE));
    return 0;
}

/* wire:close(): closes the wire. Waits for a child, which ends when its stdin closes, and returns its exit code.  [-0, +0|1, throws] */
static int l_close(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    int status;
    mp_wire_tls_close(w->tls);
    w->tls = NULL;
    close_out(w);
    if (w->in >= 0)
        close(w->in);
    w->in = -1;
    if (w->pid == 0)
        return 0;
    pid_t ended;
    do
        ended = waitpid(w->pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    w->pid = 0;
    if (ended < 0)
        return 0;
    lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return 1;
}

/* -- the files ------------------------------------------------------------------------------------------------- */

/* mkdir(path): true if the folder was created or exists; or nil, why.  [-0, +1|2, throws] */
static int l_mkdir(lua_State *L)
{
    if (mkdir(luaL_checkstring(L, 1), 0777) != 0 && errno != EEXIST)
        return mp_push_failure(L, strerror(errno));
    lua_pushboolean(L, 1);
    return 1;
}

/* temporary_folder(): makes a folder that only the user can enter, below TMPDIR or /tmp; its path, or nil, why.  [-0, +1|2, throws] */
static int l_temporary_folder(lua_State *L)
{
    const char *parent = getenv("TMPDIR");
    lua_pushfstring(L, "%s/moonpool-XXXXXX", parent == NULL || *parent == '\0' ? "/tmp" : parent);
    char *path = mp_dup(mp_str_of(lua_tostring(L, -1)));
    bool is_made = mkdtemp(path) != NULL;
    int why = errno;
    lua_pushstring(L, path);
    free(path);
    return is_made ? 1 : mp_push_failure(L, strerror(why));
}

/* create(path, text[, private]): writes a new file; with `private` only the owner can read it. True; or nil, why, true if it exists.  [-0, +1|3, throws] */
static int l_create(lua_State *L)
{
    size_t len;
    const char *path = luaL_checkstring(L, 1), *text = luaL_checklstring(L, 2, &len);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, lua_toboolean(L, 3) ? 0600 : 0666);
    ssize_t got = fd < 0 ? -1 : write(fd, text, len);
    int wrong = got < 0 ? errno : (size_t)got < len ? ENOSPC : 0;
    if (fd >= 0)
        close(fd);
    if (wrong != 0) {
        mp_push_failure(L, strerror(wrong));
        lua_pushboolean(L, wrong == EEXIST);
        return 3;
    }
    lua_pushboolean(L, 1);
    return 1;
}

/* embedded(path): the text of a file that is embedded in the program.  [-0, +1, throws] */
static int l_embedded(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    for (size_t i = 0; i < mp_embedded_count; i++)
        if (strcmp(mp_embedded[i].path, path) == 0) {
            mp_buf room = {0};
            mp_str text = mp_embedded_text(&mp_embedded[i], &room);
            lua_pushlstring(L, text.ptr, text.len); /* in a program that ends if it has no memory */
            mp_buf_clear(&room);
            return 1;
        }
    return luaL_error(L, "no file '%s' is embedded in moonpool", path);
}

/* is_terminal(descriptor): true if the descriptor is a terminal.  [-0, +1, throws] */
static int l_is_terminal(lua_State *L)
{
    lua_pushboolean(L, isatty((int)luaL_checkinteger(L, 1)));
    return 1;
}

int mp_lib_wire(lua_State *L)
{
    static const luaL_Reg methods[] = {{"secure", l_secure}, {"write", l_write}, {"read", l_read},
                                       {"finish", l_finish}, {"close", l_close}, {"__gc", l_close},
                                       {"__close", l_close}, {NULL, NULL}};
    static const luaL_Reg functions[] = {{"connect", l_connect},
                                         {"connect_unix", l_connect_unix},
                                         {"spawn", l_spawn},
                                         {"catch_interrupts", l_catch_interrupts},
                                         {"mkdir", l_mkdir},
                                         {"temporary_folder", l_temporary_folder},
                                         {"create", l_create},
                                         {"embedded", l_embedded},
                                         {"is_terminal", l_is_terminal},
                                         {NULL, NULL}};
    luaL_newmetatable(L, WIRE);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
