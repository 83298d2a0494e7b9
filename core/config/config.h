/* config.h: moonpool.yaml, read, checked and converted to values.
 *
 *   key      one setting: its path, type, range and description; a row of `mp_config_keys`
 *   section  a key that contains keys
 *   bare     the child that a section's plain scalar sets: `scripts: tools` is `scripts: {path: tools}`
 *   shown    a value as written in the file, before ${…} is expanded; messages may quote only this form */
#ifndef MP_CONFIG_CONFIG_H
#define MP_CONFIG_CONFIG_H

#include "telemetry/telemetry.h"
#include "lib/lib.h"
#include "rpc/observe.h"
#include "yaml.h"

typedef enum { MP_TRUST_STRICT, MP_TRUST_FULL } mp_trust;
typedef enum { MP_WATCH_TRUE, MP_WATCH_FALSE } mp_fdwatches;
typedef enum { MP_BROKEN_LAST_GOOD, MP_BROKEN_LEAVE_OUT, MP_BROKEN_REFUSE } mp_broken_scripts;
typedef enum { MP_AUTH_SCRIPTS, MP_AUTH_NONE } mp_auth_mode;
typedef enum { MP_EXPIRED_END, MP_EXPIRED_KEEP } mp_expired_streams;
typedef enum { MP_CLIENT_REQUIRED, MP_CLIENT_OPTIONAL } mp_client_need;

typedef enum { MP_HTTP2_OFF, MP_HTTP2_ON } mp_config_http2;
typedef enum { MP_PROXY_PROTOCOL_OFF, MP_PROXY_PROTOCOL_ON } mp_config_proxy_protocol;
typedef enum { MP_RELOAD_CHECK_OFF, MP_RELOAD_CHECK_WARN, MP_RELOAD_CHECK_REFUSE } mp_reload_check;
typedef enum { MP_METRICS_OFF, MP_METRICS_ON } mp_config_metrics;

/* The section `traces`. */
typedef struct {
    char *MP_NULLABLE otlp;                                /* NULL: no call is recorded */
    mp_pair *MP_NULLABLE headers, *MP_NULLABLE attributes; /* NULL: none */
    char *ratio;                                           /* as in the file: "0.05" */
    enum { MP_TAKES_ERRORS_FALSE, MP_TAKES_ERRORS_TRUE } takes_errors;
    uint64_t slower_ms; /* 0: off */
    enum { MP_PARENTS_ACCEPTED, MP_PARENTS_REFUSED } refuses_parents;
    char **propagate; /* hosts, and "upstreams" */
    enum { MP_ADDRESSES_SHOWN, MP_ADDRESSES_HIDDEN } addresses;
} mp_config_traces;

#define MP_ADMIN_TOKEN_ROLES 3 /* metrics, view, operate */

/* The TLS settings, the protocols and the proxies of one address; with neither certificate nor folder it has no TLS.
 * The marks are the places of the paths in the file, indexed by mp_tls_file. */
typedef struct {
    char *certificate, *key, *MP_NULLABLE client_ca; /* client_ca NULL: client certificates are not requested */
    char *MP_NULLABLE folder, *MP_NULLABLE first;    /* many certificates; the name of the one for other names */
    enum { MP_UNKNOWN_SERVED, MP_UNKNOWN_REFUSED } unknown;
    mp_client_need client;
    mp_config_http2 http2;
    mp_config_proxy_protocol proxy_protocol;
    char **MP_NULLABLE trusted_proxies; /* NULL: none */
    mp_yaml_mark at[3], at_folder;
} mp_config_tls;
typedef enum { MP_AUDIT_NONE, MP_AUDIT_NAMES, MP_AUDIT_REDACTED, MP_AUDIT_FULL } mp_audit_arguments;

/* Times are in milliseconds, sizes in bytes, lists end with NULL. The config owns all memory. A key that one module
 * obeys fills that module's own structure; a value that several modules take, or none takes as it is, is a member
 * here. */
typedef struct {
    mp_http_limits http;
    mp_client_limits client;
    mp_rpc_config rpc;
    mp_lib_config lib;
    char **listen;
    mp_config_tls *MP_NULLABLE listen_tls; /* parallel to `listen`; NULL: all addresses have the presets */
    int64_t workers;                       /* `auto` is resolved to the number of processors this process may use */
    char *scripts_path;                    /* relative paths start at the folder of the config file */
    char *MP_NULLABLE scripts_rocks;       /* a LuaRocks tree; NULL: none */
    mp_fdwatches scripts_watch;
    uint64_t scripts_drain;
    mp_reload_check reload_check;
    mp_trust scripts_trust;
    mp_broken_scripts scripts_broken; /* what a start does with files that have errors */
    mp_grant allow;                   /* grants for all scripts; its path is NULL */
    /* NULL, or an array that ends with an element without a path */
    mp_grant *MP_NULLABLE grants;
    /* the folder of the config file, where relative paths start */
    char *folder;
    char *MP_NULLABLE endpoint_mcp, *MP_NULLABLE endpoint_sse,
                                        /* paths; NULL: the endpoint is off; sse and messages are both on or both off */
                                        *MP_NULLABLE endpoint_messages;
    char *MP_NULLABLE endpoint_prefix; /* NULL: none */
    char **hosts;                      /* host names without port: see mp_hosts_have */
    mp_auth_mode auth_mode;
    mp_expired_streams expired_streams;
    char **MP_NULLABLE origins;   /* CORS origins; NULL: none */
    char *MP_NULLABLE public_url; /* scheme and host; NULL: taken from each request */
    uint64_t drain, linger, cluster_leave;
    int64_t store_entries;
    size_t store_bytes;
    char *MP_NULLABLE store_file; /* NULL: in memory only */
    enum { MP_SESSIONS_KEPT, MP_SESSIONS_FORGOTTEN } forgets_sessions;
    char *MP_NULLABLE admin_listen; /* NULL: off */
    char **MP_NULLABLE admin_hosts; /* more names for Host and Origin; NULL: none */
    char *admin_mode;               /* permissions of a Unix socket's file, as "0660" */
    char *MP_NULLABLE admin_group;  /* group of a Unix socket's file; NULL: that of the process */
    mp_pair *MP_NULLABLE admin_tokens[MP_ADMIN_TOKEN_ROLES];          /* names and tokens, by role; NULL: none */
    mp_pair *MP_NULLABLE admin_certificates;                          /* patterns of subjects, and roles; NULL: none */
    mp_config_tls admin_tls, cluster_tls;                             /* client_ca of the second: that of nodes */
    mp_tap_arguments admin_tap;                                       /* the most that a tap shows of arguments */
    char *MP_NULLABLE cluster_listen, *MP_NULLABLE cluster_advertise; /* for other nodes; NULL: none */
    char *MP_NULLABLE cluster_tls_name;
    char **seal_keys;                          /* empty: a random key is made at the start of the process */
    mp_upstream_entry **MP_NULLABLE upstreams; /* in the order of the file; ends with NULL. NULL: none */
    mp_upstream_limits upstream_limits;
    char *upstream_lock;    /* path of the approved definitions */
    char *MP_NULLABLE lock; /* the approved definitions, as lock.c gives them to Lua; NULL: there is no such file */
    mp_config_metrics metrics_enabled;
    mp_record_limits record;
    char *MP_NULLABLE record_file; /* NULL: none */
    mp_config_traces traces;
    mp_log_level log_level;
    mp_log_format log_format;
    char *audit_sample;         /* a ratio, as in the file */
    char *MP_NULLABLE audit;    /* path of the audit file; NULL: none */
    char *MP_NULLABLE log_file; /* path of the log's file; NULL: stderr */
    mp_audit_arguments audit_arguments;
    char *name, *text;                         /* place in the configuration file, for errors that are found later */
    struct mp_config_shown *MP_NULLABLE shown; /* by key, as shown.c keeps it; NULL: the file sets nothing */
    mp_buf warnings; /* doubts of the loader, as text for people; each ends with a line break */
} mp_config;

/* Returns NULL on failure; `report` then lists every error as text for people. */
mp_config *MP_NULLABLE mp_config_load(const char *path, mp_buf *report);
/* Parses a configuration from memory. `name` is the file's path, used in messages and to resolve relative paths. */
mp_config *MP_NULLABLE mp_config_parse(mp_str text, const char *name, mp_buf *report);
/* Parses a configuration without expanding ${…}: values that contain it are left out. For checks of a file's
 * structure. */
mp_config *MP_NULLABLE mp_config_parse_unexpanded(mp_str text, const char *name, mp_buf *report);
int mp_config_read_file(const char *path, mp_buf *text); /* Appends the file's text. On -1 errno says why. */
void mp_config_free(mp_config *MP_NULLABLE config);
/* Reads the file of `upstream_lock` if there is one. On -1 `report` says why it cannot be used. */
int mp_config_read_lock(mp_config *config, mp_buf *report);

/* -- editing (edit.c) --------------------------------------------------------------------------------------- */

/* Adds entries at the end of `upstreams:` in `text`, which is the configuration file `name`, and appends the new text
 * to `out`. All other bytes stay as they are. `entries` is the YAML of the entries, not indented; `names` are those of
 * the entries that are not comments, in order, and end with NULL. On -1 `report` says why nothing can be added; the
 * text is then unchanged. */
int mp_config_add_upstreams(mp_str text, const char *name, mp_str entries, const char *const *names, mp_buf *out,
                            mp_buf *report);
/* mp_config_add_upstreams for the file at `path`, which is made if there is none. The file is replaced as a whole and
 * keeps its mode. */
int mp_config_add_upstreams_to_file(const char *path, mp_str entries, const char *const *names, mp_buf *report);
/* Writes a file beside `path`, which may not exist yet, and puts it in its place: readers see all of it or nothing. */
int mp_config_replace_file(const char *path, mp_str text, mp_buf *report);
/* Sets a key from the command line; more than one value is allowed only for a list. On failure returns -1 and a
 * report that names `option`. */
int mp_config_override(mp_config *config, const char *path, const char *const *values, size_t count, const char *option,
                       mp_buf *report);

/* -- comparing configurations (change.c) -------------------------------------------------------------------- */

/* Appends all values in a canonical form: equal configurations give equal text. */
void mp_config_put_all(mp_buf *out, const mp_config *config);
/* Appends the paths of the keys that differ, as in "hosts, log.level". `restarts` selects the keys that need a
 * restart, or the others. */
void mp_config_compare(const mp_config *before, const mp_config *after, bool restarts, mp_buf *names);
/* Appends the upstreams that differ, as in "+ files  ~ github (auth, timeout)  - old". */
void mp_config_compare_upstreams(const mp_config *before, const mp_config *after, mp_buf *plan);
/* True if both have the same approved definitions of upstreams. */
bool mp_config_has_lock_of(const mp_config *config, const mp_config *other);
/* Copies the values of the keys that need a restart from `from` to `to`. */
void mp_config_carry(mp_config *to, const mp_config *from);

/* -- the table of keys --------------------------------------------------------------------------------------------- */

/* A LIST may have keys below it: then its items may be maps of these keys, whose slots are offsets in an item.
 *
 * A MAP contains sections whose names the operator chooses. It has one SECTION below it, NAME, with the keys of each
 * entry; their slots are offsets in an entry.
 *
 * The type of a key's slot: TEXT and PATH `char *` or `const char *`, LIST `char **`, TIME `uint64_t`, TIMES
 * two `uint64_t`, SIZE `size_t`, COUNT `int64_t`, CHOICE an enum, PAIRS `mp_pair *`, GRANTS `mp_grant *`, MAP
 * `mp_upstream_entry **`. A SECTION has no slot. */
typedef enum {
    MP_KEY_SECTION,
    MP_KEY_TEXT,
    MP_KEY_PATH,
    MP_KEY_LIST,
    MP_KEY_PAIRS, /* a map of names to texts */
    MP_KEY_TIME,
    MP_KEY_TIMES, /* a time, or the shortest and the longest: 1s..60s */
    MP_KEY_SIZE,
    MP_KEY_COUNT,
    MP_KEY_CHOICE,
    MP_KEY_GRANTS,
    MP_KEY_MAP
} mp_jwk_type;

typedef struct {
    const char *path; /* "sessions.idle"; a section precedes its keys in the table */
    mp_jwk_type type;
    size_t slot;                    /* offset in mp_config, or in the module's structure that is a member of it */
    const char *MP_NULLABLE preset; /* the default as written in YAML; lists: "a, b"; NULL: none */
    int64_t least, most;            /* range of the number, or of the length of a text in bytes */
    const char *const *choices;     /* CHOICE: in the order of the enum; ends with NULL */
    const char *MP_NULLABLE word;   /* a word that means 0 or NULL: "auto", "off" */
    const char *MP_NULLABLE bare;   /* SECTION, LIST: path of the key that a plain scalar, or a plain item, sets */
    /* LIST with keys: offset in mp_config of the array of items, and the size of one */
    size_t item_slot, item_size;
    int (*MP_NULLABLE check)(mp_str text, mp_err *); /* checks a text, each item of a list, or each value of PAIRS */
    int (*MP_NULLABLE check_name)(mp_str text, mp_err *); /* PAIRS: checks each name */
    bool is_number;                                       /* TEXT: of a number, which YAML writes without quotes */
    bool may_repeat;                 /* LIST: items may be equal, and there may be numbers among them */
    const char *MP_NULLABLE form;    /* a noun for the texts that `check` accepts, for messages */
    const char *MP_NULLABLE pattern; /* a regular expression for the texts that `check` accepts, for the JSON Schema */
    bool restarts; /* a changed value takes effect at a restart; other keys take effect at the next reload */
    const char *doc;
} mp_config_key;

extern const mp_config_key mp_config_keys[];
extern const size_t mp_config_key_count;

/* The last component of the path: "idle" of "sessions.idle". */
const char *mp_config_key_name(const mp_config_key *key);
/* Returns NULL if there is no such key below `section` (NULL: at the top level). */
const mp_config_key *MP_NULLABLE mp_config_key_find(const mp_config_key *MP_NULLABLE section, mp_str name);
/* The key at `path`, which must exist. */
const mp_config_key *mp_config_key_at(const char *path);
/* The list or map whose items contain this key; NULL: none. */
const mp_config_key *MP_NULLABLE mp_config_key_list(const mp_config_key *key);
/* True if `key` is directly below `section` (NULL: at the top level). */
bool mp_config_key_is_in(const mp_config_key *key, const mp_config_key *MP_NULLABLE section);

/* -- values (value.c) ----------------------------------------------------------------------------------- */

typedef struct {
    mp_str text;   /* value after ${…} is expanded */
    mp_str shown;  /* value as written in the file */
    bool is_plain; /* not quoted: null, true and numbers have their types of YAML's core schema */
    bool is_expanded;
} mp_config_value;

/* Parses one value into the key's slot in `into`, which is the config or an item of a list, and frees the old value.
 * On -1 the slot is unchanged. Not for sections and lists. */
int mp_config_set(void *into, const mp_config_key *key, const mp_config_value *value, const char *folder, mp_err *err);
/* Checks a text, or an item of a list, against the rules of `key`. */
int mp_config_check_text(const mp_config_key *key, const mp_config_value *value, mp_err *err);
/* Sets the items of a list. On -1 `*bad` is the index of the wrong item, or `count` if the list itself is wrong. */
int mp_config_set_list(char ***slot, const mp_config_key *key, const mp_config_value *items, size_t count, size_t *bad,
                       mp_err *err);
/* The slot of a list in `in`, which is the config or an item. */
char ***mp_config_list_of(void *in, const mp_config_key *key);
/* `into` is the config, or an entry of a map. */
void mp_config_set_preset(void *into, const mp_config_key *key, const char *folder);
void mp_config_unset(void *from, const mp_config_key *key);
/* Sets the array of a list's items that are maps; `items` has one element per item of the list, or is NULL. */
void mp_config_set_items(mp_config *config, const mp_config_key *list, void *MP_NULLABLE items);
/* Writes "1 to 64", "100ms to 30d" or "1KiB to 1GiB" to `room` and returns it. */
const char *mp_config_range(const mp_config_key *key, char *room, size_t size);
/* Resolves `path` relative to `folder`. The caller frees the result. */
char *mp_config_join(const char *folder, mp_str path);

/* The `check` functions of rows (check.c, net.c, upstream_check.c). */
int mp_config_check_address(mp_str text, mp_err *err);
int mp_config_check_endpoint(mp_str text, mp_err *err);
int mp_config_check_host(mp_str text, mp_err *err);
int mp_config_check_variable(mp_str text, mp_err *err);
int mp_config_check_store_keys(mp_str text, mp_err *err);
int mp_config_check_origin(mp_str text, mp_err *err); /* https://host:port */
int mp_config_check_origin_or_all(mp_str text, mp_err *err);
int mp_config_check_net(mp_str text, mp_err *err);
int mp_config_check_upstream(mp_str text, mp_err *err); /* the name of an upstream */
int mp_config_check_admin_token(mp_str text, mp_err *err);
int mp_config_check_admin_role(mp_str text, mp_err *err);
int mp_config_check_mode(mp_str text, mp_err *err); /* permissions of a file, in octal */
int mp_config_check_url(mp_str text, mp_err *err);
int mp_config_check_bearer(mp_str text, mp_err *err);
int mp_config_check_basic(mp_str text, mp_err *err);
int mp_config_check_collector(mp_str text, mp_err *err);    /* the URL of an OTLP collector */
int mp_config_check_propagate(mp_str text, mp_err *err);    /* "upstreams", "*", a host, or "*." and a domain */
int mp_config_check_ratio(mp_str text, mp_err *err);        /* a number from 0 to 1 */
int mp_config_check_header_token(mp_str text, mp_err *err); /* any header but content-type, content-length */
int mp_config_check_issuer(mp_str text, mp_err *err);
int mp_config_check_resource(mp_str text, mp_err *err);
int mp_config_check_scope(mp_str text, mp_err *err);
int mp_config_check_header(mp_str text, mp_err *err);   /* the name of a header that the operator sets */
int mp_config_check_question(mp_str text, mp_err *err); /* a word of `asks` */
int mp_config_check_pass(mp_str text, mp_err *err);     /* the name of a client's header that is sent on */
int mp_config_check_header_value(mp_str text, mp_err *err);
int mp_config_check_env(mp_str text, mp_err *err); /* the name of a program's variable */
int mp_config_check_served_name(mp_str text, mp_err *err);
int mp_config_check_prefix(mp_str text, mp_err *err);
/* True if the text looks like a password, a key or a token: known forms of tokens, or `name=value` with such a name. */
bool mp_config_is_secret(mp_str text);
/* True if a variable or option of this name has a secret as its value. */
bool mp_config_names_secret(mp_str name);
/* True for port 0: each listener with port 0 gets a port of its own. */
bool mp_config_is_any_port(mp_str address);
/* `far`: the address of the admin listener, which other machines can reach. -1 and `err` if it has no credentials. */
int mp_config_check_admin_at(const mp_config *config, const char *far, mp_err *err);

/* -- TLS (tls.c) ---------------------------------------------------------------------------------------- */

/* The TLS settings of the address at `index` of `listen`; NULL: no TLS. */
const mp_config_tls *MP_NULLABLE mp_config_tls_of(const mp_config *config, size_t index);
/* True if clients may use HTTP/2 at an address of `listen`. */
bool mp_config_http2_of(const mp_config *config, size_t index);
const mp_config_tls *MP_NULLABLE mp_config_admin_tls(const mp_config *config);

/* -- proxies in front (proxies.c) --------------------------------------------------------------------------- */

/* The trusted proxies of an address of `listen`, ending with NULL; NULL: none. */
char *const *MP_NULLABLE mp_config_proxies_of(const mp_config *config, size_t index);
/* True if connections to an address of `listen` begin with a PROXY header. */
bool mp_config_has_proxy_header(const mp_config *config, size_t index);

/* -- what operators see (shown.c) --------------------------------------------------------------------------- */

/* Appends a JSON object: each key with its value, source, default and description. Secrets, and what has ${…}, are
 * "***". */
void mp_config_put_shown(mp_buf *out, const mp_config *config);
/* The value of a key in the file, as JSON without secrets; NULL if the file does not set it. */
const char *MP_NULLABLE mp_config_shown(const mp_config *config, const mp_config_key *key);
/* `option` of the command line, a literal, has set the key. */
void mp_config_keep_option(mp_config *config, const mp_config_key *key, const char *const *values, size_t count,
                           const char *option);
/* The file's value of the key takes effect at a restart. */
void mp_config_keep_pending(mp_config *config, const mp_config_key *key);
void mp_config_free_shown(mp_config *config);

/* -- output for people --------------------------------------------------------------------------------------------- */

void mp_config_print_help(mp_buf *out);   /* `moonpool config` */
void mp_config_print_man(mp_buf *out);    /* the list of keys in moonpool.yaml(5), in scdoc format */
void mp_config_print_schema(mp_buf *out); /* JSON Schema draft-07, for editors */

/* The name most similar to `word`, if it is likely that it was meant; else NULL. */
const char *MP_NULLABLE mp_suggest(mp_str word, const char *const *names, size_t count);

/* Appends a warning for each file of the configuration that the gateway makes, and whose folder does not exist. */
void mp_config_put_missing_folders(const mp_config *config, mp_buf *report);
/* Appends a warning where the gateway would answer 403 to clients or operators that use the names which the
 * configuration gives them. */
void mp_config_put_refused_hosts(const mp_config *config, mp_buf *report);
/* Appends a warning where a proxy must be in front and hides the addresses of all clients. */
void mp_config_put_unseen_clients(const mp_config *config, mp_buf *report);
/* For clients with tokens of an issuer: appends a warning where they come by a proxy whose address nothing says. */
void mp_config_put_unknown_scheme(const mp_config *config, mp_buf *report);

#include "open_relay.h" /* these headers use the types above */
#include "passed.h"
#include "runtime_config.h"

#endif
