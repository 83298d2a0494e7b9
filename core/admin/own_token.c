/* own_token.c: where the gateway's own token lies, and how commands find it. */
#define _GNU_SOURCE
#include "own_token.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_BYTES 32
#define DIGITS ((size_t)2 * TOKEN_BYTES)
#define MEMORY_FILE "moonpool-admin-token"
#define MEMORY_SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define SOCKETS 8 /* sockets at one address that an admin listener may have: localhost is two addresses */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

struct mp_own_token {
    int fd;                 /* descriptor of the memory file; -1: none */
    char *MP_NULLABLE path; /* NULL: there is no file */
};

/* -- the file, where there is a folder for it ---------------------------------------------------------------------- */

/* The file of the token of a gateway whose admin listener has this port. NULL: there is no folder for it. */
static char *MP_NULLABLE path_of_token(unsigned port)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY"), *user = getenv("XDG_RUNTIME_DIR");
    char *path = NULL;
    if (runtime != NULL && *runtime == '/')
        return asprintf(&path, "%.*s/admin.token", (int)strcspn(runtime, ":"), runtime) < 0 ? NULL : path;
    if (user != NULL && *user == '/')
        return asprintf(&path, "%s/moonpool/%u.token", user, port) < 0 ? NULL : path;
    return NULL;
}

/* Makes the folder of `path`, if it is not there, for this user alone. */
static void make_folder(const char *path)
{
    char *folder = mp_dup((mp_str){path, (size_t)(strrchr(path, '/') - path)});
    mkdir(folder, 0700);
    free(folder);
}

/* Writes the token's text, of DIGITS characters and the end of a line; false with errno. */
static bool put_text(int fd, const char *text)
{
    errno = ENOSPC; /* a write that stored only a part has set no errno */
    return write(fd, text, DIGITS + 1) == (ssize_t)DIGITS + 1;
}

/* Replaces the file; false with errno. */
static bool write_file(const char *path, const char *text)
{
    make_folder(path);
    unlink(path); /* removes the file of a process that was killed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool is_written = put_text(fd, text);
    int error = errno;
    close(fd);
    if (!is_written)
        unlink(path);
    errno = error;
    return is_written;
}

/* -- the gateway --------------------------------------------------------------------------------------------------- */

/* A sealed memory file with the text: nothing can change it, not even its owner. -1: none. */
static int hold_token(const char *text)
{
    int fd = memfd_create(MEMORY_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(MEMORY_FILE, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (put_text(fd, text) && fchmod(fd, 0400) == 0 && fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The text of an open file of a token. NULL: it has none. */
static char *MP_NULLABLE read_token(int fd)
{
    char text[DIGITS + 2] = "";
    ssize_t len = pread(fd, text, sizeof text, 0); /* other processes have the same open file */
    bool is_token = len == (ssize_t)DIGITS + 1 && text[DIGITS] == '\n' && strspn(text, "0123456789abcdef") == DIGITS;
    char *token = is_token ? mp_dup((mp_str){text, DIGITS}) : NULL;
    explicit_bzero(text, sizeof text);
    return token;
}

/* Takes over the token of an earlier process, whose file exists. NULL if `handed` is no memory file of a token. */
static mp_own_token *MP_NULLABLE adopt_token(uint16_t port, int handed, mp_secret_hash *hash)
{
    char *text = read_token(handed);
    int fd = text == NULL ? -1 : fcntl(handed, F_DUPFD_CLOEXEC, 0);
    mp_own_token *token = fd < 0 ? NULL : mp_new(sizeof *token);
    if (token != NULL) {
        *hash = mp_secret_hash_of(mp_str_of(text));
        token->fd = fd;
        token->path = path_of_token(port);
    }
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
    return token;
}

void mp_own_token_leave(mp_own_token *MP_NULLABLE token)
{
    if (token == NULL)
        return;
    free(token->path);
    token->path = NULL;
}

int mp_own_token_fd(const mp_own_token *MP_NULLABLE token)
{
    return token == NULL || token->fd < 0 ? -1 : fcntl(token->fd, F_DUPFD_CLOEXEC, 0);
}

mp_own_token *MP_NULLABLE mp_own_token_new(uint16_t port, int handed, mp_secret_hash *hash)
{
    mp_own_token *given = handed < 0 ? NULL : adopt_token(port, handed, hash);
    if (given != NULL)
        return given;
    unsigned char random[TOKEN_BYTES];
    char text[DIGITS + 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        abort(); /* a token that can be guessed is worse than no service */
    mp_hex_put(text, random, sizeof random);
    *hash = mp_secret_hash_of((mp_str){text, DIGITS});
    memcpy(text + DIGITS, "\n", 2);
    mp_own_token *token = mp_new(sizeof *token);
    token->fd = hold_token(text);
    int why = errno;
    char *path = path_of_token(port);
    if (path != NULL && write_file(path, text)) {
        token->path = path;
    } else if (path != NULL) {
        mp_log(MP_WARN, "no admin token", mp_log_str("file", mp_str_of(path)),
               mp_log_str("why", mp_str_of(strerror(errno))));
        free(path);
    }
    explicit_bzero(text, sizeof text);
    explicit_bzero(random, sizeof random);
    if (token->fd >= 0 || token->path != NULL)
        return token;
    mp_log(MP_WARN, "no admin token", mp_log_str("file", MP_STR("in memory")),
           mp_log_str("why", mp_str_of(strerror(why))));
    free(token);
    return NULL;
}

void mp_own_token_free(mp_own_token *MP_NULLABLE token)
{
    if (token == NULL)
        return;
    char *path = token->path;
    if (path != NULL)
        unlink(path);
    if (token->fd >= 0)
        close(token->fd);
    free(path);
    free(token);
}

/* -- a command: which sockets listen at the address ---------------------------------------------------------------- */

typedef struct {
    unsigned long inodes[SOCKETS];
    unsigned owners[SOCKETS]; /* user ids */
    size_t count;
} sockets;

/* Adds the sockets that listen at `where`, an address as the table of the kernel has it. The table begins with all that
 * listen (proc_net_tcp.rst of Linux's documentation); behind them can be ten thousands of connections. */
static void add_sockets(sockets *to, const char *table, const char *where)
{
    char line[512], local[64];
    unsigned state = TCP_LISTEN;
    FILE *file = fopen(table, "re");
    while (file != NULL && state == TCP_LISTEN && to->count < SOCKETS && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%*d: %63s %*s %x %*s %*s %*s %u %*s %lu", local, &state, &to->owners[to->count],
                   &to->inodes[to->count]) == 4 &&
            state == TCP_LISTEN && strcmp(local, where) == 0)
            to->count++;
    if (file != NULL)
        fclose(file);
}

/* Adds the sockets at `host`, a number. False: that is no loopback address. */
static bool add_host(sockets *to, const char *host, unsigned port)
{
    struct in_addr v4;
    struct in6_addr v6;
    char where[64];
    if (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127) {
        snprintf(where, sizeof where, "%08X:%04X", v4.s_addr, port);
        add_sockets(to, "/proc/self/net/tcp", where);
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6) != 1 || !IN6_IS_ADDR_LOOPBACK(&v6))
        return false;
    snprintf(where, sizeof where, "%08X%08X%08X%08X:%04X", v6.s6_addr32[0], v6.s6_addr32[1], v6.s6_addr32[2],
             v6.s6_addr32[3], port);
    add_sockets(to, "/proc/self/net/tcp6", where);
    return true;
}

/* The sockets that listen at the address, as in 127.0.0.1:7301, [::1]:7301 or a URL, and its port. False: it is not a
 * loopback address of this machine, and another machine gets no token of this one. */
static bool find_sockets(const char *address, sockets *found, unsigned *port)
{
    mp_str rest = mp_str_of(address), http = MP_STR("http://"), https = MP_STR("https://");
    rest = mp_str_from(rest, mp_str_starts(rest, http) ? http.len : mp_str_starts(rest, https) ? https.len : 0);
    char text[64], *colon;
    size_t len = strcspn(rest.ptr, "/?#");
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : 0), rest.ptr);
    colon = strrchr(text, ':');
    if (colon == NULL)
        return false;
    *port = (unsigned)strtoul(colon + 1, NULL, 10);
    *colon = '\0';
    if (strcmp(text, "localhost") == 0)
        return add_host(found, "127.0.0.1", *port) && add_host(found, "::1", *port);
    size_t last = strlen(text);
    if (text[0] != '[' || text[last - 1] != ']')
        return add_host(found, text, *port);
    text[last - 1] = '\0';
    return add_host(found, text + 1, *port);
}

/* -- a command: the process that has the sockets ------------------------------------------------------------------- */

/* The token that a process holds in its descriptor `name`. The file must be a sealed memory file: a process of another
 * user that root asks can have no other file read so, whatever it has opened or mounted. */
static char *MP_NULLABLE token_at(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    int seals = fcntl(fd, F_GET_SEALS);
    char *token = seals >= 0 && (seals & MEMORY_SEALS) == MEMORY_SEALS ? read_token(fd) : NULL;
    close(fd);
    return token;
}

/* Marks the sockets that a link of a descriptor names, and counts them. */
static void mark_sockets(const sockets *of, const char *link, bool *has, size_t *count)
{
    unsigned long inode;
    if (sscanf(link, "socket:[%lu]", &inode) != 1)
        return;
    for (size_t i = 0; i < of->count; i++)
        if (of->inodes[i] == inode && !has[i]) {
            has[i] = true;
            ++*count;
        }
}

/* The token of the process whose descriptors are in `folder`, if it has all the sockets: another process could have one
 * of the two addresses of localhost. */
static char *MP_NULLABLE token_in(DIR *folder, const sockets *of)
{
    bool has[SOCKETS] = {false};
    size_t count = 0;
    char name[16] = "", link[64];
    for (const struct dirent *one; (one = readdir(folder)) != NULL;) {
        ssize_t len = readlinkat(dirfd(folder), one->d_name, link, sizeof link - 1);
        link[len < 0 ? 0 : len] = '\0';
        if (strcmp(link, "/memfd:" MEMORY_FILE " (deleted)") == 0)
            snprintf(name, sizeof name, "%.15s", one->d_name);
        mark_sockets(of, link, has, &count);
    }
    return name[0] != '\0' && count == of->count ? token_at(dirfd(folder), name) : NULL;
}

/* The token of the process that has the sockets. NULL: there is none, or this user may not look into it. */
static char *MP_NULLABLE token_of_process(const sockets *of)
{
    char path[64], *token = NULL;
    DIR *all = of->count == 0 ? NULL : opendir("/proc");
    for (const struct dirent *one; all != NULL && token == NULL && (one = readdir(all)) != NULL;) {
        if (one->d_name[0] < '1' || one->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/fd", one->d_name);
        DIR *folder = opendir(path);
        if (folder == NULL)
            continue;
        token = token_in(folder, of);
        closedir(folder);
    }
    if (all != NULL)
        closedir(all);
    return token;
}

/* The token in the file, if its owner or root opened the sockets: another user may listen at another address with this
 * port. */
static char *MP_NULLABLE token_of_file(const sockets *of, unsigned port)
{
    char *path = path_of_token(port), *token = NULL;
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    bool is_theirs = fd >= 0 && of->count > 0 && fstat(fd, &info) == 0;
    for (size_t i = 0; is_theirs && i < of->count; i++)
        is_theirs = of->owners[i] == info.st_uid || of->owners[i] == 0;
    if (is_theirs)
        token = read_token(fd);
    if (fd >= 0)
        close(fd);
    free(path);
    return token;
}

char *MP_NULLABLE mp_own_token_find(const char *address)
{
    sockets found = {0};
    unsigned port;
    if (!find_sockets(address, &found, &port))
        return NULL;
    char *token = token_of_process(&found);
    return token != NULL ? token : token_of_file(&found, port);
}
