/* workbench_sys.c: the system functions of the workbench. A *wire* is two descriptors, one to read and one to write:
 * the stdout and the stdin of a child process. */
#define _GNU_SOURCE /* for pipe2 and memfd_create */
#include "lib/workbench_sys.h"
#include "lib/modules/embedded.h"
#include "lib/fields.h"
#include "net/net.h"
#include "os/os.h"
#include "vm/engine.h"
#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define WIRE "moonpool.wire"
#define MAX_ARGUMENTS 16
#define MAX_FILES 2
#define FIRST_FILE_FD 10 /* number of the first file in memory that a child inherits */

typedef struct {
    int in, out; /* -1 once closed */
    pid_t pid;   /* the child process; 0: none */
} wire;

static wire *push_wire(lua_State *L)
{
    wire *w = lua_newuserdatauv(L, sizeof *w, 0);
    *w = (wire){-1, -1, 0};
    luaL_setmetatable(L, WIRE);
    return w;
}

static void close_out(wire *w)
{
    if (w->out >= 0)
        close(w->out);
    w->out = -1;
}

/* -- interrupts ------------------------------------------------------------------------------------------------ */

/* A pipe that the signal handler writes a byte to, which ends a wait in poll. -1 until catch_interrupts() is called. */
static int interrupts[2] = {-1, -1};

static void on_interrupt(MP_UNUSED int sign)
{
    int saved = errno;
    ssize_t written = write(interrupts[1], "!", 1);
    (void)written;
    errno = saved;
}

/* catch_interrupts(): from now on the first SIGINT or SIGTERM ends a wait in wire:read, which then gives nil and
 * "interrupted"; the second ends the process. True; or nil, why.  [-0, +1|2, throws] */
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

/* Makes a file in memory that contains `text`; -1 on failure. Its descriptor is above those that a child gets, because
 * dup2 to one of these could close another such file. */
static int memory_file(mp_str text)
{
    int low = memfd_create("moonpool", MFD_CLOEXEC);
    if (low < 0)
        return -1;
    int fd = fcntl(low, F_DUPFD_CLOEXEC, FIRST_FILE_FD + MAX_FILES);
    close(low);
    if (fd >= 0 && (write(fd, text.ptr, text.len) != (ssize_t)text.len || lseek(fd, 0, SEEK_SET) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* spawn({argument, …}[, text, text]): starts this program (moonpool) as a child process with these arguments. The child
 * can read the texts as the files /proc/self/fd/10 and 11. A wire to the child; or nil, why.  [-0, +1|2, throws] */
static int l_spawn(lua_State *L)
{
    char *argv[MAX_ARGUMENTS + 2] = {(char *)"moonpool"};
    int to[2], from[2], files[MAX_FILES] = {-1, -1};
    lua_settop(L, 1 + MAX_FILES);
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
    for (int i = 0; i < MAX_FILES; i++)
        if (!lua_isnil(L, 2 + i))
            files[i] = memory_file(mp_check_str(L, 2 + i));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    for (int i = 0; i < MAX_FILES; i++)
        if (files[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, files[i], FIRST_FILE_FD + i);
    posix_spawnattr_t
        attributes; /* a process group of its own, so that Ctrl-C at the terminal does not reach the child */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    char **env = mp_environment_all();
    int wrong = posix_spawn(&w->pid, "/proc/self/exe", &actions, &attributes, argv, env);
    free(env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    for (int i = 0; i < MAX_FILES; i++)
        if (files[i] >= 0)
            close(files[i]);
    if (wrong == 0)
        return 1;
    w->pid = 0;
    return mp_push_failure(L, strerror(wrong));
}

/* -- reading and writing ------------------------------------------------------------------------------------------- */

/* wire:write(bytes): true; or nil, why.  [-0, +1|2, throws] */
static int l_write(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    for (size_t done = 0; done < len;) {
        ssize_t got = write(w->out, bytes + done, len - done);
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
    do
        ready = poll(watched, 2, (int)(seconds * 1000)); /* poll ignores a descriptor of -1 */
    while (ready < 0 && errno == EINTR);
    if (ready > 0 && watched[1].revents != 0 && read(interrupts[0], buffer, sizeof buffer) > 0)
        return mp_push_failure(L, "interrupted");
    if (ready == 0)
        return mp_push_failure(L, "no answer in time");
    do
        got = read(w->in, buffer, sizeof buffer);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return mp_push_failure(L, strerror(errno));
    lua_pushlstring(L, buffer, (size_t)got);
    return 1;
}

/* wire:finish(): ends the writing direction; the other side reads the end.  [-0, +0, throws] */
static int l_finish(lua_State *L)
{
    close_out(luaL_checkudata(L, 1, WIRE));
    return 0;
}

/* wire:close(): closes the wire. Waits for a child, which ends when its stdin closes, and returns its exit code.  [-0,
 * +0|1, throws] */
static int l_close(lua_State *L)
{
    wire *w = luaL_checkudata(L, 1, WIRE);
    int status;
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

/* The text in a field of the table at index 1; NULL if it is nil. The table keeps the text.  [-0, +0, throws] */
static const char *MP_NULLABLE text_field(lua_State *L, const char *name)
{
    lua_getfield(L, 1, name);
    const char *text = luaL_optstring(L, -1, NULL);
    lua_pop(L, 1);
    return text;
}

/* Calls the function at index 2, which takes a part of an answer. False if it raised an error, which is index 3
 * then. */
static bool take_bytes(void *ctx, mp_str bytes)
{
    lua_State *L = ctx;
    lua_pushvalue(L, 2);
    lua_pushlstring(L, bytes.ptr, bytes.len); /* in a program that ends if it has no memory */
    if (lua_pcall(L, 1, 0, 0) == LUA_OK)
        return true;
    lua_replace(L, 3);
    return false;
}

/* fetch{method, url, socket, ca, seconds, headers, body, on_bytes}: sends an HTTP request, over a Unix socket if
 * `socket` is its path; `headers` is a list of texts; `on_bytes` is called with each part of the answer's body as it
 * arrives, if the status is 200. The status and the body of the answer; or nil, why.  [-0, +2, throws] */
static int l_fetch(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    mp_fetch_options options = {
        .method = text_field(L, "method"),
        .url = text_field(L, "url"),
        .socket = text_field(L, "socket"),
        .ca = text_field(L, "ca"),
        .text = text_field(L, "body"),
    };
    lua_settop(L, 1);
    bool has_reader = lua_getfield(L, 1, "on_bytes") == LUA_TFUNCTION;
    options.on_bytes = has_reader ? take_bytes : NULL;
    options.ctx = L;
    lua_pushnil(L); /* the error of the function */
    luaL_argcheck(L, options.method != NULL && options.url != NULL, 1, "method and url are needed");
    lua_getfield(L, 1, "seconds");
    options.seconds = (int)luaL_optinteger(L, -1, 0);
    lua_pop(L, 1);
    if (lua_getfield(L, 1, "headers") == LUA_TTABLE)
        for (int i = 0; i < MP_FETCH_HEADERS && lua_rawgeti(L, 4, i + 1) == LUA_TSTRING; i++)
            options.headers[i] = lua_tostring(L, -1); /* the stack holds a reference to the string */
    mp_err err = {"", ""};
    mp_buf body = {0};
    int status = mp_fetch(&options, &body, &err);
    if (status > 0) {
        lua_pushinteger(L, status);
        lua_pushlstring(L, body.len == 0 ? "" : body.ptr, body.len);
    } else {
        mp_push_failure(L, err.text);
    }
    mp_buf_clear(&body);
    if (!lua_isnil(L, 3)) {
        lua_pushvalue(L, 3);
        return lua_error(L);
    }
    return 2;
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

/* temporary_folder(): makes a folder that only the user can enter, below TMPDIR or /tmp; its path, or nil, why.  [-0,
 * +1|2, throws] */
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

/* create(path, text[, private]): writes a new file; with `private` only the owner can read it. True; or nil, why, true
 * if it exists.  [-0, +1|3, throws] */
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
            mp_scoped_buf room = {0};
            mp_str text = mp_embedded_text(&mp_embedded[i], &room);
            lua_pushlstring(L, text.ptr, text.len); /* in a program that ends if it has no memory */
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

/* read_secret(prompt): a line from the terminal, which does not show what is typed; nil if there is none.  [-0, +1,
 * throws] */
static int l_read_secret(lua_State *L)
{
    struct termios before, silent;
    char line[2048];
    fputs(luaL_checkstring(L, 1), stderr);
    if (tcgetattr(STDIN_FILENO, &before) != 0)
        return 0;
    silent = before;
    silent.c_lflag &= ~(tcflag_t)ECHO;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent);
    bool is_read = fgets(line, sizeof line, stdin) != NULL;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    fputc('\n', stderr);
    if (is_read)
        lua_pushlstring(L, line, strcspn(line, "\n"));
    else
        lua_pushnil(L);
    explicit_bzero(line, sizeof line);
    return 1;
}

/* keep_private(): files that the command makes from here on can be read by their owner alone.  [-0, +0] */
static int l_keep_private(MP_UNUSED lua_State *L)
{
    umask(0077);
    return 0;
}

/* pause(seconds): waits; "interrupted" if the user has interrupted the command meanwhile, and catch_interrupts() was
 * called before.  [-0, +1, throws] */
static int l_pause(lua_State *L)
{
    struct pollfd watched = {.fd = interrupts[0], .events = POLLIN};
    char buffer[64];
    lua_Number seconds = luaL_checknumber(L, 1);
    bool is_interrupted =
        poll(&watched, 1, (int)(seconds * 1000)) > 0 && read(interrupts[0], buffer, sizeof buffer) > 0;
    lua_pushstring(L, is_interrupted ? "interrupted" : NULL);
    return 1;
}

int mp_lib_wire(lua_State *L)
{
    static const luaL_Reg methods[] = {{"write", l_write}, {"read", l_read},  {"finish", l_finish},
                                       {"close", l_close}, {"__gc", l_close}, {"__close", l_close},
                                       {NULL, NULL}};
    static const luaL_Reg functions[] = {{"spawn", l_spawn},
                                         {"fetch", l_fetch},
                                         {"catch_interrupts", l_catch_interrupts},
                                         {"mkdir", l_mkdir},
                                         {"temporary_folder", l_temporary_folder},
                                         {"create", l_create},
                                         {"embedded", l_embedded},
                                         {"is_terminal", l_is_terminal},
                                         {"read_secret", l_read_secret},
                                         {"keep_private", l_keep_private},
                                         {"pause", l_pause},
                                         {NULL, NULL}};
    luaL_newmetatable(L, WIRE);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
