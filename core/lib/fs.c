/* fs.c: file operations of tasks. A thread of the pool runs each operation while the task waits.
 * lua/moonpool/lib/fs.lua checks which paths a script may use. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include <errno.h>
#include <lauxlib.h>

#define MAX_BYTES MP_LIMIT(fs_file, 16 << 20) /* bytes of one read or write */
/* bytes of all reads and writes in progress, in the process: eight of the largest */
#define MAX_HELD MP_LIMIT(fs_held, 128 << 20)
#define FULL "too many bytes are being read and written at once (128 MiB)"

MP_ACCOUNT(fs_bytes, "fs_bytes", "", "", "bytes of file reads and writes in progress")

typedef enum { READ, WRITE, APPEND, LIST, STAT, REMOVE, MKDIR } action;

typedef struct waiting waiting;

/* A file operation. It owns its memory, because the task may be cancelled while a thread of the pool runs the
 * operation. */
typedef struct {
    mp_job super;
    waiting *MP_NULLABLE op; /* the task's wait; NULL once it was cancelled */
    action what;
    char *root, *rest;
    mp_buf bytes;      /* bytes to write, or bytes that were read */
    size_t most, held; /* most bytes to read; bytes of this operation in the account fs_bytes */
    int64_t most_held; /* the value of MAX_HELD */
    mp_file_info info;
    int error;
    bool is_over; /* on_done was called, possibly after the loop ended, when no task can be resumed */
} job;

struct waiting {
    mp_owning_op super;
    job *MP_NULLABLE of; /* the operation, which the wait owns once the operation has ended */
};

/* The operation holds `bytes` from now on. False if there is no room for them in MAX_HELD. */
static bool hold_bytes(void *ctx, size_t bytes)
{
    job *it = ctx;
    return mp_account_hold(&mp_account_fs_bytes, &it->held, bytes, it->most_held);
}

static void job_free(job *it)
{
    hold_bytes(it, 0);
    free(it->root);
    free(it->rest);
    mp_buf_clear(&it->bytes);
    free(it);
}

static int run_action(job *it)
{
    mp_file_room room = {.most = it->most, .may_hold = hold_bytes, .ctx = it};
    switch (it->what) {
    case READ:
        return mp_file_read(it->root, it->rest, &room, &it->bytes);
    case WRITE:
        return mp_file_write(it->root, it->rest, mp_buf_str(&it->bytes));
    case APPEND:
        return mp_file_append(it->root, it->rest, mp_buf_str(&it->bytes));
    case LIST:
        return mp_file_list(it->root, it->rest, &room, &it->bytes);
    case STAT:
        return mp_file_stat(it->root, it->rest, &it->info);
    case REMOVE:
        return mp_file_remove(it->root, it->rest);
    default:
        return mp_file_mkdir(it->root, it->rest);
    }
}

static void on_work(mp_job *super)
{
    job *it = mp_container(super, job, super);
    it->error = run_action(it) == 0 ? 0 : errno;
    if (it->error != 0)
        mp_buf_clear(&it->bytes);
    hold_bytes(it, it->bytes.cap);
}

static void on_done(mp_job *super, mp_loop *MP_NULLABLE loop)
{
    job *it = mp_container(super, job, super);
    waiting *op = it->op;
    it->is_over = true;
    if (op == NULL)
        job_free(it);
    else if (loop != NULL)
        mp_op_done(&op->super.super);
}

static void on_cancel(mp_op *super)
{
    waiting *op = mp_container(super, waiting, super.super);
    job *it = MP_NEVER_NULL(op->of); /* cleared here or with the result: no wait is cancelled after that */
    op->of = NULL;
    it->op = NULL;
    if (it->is_over || mp_pool_take_back(&it->super))
        job_free(it);
}

static void free_job_of(waiting *op)
{
    if (op->of != NULL)
        job_free(op->of);
    op->of = NULL;
}

static void on_release(mp_resource *resource)
{
    free_job_of(mp_container(resource, waiting, super.resource));
}

/* -- results ----------------------------------------------------------------------------------------------------- */

/* Pushes { type, size, modified } of a file.  [-0, +1, throws] */
static void push_info(lua_State *L, const mp_file_info *info)
{
    lua_createtable(L, 0, 3);
    mp_field_text(L, "type", info->kind == 'f' ? "file" : info->kind == 'd' ? "folder" : "other");
    mp_field_integer(L, "size", info->size);
    mp_field_number(L, "modified", info->modified);
}

/* Pushes a list of names; names of folders end in '/'.  [-0, +1, throws] */
static void push_names(lua_State *L, const mp_buf *names)
{
    lua_newtable(L);
    const char *at = names->ptr, *end = at + names->len;
    for (lua_Integer i = 1; at < end; i++, at += strlen(at) + 1) {
        if (*at == 'd')
            lua_pushfstring(L, "%s/", at + 1);
        else
            lua_pushstring(L, at + 1);
        lua_rawseti(L, -2, i);
    }
}

/* (job): pushes the result of the operation.  [-1, +1, throws] */
static int push_result(lua_State *L)
{
    job *it = lua_touserdata(L, 1);
    if (it->what == READ)
        lua_pushlstring(L, it->bytes.ptr == NULL ? "" : it->bytes.ptr, it->bytes.len);
    else if (it->what == LIST)
        push_names(L, &it->bytes);
    else if (it->what == STAT)
        push_info(L, &it->info);
    else
        lua_pushboolean(L, 1);
    return 1;
}

static const char *error_text(int error)
{
    return error == EXDEV     ? "the path leads out of the granted folder"
           : error == EFBIG   ? "the content is larger than 16 MiB"
           : error == ENOENT  ? "there is no such file or folder"
           : error == EINVAL  ? "the path is not a regular file"
           : error == ENODEV  ? "the path is a kernel file, such as those in /proc"
           : error == ENOBUFS ? FULL
                              : strerror(error);
}

static int push_outcome(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    waiting *op = (waiting *)context;
    job *it = MP_NEVER_NULL(op->of); /* on_cancel clears it, and a cancelled wait is not resumed */
    int error = it->error;
    if (error != 0) {
        free_job_of(op);
        lua_pushnil(L);
        lua_pushstring(L, error_text(error));
        lua_pushboolean(L, error == ENOENT || error == ENOTDIR);
        return 3;
    }
    lua_pushcfunction(L, push_result);
    lua_pushlightuserdata(L, it);
    status = lua_pcall(L, 1, 1, 0);
    free_job_of(op);
    return status == LUA_OK ? 1 : lua_error(L);
}

/* fs(what, root, rest[, text]): runs a file operation on the path `rest` below the folder `root`. Its result; or nil,
 * why, and true if the path does not exist. Upvalues: MAX_BYTES, MAX_HELD.  [-0, +1|3, throws, parks] */
static int l_fs(lua_State *L)
{
    static const char *const actions[] = {"read", "write", "append", "list", "stat", "remove", "mkdir", NULL};
    action what = (action)luaL_checkoption(L, 1, NULL, actions);
    mp_str root, rest, text = {0};
    root.ptr = luaL_checklstring(L, 2, &root.len);
    rest.ptr = luaL_checklstring(L, 3, &rest.len);
    text.ptr = luaL_optlstring(L, 4, "", &text.len);
    size_t most = (size_t)lua_tointeger(L, lua_upvalueindex(1));
    int64_t most_held = lua_tointeger(L, lua_upvalueindex(2));
    const char *why = text.len > most ? error_text(EFBIG) : NULL;
    waiting *op = mp_owning_op_new(L, sizeof *op, on_cancel, on_release);
    if (why == NULL) {
        job *it = op->of = mp_new(sizeof *it);
        *it = (job){.super = {.work = on_work, .done = on_done}, .op = op, .what = what, .most = most};
        it->most_held = most_held;
        it->root = mp_dup(root);
        it->rest = mp_dup(rest);
        if (!hold_bytes(it, text.len)) {
            why = FULL;
        } else {
            mp_buf_put(&it->bytes, text);
            if (mp_pool_run(op->super.super.loop, &it->super) == 0)
                return mp_op_park_then(L, &op->super.super, push_outcome, (lua_KContext)op);
            why = "too many operations wait for the thread pool (1,024)";
        }
        free_job_of(op);
    }
    lua_pushnil(L);
    lua_pushstring(L, why);
    lua_pushboolean(L, 0);
    return 3;
}

/* fs.read_at_once(root, rest): reads a file on this thread, which blocks: for `moonpool check`. Its text; or nil, why.
 * Upvalues: MAX_BYTES, MAX_HELD.  [-0, +1|2, throws] */
static int l_read_at_once(lua_State *L)
{
    job it = {.what = READ, .most = (size_t)lua_tointeger(L, lua_upvalueindex(1))};
    it.most_held = lua_tointeger(L, lua_upvalueindex(2));
    mp_file_room room = {.most = it.most, .may_hold = hold_bytes, .ctx = &it};
    if (mp_file_read(luaL_checkstring(L, 1), luaL_checkstring(L, 2), &room, &it.bytes) != 0)
        lua_pushstring(L, error_text(errno));
    hold_bytes(&it, it.bytes.cap);
    bool has_failed = lua_gettop(L) > 2;
    int status = LUA_OK;
    if (has_failed) {
        lua_pushnil(L);
        lua_insert(L, -2);
    } else {
        lua_pushcfunction(L, push_result);
        lua_pushlightuserdata(L, &it);
        status = lua_pcall(L, 1, 1, 0);
    }
    mp_buf_clear(&it.bytes);
    hold_bytes(&it, 0);
    return status != LUA_OK ? lua_error(L) : has_failed ? 2 : 1;
}

MP_SCRIPT_LIBRARY(fs)
{
    (void)config;
    const luaL_Reg functions[] = {{"fs.run", l_fs}, {"fs.read_at_once", l_read_at_once}};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        lua_pushinteger(L, MAX_BYTES);
        lua_pushinteger(L, MAX_HELD);
        lua_pushcclosure(L, functions[i].func, 2);
        mp_set_member(L, -2, functions[i].name);
    }
}
