/* tls.c: checks the keys of one `tls` section together. */
#include "read.h"

static const mp_yaml_node *seen(const mp_config_reader *r, const char *path, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s%s", path, *name == '\0' ? "" : ".", name);
    return r->seen[mp_config_key_at(whole) - mp_config_keys];
}

/* Checks a section with `folder`, or with keys that go with it; false: it has none of them. */
static bool end_folder(mp_config_reader *r, mp_config_tls *tls, const mp_yaml_node *section)
{
    const mp_yaml_node *folder = seen(r, "listen.tls", "folder");
    mp_err err;
    if (folder == NULL && tls->first == NULL && tls->unknown == MP_UNKNOWN_SERVED)
        return false;
    if (folder == NULL || seen(r, "listen.tls", "certificate") != NULL || seen(r, "listen.tls", "key") != NULL) {
        mp_err_set(&err, folder == NULL ? "'default' and 'unknown' need 'folder', the folder of the certificates"
                                        : "'folder' is instead of 'certificate' and 'key'");
        mp_err_hint(&err, "as in '{folder: /etc/moonpool/tls, default: mcp.example.com}'");
        mp_yaml_error(&r->yaml, section->at, &err);
    } else if (tls->first != NULL && tls->unknown == MP_UNKNOWN_REFUSED) {
        mp_err_set(&err, "'default' serves unknown names, and 'unknown: refuse' does not");
        mp_yaml_error(&r->yaml, section->at, &err);
    }
    if (folder != NULL)
        tls->at_folder = folder->at;
    return true;
}

void mp_config_end_tls(mp_config_reader *r, const char *path, mp_config_tls *tls)
{
    bool is_of_nodes = strcmp(path, "cluster.tls") == 0;
    const char *const names[] = {"certificate", "key", is_of_nodes ? "ca" : "client_ca"};
    const mp_yaml_node *section = seen(r, path, ""), *client = is_of_nodes ? NULL : seen(r, path, "client");
    bool is_whole = true;
    mp_err err;
    for (int i = 0; i < 3; i++) {
        const mp_yaml_node *node = seen(r, path, names[i]);
        is_whole = is_whole && (node != NULL || (i == 2 && !is_of_nodes));
        if (node != NULL)
            tls->at[i] = node->at;
    }
    if (section == NULL)
        return;
    if (strcmp(path, "listen.tls") == 0 && end_folder(r, tls, section))
        is_whole = true;
    if (section->kind == MP_YAML_MAP && !is_whole && is_of_nodes) {
        mp_err_set(&err, "'%s' needs 'certificate', 'key' and 'ca'", path);
        mp_err_hint(&err, "as in '{certificate: node.pem, key: node.key, ca: cluster-ca.pem}'");
        mp_yaml_error(&r->yaml, section->at, &err);
    } else if (section->kind == MP_YAML_MAP && !is_whole) {
        mp_err_set(&err, "'%s' needs 'certificate' and 'key'", path);
        mp_err_hint(&err, strcmp(path, "listen.tls") == 0
                              ? "as in '{certificate: cert.pem, key: key.pem}', or 'folder' for several pairs"
                              : "as in '{certificate: cert.pem, key: key.pem}'; one file may contain both");
        mp_yaml_error(&r->yaml, section->at, &err);
    } else if (client != NULL && seen(r, path, "client_ca") == NULL) {
        mp_err_set(&err, "'client' needs 'client_ca', the authority that signs client certificates");
        mp_yaml_error(&r->yaml, client->at, &err);
    }
}

static const mp_config_tls *MP_NULLABLE if_any(const mp_config_tls *tls)
{
    return tls->certificate == NULL && tls->folder == NULL ? NULL : tls;
}

const mp_config_tls *MP_NULLABLE mp_config_tls_of(const mp_config *config, size_t index)
{
    return config->listen_tls == NULL ? NULL : if_any(&config->listen_tls[index]);
}

bool mp_config_http2_of(const mp_config *config, size_t index)
{
    return config->listen_tls != NULL && config->listen_tls[index].http2 == MP_HTTP2_ON;
}

const mp_config_tls *MP_NULLABLE mp_config_admin_tls(const mp_config *config)
{
    return if_any(&config->admin_tls);
}
