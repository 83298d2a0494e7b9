/* config_read.h: what the files that read moonpool.yaml share. */
#ifndef MP_GATEWAY_CONFIG_READ_H
#define MP_GATEWAY_CONFIG_READ_H

#include "config.h"
#include "yaml.h"

#define MP_CONFIG_KEYS_CAP 160 /* rows of the table, at most */
#define MP_CONFIG_SHOWN 64     /* bytes of a stranger's text that a message repeats */

typedef struct {
    mp_config *config;
    mp_yaml yaml;
    char *folder;
    const mp_yaml_node *seen[MP_CONFIG_KEYS_CAP]; /* where each key was set; those of items: in the latest item */
    void *item;                                   /* what the keys of an item are read into */
} mp_config_reader;

/* What has been read of the `tls` at this path, and where: checked as a whole, and told. */
void mp_config_end_tls(mp_config_reader *r, const char *path, mp_config_tls *tls);
/* A scalar or a list into `*list`, by the rules of `key`; what is wrong is told, and then nothing is set. */
void mp_config_read_list(mp_config_reader *r, const mp_config_key *key, const mp_yaml_node *node, char ***list);
/* The map of scripts.grants into the config. */
void mp_config_read_grants(mp_config_reader *r, const mp_yaml_node *map);

#endif
