/* authorities.c: the certificates that a system trusts, for a libcurl that was built on another one. */
#include "authorities.h"
#include <dirent.h>
#include <unistd.h>

static const char *const folders[] = {"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/openssl/certs"};
static const char *const files[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Arch, Alpine, Gentoo */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* their newest releases */
    "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
    "/etc/ssl/cert.pem",
};

/* True if the folder has a certificate whose file is named by the hash of its subject, such as 02265526.0: others are
 * not found in a folder. */
static bool is_hashed(const char *path)
{
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;)
        found = strspn(entry->d_name, "0123456789abcdef") == 8 && strcmp(entry->d_name + 8, ".0") == 0;
    if (folder != NULL)
        closedir(folder);
    return found;
}

mp_authorities mp_find_authorities(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (is_hashed(folders[i]))
            return (mp_authorities){.folder = folders[i]};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (access(files[i], R_OK) == 0)
            return (mp_authorities){.file = files[i]};
    return (mp_authorities){0};
}
