/* listeners.c: binds addresses, or takes passed sockets over, and hands the sockets out. */
#define _GNU_SOURCE
#include "listeners.h"
#include "gateway/certificates/certificates.h"
#include "gateway/notify.h"
#include "gateway/terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Parameters of the functions that bind one address. */
typedef struct {
    mp_listeners *listeners;
    const mp_config *config;
    mp_passed *passed;
    const mp_socket_file *MP_NULLABLE file; /* mode and group of the admin listener's socket */
    mp_tls_slot *MP_NULLABLE tls;
    const char *key, *where; /* an address and the key of the configuration that names it */
    int workers;             /* 1 for the admin listener */
    size_t item;             /* index in `listen` */
    bool is_of_nodes;
} binding;

/* Puts the name of the key in front of an error. */
static int name_key(const binding *it, mp_err *err)
{
    mp_err cause = *err;
    mp_err_set(err, "%s: %.900s", it->key, cause.text);
    return mp_err_hint(err, "%s", cause.hint);
}

/* Adds an address without sockets; `most` is how many it may get. */
static mp_bound *add_socket(const binding *it, int most)
{
    mp_bound *one = &it->listeners->all[it->listeners->count++];
    one->fds = mp_new((size_t)most * sizeof *one->fds);
    one->tls = it->tls;
    one->item = it->item;
    one->is_of_nodes = it->is_of_nodes;
    one->where = it->where;
    return one;
}

/* Each worker gets a descriptor: if there are fewer sockets than workers, some are duplicates. */
static int duplicate_socket(const binding *it, mp_bound *one, mp_err *err)
{
    one->sockets = one->count;
    for (; one->count < it->workers; one->count++) {
        int fd = fcntl(one->fds[one->count % one->sockets], F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            mp_err_set(err, "%s: cannot listen on %s: %s", it->key, one->address.text, strerror(errno));
            return mp_err_hint(err, "raise the limit of open files (ulimit -n)");
        }
        one->fds[one->count] = fd;
    }
    return 0;
}

static void take_socket(mp_bound *one, mp_passed_socket *from)
{
    one->address = from->address;
    mp_listener_tune(from->fd, &one->address);
    one->fds[one->count++] = from->fd;
    from->fd = -1;
}

/* -- sockets of a socket unit -------------------------------------------------------------------------------------- */

/* The unit may list several addresses: each has one socket, which all workers share. */
static int take_named(const binding *it, mp_str name, mp_err *err)
{
    mp_passed_socket *from = mp_passed_find(it->passed, name);
    if (from == NULL)
        return mp_passed_refuse(it->passed, name, err), name_key(it, err);
    for (int taken = 0; from != NULL; from = mp_passed_find(it->passed, name)) {
        if (from->fault[0] != '\0') {
            mp_err_set(err, "%s: cannot listen on a socket that is named %s: %s", it->key, it->where, from->fault);
            return mp_err_hint(err, "ListenStream= of the socket unit makes sockets that serve, with Accept=no");
        }
        if (it->file != NULL && taken++ > 0) {
            mp_err_set(err, "%s: several sockets are named %s", it->key, it->where);
            return mp_err_hint(err, "the admin listener takes one: give it a socket unit and a name of its own");
        }
        if (it->file != NULL && !from->address.is_loopback &&
            mp_config_check_admin_at(it->config, from->address.text, err) != 0)
            return name_key(it, err);
        mp_bound *one = add_socket(it, it->workers);
        int group = from->group;
        take_socket(one, from);
        one->address.inode = 0; /* the unit removes the file */
        one->is_passed = true;
        one->group = group;
        if (duplicate_socket(it, one, err) != 0)
            return -1;
    }
    return 0;
}

/* -- stored sockets ------------------------------------------------------------------------------------------------ */

/* Closes a stored socket, here and in the store, which forgets all sockets of its name. */
static void discard_socket(mp_passed *passed, mp_passed_socket *one, const char *why)
{
    mp_log(MP_INFO, "stored socket closed", mp_log_str("name", mp_str_of(one->name)),
           mp_log_str("why", mp_str_of(why)));
    if (mp_stored_fault(one) == NULL)
        mp_unlink_address(&one->address);
    if (one->fd >= 0)
        close(one->fd);
    one->fd = -1;
    one->fault[0] = '\0'; /* mp_passed_find returns faulty sockets, too */
    if (!one->is_forgotten)
        mp_notify_remove(one->name);
    for (int i = 0; i < passed->count; i++)
        passed->all[i].is_forgotten = passed->all[i].is_forgotten || strcmp(passed->all[i].name, one->name) == 0;
}

mp_address *mp_listeners_addresses(const mp_config *config, int *count)
{
    size_t most = 0;
    *count = 0;
    while (config->listen[most] != NULL)
        most++;
    mp_address *list = mp_new((most + 2) * sizeof *list);
    for (size_t i = 0; i < most + 2; i++) {
        const char *where = i < most ? config->listen[i] : i == most ? config->cluster_listen : config->admin_listen;
        if (where != NULL && mp_address_of(where, &list[*count]) == 0)
            (*count)++;
    }
    return list;
}

static bool is_of_any(const mp_passed_socket *one, const mp_address *list, int count)
{
    bool is_wanted = false;
    for (int i = 0; i < count && !is_wanted; i++)
        is_wanted = mp_stored_is_of(one, &list[i]);
    return is_wanted;
}

/* Clients of an address that is not served any more are refused, instead of waiting for ever. The address is free then:
 * another one that overlaps it can be bound. */
static void discard_useless(mp_passed *passed, const mp_config *config)
{
    bool has_discarded = false;
    int wanted = 0;
    mp_address *list = passed->count == 0 ? NULL : mp_listeners_addresses(config, &wanted);
    for (int i = 0; i < passed->count; i++) {
        mp_passed_socket *one = &passed->all[i];
        if (!mp_stored_is(one) || one->group != 0)
            continue;
        const char *fault = mp_stored_fault(one);
        if (fault == NULL && is_of_any(one, list, wanted))
            continue;
        discard_socket(passed, one, fault == NULL ? "the configuration does not have its address" : fault);
        has_discarded = true;
    }
    free(list);
    if (has_discarded)
        mp_notify_settle();
}

/* Takes all sockets that are stored for the address, also if there are more than workers: clients may wait at each.
 * False if there is none. */
static bool take_stored(const binding *it)
{
    mp_address at;
    mp_bound *one = NULL;
    bool is_stored = true;
    if (mp_config_is_any_port(mp_str_of(it->where)) || mp_address_of(it->where, &at) != 0)
        return false;
    for (int i = 0; i < it->passed->count; i++) {
        mp_passed_socket *from = &it->passed->all[i];
        if (from->fd < 0 || from->group != 0 || !mp_stored_is_of(from, &at))
            continue;
        if (one == NULL)
            one = add_socket(it, it->passed->count + it->workers);
        memcpy(one->name, from->name, sizeof one->name);
        is_stored = is_stored && !from->is_forgotten;
        take_socket(one, from);
    }
    if (one != NULL)
        atomic_store(&one->is_stored, is_stored);
    return one != NULL;
}

/* -- sockets of the process that an upgrade replaces --------------------------------------------------------------- */

/* True if the passed socket is for this address. An address with port 0 matches the port that the earlier process got
 * for it. */
static bool is_handed_for(const binding *it, const mp_passed_socket *one)
{
    mp_address at;
    if (one->fd < 0 || one->group == 0 || one->is_of_admin != (it->file != NULL) || one->fault[0] != '\0' ||
        (one->address.is_unix && one->address.inode == 0))
        return false;
    if (strcmp(one->where, it->where) == 0)
        return true;
    return !mp_config_is_any_port(mp_str_of(it->where)) && mp_address_of(it->where, &at) == 0 &&
           strcmp(at.text, one->address.text) == 0;
}

/* Takes all sockets of the address, also if there are more than workers: clients may wait at each. False if there is
 * none. */
static bool take_handed(const binding *it)
{
    mp_bound *one = NULL;
    for (int i = 0; i < it->passed->count; i++) {
        mp_passed_socket *from = &it->passed->all[i];
        if (one == NULL ? !is_handed_for(it, from) : from->fd < 0 || from->group != one->group)
            continue;
        if (one == NULL) {
            one = add_socket(it, it->passed->count + it->workers);
            one->is_handed = true;
            one->group = from->group;
            memcpy(one->name, from->name, sizeof one->name);
            atomic_store(&one->is_stored, from->is_stored);
        }
        take_socket(one, from);
    }
    return one != NULL;
}

/* -- all addresses ------------------------------------------------------------------------------------------------- */

/* Names the sockets that were passed and are not used, since one of them may have the address. */
static void hint_passed(const binding *it, mp_err *err)
{
    mp_address at;
    for (int i = 0; i < it->passed->count; i++) {
        const mp_passed_socket *one = &it->passed->all[i];
        if (one->group != 0 && !one->address.is_unix && mp_address_of(it->where, &at) == 0 &&
            at.port == one->address.port)
            mp_err_hint(err, "the gateway listens on %s, which overlaps: stop it, and start it again",
                        one->address.text);
        else if (one->fd >= 0 && one->group == 0 && one->fault[0] == '\0' && strcmp(one->address.text, it->where) == 0)
            mp_err_hint(err, "the service manager has passed a socket for it: write systemd:%s", one->name);
    }
}

static int bind_own(const binding *it, mp_err *err)
{
    mp_bound *one = add_socket(it, it->workers);
    if (mp_listen(it->where, it->workers, it->file, one->fds, &one->address, err) != 0) {
        hint_passed(it, err);
        return name_key(it, err);
    }
    one->count = it->workers;
    one->sockets = one->address.is_unix ? 1 : one->count;
    if (mp_notify_can_store() && !mp_config_is_any_port(mp_str_of(it->where)))
        mp_stored_name(one->name, &one->address);
    return 0;
}

static int bind_one(const binding *it, mp_err *err)
{
    mp_str name = mp_systemd_name(mp_str_of(it->where));
    if (name.ptr != NULL)
        return take_named(it, name, err);
    if (!take_handed(it) && !take_stored(it))
        return bind_own(it, err);
    mp_bound *one = &it->listeners->all[it->listeners->count - 1];
    if (it->file != NULL && one->address.is_unix && mp_restrict_file(it->where, it->file, err) != 0)
        return name_key(it, err);
    return duplicate_socket(it, one, err);
}

/* Clients of a socket from which no connection is accepted would wait for ever. */
static void close_unused(mp_passed *passed)
{
    for (int i = 0; i < passed->count; i++) {
        mp_passed_socket *one = &passed->all[i];
        if (one->fd < 0)
            continue;
        if (one->group == 0)
            mp_log(
                MP_WARN, "socket not used", mp_log_str("name", mp_str_of(one->name)),
                mp_log_str("address", mp_str_of(one->address.text)),
                mp_log_str("hint", MP_STR("the service manager has passed it: name it in listen, as in systemd:NAME")));
        close(one->fd);
        one->fd = -1;
    }
}

int mp_listeners_bind(mp_listeners *listeners, const mp_config *config, const mp_certificates *certificates,
                      mp_passed *passed, int workers, mp_err *err)
{
    binding it = {.listeners = listeners, .config = config, .passed = passed, .key = "listen", .workers = workers};
    size_t count = mp_count_texts(config->listen);
    /* each address adds one element, or one for each passed socket that it takes */
    listeners->all = mp_new((count + 2 + (size_t)passed->count) * sizeof *listeners->all);
    discard_useless(passed, config);
    for (size_t i = 0; i < count; i++) {
        it.where = config->listen[i];
        it.item = i;
        it.tls = mp_certificates_of(certificates, i);
        if (bind_one(&it, err) != 0)
            return -1;
    }
    if (config->cluster_listen != NULL) {
        it.key = "cluster.listen";
        it.where = config->cluster_listen;
        it.tls = mp_certificates_of_nodes(certificates);
        it.is_of_nodes = true;
        if (bind_one(&it, err) != 0)
            return -1;
        it.is_of_nodes = false;
    }
    mp_socket_file file = {(uint32_t)strtoul(config->admin_mode, NULL, 8), config->admin_group};
    if (config->admin_listen != NULL) {
        it.key = "admin.listen";
        it.where = config->admin_listen;
        it.tls = mp_certificates_of_admin(certificates);
        it.workers = 1;
        it.file = &file;
        if (bind_one(&it, err) != 0)
            return -1;
    }
    listeners->has_admin = config->admin_listen != NULL;
    close_unused(passed);
    return 0;
}

bool mp_listeners_is_admin(const mp_listeners *listeners, int i)
{
    return listeners->has_admin && i == listeners->count - 1;
}

/* A socket may be shut down, to suspend a worker, only if nothing else has it. */
static bool is_shared(const mp_bound *one)
{
    return one->address.is_unix || one->sockets < one->count || one->name[0] != '\0' || one->is_passed ||
           one->is_handed;
}

static int hand_out_one(mp_listeners *listeners, int i, const mp_config *config, mp_err *err)
{
    mp_bound *one = &listeners->all[i];
    mp_endpoint endpoint = {.tls = one->tls,
                            .address = i,
                            .is_shared = is_shared(one),
                            .is_inner = one->is_of_nodes,
                            .proxies_index = one->is_of_nodes ? SIZE_MAX : one->item};
    if (!one->is_of_nodes) {
        endpoint.http2 = mp_config_http2_of(config, one->item);
        endpoint.has_proxy_header = mp_config_has_proxy_header(config, one->item);
    }
    for (int k = 0; k < one->count; k++) {
        int fd = one->fds[k];
        one->fds[k] = -1;
        if (mp_worker_listen(listeners->workers[k % listeners->worker_count], fd, &endpoint, err) != 0)
            return -1;
    }
    return 0;
}

/* Other nodes learn where this process listens for them. */
static void tell_nodes(const mp_bound *one, const mp_config *config, const mp_processes *processes)
{
    mp_nodes *nodes = mp_processes_nodes(processes);
    const char *advertised = config->cluster_advertise;
    if (nodes != NULL)
        mp_nodes_set_address(nodes, advertised == NULL ? one->address.text : advertised);
}

int mp_listeners_hand_out(mp_listeners *listeners, mp_worker **workers, int count, const mp_admin_gateway *gateway,
                          mp_admin *MP_NULLABLE *admin, mp_err *err)
{
    listeners->workers = workers;
    listeners->worker_count = count;
    for (int i = 0; i < listeners->count; i++) {
        mp_bound *one = &listeners->all[i];
        if (!mp_listeners_is_admin(listeners, i)) {
            if (hand_out_one(listeners, i, gateway->settings->config, err) != 0)
                return -1;
            if (one->is_of_nodes)
                tell_nodes(one, gateway->settings->config, gateway->processes);
            continue;
        }
        listeners->admin = *admin = mp_admin_new(gateway, one->fds, one->count, one->tls, &one->address, err);
        if (*admin == NULL)
            return -1;
        for (int k = 0; k < one->count; k++)
            one->fds[k] = -1;
    }
    return 0;
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

void mp_listeners_unlink(mp_listeners *listeners, bool with_admin)
{
    for (int i = 0; i < listeners->count; i++)
        if ((with_admin || !mp_listeners_is_admin(listeners, i)) && !atomic_load(&listeners->all[i].is_stored))
            mp_unlink_address(&listeners->all[i].address);
}

void mp_listeners_close(mp_listeners *listeners)
{
    mp_listeners_unlink(listeners, true);
    for (int i = 0; i < listeners->count; i++) {
        mp_bound *one = &listeners->all[i];
        for (int k = 0; k < one->count; k++)
            if (one->fds[k] >= 0)
                close(one->fds[k]);
        free(one->fds);
    }
    free(listeners->all);
}

static const char *scheme_of(const mp_bound *one)
{
    return one->address.is_unix ? "" : one->tls == NULL ? "http://" : "https://";
}

void mp_listeners_put_ready(const mp_listeners *listeners, const mp_config *config, mp_buf *line)
{
    const mp_bound *first = &listeners->all[0], *admin = &listeners->all[listeners->count - 1];
    if (config->endpoint_mcp != NULL)
        mp_buf_printf(line, " mcp=%s%s%s", scheme_of(first), first->address.text, config->endpoint_mcp);
    if (config->endpoint_sse != NULL)
        mp_buf_printf(line, " sse=%s%s%s", scheme_of(first), first->address.text, config->endpoint_sse);
    if (listeners->has_admin)
        mp_buf_printf(line, " admin=%s%s", scheme_of(admin), admin->address.text);
}

static bool has_tokens(const mp_config *config)
{
    bool has = false;
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        has = has || (config->admin_tokens[i] != NULL && config->admin_tokens[i]->name != NULL);
    return has;
}

void mp_listeners_show_dashboard(const mp_listeners *listeners, const mp_config *config, mp_admin *admin)
{
    const mp_bound *at = &listeners->all[listeners->count - 1];
    if (!listeners->has_admin || at->address.is_unix || !isatty(STDOUT_FILENO))
        return;
    char code[MP_CODE_SIZE] = "";
    bool has_code = !has_tokens(config) && at->address.is_loopback;
    mp_scoped_buf line = {0};
    if (has_code)
        mp_admin_own_code(mp_admin_access_of(admin), code);
    mp_buf_printf(&line, "dashboard: %s%s/%s%s%s", scheme_of(at), at->address.text, has_code ? "#code=" : "", code,
                  has_code ? "  (once, within a minute; later: moonpool dashboard)" : "");
    mp_terminal_print(mp_buf_str(&line));
    explicit_bzero(code, sizeof code);
    explicit_bzero(line.ptr, line.len);
}

void mp_listeners_log(const mp_listeners *listeners, mp_log_level level)
{
    for (int i = 0; i < listeners->count; i++)
        mp_log(level, "listening", mp_log_str("address", mp_str_of(listeners->all[i].address.text)),
               mp_log_str("for", mp_listeners_is_admin(listeners, i) ? MP_STR("admin")
                                 : listeners->all[i].is_of_nodes     ? MP_STR("nodes")
                                                                     : MP_STR("mcp")));
}
