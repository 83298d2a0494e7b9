/* config.h: moonpool.yaml, read, checked and turned into values that the house uses as they are.
 *
 *   key      one setting: where it stands, what it may hold, what it means; a row of `mp_config_keys`
 *   section  a key that holds keys
 *   bare     the child that a section's plain scalar sets: `scripts: tools` is `scripts: {path: tools}`
 *   shown    a value as the file has it, before ${…}: the only form that messages may repeat */
#ifndef MP_GATEWAY_CONFIG_H
#define MP_GATEWAY_CONFIG_H

#include "base/base.h"
#include "script/script.h"
#include "yaml.h"

typedef enum { MP_TRUST_STRICT, MP_TRUST_FULL } mp_trust;
typedef enum { MP_WATCH_TRUE, MP_WATCH_FALSE } mp_watches;
typedef enum { MP_AUTH_SCRIPTS, MP_AUTH_NONE } mp_auth_mode;
typedef enum { MP_EXPIRED_END, MP_EXPIRED_KEEP } mp_expired_streams;
typedef enum { MP_CLIENT_REQUIRED, MP_CLIENT_OPTIONAL } mp_client_need;

/* What an address says of TLS; without a certificate it has none. The marks are where the paths stand, by mp_tls_file. */
typedef struct {
    char *certificate, *key, *client_ca; /* client_ca: NULL, nobody shows a certificate */
    mp_client_need client;
    mp_yaml_mark at[3];
} mp_config_tls;
typedef enum { MP_AUDIT_NONE, MP_AUDIT_NAMES, MP_AUDIT_REDACTED, MP_AUDIT_FULL } mp_audit_arguments;

/* Times are milliseconds, sizes bytes, lists end with NULL. All memory is the config's own. */
typedef struct {
    char **listen;
    mp_config_tls *listen_tls; /* as many as listen has; NULL: no TLS at all */
    int64_t workers;           /* `auto` is resolved: the processors this process may use */
    char *scripts_path;        /* relative paths start at the folder of the config file */
    mp_watches scripts_watch;
    uint64_t scripts_drain;
    int64_t scripts_generations;
    mp_trust scripts_trust;
    mp_grant allow;                                        /* what all scripts may touch; its path stays NULL */
    mp_grant *grants;                                      /* NULL, or ended by one without a path */
    char *folder;                                          /* where the file lies: relative paths begin there */
    char *endpoint_mcp, *endpoint_sse, *endpoint_messages; /* NULL: off; sse and messages only together */
    char *endpoint_prefix;                                 /* NULL: none */
    char **hosts;                                          /* lower case, without port; "*" allows all */
    mp_auth_mode auth_mode;
    mp_expired_streams expired_streams;
    char **origins;                          /* of CORS; NULL: none */
    char *public_url;                        /* scheme and host; NULL: as requests say */
    char *server_name, *server_instructions; /* instructions may be NULL */
    uint64_t session_idle, session_initialize_within;
    int64_t sessions_max, sessions_per_principal;
    int64_t replay_events; /* 0: off */
    size_t replay_bytes, replay_total;
    size_t body, headers;
    uint64_t handshake, request_time, call_time, call_cpu, auth_time;
    int64_t auth_waiting;
    int64_t call_waiting, calls_in_flight, connections, listeners, subscriptions;
    size_t stream_queue;
    uint64_t stall, dead_peer;
    size_t lua_memory; /* of one worker */
    size_t call_memory;
    size_t call_output;
    int64_t http_requests, http_lookups, http_per_host; /* of one worker */
    size_t http_body, http_held;
    uint64_t http_time, http_idle;
    int64_t sqlite_databases, sqlite_queue; /* databases of one worker */
    int64_t sqlite_rows;
    size_t sqlite_bytes;
    uint64_t sqlite_busy;
    char *http_ca; /* NULL: the system's */
    int64_t pool_threads, pool_queue;
    size_t fs_file, fs_held;
    int64_t exec_processes; /* of one worker */
    size_t exec_output;
    uint64_t exec_time, exec_grace;
    uint64_t drain, heartbeat;
    int64_t tasks_max;
    uint64_t tasks_ttl;
    int64_t store_entries;
    size_t store_bytes;
    char *store_file;   /* NULL: in memory alone */
    char *admin_listen; /* NULL: off */
    mp_config_tls admin_tls;
    char **seal_keys; /* empty: one made at start */
    mp_log_level log_level;
    char *audit; /* NULL: none */
    mp_audit_arguments audit_arguments;
    char *name, *text; /* of the file, for what is found out later */
} mp_config;

/* NULL on failure. `report` then has every mistake, one after another, as a person reads them. */
mp_config *mp_config_load(const char *path, mp_buf *report);
/* The same from memory; `name` is the file's path, for messages and for relative paths. */
mp_config *mp_config_parse(mp_str text, const char *name, mp_buf *report);
void mp_config_free(mp_config *config);
/* Sets a key from the command line; more than one value only where the key is a list. -1 and a report that names `option`. */
int mp_config_override(mp_config *config, const char *path, const char *const *values, size_t count, const char *option,
                       mp_buf *report);

/* -- another one (config_change.c) --------------------------------------------------------------------------------- */

/* Appends all values, in a form that is the same for the same values. */
void mp_config_put_all(mp_buf *out, const mp_config *config);
/* Appends the paths of the keys that differ, "hosts, log.level": of those that need a restart, or of the others. */
void mp_config_compare(const mp_config *before, const mp_config *after, bool restarts, mp_buf *names);
/* Keys that need a restart get the values they have in `from`. */
void mp_config_carry(mp_config *to, const mp_config *from);

/* -- the table ------------------------------------------------------------------------------------------------- */

/* A LIST may have keys below it: then its items may be maps of them, and those keys' slots are offsets in an item.
 *
 * What a key's slot in mp_config is: TEXT and PATH `char *`, LIST `char **`, TIME `uint64_t`, SIZE `size_t`, COUNT `int64_t`,
 * CHOICE an enum, GRANTS `mp_grant *`. A SECTION has none. */
typedef enum {
    MP_KEY_SECTION,
    MP_KEY_TEXT,
    MP_KEY_PATH,
    MP_KEY_LIST,
    MP_KEY_TIME,
    MP_KEY_SIZE,
    MP_KEY_COUNT,
    MP_KEY_CHOICE,
    MP_KEY_GRANTS
} mp_key_type;

typedef struct {
    const char *path; /* "sessions.idle"; a section stands before its keys */
    mp_key_type type;
    size_t slot;                         /* offset in mp_config */
    const char *preset;                  /* the default as one would write it; lists: "a, b"; NULL: none */
    int64_t least, most;                 /* of the number; of the bytes of a text */
    const char *const *choices;          /* CHOICE: NULL-terminated, in the order of the enum */
    const char *word;                    /* stands for 0 or NULL: "auto", "off" */
    const char *bare;                    /* SECTION, LIST: path of the key that a scalar, or a scalar item, sets */
    size_t item_slot, item_size;         /* LIST with keys: where in mp_config an array beside the list has the rest */
    int (*check)(mp_str text, mp_err *); /* of a text, or of each item */
    const char *form;                    /* what `check` accepts, for people */
    const char *pattern;                 /* and for the JSON Schema */
    bool restarts; /* another value waits for a restart; of all other keys the next reload takes it */
    const char *doc;
} mp_config_key;

extern const mp_config_key mp_config_keys[];
extern const size_t mp_config_key_count;

/* The last name of a path: "idle" of "sessions.idle". */
const char *mp_config_key_name(const mp_config_key *key);
/* NULL when there is no such key below `section` (NULL: at the top). */
const mp_config_key *mp_config_key_find(const mp_config_key *section, mp_str name);
/* The key at `path`, which exists. */
const mp_config_key *mp_config_key_at(const char *path);
/* The list whose items have this key; NULL: none. */
const mp_config_key *mp_config_key_list(const mp_config_key *key);
/* Whether `key` stands directly below `section` (NULL: at the top). */
bool mp_config_key_is_in(const mp_config_key *key, const mp_config_key *section);

/* -- values (config_value.c) ----------------------------------------------------------------------------------- */

typedef struct {
    mp_str text;   /* after ${…} */
    mp_str shown;  /* before */
    bool is_plain; /* not quoted: null, true and numbers are what YAML's core schema says they are */
    bool is_expanded;
} mp_config_value;

/* Reads one value into the key's slot in `into`, the config or an item of a list; what was there is freed. -1 leaves the slot
 * as it was. Not for sections and lists. */
int mp_config_set(void *into, const mp_config_key *key, const mp_config_value *value, const char *folder, mp_err *err);
/* Whether a text, or an item of a list, may stand in `key`. */
int mp_config_check_text(const mp_config_key *key, const mp_config_value *value, mp_err *err);
/* The items of a list; on -1 `*bad` is the index of the wrong one, or `count` when it is the list itself. */
int mp_config_set_list(char ***slot, const mp_config_key *key, const mp_config_value *items, size_t count, size_t *bad,
                       mp_err *err);
char ***mp_config_list_of(mp_config *config, const mp_config_key *key);
void mp_config_free_list(char **list);
void mp_config_free_grants(mp_grant *grants);
void mp_config_set_preset(mp_config *config, const mp_config_key *key, const char *folder);
void mp_config_unset(void *from, const mp_config_key *key);
/* What the items of a list say beside their scalar: `count` of them, or none and NULL. */
void mp_config_set_items(mp_config *config, const mp_config_key *list, void *items);
/* "1 to 64", "100ms to 30d", "1KiB to 1GiB"; in a buffer of the caller's. */
const char *mp_config_range(const mp_config_key *key, char *room, size_t size);
/* `path` as seen from `folder`; the caller's. */
char *mp_config_join(const char *folder, mp_str path);

/* What a row's `check` may be (config_check.c, config_net.c). */
int mp_config_check_address(mp_str text, mp_err *err);
int mp_config_check_endpoint(mp_str text, mp_err *err);
int mp_config_check_host(mp_str text, mp_err *err);
int mp_config_check_variable(mp_str text, mp_err *err);
int mp_config_check_origin(mp_str text, mp_err *err); /* https://host:port */
int mp_config_check_origin_or_all(mp_str text, mp_err *err);
int mp_config_check_net(mp_str text, mp_err *err);
/* Port 0: two listeners that say so get two ports. */
bool mp_config_is_any_port(mp_str address);

/* -- TLS (config_tls.c) ---------------------------------------------------------------------------------------- */

/* The TLS of the address at `index` of `listen`; NULL when it has none. */
const mp_config_tls *mp_config_tls_of(const mp_config *config, size_t index);
const mp_config_tls *mp_config_admin_tls(const mp_config *config);

/* -- telling people -------------------------------------------------------------------------------------------- */

void mp_config_print_help(mp_buf *out);   /* `moonpool config` */
void mp_config_print_man(mp_buf *out);    /* the key list of moonpool.yaml(5), as scdoc */
void mp_config_print_schema(mp_buf *out); /* draft-07, for editors */

/* The name that `word` was probably meant to be, or NULL. */
const char *mp_nearest(mp_str word, const char *const *names, size_t count);

#endif
