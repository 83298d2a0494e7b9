/* script.h: Lua. The only room with lua.h; above it nobody knows what a lua_State is.
 *
 *   source   the bytes of every script file, read once, shared by all workers
 *   vm       a lua_State made from one source, owned by one worker
 *   task     a coroutine that runs one handler; waits for at most one op
 *   op       what a task waits for; can always be called off
 *   store    texts by key, shared by all workers
 *   gates    how many tasks may do the same at once, of all workers */
#ifndef MP_SCRIPT_H
#define MP_SCRIPT_H

#include "grant.h"
#include "rpc/rpc.h"

typedef struct mp_source mp_source;
typedef struct mp_vm mp_vm;
typedef struct mp_store mp_store;
typedef struct mp_hearers mp_hearers;
typedef struct mp_gates mp_gates;

/* Reads the *.lua files of `dir` and the folders below it. Names beginning with '.', ending in '~', or not ending in ".lua" are skipped.
 * A missing `dir` is an error; an empty one is not. At most 10,000 files, 1 MiB each, 64 MiB in all. */
mp_source *mp_source_read(const char *dir, mp_err *err);
mp_source *mp_source_ref(mp_source *source); /* any thread */
void mp_source_unref(mp_source *source);
/* Whether both hold the same; else appends the paths of the files that differ, a line each. */
bool mp_source_is_same(const mp_source *one, const mp_source *other, mp_buf *paths);

/* Seals what clients carry for us (cursors, requestState). */
typedef struct {
    bool is_set;
    unsigned char id[4], bytes[32];
} mp_seal_key;

#define MP_SEAL_KEYS 8

/* At most so many entries, and bytes in their keys and texts. */
mp_store *mp_store_new(int64_t entries, size_t bytes);
/* Other limits; what is above them stays. Any thread. */
void mp_store_limit(mp_store *store, int64_t entries, size_t bytes);
/* Before anybody uses it: reads what the file holds, and keeps there what scripts store from now on. On -1 only mp_store_free
 * is left. NULL: it stays in memory. */
int mp_store_keep(mp_store *store, const char *path, mp_err *err);
/* Writes what is not in the file yet. */
void mp_store_free(mp_store *store);

/* The VMs of a process, which tell each other things. */
mp_hearers *mp_hearers_new(void);
void mp_hearers_free(mp_hearers *hearers);

/* At most so many wait at each. */
mp_gates *mp_gates_new(int64_t most_waiting);
void mp_gates_free(mp_gates *gates);

/* From a secret of the operator's; a random one when it is empty, which then no other process and no restart knows. */
void mp_seal_key_make(mp_seal_key *key, mp_str secret);

typedef struct {
    const char *server_name, *server_version, *instructions; /* serverInfo; instructions may be NULL */
    const char *public_url, *prefix, *mcp, *sse;             /* where clients find it; each may be NULL */
    size_t memory;                                           /* bytes one VM may hold */
    uint64_t task_ms;                                        /* the longest a background task lasts */
    uint64_t call_ms;                                        /* what a call may take */
    size_t call_memory;                                      /* bytes one call may add to that */
    size_t call_output;             /* bytes of JSON that one result may have, or one message */
    uint64_t call_cpu_ms;           /* a call may run Lua for so long */
    uint64_t http_time_ms;          /* what a request may take unless it says otherwise */
    size_t http_body;               /* bytes of an answer's body, at most */
    const mp_grant *allow, *grants; /* what all may touch; the others, ended by one without a path, or NULL */
    const char *folder;             /* where relative paths of grants and scripts begin */
    size_t fs_file, fs_held, exec_output;
    int64_t exec_processes;
    uint64_t exec_time_ms, exec_grace_ms;
    int64_t sqlite_databases, sqlite_queue;
    int64_t sqlite_rows; /* these two of one result */
    size_t sqlite_bytes;
    uint64_t sqlite_busy_ms; /* how long a statement waits for others to unlock */
    const char
        *audit; /* what audit lines tell of arguments: "none", "names", "redacted", "full"; NULL: nothing is audited */
    bool trust_full;              /* scripts get the whole standard library */
    bool asks_nobody;             /* auth scripts are there for nothing */
    bool has_specs;               /* runs the specs among the scripts, when asked to */
    const mp_seal_key *seal_keys; /* the first seals, all open; an unset one ends them */
    mp_store *store;              /* these three outlive the VM, all else is copied */
    mp_hearers *hearers;
    mp_gates *gates;
} mp_vm_config;

/* Loads the library and every script. On failure gives NULL and appends every error, one after another as a person reads
 * them, to `report`. */
mp_vm *mp_vm_new(mp_source *source, const mp_vm_config *config, mp_buf *report);
void mp_vm_free(mp_vm *vm);
/* On its thread: nothing runs in it, and nothing will; any thread may free it then. */
void mp_vm_detach(mp_vm *vm);
/* Gives the VM to the thread of `loop`; nothing of it may be used elsewhere from now on. It publishes by `rpc` and sends its
 * requests by the loop's `client`, which outlive it. */
void mp_vm_attach(mp_vm *vm, mp_loop *loop, mp_rpc *rpc, mp_client *client);
/* The hooks of a worker's rpc; their ctx is the vm. */
extern const mp_rpc_hooks mp_vm_hooks;
/* Resumes what is ready. Bottom of the turn only. True when it did something or has more to do. */
bool mp_vm_turn(void *vm);
/* What is served, as a text for mp_vm_difference of the VM that comes after it. */
void mp_vm_summary(mp_vm *vm, mp_buf *out);
/* From `before`, a summary, to this VM; `files` are the paths that differ, a line each. Appends what people read ("+ refund
 * ~ search (schema)  - old_tool") to `plan`, and the lists that changed for clients ("tools prompts") to `lists`. */
void mp_vm_difference(mp_vm *vm, mp_str before, mp_str files, mp_buf *plan, mp_buf *lists);
/* Another takes over: what it would begin by itself is the other's. */
void mp_vm_retire(mp_vm *vm);
/* Whether scripts decide who comes in. */
bool mp_vm_has_auth(const mp_vm *vm);
/* Whether there are such, asked or not. */
bool mp_vm_has_auth_scripts(const mp_vm *vm);
/* Its time is over: calls off all that runs in it, with an error that says so. */
void mp_vm_end(mp_vm *vm);
/* Whether no call and no background task is in it. */
bool mp_vm_is_idle(const mp_vm *vm);
/* This VM alone hears `text` under `topic`, as if another had told it. On its thread. */
void mp_vm_hear_of(mp_vm *vm, mp_str topic, mp_str text);
/* Appends what is served, for people: "list" a line each, "whole" as clients see it, "json" the definitions. What is doubtful
 * about it, in a form of any error, goes to `doubts`. */
void mp_vm_describe(mp_vm *vm, const char *form, mp_buf *out, mp_buf *doubts);

/* -- the workbench --------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* NULL: a word that is no option's value */
    const char *value;
} mp_bench_argument;

/* Runs a command of lua/moonpool/workbench, in a state of its own. Gives the exit code. */
int mp_bench_run(const char *command, const mp_bench_argument *arguments, size_t count);

#endif
