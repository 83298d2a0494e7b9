/* lib.h: everything that scripts can call, and the generation of scripts that a worker serves. The libraries join the
 * engine (vm) with the MCP server (rpc). Nothing above this module knows what a lua_State is. */
#ifndef MP_LIB_H
#define MP_LIB_H

#include "data/data.h"
#include "lib/grant.h"
#include "lib/upstream_entry.h"
#include "rpc/call.h"
#include "rpc/session.h"
#include "vm/vm.h"

#define MP_REGEX_VERSION 64
void mp_regex_version(char text[MP_REGEX_VERSION]); /* of the PCRE2 that is loaded */

/* The section `cluster`: gateways that share a server of Redis. */
typedef struct {
    const char *MP_NULLABLE name; /* all keys in the server begin with it, as mp:NAME:; NULL: there is no such server */
    enum { MP_AWAY_LOCAL, MP_AWAY_REFUSE, MP_AWAY_ALLOW } limits, quotas; /* what policies do while Redis is away */
    const char *MP_NULLABLE url, *MP_NULLABLE password, *MP_NULLABLE node_name; /* NULL: the host's */
    char **MP_NULLABLE sentinels; /* "host:port"; the host in `url` is their name of the primary; NULL: none */
    uint64_t timeout_ms;          /* of one command */
    bool listens;                 /* requests of sessions may reach any node: cluster.listen */
} mp_cluster_config;

extern const char *const mp_sign_in_providers[]; /* `provider` is the number of one */
typedef struct {
    enum { MP_SIGN_IN_OFF, MP_SIGN_IN_PASSWORD /* and further ones */ } provider;
    unsigned refuses_documents; /* clients that are known by the URL of a document are not taken */
    char *MP_NULLABLE passwords, *MP_NULLABLE issuer, *MP_NULLABLE client, *MP_NULLABLE secret, **MP_NULLABLE ask;
    char *MP_NULLABLE authorize_url, *MP_NULLABLE token_url, *MP_NULLABLE user_url, **MP_NULLABLE scopes;
    char **MP_NULLABLE users, **MP_NULLABLE emails, **MP_NULLABLE groups, **MP_NULLABLE roles, **MP_NULLABLE tenants;
    uint64_t access_ms, refresh_ms, idle_ms, unchecked_ms; /* how long tokens and sign-ins are valid */
} mp_sign_in_config;                                       /* the section `sign_in` */

typedef struct {
    const char *server_name, *server_version, *MP_NULLABLE instructions; /* serverInfo; instructions may be NULL */
    const char *MP_NULLABLE public_url,
        *MP_NULLABLE prefix, *MP_NULLABLE mcp, *MP_NULLABLE sse; /* the addresses that clients use; each may be NULL */
    mp_vm_limits vm;
    uint64_t task_ms;                    /* longest time limit of a background task */
    uint64_t call_ms;                    /* time limit of a call */
    size_t stream_queue;                 /* limit of the bytes queued for one event stream */
    size_t list_page;                    /* bytes of the entries on one page of a list */
    uint64_t http_time_ms, exec_time_ms; /* default time limits of an outgoing HTTP request, and of a program */
    size_t http_body;                    /* bytes of the body of an answer to an outgoing HTTP request */
    const char *MP_NULLABLE config_name, *MP_NULLABLE config_text; /* of moonpool.yaml; NULL: there is none */
    const mp_grant *allow,
        /* the grants of all scripts; the grants of some scripts: an array that ends with a NULL path, or NULL */
        *MP_NULLABLE grants;
    const char *folder; /* folder that relative paths of grants and scripts start from */
    mp_database_limits sqlite;
    /* how much of the arguments audit lines contain: "none", "names", "redacted", "full"; NULL: no audit */
    const char *MP_NULLABLE audit;
    /* where requests carry the trace: hosts of http.*, "upstreams"; ends with NULL. NULL: none */
    const char *const *MP_NULLABLE propagate;
    bool trust_full;       /* scripts can use the whole standard library of Lua */
    bool is_auth_disabled; /* `auth: none`: auth scripts load, but do not run */
    bool is_exposed;       /* other machines can reach a listener, perhaps through a proxy */
    bool has_specs;        /* loads the specs among the scripts, and can run them */
    bool is_confined;      /* a replay for scripts that have the whole standard library otherwise */
    bool is_replay;        /* runs recorded calls alone, and reaches nothing outside (lua/moonpool/replay) */
    bool is_apart;         /* serves one command of the workbench: no job of scripts begins by itself */
    const mp_seal_key
        *seal_keys; /* the first key encrypts, every key decrypts; the array ends with a key that is not set */
    const mp_upstream_entry *const
        *MP_NULLABLE upstream_entries; /* in the order of the file; ends with NULL. NULL: none */
    mp_upstream_limits upstream_limits;
    mp_cluster_config cluster;
    mp_sign_in_config sign_in;
    const char *MP_NULLABLE upstream_lock, *MP_NULLABLE upstream_lock_path; /* the approved definitions, a line each */
    mp_store *store; /* store, bus, semaphores and upstream_table outlive the VM; the VM copies all other fields */
    mp_bus *bus;
    mp_semaphores *semaphores;
    mp_upstreams *upstream_table;
} mp_lib_config;

/* Loads the library and every script. On failure returns NULL and appends every error to `report`, as text for a
 * person. */
mp_vm *MP_NULLABLE mp_lib_new(mp_source *source, const mp_lib_config *config, mp_buf *report);
/* Like mp_lib_new. If only scripts have errors without which the others may serve (tools, resources, prompts, jobs;
 * libraries where no script guards), appends the paths of these scripts to `broken`, each with a NUL. `broken` may be
 * NULL. */
mp_vm *MP_NULLABLE mp_lib_try(mp_source *source, const mp_lib_config *config, mp_buf *report,
                              mp_buf *MP_NULLABLE broken);
void mp_lib_free(mp_vm *MP_NULLABLE vm);
/* The process ends: ends every task. Their `<close>` handlers run, but may not wait, and each one that is left at
 * `until` (ms of the monotonic clock) is ended at its first instruction. Any thread may call it once the VM's loop has
 * ended; mp_lib_free() follows. */
void mp_lib_unwind(mp_vm *vm, uint64_t until);
/* Detaches the VM from its loop, on the loop's thread, once no task of the VM is left. Any thread may call
 * mp_lib_free() afterwards. */
void mp_lib_detach(mp_vm *vm);
/* Attaches the VM to `loop`: from then on only the loop's thread may use the VM. The VM publishes through `rpc`, sends
 * HTTP requests through `client` and calls upstreams through `upstreams`; all outlive the VM. */
void mp_lib_attach(mp_vm *vm, mp_loop *loop, mp_rpc *rpc, mp_client *client, mp_upstream_host *upstreams);
/* The hooks of a worker's rpc. Their `ctx` is the VM. */
extern const mp_rpc_hooks mp_lib_hooks;
/* The marks of the request that the task on this thread serves (mark.h). For mp_mark_set_source(). */
void mp_lib_running_marks(mp_marks *marks);
/* Writes the work of the task on this thread: the marks of the request, its method, the tool or prompt, the line of
 * Lua. For mp_crash_set_work(). */
void mp_lib_put_work(void);
/* Resumes the tasks that are ready. Called at the end of a turn only. True if the VM has more to do at once. */
bool mp_lib_turn(void *vm);
/* Whether scheduled jobs of this process start; initially they do. Of several processes of a gateway one starts them.
 * Any thread. */
void mp_lib_allow_schedules(bool are_allowed);
/* Appends a summary of the tools, resources and prompts of the VM, for mp_lib_difference() of the next generation. */
void mp_lib_summary(mp_vm *vm, mp_buf *out);
/* Compares `before`, the summary of another VM, with this VM. `files` has the changed paths, one per line. Appends the
 * differences for a person ("+ refund  ~ search (schema)  - old_tool") to `plan`, and the names of the lists that
 * changed for clients ("tools prompts") to `lists`. */
void mp_lib_difference(mp_vm *vm, mp_str before, mp_str files, mp_buf *plan, mp_buf *lists);
/* Appends a JSON array: the scheduled jobs of the process, when each began last and begins next, and how it ended. Any
 * thread. */
void mp_lib_put_jobs(mp_buf *out, bool is_joined); /* is_joined: with the runs in other processes of the gateway */
/* The jobs of this process as a text for another process, which merges it: of each job the later run counts. Any
 * thread. */
void mp_lib_put_jobs_text(mp_buf *out);
void mp_lib_take_jobs(mp_str text);
/* Other processes are about to say again which jobs run there. */
void mp_lib_forget_jobs_elsewhere(void);
/* Stops the VM's scheduled jobs: the process drains. */
void mp_lib_drain(mp_vm *vm);
/* Stops the VM's scheduled jobs, because the VM of a newer generation runs them, and delivers the bus message
 * "retired". */
void mp_lib_retire(mp_vm *vm);
/* True if auth scripts authenticate the requests. */
bool mp_lib_has_auth(const mp_vm *vm);
/* True if there are auth scripts, even if `auth: none` disables them. */
bool mp_lib_has_auth_scripts(const mp_vm *vm);
/* True if auth scripts authenticate the requests, and clients are told of an issuer of tokens. */
bool mp_lib_has_issuer(const mp_vm *vm);
/* Ends a VM that was replaced: cancels all its tasks. The calls are answered with an error that names the reload. */
void mp_lib_end(mp_vm *vm);
/* Appends a description of the tools, resources and prompts to `out`. `form`: "list" (one line each), "whole" (as
 * clients see them) or "json" (the definitions). Appends warnings about them to `doubts`. */
void mp_lib_describe(mp_vm *vm, const char *form, mp_buf *out, mp_buf *doubts);

/* -- the workbench --------------------------------------------------------------------------------------------- */

typedef struct {
    const char *MP_NULLABLE name; /* name of the option; NULL: a word that belongs to no option */
    const char *value;
} mp_workbench_argument;

/* Functions of modules above this one that commands call. */
typedef struct {
    /* Adds entries to `upstreams:` in the configuration file; `names` ends with NULL. With `out` writes no file but
     * appends the new text. Returns -1 and a report for people on failure. */
    int (*add_upstreams)(const char *path, mp_str entries, const char *const *names, mp_buf *out, mp_buf *report);
    /* Appends the names of the upstreams in the file, each with a line break; nothing if it cannot be read. */
    void (*put_upstreams)(const char *path, mp_buf *out);
    /* Replaces a file as a whole. Returns -1 and a report for people on failure. */
    int (*replace_file)(const char *path, mp_str text, mp_buf *report);
} mp_workbench_tools;

/* Runs a command of lua/moonpool/workbench in a Lua state of its own. Returns the exit code. */
int mp_workbench_run(const char *command, const mp_workbench_argument *arguments, size_t count,
                     const mp_workbench_tools *tools);

extern const mp_stat mp_stat_fs_bytes; /* declared in fs.c */

#endif
