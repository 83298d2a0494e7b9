/* read.h: shared by the files that read moonpool.yaml. */
#ifndef MP_CONFIG_READ_H
#define MP_CONFIG_READ_H

#include "config.h"
#include "yaml.h"

#define MP_CONFIG_KEYS_CAP 320 /* maximum number of rows in the table */
#define MP_CONFIG_SHOWN 64     /* maximum bytes of the file's text that a message quotes */

typedef struct {
    mp_config *config;
    mp_yaml yaml;
    char *folder;
    const mp_yaml_node *
        seen[MP_CONFIG_KEYS_CAP]; /* nodes that set each key; for keys of a list's items, the node in the latest item */
    bool keeps_variables;         /* values with ${…} are left out, not expanded */
    void *MP_NULLABLE item;       /* the item that keys of items are read into */
} mp_config_reader;

int mp_config_check_cluster(mp_str text, mp_err *err);  /* the name of a cluster */
int mp_config_check_node(mp_str text, mp_err *err);     /* the name of a gateway in it */
int mp_config_check_redis(mp_str text, mp_err *err);    /* the URL of a server of Redis */
int mp_config_check_sentinel(mp_str text, mp_err *err); /* host:port */
int mp_config_check_node_listen(mp_str text, mp_err *err);
int mp_config_check_node_name(mp_str text, mp_err *err);
/* Checks combinations of keys. `*path` gets the key to report, the later one in the table. */
int mp_config_check_whole(const mp_config *config, const char **path, mp_err *err);
/* Checks the keys of each address of `listen` about proxies. `*path` gets the key to report. */
int mp_config_check_proxies(const mp_config *config, const char **path, mp_err *err);
/* Checks the complete `tls` section at this path and reports its errors. */
void mp_config_end_tls(mp_config_reader *r, const char *path, mp_config_tls *tls);
/* Reads a scalar or a list into `*list` by the rules of `key`. Reports errors; then nothing is set. */
void mp_config_read_list(mp_config_reader *r, const mp_config_key *key, const mp_yaml_node *node, char ***list);
/* Reads a map of names to texts into `*pairs`. Reports errors. */
void mp_config_read_pairs(mp_config_reader *r, const mp_config_key *key, const mp_yaml_node *map, mp_pair **pairs);
/* Reads the map `upstreams` into the config. */
void mp_config_read_upstreams(mp_config_reader *r, const mp_config_key *key, const mp_yaml_node *node);
/* Reads the keys of a section; those of an item go to `r->item`. */
void mp_config_read_section(mp_config_reader *r, const mp_config_key *section, const mp_yaml_node *node);
/* Expands a value; `room` owns the text. Returns false and reports the error if that fails. */
bool mp_config_read_value(mp_config_reader *r, const mp_yaml_node *node, mp_buf *room, mp_config_value *value);
/* True if the text has a user of an address, a query, or the key of a known service. */
bool mp_config_has_secret(mp_str text);
/* Keeps the keys that the file sets, for mp_config_put_shown. */
void mp_config_keep_shown(mp_config_reader *r);
/* What holds now, by removed.def, if an earlier version had the key `name` in `section`; else NULL. */
const char *MP_NULLABLE mp_config_hint_of_removed(const mp_config_key *MP_NULLABLE section, mp_str name);
/* Gives `err` the hint about a key that `section`, or the top level (NULL), does not have. */
void mp_config_hint_of_unknown(const mp_config_key *MP_NULLABLE section, mp_str name, mp_err *err);
/* Gives `err` the hint about a section whose value is `text`, or a list (MP_STR_NONE). */
void mp_config_hint_of_section(const mp_config_key *section, mp_str text, mp_err *err);
/* Reads the map of scripts.grants into the config. */
void mp_config_read_grants(mp_config_reader *r, const mp_yaml_node *map);

#endif
