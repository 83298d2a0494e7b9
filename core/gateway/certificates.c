#include "certificates.h"
#include "json/json.h"
#include <errno.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUIET_MS 100       /* wait after the last change: a certificate and its key are two files */
#define MAX_SETTLE_MS 1000 /* longest wait after the first change, even if files keep changing */
/* wait before reporting that certificate and key do not match: the second file may be about to be written */
#define GRACE_MS 1000
/* poll interval for changes that inotify does not report: network file systems, distant symbolic links */
#define LOOK_MS 10000
#define AGE_MS 86400000 /* contexts are renewed after this time, and with them the keys of session tickets */
#define IN_FOLDER                                                                                                      \
    (IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

/* The members of struct stat that show a change; all zero if the file does not exist. */
typedef struct {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
} signature;

typedef struct {
    char *address, *paths[3];    /* arrays indexed by mp_tls_file */
    char *MP_NULLABLE node_name; /* as in mp_tls_files */
    bool client_optional;
    mp_tls_slot *slot;
    signature tried[3];
    uint64_t made_at, failed_at; /* failed_at: 0 if the latest files are served or their failure was logged */
    bool is_starved; /* the latest files could not be read for want of descriptors: they are read again at each look */
    int64_t expires; /* protected by the lock, like all below */
    bool is_ok;
    int64_t refused_at; /* seconds since 1970 at which the latest files were refused; 0: they were not */
    char *MP_NULLABLE why;
} entry;

struct mp_certificates {
    entry *entries;
    size_t count;
    bool has_admin;  /* the last entry belongs to the admin listener */
    size_t of_nodes; /* index of the entry of the listener for other nodes; SIZE_MAX: none */
    size_t *index;   /* index of the entry for each address of `listen`; SIZE_MAX: none */
    int fd;
    /* first_at, last_at: times of changes that were not handled yet, 0: none; look_at: time of the next poll */
    uint64_t first_at, last_at, look_at;
    atomic_bool is_asked;
    pthread_mutex_t lock;
};

/* -- reading ------------------------------------------------------------------------------------------------------- */

static void sign_files(const entry *e, signature now[3])
{
    memset(now, 0, 3 * sizeof *now);
    for (int i = 0; i < 3; i++) {
        struct stat info;
        const char *path = e->paths[i];
        if (path == NULL || stat(path, &info) != 0)
            continue;
        now[i].device = info.st_dev;
        now[i].inode = info.st_ino;
        now[i].size = info.st_size;
        now[i].modified = info.st_mtim;
        now[i].changed = info.st_ctim;
    }
}

/* Reports each finding at the key of moonpool.yaml that names its file. */
static void put_findings(const mp_config *config, const mp_config_tls *tls, const mp_tls_findings *findings,
                         mp_buf *report)
{
    mp_yaml yaml = {.text = mp_str_of(config->text), .name = config->name, .report = report};
    for (size_t i = 0; i < findings->count; i++) {
        mp_err err = findings->all[i].err;
        if (findings->all[i].is_warning)
            mp_err_set(&err, "warning: %s", findings->all[i].err.text);
        memcpy(err.hint, findings->all[i].err.hint, sizeof err.hint);
        mp_yaml_error(&yaml, tls->at[findings->all[i].file], &err);
    }
}

static mp_tls *MP_NULLABLE load_entry(entry *e, mp_tls_findings *findings)
{
    sign_files(e, e->tried); /* taken before reading: a file that is saved during the read counts as another change */
    const mp_tls_files files = {e->paths[MP_TLS_CERTIFICATE], e->paths[MP_TLS_KEY], e->paths[MP_TLS_CLIENT_CA],
                                e->client_optional, e->node_name};
    return mp_tls_load(&files, findings);
}

static int add_entry(mp_certificates *all, const mp_config *config, const mp_config_tls *tls, const char *address,
                     mp_buf *report)
{
    entry *e = &all->entries[all->count++];
    mp_tls_findings findings;
    *e = (entry){.address = mp_dup(mp_str_of(address)), .made_at = mp_monotonic_ms(), .is_ok = true};
    e->paths[MP_TLS_CERTIFICATE] = mp_dup(mp_str_of(tls->certificate));
    e->paths[MP_TLS_KEY] = mp_dup(mp_str_of(tls->key));
    e->paths[MP_TLS_CLIENT_CA] = mp_dup_text(tls->client_ca);
    e->client_optional = tls->client == MP_CLIENT_OPTIONAL;
    e->node_name = tls == &config->cluster_tls ? mp_dup_text(config->cluster_tls_name) : NULL;
    mp_tls *first = load_entry(e, &findings);
    put_findings(config, tls, &findings, report);
    if (first == NULL)
        return -1;
    e->expires = mp_tls_expires(first);
    e->slot = mp_tls_slot_new(first);
    return 0;
}

mp_certificates *MP_NULLABLE mp_certificates_new(const mp_config *config, bool listens, mp_buf *report)
{
    mp_certificates *all = mp_new(sizeof *all);
    size_t count = mp_count_texts(config->listen);
    int failed = 0;
    all->fd = -1;
    all->entries = mp_new((count + 2) * sizeof *all->entries);
    all->index = mp_new(count * sizeof *all->index);
    pthread_mutex_init(&all->lock, NULL);
    for (size_t i = 0; i < count; i++) {
        const mp_config_tls *tls = listens ? mp_config_tls_of(config, i) : NULL;
        all->index[i] = tls == NULL ? SIZE_MAX : all->count;
        if (tls != NULL)
            failed |= add_entry(all, config, tls, config->listen[i], report);
    }
    const mp_config_tls *nodes_tls = listens && config->cluster_tls.certificate != NULL ? &config->cluster_tls : NULL;
    all->of_nodes = nodes_tls == NULL ? SIZE_MAX : all->count;
    if (nodes_tls != NULL)
        failed |= add_entry(all, config, nodes_tls, MP_NEVER_NULL(config->cluster_listen), report);
    const mp_config_tls *admin_tls = mp_config_admin_tls(config);
    const char *admin = config->admin_listen;
    if (listens && admin != NULL && admin_tls != NULL) {
        all->has_admin = true;
        failed |= add_entry(all, config, admin_tls, admin, report);
    }
    if (failed == 0)
        return all;
    mp_certificates_free(all);
    return NULL;
}

void mp_certificates_free(mp_certificates *MP_NULLABLE all)
{
    if (all == NULL)
        return;
    for (size_t i = 0; i < all->count; i++) {
        mp_tls_slot_free(all->entries[i].slot);
        for (int k = 0; k < 3; k++)
            free(all->entries[i].paths[k]);
        free(all->entries[i].address);
        free(all->entries[i].node_name);
        free(all->entries[i].why);
    }
    if (all->fd >= 0)
        close(all->fd);
    pthread_mutex_destroy(&all->lock);
    free(all->entries);
    free(all->index);
    free(all);
}

mp_tls_slot *MP_NULLABLE mp_certificates_of(const mp_certificates *all, size_t index)
{
    return all->index[index] == SIZE_MAX ? NULL : all->entries[all->index[index]].slot;
}

mp_tls_slot *MP_NULLABLE mp_certificates_of_nodes(const mp_certificates *all)
{
    return all->of_nodes == SIZE_MAX ? NULL : all->entries[all->of_nodes].slot;
}

mp_tls_slot *MP_NULLABLE mp_certificates_of_admin(const mp_certificates *all)
{
    return all->has_admin ? all->entries[all->count - 1].slot : NULL;
}

/* -- keys of session tickets --------------------------------------------------------------------------------------- */

/* Facts about ticket keys that one process passes to the next one, on the same machine. */
typedef struct {
    char address[128];
    uint64_t made_at; /* the next process replaces the keys when this one would have */
    uint64_t client_optional;
    signature files[3];
    unsigned char keys[MP_TLS_TICKET_KEYS];
} handed_keys;

/* Fills all but the keys. */
static void describe_keys(const entry *e, handed_keys *it)
{
    memset(it, 0, sizeof *it);
    snprintf(it->address, sizeof it->address, "%s", e->address);
    it->made_at = e->made_at;
    it->client_optional = e->client_optional;
    memcpy(it->files, e->tried, sizeof it->files);
}

bool mp_certificates_hand(const mp_certificates *all, size_t i, mp_buf *out)
{
    handed_keys it;
    if (i >= all->count)
        return false;
    const entry *e = &all->entries[i];
    mp_tls *tls = mp_tls_slot_get(e->slot);
    describe_keys(e, &it);
    if (e->is_ok && mp_tls_get_ticket_keys(tls, it.keys))
        mp_buf_put(out, (mp_str){(const char *)&it, sizeof it});
    mp_tls_unref(tls);
    explicit_bzero(&it, sizeof it);
    return true;
}

/* Uses the keys if they were made for this address with these files. */
static void take_keys(entry *e, const handed_keys *it)
{
    handed_keys own;
    describe_keys(e, &own);
    if (strcmp(own.address, it->address) != 0 || own.client_optional != it->client_optional ||
        memcmp(own.files, it->files, sizeof own.files) != 0)
        return;
    mp_tls *tls = mp_tls_slot_get(e->slot);
    mp_tls_set_ticket_keys(tls, it->keys);
    mp_tls_unref(tls);
    e->made_at = it->made_at;
}

void mp_certificates_take(const mp_certificates *all, mp_str handed)
{
    handed_keys it;
    for (; handed.len >= sizeof it; handed.ptr += sizeof it, handed.len -= sizeof it) {
        memcpy(&it, handed.ptr, sizeof it);
        it.address[sizeof it.address - 1] = '\0';
        for (size_t i = 0; i < all->count; i++)
            take_keys(&all->entries[i], &it);
    }
    explicit_bzero(&it, sizeof it);
}

/* -- watching ------------------------------------------------------------------------------------------------------ */

static void watch_folder_of(mp_certificates *all, const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 1 : slash == path ? 1 : (size_t)(slash - path);
    if (len >= sizeof folder)
        return;
    memcpy(folder, slash == NULL ? "." : path, len);
    folder[len] = '\0';
    inotify_add_watch(all->fd, folder,
                      IN_FOLDER | IN_ONLYDIR); /* a folder that does not exist yet is covered by polling */
}

/* Watches the folder of each path and the folder that its symbolic links lead to: a link is replaced in the first, a
 * file in the second. */
static void watch_all(mp_certificates *all)
{
    char real[PATH_MAX];
    if (all->fd >= 0)
        close(all->fd);
    all->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    for (size_t i = 0; all->fd >= 0 && i < all->count; i++)
        for (int k = 0; k < 3; k++) {
            const char *path = all->entries[i].paths[k];
            if (path == NULL)
                continue;
            watch_folder_of(all, path);
            if (realpath(path, real) != NULL)
                watch_folder_of(all, real);
        }
}

void mp_certificates_watch(mp_certificates *all)
{
    if (all->count == 0)
        return;
    mp_certificates_now(all);
    mp_certificates_run(all); /* handles files that were saved since the certificates were read */
}

void mp_certificates_now(mp_certificates *all)
{
    atomic_store(&all->is_asked, true);
}

static uint64_t due_at(const mp_certificates *all)
{
    uint64_t due = all->look_at;
    if (all->first_at != 0) {
        uint64_t quiet = all->last_at + QUIET_MS, patience = all->first_at + MAX_SETTLE_MS;
        due = quiet < patience ? quiet : patience;
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->entries[i].failed_at != 0 && all->entries[i].failed_at + GRACE_MS < due)
            due = all->entries[i].failed_at + GRACE_MS;
    return due;
}

int mp_certificates_next(const mp_certificates *all, int *wait_ms)
{
    if (all->count == 0)
        return -1;
    uint64_t now = mp_monotonic_ms(), due = due_at(all);
    int wait = atomic_load(&all->is_asked) || due <= now ? 0 : due - now > INT_MAX ? INT_MAX : (int)(due - now);
    if (*wait_ms < 0 || wait < *wait_ms)
        *wait_ms = wait;
    return all->fd;
}

/* -- renewing ------------------------------------------------------------------------------------------------------ */

static void log_findings(const entry *e, const mp_tls_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        mp_log(findings->all[i].is_warning ? MP_WARN : MP_ERROR,
               findings->all[i].is_warning ? "certificate" : "certificate refused",
               mp_log_str("address", mp_str_of(e->address)), mp_log_str("why", mp_str_of(findings->all[i].err.text)),
               mp_log_str("hint", mp_str_of(findings->all[i].err.hint)));
}

static void put_day(char room[32], int64_t at)
{
    struct tm parts;
    time_t seconds = (time_t)at;
    strftime(room, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
}

static void keep_result(mp_certificates *all, entry *e, bool is_ok, int64_t expires)
{
    MP_LOCKED(&all->lock);
    e->is_ok = is_ok;
    if (is_ok) {
        e->expires = expires;
        e->refused_at = 0;
    }
}

static void keep_refusal(mp_certificates *all, entry *e, const mp_tls_findings *findings)
{
    size_t i = 0;
    while (i + 1 < findings->count && findings->all[i].is_warning)
        i++;
    MP_LOCKED(&all->lock);
    free(e->why);
    e->why = strdup(findings->all[i].err.text);
    if (e->refused_at == 0)
        e->refused_at = (int64_t)time(NULL);
}

static bool lacked_descriptors(const mp_tls_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (strstr(findings->all[i].err.text, strerror(EMFILE)) != NULL ||
            strstr(findings->all[i].err.text, strerror(ENFILE)) != NULL)
            return true;
    return false;
}

static void try_entry(mp_certificates *all, entry *e, bool logs_failure, bool is_change)
{
    mp_tls_findings findings;
    char day[32];
    uint64_t now = mp_monotonic_ms();
    mp_tls *tls = load_entry(e, &findings);
    e->made_at = now;
    if (tls == NULL) {
        keep_result(all, e, false, 0);
        bool was_starved = e->is_starved;
        e->is_starved = lacked_descriptors(&findings);
        e->failed_at = logs_failure || (was_starved && e->is_starved) ? 0 : now;
        if (!logs_failure)
            return;
        keep_refusal(all, e, &findings);
        log_findings(e, &findings);
        mp_log(MP_WARN, "certificate not renewed", mp_log_str("address", mp_str_of(e->address)),
               mp_log_str("why", MP_STR("its files have errors: the previous certificate stays in use")));
        return;
    }
    e->failed_at = 0;
    e->is_starved = false;
    keep_result(all, e, true, mp_tls_expires(tls));
    put_day(day, mp_tls_expires(tls));
    log_findings(e, &findings);
    mp_tls_slot_set(e->slot, tls);
    if (is_change)
        mp_log(MP_INFO, "certificate renewed", mp_log_str("address", mp_str_of(e->address)),
               mp_log_str("expires", mp_str_of(day)));
}

/* `is_asked`: an admin or a signal requested the check, so a failure is logged at once; otherwise the files are read
 * once more first. */
static void look_at_files(mp_certificates *all, bool is_asked)
{
    uint64_t now = mp_monotonic_ms();
    watch_all(all); /* before the read, so that later changes are reported or seen */
    for (size_t i = 0; i < all->count; i++) {
        entry *e = &all->entries[i];
        signature files[3];
        sign_files(e, files);
        bool is_change = memcmp(files, e->tried, sizeof files) != 0;
        bool is_late = e->failed_at != 0 && now >= e->failed_at + GRACE_MS;
        if (is_change || is_late || e->is_starved || now >= e->made_at + AGE_MS || (is_asked && !e->is_ok))
            try_entry(all, e, is_asked || is_late, is_change || is_late || e->is_starved);
    }
    all->look_at = now + LOOK_MS;
}

static bool take_news(const mp_certificates *all)
{
    _Alignas(struct inotify_event) char news[4096];
    bool any = false;
    while (all->fd >= 0 && read(all->fd, news, sizeof news) > 0)
        any = true;
    return any;
}

void mp_certificates_run(mp_certificates *all)
{
    if (all->count == 0)
        return;
    uint64_t now = mp_monotonic_ms();
    if (take_news(all)) {
        if (all->first_at == 0)
            all->first_at = now;
        all->last_at = now;
    }
    bool is_asked = atomic_exchange(&all->is_asked, false);
    if (!is_asked && now < due_at(all))
        return;
    all->first_at = 0;
    look_at_files(all, is_asked);
}

static void put_member(mp_buf *out, const char *name, const char *MP_NULLABLE value)
{
    if (value == NULL)
        return;
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, mp_str_of(value));
}

void mp_certificates_describe(mp_certificates *all, mp_buf *out)
{
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        char day[32];
        put_day(day, all->entries[i].expires);
        mp_buf_printf(out, "%s{\"address\":", i == 0 ? "" : ",");
        mp_json_put_string(out, mp_str_of(all->entries[i].address));
        mp_buf_printf(out, ",\"expires\":\"%s\",\"ok\":%s", day, all->entries[i].is_ok ? "true" : "false");
        if (all->entries[i].refused_at != 0) {
            put_day(day, all->entries[i].refused_at);
            mp_buf_printf(out, ",\"at\":\"%s\"", day);
            put_member(out, "why", all->entries[i].why);
        }
        mp_buf_putc(out, '}');
    }
    pthread_mutex_unlock(&all->lock);
    mp_buf_putc(out, ']');
}

/* The caller has the lock. */
static void put_certificate(mp_buf *out, const entry *e)
{
    char day[32];
    mp_tls *tls = mp_tls_slot_get(e->slot);
    mp_tls_peer *own = mp_tls_own(tls);
    put_day(day, e->expires);
    mp_buf_put(out, MP_STR("{\"address\":"));
    mp_json_put_string(out, mp_str_of(e->address));
    mp_buf_printf(out, ",\"ok\":%s,\"expires\":\"%s\"", e->is_ok ? "true" : "false", day);
    put_member(out, "subject", own->subject);
    put_member(out, "issuer", own->issuer);
    put_member(out, "serial", own->serial);
    put_member(out, "fingerprint", own->fingerprint);
    put_member(out, "certificate", e->paths[MP_TLS_CERTIFICATE]);
    put_member(out, "client_ca", e->paths[MP_TLS_CLIENT_CA]);
    mp_buf_put(out, MP_STR(",\"names\":["));
    for (char **name = own->sans; name != NULL && *name != NULL; name++) {
        if (name != own->sans)
            mp_buf_putc(out, ',');
        mp_json_put_string(out, mp_str_of(*name));
    }
    mp_buf_put(out, MP_STR("]}"));
    mp_tls_peer_free(own);
    mp_tls_unref(tls);
}

void mp_certificates_describe_all(mp_certificates *all, mp_buf *out)
{
    mp_buf_putc(out, '[');
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        if (i > 0)
            mp_buf_putc(out, ',');
        put_certificate(out, &all->entries[i]);
    }
    pthread_mutex_unlock(&all->lock);
    mp_buf_putc(out, ']');
}

void mp_certificates_put_metrics(mp_certificates *all, mp_buf *out)
{
    static const char *const names[] = {"moonpool_certificate_expiry_timestamp_seconds", "moonpool_certificate_ok"};
    static const char *const texts[] = {"when a listener's certificate expires",
                                        "0: the latest files of a listener's certificate are refused"};
    MP_LOCKED(&all->lock);
    for (int k = 0; k < 2; k++) {
        mp_metrics_put_head(out, names[k], "", "gauge", texts[k]);
        for (size_t i = 0; i < all->count; i++) {
            mp_buf_printf(out, "%s{address=\"", names[k]);
            mp_metrics_put_label(out, mp_str_of(all->entries[i].address));
            mp_buf_printf(out, "\"} %lld\n",
                          (long long)(k == 0 ? all->entries[i].expires : all->entries[i].refused_at == 0));
        }
    }
}
