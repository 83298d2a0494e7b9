#include "files.h"
#include "json/json.h"
#include <errno.h>
#include <sys/stat.h>

void mp_certificate_files_clear(mp_certificate_files *files)
{
    for (int i = 0; i < 3; i++)
        free(files->paths[i]);
    free(files->why);
}

void mp_certificate_files_sign(const mp_certificate_files *files, mp_file_signature now[3])
{
    memset(now, 0, 3 * sizeof *now);
    for (int i = 0; i < 3; i++) {
        struct stat info;
        const char *path = files->paths[i];
        if (path == NULL)
            continue;
        if (stat(path, &info) != 0) {
            int why = errno;
            bool is_absent = (why == ENOENT || why == ENOTDIR) && lstat(path, &info) != 0;
            now[i].size = is_absent ? 0 : -(off_t)why;
            continue;
        }
        now[i].device = info.st_dev;
        now[i].inode = info.st_ino;
        now[i].size = info.st_size;
        now[i].modified = info.st_mtim;
        now[i].changed = info.st_ctim;
    }
}

mp_certificate_need mp_certificate_files_need(const mp_certificate_files *files, const mp_file_signature now[3],
                                              bool is_asked)
{
    uint64_t time = mp_monotonic_ms();
    bool is_change = memcmp(now, files->tried, sizeof files->tried) != 0;
    bool is_late = files->failed_at != 0 && time >= files->failed_at + MP_CERTIFICATE_GRACE_MS;
    return (mp_certificate_need){
        .is_needed = is_change || is_late || files->is_starved || (is_asked && !files->is_ok),
        .is_change = is_change || is_late || files->is_starved,
        .logs_failure = is_asked || is_late,
    };
}

static void log_findings(const char *address, const mp_tls_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        mp_log(findings->all[i].is_warning ? MP_WARN : MP_ERROR,
               findings->all[i].is_warning ? "certificate" : "certificate refused",
               mp_log_str("address", mp_str_of(address)), mp_log_str("why", mp_str_of(findings->all[i].err.text)),
               mp_log_str("hint", mp_str_of(findings->all[i].err.hint)));
}

static void put_day(char room[32], int64_t at)
{
    struct tm parts;
    time_t seconds = (time_t)at;
    strftime(room, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
}

static void keep_result(mp_certificate_files *files, pthread_mutex_t *lock, bool is_ok, int64_t expires)
{
    MP_LOCKED(lock);
    files->is_ok = is_ok;
    if (is_ok) {
        files->expires = expires;
        files->refused_at = 0;
    }
}

void mp_certificate_files_refuse(mp_certificate_files *files, const mp_tls_findings *findings)
{
    size_t i = 0;
    while (i + 1 < findings->count && findings->all[i].is_warning)
        i++;
    free(files->why);
    files->why = mp_dup(mp_str_of(findings->all[i].err.text));
    files->is_ok = false;
    if (files->refused_at == 0)
        files->refused_at = (int64_t)time(NULL);
}

static bool lacked_descriptors(const mp_tls_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++)
        if (strstr(findings->all[i].err.text, strerror(EMFILE)) != NULL ||
            strstr(findings->all[i].err.text, strerror(ENFILE)) != NULL)
            return true;
    return false;
}

static void settle_failure(mp_certificate_files *files, const mp_certificate_owner *owner, mp_certificate_need need,
                           const mp_tls_findings *findings)
{
    keep_result(files, owner->lock, false, 0);
    bool was_starved = files->is_starved;
    files->is_starved = lacked_descriptors(findings);
    files->failed_at = need.logs_failure || (was_starved && files->is_starved) ? 0 : files->made_at;
    if (!need.logs_failure)
        return;
    pthread_mutex_lock(owner->lock);
    mp_certificate_files_refuse(files, findings);
    pthread_mutex_unlock(owner->lock);
    if (need.is_quiet)
        return;
    log_findings(owner->address, findings);
    mp_log(MP_WARN, "certificate not renewed", mp_log_str("address", mp_str_of(owner->address)),
           mp_log_str("why", need.was_served ? MP_STR("its files have errors: the previous certificate stays in use")
                                             : MP_STR("its files have errors: it is not served")));
}

void mp_certificate_files_settle(mp_certificate_files *files, const mp_certificate_owner *owner,
                                 mp_certificate_need need, bool is_served, int64_t expires,
                                 const mp_tls_findings *findings)
{
    char day[32];
    files->made_at = mp_monotonic_ms();
    if (!is_served) {
        settle_failure(files, owner, need, findings);
        return;
    }
    files->failed_at = 0;
    files->is_starved = false;
    keep_result(files, owner->lock, true, expires);
    log_findings(owner->address, findings);
    put_day(day, expires);
    const char *path = files->paths[files->paths[MP_TLS_CERTIFICATE] == NULL ? MP_TLS_CLIENT_CA : MP_TLS_CERTIFICATE];
    mp_log_field until = expires == 0 ? (mp_log_field){NULL, {NULL, 0}, 0} : mp_log_str("expires", mp_str_of(day));
    if (need.is_change && path != NULL)
        mp_log(MP_INFO, "certificate renewed", mp_log_str("address", mp_str_of(owner->address)),
               mp_log_str("certificate", mp_str_of(path)), until);
}

void mp_certificate_files_put(const mp_certificate_files *files, mp_buf *out)
{
    char day[32];
    put_day(day, files->expires);
    if (files->expires != 0)
        mp_buf_printf(out, ",\"expires\":\"%s\"", day);
    mp_buf_printf(out, ",\"ok\":%s", files->is_ok ? "true" : "false");
    const char *why = files->why;
    if (files->refused_at == 0 || why == NULL)
        return;
    put_day(day, files->refused_at);
    mp_buf_printf(out, ",\"at\":\"%s\",\"why\":", day);
    mp_json_put_string(out, mp_str_of(why));
}
