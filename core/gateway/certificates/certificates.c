#include "certificates.h"
#include "folder.h"
#include "json/json.h"
#include <limits.h>
#include <sys/inotify.h>
#include <unistd.h>

#define QUIET_MS 100       /* wait after the last change: a certificate and its key are two files */
#define MAX_SETTLE_MS 1000 /* longest wait after the first change, even if files keep changing */
/* poll interval for changes that inotify does not report: network file systems, distant symbolic links, more
 * subfolders of tls.folder than are watched */
#define LOOK_MS 10000
#define AGE_MS 86400000 /* contexts are renewed after this time, and with them the keys of session tickets */
#define IN_FOLDER                                                                                                      \
    (IN_CLOSE_WRITE | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

typedef struct {
    char *address;
    char *MP_NULLABLE node_name; /* as in mp_tls_files */
    bool client_optional;
    mp_tls_slot *slot;
    mp_certificate_files files;                /* with a folder only those of client certificates */
    mp_certificate_folder *MP_NULLABLE folder; /* NULL: the files have the only certificate */
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
    char **paths = e->files.paths;
    /* taken before reading: a file that is saved during the read counts as another change */
    mp_certificate_files_sign(&e->files, e->files.tried);
    if (e->folder != NULL) {
        const mp_tls_files of_clients = {"", "", paths[MP_TLS_CLIENT_CA], e->client_optional, NULL};
        return mp_tls_by_name(&of_clients, mp_certificate_folder_names(e->folder), findings);
    }
    const mp_tls_files files = {MP_NEVER_NULL(paths[MP_TLS_CERTIFICATE]), MP_NEVER_NULL(paths[MP_TLS_KEY]),
                                paths[MP_TLS_CLIENT_CA], e->client_optional, e->node_name};
    return mp_tls_load(&files, findings);
}

static mp_certificate_owner owner_of(mp_certificates *all, const entry *e)
{
    return (mp_certificate_owner){&all->lock, e->address};
}

static int add_entry(mp_certificates *all, const mp_config *config, const mp_config_tls *tls, const char *address,
                     mp_certificate_beat beat, mp_buf *report)
{
    entry *e = &all->entries[all->count++];
    mp_tls_findings findings;
    *e = (entry){.address = mp_dup(mp_str_of(address)), .client_optional = tls->client == MP_CLIENT_OPTIONAL};
    mp_certificate_owner owner = owner_of(all, e);
    e->files.made_at = mp_monotonic_ms();
    e->files.is_ok = true;
    e->files.paths[MP_TLS_CERTIFICATE] = mp_dup_text(tls->certificate);
    e->files.paths[MP_TLS_KEY] = mp_dup_text(tls->key);
    e->files.paths[MP_TLS_CLIENT_CA] = mp_dup_text(tls->client_ca);
    e->node_name = tls == &config->cluster_tls ? mp_dup_text(config->cluster_tls_name) : NULL;
    if (tls->folder != NULL && (e->folder = mp_certificate_folder_new(config, tls, &owner, beat, report)) == NULL)
        return -1;
    mp_tls *first = load_entry(e, &findings);
    put_findings(config, tls, &findings, report);
    if (first == NULL)
        return -1;
    e->files.expires = mp_tls_expires(first);
    e->slot = mp_tls_slot_new(first);
    return 0;
}

mp_certificates *MP_NULLABLE mp_certificates_new(const mp_config *config, bool listens, mp_certificate_beat beat,
                                                 mp_buf *report)
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
            failed |= add_entry(all, config, tls, config->listen[i], beat, report);
    }
    const mp_config_tls *nodes_tls = listens && config->cluster_tls.certificate != NULL ? &config->cluster_tls : NULL;
    all->of_nodes = nodes_tls == NULL ? SIZE_MAX : all->count;
    if (nodes_tls != NULL)
        failed |= add_entry(all, config, nodes_tls, MP_NEVER_NULL(config->cluster_listen), beat, report);
    const mp_config_tls *admin_tls = mp_config_admin_tls(config);
    const char *admin = config->admin_listen;
    if (listens && admin != NULL && admin_tls != NULL) {
        all->has_admin = true;
        failed |= add_entry(all, config, admin_tls, admin, beat, report);
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
        mp_certificate_folder_free(all->entries[i].folder);
        mp_certificate_files_clear(&all->entries[i].files);
        free(all->entries[i].address);
        free(all->entries[i].node_name);
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
    mp_file_signature files[3];
    unsigned char keys[MP_TLS_TICKET_KEYS];
} handed_keys;

/* Fills all but the keys. */
static void describe_keys(const entry *e, handed_keys *it)
{
    memset(it, 0, sizeof *it);
    snprintf(it->address, sizeof it->address, "%s", e->address);
    it->made_at = e->files.made_at;
    it->client_optional = e->client_optional;
    memcpy(it->files, e->files.tried, sizeof it->files);
}

bool mp_certificates_hand(const mp_certificates *all, size_t i, mp_buf *out)
{
    handed_keys it;
    if (i >= all->count)
        return false;
    const entry *e = &all->entries[i];
    mp_tls *tls = mp_tls_slot_get(e->slot);
    describe_keys(e, &it);
    if (e->files.is_ok && mp_tls_get_ticket_keys(tls, it.keys))
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
    e->files.made_at = it->made_at;
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
    for (size_t i = 0; all->fd >= 0 && i < all->count; i++) {
        if (all->entries[i].folder != NULL)
            mp_certificate_folder_watch(all->entries[i].folder, all->fd, IN_FOLDER);
        for (int k = 0; k < 3; k++) {
            const char *path = all->entries[i].files.paths[k];
            if (path == NULL)
                continue;
            watch_folder_of(all, path);
            if (realpath(path, real) != NULL)
                watch_folder_of(all, real);
        }
    }
}

void mp_certificates_watch(mp_certificates *all)
{
    if (all->count == 0)
        return;
    mp_certificates_run(all); /* handles files that were saved since the certificates were read */
}

void mp_certificates_now(mp_certificates *all)
{
    atomic_store(&all->is_asked, true);
}

static bool is_busy(const mp_certificates *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->entries[i].folder != NULL && mp_certificate_folder_is_busy(all->entries[i].folder))
            return true;
    return false;
}

static uint64_t due_at(const mp_certificates *all)
{
    uint64_t due = all->look_at;
    if (all->first_at != 0) {
        uint64_t quiet = all->last_at + QUIET_MS, patience = all->first_at + MAX_SETTLE_MS;
        due = quiet < patience ? quiet : patience;
    }
    for (size_t i = 0; i < all->count; i++) {
        const entry *e = &all->entries[i];
        uint64_t failed_at = e->folder == NULL ? e->files.failed_at : mp_certificate_folder_failed_at(e->folder);
        if (failed_at != 0 && failed_at + MP_CERTIFICATE_GRACE_MS < due)
            due = failed_at + MP_CERTIFICATE_GRACE_MS;
    }
    return is_busy(all) ? 0 : due;
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

static void try_entry(mp_certificates *all, entry *e, mp_certificate_need need)
{
    mp_tls_findings findings;
    mp_tls *tls = load_entry(e, &findings);
    mp_certificate_owner owner = owner_of(all, e);
    mp_certificate_files_settle(&e->files, &owner, need, tls != NULL, tls == NULL ? 0 : mp_tls_expires(tls), &findings);
    if (tls != NULL)
        mp_tls_slot_set(e->slot, tls);
}

static void look_at_files(mp_certificates *all, bool is_asked)
{
    uint64_t now = mp_monotonic_ms();
    watch_all(all); /* before the folders are listed and the files read, so that later changes are reported or seen */
    for (size_t i = 0; i < all->count; i++) {
        mp_certificate_folder *folder = all->entries[i].folder;
        if (folder == NULL)
            continue;
        mp_certificate_folder_begin(folder, is_asked);
        if (all->fd >= 0)
            mp_certificate_folder_watch(folder, all->fd, IN_FOLDER); /* its new subfolders */
    }
    for (size_t i = 0; i < all->count; i++) {
        entry *e = &all->entries[i];
        mp_file_signature files[3];
        mp_certificate_files_sign(&e->files, files);
        mp_certificate_need need = mp_certificate_files_need(&e->files, files, is_asked);
        need.was_served = true;
        if (need.is_needed || now >= e->files.made_at + AGE_MS)
            try_entry(all, e, need);
    }
    all->look_at = now + LOOK_MS;
}

static void step_folders(mp_certificates *all)
{
    for (size_t i = 0; i < all->count; i++) {
        entry *e = &all->entries[i];
        if (e->folder == NULL || !mp_certificate_folder_is_busy(e->folder) || !mp_certificate_folder_step(e->folder))
            continue;
        mp_tls *old = mp_tls_slot_get(e->slot);
        mp_tls_slot_set(e->slot, mp_tls_with_names(old, mp_certificate_folder_names(e->folder)));
        mp_tls_unref(old);
    }
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
    step_folders(all);
    if (is_busy(all)) /* what is asked for, or has changed, is looked at when the round is over */
        return;
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

/* What is most urgent in a folder: the reason of a refusal, and the pair that expires first. The caller has the lock.
 */
static void put_folder(mp_buf *out, const entry *e, const mp_certificate_folder *folder)
{
    mp_certificate_shown shown[MP_CERTIFICATE_SHOWN];
    size_t served, refused, count = mp_certificate_folder_show(folder, true, shown);
    const mp_certificate_shown *soon = NULL;
    mp_certificate_folder_count(folder, &served, &refused);
    for (size_t i = 0; i < count; i++)
        if (shown[i].served != NULL && (soon == NULL || shown[i].files->expires < soon->files->expires))
            soon = &shown[i];
    mp_certificate_files whole = soon == NULL ? (mp_certificate_files){.is_ok = true} : *soon->files;
    if (e->files.refused_at != 0) {
        whole.refused_at = e->files.refused_at;
        whole.why = e->files.why;
    } else if (refused > 0) {
        whole.refused_at = shown[0].files->refused_at;
        whole.why = shown[0].files->why;
    } else
        whole.refused_at = 0;
    whole.is_ok = refused == 0 && e->files.is_ok;
    if (soon != NULL)
        put_member(out, "name", soon->name);
    mp_certificate_files_put(&whole, out);
    mp_buf_printf(out, ",\"served\":%zu,\"refused\":%zu", served, refused);
}

void mp_certificates_describe(mp_certificates *all, mp_buf *out)
{
    mp_buf_putc(out, '[');
    MP_LOCKED(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        const entry *e = &all->entries[i];
        mp_buf_printf(out, "%s{\"address\":", i == 0 ? "" : ",");
        mp_json_put_string(out, mp_str_of(e->address));
        const mp_certificate_folder *MP_NULLABLE folder = e->folder;
        if (folder != NULL)
            put_folder(out, e, folder);
        else
            mp_certificate_files_put(&e->files, out);
        mp_buf_putc(out, '}');
    }
    mp_buf_putc(out, ']');
}

/* The caller has the lock. `name`: of a pair of a folder. Frees `own`. */
static void put_certificate(mp_buf *out, const entry *e, const char *MP_NULLABLE name,
                            const mp_certificate_files *files, mp_tls_peer *own)
{
    if (out->ptr[out->len - 1] != '[')
        mp_buf_putc(out, ',');
    mp_buf_put(out, MP_STR("{\"address\":"));
    mp_json_put_string(out, mp_str_of(e->address));
    put_member(out, "name", name);
    mp_certificate_files_put(files, out);
    put_member(out, "subject", own->subject);
    put_member(out, "issuer", own->issuer);
    put_member(out, "serial", own->serial);
    put_member(out, "fingerprint", own->fingerprint);
    put_member(out, "certificate", files->paths[MP_TLS_CERTIFICATE]);
    put_member(out, "client_ca", e->files.paths[MP_TLS_CLIENT_CA]);
    mp_buf_put(out, MP_STR(",\"names\":["));
    for (char **san = own->sans; san != NULL && *san != NULL; san++) {
        if (san != own->sans)
            mp_buf_putc(out, ',');
        mp_json_put_string(out, mp_str_of(*san));
    }
    mp_buf_put(out, MP_STR("]}"));
    mp_tls_peer_free(own);
}

void mp_certificates_describe_all(mp_certificates *all, mp_buf *out)
{
    mp_certificate_shown shown[MP_CERTIFICATE_SHOWN];
    mp_buf_putc(out, '[');
    MP_LOCKED(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        const entry *e = &all->entries[i];
        if (e->folder == NULL) {
            mp_tls *tls = mp_tls_slot_get(e->slot);
            put_certificate(out, e, NULL, &e->files, mp_tls_own(tls));
            mp_tls_unref(tls);
            continue;
        }
        size_t count = mp_certificate_folder_show(e->folder, true, shown);
        for (size_t k = 0; k < count; k++)
            put_certificate(out, e, shown[k].name, shown[k].files, mp_tls_pair_own(shown[k].served));
    }
    mp_buf_putc(out, ']');
}

static void put_sample(mp_buf *out, const char *name, const entry *e, const char *MP_NULLABLE of, int64_t value)
{
    mp_buf_printf(out, "%s{address=\"", name);
    mp_metrics_put_label(out, mp_str_of(e->address));
    if (of != NULL) {
        mp_buf_put(out, MP_STR("\",name=\""));
        mp_metrics_put_label(out, mp_str_of(of));
    }
    mp_buf_printf(out, "\"} %lld\n", (long long)value);
}

void mp_certificates_put_metrics(mp_certificates *all, mp_buf *out)
{
    static const char expiry[] = "moonpool_certificate_expiry_timestamp_seconds", ok[] = "moonpool_certificate_ok";
    mp_certificate_shown shown[MP_CERTIFICATE_SHOWN];
    MP_LOCKED(&all->lock);
    mp_metrics_put_head(out, expiry, "", "gauge", "when a listener's certificate expires");
    for (size_t i = 0; i < all->count; i++) {
        const entry *e = &all->entries[i];
        size_t count = e->folder == NULL ? 0 : mp_certificate_folder_show(e->folder, false, shown);
        if (e->folder == NULL)
            put_sample(out, expiry, e, NULL, e->files.expires);
        for (size_t k = 0; k < count; k++)
            put_sample(out, expiry, e, shown[k].name, shown[k].files->expires);
    }
    mp_metrics_put_head(out, ok, "", "gauge", "0: the latest files of a listener's certificate are refused");
    for (size_t i = 0; i < all->count; i++) {
        const entry *e = &all->entries[i];
        size_t served, refused = 0;
        if (e->folder != NULL)
            mp_certificate_folder_count(e->folder, &served, &refused);
        put_sample(out, ok, e, NULL, e->files.refused_at == 0 && refused == 0);
    }
}
